// Package cruise is adaptive cruise control for API calls.
package cruise
