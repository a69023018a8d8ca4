//go:build !race

package main

const raced = false // tests do not run under the race detector
