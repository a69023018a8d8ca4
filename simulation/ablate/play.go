package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/gob"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"time"

	"github.com/a7df5faa/cruise/simulation/board"
	"github.com/a7df5faa/cruise/simulation/client"
	"github.com/a7df5faa/cruise/simulation/engine"
	"github.com/a7df5faa/cruise/simulation/scenario"
	"github.com/a7df5faa/cruise/simulation/score"
)

// settings name the scenarios that each law plays.
type settings struct {
	seeds  int
	random int
	from   uint64
}

// clients returns the law that this program is built with, and the pacer, which shows in which
// random scenarios the limit can be kept.
func clients() []engine.Client { return []engine.Client{client.Cruise("cruise"), client.Pacer()} }

// result is a score.Result on its way from one process to another.
type result struct {
	Scenario string
	Median   score.Score
	Count    count
}

// count is of the requests in all runs of a scenario.
type count struct{ Successes, Throttled int }

// tell plays the law in the suite and the random scenarios, and writes the results for play.
func (s settings) tell(w io.Writer) error {
	counts := map[string]count{} // by scenario
	seen := func(r *engine.Recording) {
		c, total := counts[r.Scenario.Name], r.Totals()
		counts[r.Scenario.Name] = count{c.Successes + total.Successes, c.Throttled + total.Throttled}
	}
	scenarios := slices.Concat(scenario.Suite(), scenario.Randoms(s.from, s.random))
	var out []result
	for _, r := range score.Play(scenarios, clients()[:1], score.Seeds(s.seeds), nil, seen) {
		out = append(out, result{r.Scenario.Name, r.Median, counts[r.Scenario.Name]})
	}
	return gob.NewEncoder(w).Encode(out)
}

// played holds the results of a law.
type played struct {
	board  *board.Board
	counts map[string]count // of the law, by scenario
}

// play runs this program again, built with a change of the law, and joins its results with the
// pacer's. An interrupt ends that run, so that its files go before this program does.
func (s settings) play(law source, c change, pacer []score.Result) (played, error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	dir, err := os.MkdirTemp("", "ablate")
	if err != nil {
		return played{}, err
	}
	defer os.RemoveAll(dir)
	overlay, err := law.overlay(c, dir)
	if err != nil {
		return played{}, err
	}
	again := exec.CommandContext(ctx, "go", "run", "-overlay", overlay, "github.com/a7df5faa/cruise/simulation/ablate", "-child",
		"-seeds", strconv.Itoa(s.seeds), "-random", strconv.Itoa(s.random), "-from", strconv.FormatUint(s.from, 10))
	again.Env = append(os.Environ(), "GOTMPDIR="+dir) // which an interrupt may keep it from clearing
	again.Stderr = os.Stderr
	again.Cancel = func() error { return again.Process.Signal(os.Interrupt) }
	again.WaitDelay = 5 * time.Second
	text, err := again.Output()
	if err != nil {
		return played{}, cmp.Or(context.Cause(ctx), err)
	}
	var told []result
	if err := gob.NewDecoder(bytes.NewReader(text)).Decode(&told); err != nil {
		return played{}, err
	}
	p, results := played{counts: map[string]count{}}, slices.Clone(pacer)
	for _, r := range told {
		found, err := scenario.Find(r.Scenario)
		if err != nil {
			return played{}, err
		}
		results = append(results, score.Result{Scenario: found, Client: clients()[0].Name, Runs: s.seeds, Median: r.Median})
		p.counts[r.Scenario] = r.Count
	}
	p.board = board.New(clients(), results)
	return p, nil
}
