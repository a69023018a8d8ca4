//go:build race

package calm

// Raced reports whether this is a run of the race detector, under which some tests take
// twenty times as long.
const Raced = true
