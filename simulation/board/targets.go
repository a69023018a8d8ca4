package board

import (
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"

	"github.com/a7df5faa/cruise/simulation/client"
	"github.com/a7df5faa/cruise/simulation/engine"
	"github.com/a7df5faa/cruise/simulation/scenario"
	"github.com/a7df5faa/cruise/simulation/score"
)

// Target is a figure that the adaptive limiter is to reach.
type Target struct {
	Where string
	What  string
	AtMin bool    // the figure is to be at least Want, else at most
	Want  float64 // in the figure's unit
	Of    func(*Board) float64
}

// Targets is the table of them.
var Targets = []Target{
	{"n-heroku-30min", "throttled %", false, 1, in("n-heroku-30min", "throttled")},
	{"n-heroku-30min", "longest wait s", false, 17, in("n-heroku-30min", "wait")},
	{"n-heroku-30min", "stdev", false, 30, in("n-heroku-30min", "stdev")},
	{"n-heroku-30min", "use", true, .99, in("n-heroku-30min", "use")},
	{"heroku-30min", "throttled %, told the limit and what remains", false, .1, in("heroku-30min", "throttled")},
	{"heroku-clear", "time / unthrottled time", false, 1.01, slowness("heroku-clear")},
	{"heroku-10x1", "throttled %", false, 2, in("heroku-10x1", "throttled")},
	{"heroku-10x1", "longest wait s", false, 30, in("heroku-10x1", "wait")},
	{"heroku-10x1", "Jain", true, .95, in("heroku-10x1", "jain")},
	{"emr-1000", "throttled %", false, 1, in("emr-1000", "throttled")},
	{"emr-1000", "use", true, .95, in("emr-1000", "use")},

	{Suite, "throttled %, mean", false, 1, over(Suite, "throttled")},
	{Suite, "use, mean", true, .95, over(Suite, "use")},
	{Suite, "Jain, mean", true, .97, over(Suite, "jain")},
	{Suite, "longest wait s, geometric mean", false, 5, over(Suite, "wait")},

	{Keepable, "throttled %, mean", false, 2, over(Keepable, "throttled")},
	{Keepable, "use / the pacer's, means", true, 1, usePacer},
	{Keepable, "Jain, mean", true, .93, over(Keepable, "jain")},
	{Keepable, "wait ratio, geometric mean", false, 5, over(Keepable, "ratio")},
	{Keepable, "% with use < 0.6 of the pacer's or throttled > 10 %", false, 2, collapsed},
	{tight, "throttled %, points above the pacer, means", false, 3, abovePacer},

	{"named", "scenarios with a better peer", false, 0, beatenNamed},
	{"random", "% of scenarios with a better peer", false, 3, beatenRandom},

	{"metastable-280", "recovery s", false, 60, in("metastable-280", "recovery")},
	{"metastable-280", "recovery s of plain retries: never", true, 140, of(client.Cenkalti().Name, "metastable-280", "recovery")},
}

// Met tells whether a value is on the target's right side; NaN is on none.
func (t Target) Met(value float64) bool {
	if t.AtMin {
		return value >= t.Want
	}
	return value <= t.Want
}

// Wanted puts the target into a few signs.
func (t Target) Wanted() string {
	if t.AtMin {
		return fmt.Sprintf("≥ %g", t.Want)
	}
	return fmt.Sprintf("≤ %g", t.Want)
}

// Verdict is met, not met, or not run.
func (t Target) Verdict(value float64) string {
	switch {
	case math.IsNaN(value):
		return "not run"
	case t.Met(value):
		return "met"
	}
	return "not met"
}

// Tally is how many targets are met, of how many that were run.
func (b *Board) Tally() (met, run int) {
	for _, t := range Targets {
		switch t.Verdict(t.Of(b)) {
		case "met":
			met, run = met+1, run+1
		case "not met":
			run++
		}
	}
	return met, run
}

// Check prints how the own client stands with the targets.
func (b *Board) Check(w io.Writer) error {
	t := tabwriter.NewWriter(w, 2, 0, 2, ' ', 0)
	fmt.Fprintln(t, "target\t\tvalue\twanted\t")
	for _, target := range Targets {
		v := target.Of(b)
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", target.Where, target.What, Number(v), target.Wanted(), target.Verdict(v))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	met, run := b.Tally()
	_, err := fmt.Fprintf(w, "%d of %d targets met, %d not run\n", met, run, len(Targets)-run)
	return err
}

// in is the own client's median of a figure in a scenario.
func in(scenario, metric string) func(*Board) float64 {
	return func(b *Board) float64 { return of(b.Own, scenario, metric)(b) }
}

// of is a client's median of a figure in a scenario.
func of(client, scenario, metric string) func(*Board) float64 {
	return func(b *Board) float64 {
		r, ok := b.Result(client, scenario)
		if !ok {
			return math.NaN()
		}
		return *Metrics(metric)[0].Of(&r.Median)
	}
}

// slowness is the time that a number of calls takes, relative to the least possible.
func slowness(scenario string) func(*Board) float64 {
	return func(b *Board) float64 { return 1 / in(scenario, "use")(b) }
}

// over is the own client's mean of a figure over a group.
func over(group, metric string) func(*Board) float64 {
	return func(b *Board) float64 { return b.mean(b.Own, group, metric) }
}

// mean is a client's mean of a figure over a group. That over the suite is not
// known unless all of it ran.
func (b *Board) mean(client, group, metric string) float64 {
	rs := b.Select(client, b.Group(group))
	if len(rs) == 0 || group == Suite && len(rs) < len(scenario.Suite()) {
		return math.NaN()
	}
	means := score.Means(rs)
	return *Metrics(metric)[0].Of(&means)
}

func usePacer(b *Board) float64 {
	return b.mean(b.Own, Keepable, "use") / b.mean(client.Pacer().Name, Keepable, "use")
}

func abovePacer(b *Board) float64 {
	return b.mean(b.Own, tight, "throttled") - b.mean(client.Pacer().Name, tight, "throttled")
}

// collapsed is the share, in percent, of keepable scenarios in which the own client breaks down.
func collapsed(b *Board) float64 {
	rs, bad := b.Select(b.Own, b.Group(Keepable)), 0
	for _, r := range rs {
		if c := score.Count([]score.Result{r}, b.Pacer); c.Use+c.Throttled > 0 {
			bad++
		}
	}
	return 100 * float64(bad) / float64(len(rs)) // NaN if there are none
}

// beatenNamed is the number of named scenarios with a better peer. It is not known
// unless all of them ran.
func beatenNamed(b *Board) float64 {
	bad, all := b.beaten(func(s *scenario.Scenario) bool { return !s.Random && s.Name != scenario.Yours })
	if all < len(scenario.Named()) {
		return math.NaN()
	}
	return float64(bad)
}

// beatenRandom is the share, in percent, of random scenarios with a better peer.
func beatenRandom(b *Board) float64 {
	bad, all := b.beaten(func(s *scenario.Scenario) bool { return s.Random })
	return 100 * float64(bad) / float64(all) // NaN if there are none
}

// beaten counts those scenarios that have a better peer, and all. It knows of none
// unless every client that competes ran.
func (b *Board) beaten(which func(*scenario.Scenario) bool) (bad, all int) {
	for _, c := range client.All() {
		if !c.Yardstick && !slices.ContainsFunc(b.Clients, func(ran engine.Client) bool { return ran.Name == c.Name }) {
			return 0, 0
		}
	}
	for _, s := range b.Scenarios() {
		if which(s) {
			all++
			bad += min(1, len(b.Beaten(s.Name)))
		}
	}
	return bad, all
}
