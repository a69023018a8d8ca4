//go:build race

package main

const raced = true // tests run under the race detector
