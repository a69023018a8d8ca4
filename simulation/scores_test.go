package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/a7df5faa/cruise/internal/calm"
	"github.com/a7df5faa/cruise/internal/replay"
	"github.com/a7df5faa/cruise/simulation/board"
	"github.com/a7df5faa/cruise/simulation/client"
	"github.com/a7df5faa/cruise/simulation/engine"
	"github.com/a7df5faa/cruise/simulation/scenario"
	"github.com/a7df5faa/cruise/simulation/score"
)

var update = flag.Bool("update", false, "write testdata/scores.json anew")

const golden = "testdata/scores.json"

// spread is a figure that was committed: its median and its range over the seeds.
type spread struct {
	Median, Low, High float64
}

// guarded are the figures that must not get worse, and by how much they may at
// least, because the range of a few seeds is no bound. Waits are guarded in
// their mean only: the longest of a run is luck. Its figure is a logarithm.
var guarded = map[string]float64{"throttled": .2, "use": .015, "jain": .03, "wait": .7}

// guard is the scenarios of the regression test.
func guard() []*scenario.Scenario {
	list := scenario.Suite()
	for _, name := range []string{"n-heroku-30min", "metastable-280", "latency-2s", "whole-seconds-20/s", "leave-8", "heroku-4x5", "newcomer-1@600/min", "newcomer-1@heroku", "laravel-1000/min-x10", "silent-600/min-x3", "first-outage-1m"} {
		s, err := scenario.Find(name)
		if err != nil {
			panic(err)
		}
		list = append(list, s)
	}
	// Fairness says nothing of one process, and little of two.
	for seed, left := uint64(501), 12; left > 0; seed++ {
		if s := scenario.Random(seed); s.Processes > 2 {
			list = append(list, s)
			left--
		}
	}
	return list
}

// TestCruiseKeepsItsScores fails if cruise falls behind the committed scores by more than the
// noise. After a change that is worth it: go test . -run Scores -update
func TestCruiseKeepsItsScores(t *testing.T) {
	if calm.Raced || testing.Short() {
		t.Skip("plays for some seconds, and others race as much")
	}
	replay.Alone(t)
	cruise := []engine.Client{client.Cruise("cruise")}
	if *update {
		commit(t, score.Play(guard(), cruise, score.Seeds(10), nil, nil))
		return
	}
	data, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	var c committed
	if err := json.Unmarshal(data, &c); err != nil {
		t.Fatal(err)
	}
	list := guard()
	results := score.Play(list, cruise, score.Seeds(3), nil, nil)
	// A few seeds can all be unlucky; more others tell. But not in many
	// scenarios at once.
	unlucky := 0
	for i, r := range results {
		if complaints := c.worse(r); len(complaints) > 0 && unlucky < 6 {
			unlucky++
			t.Logf("%s: plays more seeds, because %s", r.Scenario.Name, strings.Join(complaints, ", "))
			others := []uint64{11, 12, 13, 14, 15, 16, 17}
			results[i] = score.Play([]*scenario.Scenario{r.Scenario}, cruise, others, nil, nil)[0]
		}
	}
	for _, r := range results {
		for _, complaint := range c.worse(r) {
			t.Errorf("%s: %s", r.Scenario.Name, complaint)
		}
	}
	means := c.worseMeans(results)
	if len(means) > 0 {
		t.Logf("plays other seeds, because %s", strings.Join(means, ", "))
		means = c.worseMeans(score.Play(list, cruise, []uint64{21, 22, 23}, nil, nil))
	}
	for _, complaint := range means {
		t.Error(complaint)
	}
}

// committed are figures by scenario and name.
type committed map[string]map[string]spread

// worse returns the figures that are behind in a scenario.
func (c committed) worse(r score.Result) (complaints []string) {
	for name, least := range guarded {
		m := board.Metrics(name)[0]
		worst := 0.
		if name == "jain" {
			shares := r.Scenario.Processes
			if !r.Scenario.Random {
				shares *= r.Scenario.Callers
			}
			worst = 1 / float64(shares)
		}
		was, ok := c[r.Scenario.Name][name]
		if !ok {
			return []string{"has no committed scores; run with -update"}
		}
		if got := *m.Of(&r.Median); !m.Geometric && behind(m, got, was, least, worst) {
			complaints = append(complaints, fmt.Sprintf("%s is %s, was %s [%s..%s]", name,
				board.Number(got), board.Number(was.Median), board.Number(was.Low), board.Number(was.High)))
		}
	}
	return complaints
}

// worseMeans returns the means over all scenarios that are behind: many small steps back are a
// large one, and a mean has less noise than its parts.
func (c committed) worseMeans(results []score.Result) (complaints []string) {
	for name, least := range guarded {
		m := board.Metrics(name)[0]
		at := func(v float64) float64 {
			if m.Geometric {
				return math.Log(max(v, .01))
			}
			return v
		}
		sum, was, noise := 0.0, 0.0, 0.0
		for _, r := range results {
			s := c[r.Scenario.Name][name]
			sum += at(*m.Of(&r.Median))
			was += at(s.Median)
			noise += (at(s.High) - at(s.Low)) * (at(s.High) - at(s.Low))
		}
		n, half := float64(len(results)), math.Sqrt(noise)/2
		mean := spread{was / n, (was - half) / n, (was + half) / n}
		if behind(m, sum/n, mean, least/5, 0) {
			complaints = append(complaints, fmt.Sprintf("mean %s is %.3f, was %.3f [%.3f..%.3f]", name, sum/n, mean.Median, mean.Low, mean.High))
		}
	}
	return complaints
}

// behind reports whether a figure is worse than the committed one by more than the noise: beyond
// the range by its width, or by the least difference that counts. But the noise is at most half of
// the way to the worst possible figure, or a wide range would guard nothing.
func behind(m score.Metric, got float64, c spread, least, worst float64) bool {
	slack := max(least, c.High-c.Low)
	if m.MoreWins {
		return got < c.Low-min(slack, (c.Low-worst)/2)
	}
	return got > c.High+slack
}

func commit(t *testing.T, results []score.Result) {
	out := committed{}
	for _, r := range results {
		out[r.Scenario.Name] = map[string]spread{}
		for name := range guarded {
			m := board.Metrics(name)[0]
			out[r.Scenario.Name][name] = spread{round(*m.Of(&r.Median)), round(*m.Of(&r.Low)), round(*m.Of(&r.High))}
		}
	}
	data, err := json.MarshalIndent(out, "", "\t")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(golden, append(data, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
}

func round(v float64) float64 { return math.Round(v*1e4) / 1e4 }

func TestAFigureIsBehindBeyondItsNoise(t *testing.T) {
	throttled, use := board.Metrics("throttled")[0], board.Metrics("use")[0]
	for _, c := range []struct {
		m    score.Metric
		got  float64
		want bool
	}{
		{throttled, 0, false}, {throttled, 2.9, false}, {throttled, 3.1, true},
		{use, 3, false}, {use, .7, false}, {use, .5, true},
	} {
		if got := behind(c.m, c.got, spread{1.5, 1, 2}, .1, .2); got != c.want {
			t.Errorf("%s %v: %v", c.m.Name, c.got, got)
		}
	}
}
