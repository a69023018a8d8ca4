package client

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/delay"

	"github.com/a7df5faa/cruise/internal/calm"
	"github.com/a7df5faa/cruise/simulation/engine"
	"github.com/a7df5faa/cruise/simulation/scenario"
	"github.com/a7df5faa/cruise/simulation/score"
	"github.com/a7df5faa/cruise/simulation/server"
)

// gem is a strategy of Heroku's Ruby gem that shares a delay, as the gem has it: a call sleeps for
// the delay as it found it, keeps one of its own while it is retried, and leaves that to all, less
// what lowered takes off. It is here to separate the simulator's part in a difference from the
// delay.Limiter's.
func gem(name string, start time.Duration, lowered func(d float64, q server.Quota) float64) engine.Client {
	const least, factor = .8, 1.2
	return engine.Client{Name: name, New: func(engine.Env) engine.Process {
		var mu sync.Mutex
		shared := start.Seconds()
		pause := func(ctx context.Context, d float64) error {
			return engine.Sleep(ctx, time.Duration(d*(1+.1*rand.Float64())*float64(time.Second)))
		}
		return engine.ProcessFunc(func(ctx context.Context, attempt engine.Attempt) error {
			mu.Lock()
			d := shared
			mu.Unlock()
			if err := pause(ctx, d); err != nil {
				return err
			}
			quota, err := attempt(ctx)
			for ; err != nil; quota, err = attempt(ctx) {
				d += least
				if err := pause(ctx, d); err != nil {
					return err
				}
				d *= factor
			}
			mu.Lock()
			defer mu.Unlock()
			shared = max(0, lowered(d, quota))
			return nil
		})
	}}
}

// The delay after a success, by the gem's rules.
func gradual(d float64, _ server.Quota) float64      { return d - .8 }
func proportional(d float64, _ server.Quota) float64 { return d - d/4500 }
func remaining(d float64, q server.Quota) float64    { return d - d*float64(q.Remaining)/4500 }

// startingAt returns a preset with a first delay of d.
func startingAt(c engine.Client, rule delay.Rule, d time.Duration) engine.Client {
	rule.First = d // the delay after the first throttle
	c.New = func(e engine.Env) engine.Process {
		l := cruise.Must(delay.New(rule))
		l.Learn(cruise.Feedback{Outcome: cruise.OutcomeThrottled, Cost: 1})
		return delayed(e, l)
	}
	return c
}

// The gem's authors published their simulator's results for its strategies: after half an hour in
// front of an empty bucket, and the time to clear a full bucket that does not refill, beginning
// with a delay of 1 s. This simulator must give similar results, for the gem's own strategies and
// for cruise's presets, which differ in the points named in delays.go.
func TestHerokuRowsAreNearThePublishedTable(t *testing.T) {
	if calm.Raced {
		t.Skip("it takes long, and others race as much")
	}
	type figures struct{ throttled, stdev, clear float64 }
	published := map[string]figures{
		"backoff":      {80.4, 148, 74},
		"gradual":      {40.6, 868, 116},
		"proportional": {3.66, 102, 551},
		"remaining":    {3.07, 78, 84},
	}
	// The bands are wide: the published results are one run, of Ruby threads in real time.
	points := map[string]float64{"gem": 15, "cruise": 40} // of throttled share, where it is large
	const (
		factor = 3 // of throttled share, where it is small
		slower = 1.7
	)
	play := func(name string, c engine.Client) score.Score {
		s, err := scenario.Find(name)
		if err != nil {
			t.Fatal(err)
		}
		return score.Play([]*scenario.Scenario{s}, []engine.Client{c}, []uint64{1, 2, 3, 4, 5}, nil, nil)[0].Median
	}
	var table strings.Builder
	measured := map[string]figures{}
	for _, row := range []struct {
		strategy, by string
		empty, full  engine.Client
	}{
		{"backoff", "cruise", HerokuBackoff(), HerokuBackoff()},
		{"gradual", "gem", gem("gem", 0, gradual), gem("gem", time.Second, gradual)},
		{"gradual", "cruise", HerokuGradual(), startingAt(HerokuGradual(), delay.HerokuGradual(), time.Second)},
		{"proportional", "gem", gem("gem", 0, proportional), gem("gem", time.Second, proportional)},
		{"proportional", "cruise", HerokuProportional(), startingAt(HerokuProportional(), delay.HerokuProportional(), time.Second)},
		{"remaining", "gem", gem("gem", 0, remaining), gem("gem", time.Second, remaining)},
		{"remaining", "cruise", HerokuRemaining(), startingAt(HerokuRemaining(), delay.HerokuRemaining(), time.Second)},
	} {
		empty, full := play("heroku-30min", row.empty), play("heroku-clear", row.full)
		got, want := figures{empty.Throttled, empty.Stdev, full.Clear}, published[row.strategy]
		measured[row.strategy+row.by] = got
		line := fmt.Sprintf("%-12s %-6s throttled %5.2f %% (published %5.2f), stdev %3.0f (%3.0f), clear %3.0f s (%3.0f)",
			row.strategy, row.by, got.throttled, want.throttled, got.stdev, want.stdev, got.clear, want.clear)
		fmt.Fprintln(&table, line)
		low, high := want.throttled-points[row.by], want.throttled+points[row.by]
		if want.throttled < 10 {
			low, high = want.throttled/factor, want.throttled*factor
		}
		if got.throttled < low || got.throttled > high || got.clear < want.clear/slower || got.clear > want.clear*slower {
			t.Errorf("too far off: %s", line)
		}
	}
	t.Logf("\n%s", &table)

	// And the same order, as users choose by it.
	for _, by := range []string{"gem", "cruise"} {
		backoff, gradual := measured["backoffcruise"], measured["gradual"+by]
		proportional, remaining := measured["proportional"+by], measured["remaining"+by]
		if backoff.throttled < gradual.throttled || gradual.throttled < 5*max(proportional.throttled, remaining.throttled) {
			t.Errorf("%s: throttled %v, %v, %v, %v are in another order than published", by, backoff, gradual, proportional, remaining)
		}
		if gradual.stdev < 1.5*max(backoff.stdev, proportional.stdev, remaining.stdev) {
			t.Errorf("%s: gradual is not the least fair", by)
		}
		if proportional.clear < 4*max(backoff.clear, gradual.clear, remaining.clear) {
			t.Errorf("%s: proportional is not by far the slowest to clear", by)
		}
	}
}

// The presets' descriptions of the gem's own loop hold over the suite.
func TestHerokuRowsSayHowTheyDifferFromTheGem(t *testing.T) {
	if calm.Raced || testing.Short() {
		t.Skip("plays for some seconds, and only compares figures")
	}
	for _, row := range []struct {
		gem, preset engine.Client
		low, high   float64 // of the gem's throttles, relative to the preset's
	}{
		{gem("gem", 0, gradual), HerokuGradual(), .35, .65},
		{gem("gem", 0, proportional), HerokuProportional(), 1.2, 2.1},
		{gem("gem", 0, remaining), HerokuRemaining(), 1.2, 2.1},
	} {
		play := func(c engine.Client) score.Score {
			return score.Means(score.Play(scenario.Suite(), []engine.Client{c}, []uint64{1}, nil, nil))
		}
		own, preset := play(row.gem), play(row.preset)
		line := fmt.Sprintf("%s: throttled %.2f %%, use %.3f, the gem's loop %.2f %%, %.3f",
			row.preset.Name, preset.Throttled, preset.Use, own.Throttled, own.Use)
		t.Log(line)
		if ratio := own.Throttled / preset.Throttled; ratio < row.low || ratio > row.high {
			t.Errorf("not as said: %s", line)
		}
	}
}
