package main

import (
	"testing"

	"github.com/a7df5faa/cruise/internal/calm"
	"github.com/a7df5faa/cruise/internal/replay"
	"github.com/a7df5faa/cruise/simulation/client"
	"github.com/a7df5faa/cruise/simulation/engine"
	"github.com/a7df5faa/cruise/simulation/scenario"
	"github.com/a7df5faa/cruise/simulation/score"
)

// A server of 300 calls a second stands still for 10 s; meanwhile calls queue up after their
// callers have given up, and clients that retry keep the queue that long for good. With cruise it
// recovers.
func TestMetastableServerRecovers(t *testing.T) {
	if testing.Short() {
		t.Skip("plays for some seconds")
	}
	replay.Alone(t)
	play := func(name string, c engine.Client, runs int) score.Result {
		s, err := scenario.Find(name)
		if err != nil {
			t.Fatal(err)
		}
		return score.Play([]*scenario.Scenario{s}, []engine.Client{c}, score.Seeds(runs), nil, nil)[0]
	}
	const rest = 140. // seconds of a run after the stall
	for _, tt := range []struct {
		name   string
		runs   int
		within float64 // seconds after which most runs must have recovered for good
		use    float64 // least, of all that could be served
	}{
		{"metastable-150", 5, 30, .95}, // most at once, 6 s at most over 60 runs, use .98 to 1.00
		{"metastable-240", 5, 40, .94}, // 9 s the median of 60 runs, use .95 to .98
		{"metastable-280", 25, 60, .7}, // 7 to 112 s over 60 runs, 8.6 s the median, use .83 to .95; plain retries use .3
	} {
		if calm.Raced && tt.name != "metastable-150" {
			continue // takes most of a minute
		}
		r := play(tt.name, client.Cruise("cruise"), tt.runs)
		if got := r.Median.Recovery; got >= tt.within {
			t.Errorf("%s: recovers after %v s, want %v", tt.name, got, tt.within)
		}
		// Each run recovers: else its use were that of plain retries. Its time is no
		// measure of that, since a dip in the last second counts as not recovered yet.
		if got := r.Low.Use; got < tt.use {
			t.Errorf("%s: use %v, want %v", tt.name, got, tt.use)
		}
		if got := r.High.Amplification; got > 1.1 {
			t.Errorf("%s: %v attempts a call, want 1.1", tt.name, got)
		}
	}
	if calm.Raced {
		return
	}
	plain := play("metastable-150", client.Cenkalti(), 1).Median
	if plain.Recovery < rest || plain.Use > .3 {
		t.Errorf("plain retries recover after %v s, use %v: there is nothing to recover from", plain.Recovery, plain.Use)
	}
}
