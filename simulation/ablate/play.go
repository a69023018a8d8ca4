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

// settings are what each law plays.
type settings struct {
	seeds  int
	random int
	from   uint64
}

// clients are the law that this program is built with, and the pacer, which tells
// random scenarios whose limit can be kept from others.
func clients() []engine.Client { return []engine.Client{client.Cruise("cruise"), client.Pacer()} }

// result is a score.Result on its way from one process to another.
type result struct {
	Scenario, Client string
	Median           score.Score
	Count            count
}

// count is of the requests in all runs of a scenario.
type count struct{ Successes, Throttled int }

// tell plays the suite and the random scenarios, the law alone if the pacer need not, and
// writes what came of it for play.
func (s settings) tell(w io.Writer, alone bool) error {
	seeds, both := score.Seeds(s.seeds), clients()
	own := both[:1]
	if alone {
		both = own
	}
	counts := map[[2]string]count{} // by scenario and client
	seen := func(r *engine.Recording) {
		key, total := [2]string{r.Scenario.Name, r.Client}, r.Totals()
		c := counts[key]
		counts[key] = count{c.Successes + total.Successes, c.Throttled + total.Throttled}
	}
	results := append(score.Play(scenario.Suite(), own, seeds, nil, seen), score.Play(scenario.Randoms(s.from, s.random), both, seeds, nil, seen)...)
	var out []result
	for _, r := range results {
		out = append(out, result{r.Scenario.Name, r.Client, r.Median, counts[[2]string{r.Scenario.Name, r.Client}]})
	}
	return gob.NewEncoder(w).Encode(out)
}

// played is what came of a law.
type played struct {
	board  *board.Board
	counts map[string]count // of the law, by scenario
	pacer  []score.Result
}

// play runs this program again, built with a change of the law. The pacer's results are
// those of base, if there are any. An interrupt ends that run, so that its files go before
// this program does.
func (s settings) play(law source, c change, base played) (played, error) {
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
		"-alone="+strconv.FormatBool(base.pacer != nil),
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
	p := played{counts: map[string]count{}, pacer: base.pacer}
	var results []score.Result
	scenarios := map[string]*scenario.Scenario{}
	for _, r := range told {
		if scenarios[r.Scenario] == nil {
			if scenarios[r.Scenario], err = scenario.Find(r.Scenario); err != nil {
				return played{}, err
			}
		}
		result := score.Result{Scenario: scenarios[r.Scenario], Client: r.Client, Runs: s.seeds, Median: r.Median}
		if r.Client == clients()[0].Name {
			p.counts[r.Scenario] = r.Count
			results = append(results, result)
		} else {
			p.pacer = append(p.pacer, result)
		}
	}
	p.board = board.New(clients(), slices.Concat(results, p.pacer))
	return p, nil
}
