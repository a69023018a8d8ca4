// Package tools pins the commands that the checks build.
package tools
