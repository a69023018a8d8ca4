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

// Targets is the table of all targets: for situations that users meet, and for good figures that
// must stay.
var Targets = slices.Concat(wanted(), kept())

// wanted returns the targets for cruise with its defaults in front of an API. The figures of the
// suite, and of servers that the law is tuned on, do not show them.
func wanted() []Target {
	list := []Target{
		// Calls that are always throttled are not to stop the others.
		atLeast("doomed", "use", .9), atLeast("doomed-1s", "use", .9), atLeast("doomed-10s", "use", .85),
		atLeast("doomed-5x", "use", .9), atLeast("doomed-5x-1s", "use", .9),
		atLeast("doomed-3x", "use", .9), atLeast("doomed-3x-30s", "use", .85), inAll(atMost, "doomed-after-3x", "recovery", 60),
		atLeast("doomed-two", "use", .9), atLeast("doomed-two-5x-1s", "use", .9), atLeast("doomed-five-5x", "use", .9),
		inAll(atMost, "doomed-after", "recovery", 60), inAll(atMost, "doomed-after-1s", "recovery", 60), inAll(atMost, "doomed-after-10s", "recovery", 60),
	}
	// A process that joins gets its share.
	for _, settled := range []int{1, 4} {
		at := func(limit string) string { return fmt.Sprintf("newcomer-%d@%s", settled, limit) }
		list = append(list, atMost(at("1"), "first", 30), atMost(at("1"), "half", 150))
		for _, limit := range []string{"2", "3", "5", "10", "600/min", "any-600/min"} {
			list = append(list, atMost(at(limit), "half", 60), inNine(at(limit), "half", 150))
		}
	}
	list = append(list, atLeast("newcomer-1@heroku", "jain", .85), atMost("newcomer-1@heroku", "wait", 150))
	// No process starves if all begin together, nor if a window closes for all of them.
	for _, n := range []int{3, 10} {
		for _, bucket := range []struct {
			depth int
			use   float64
		}{{1, .35}, {3, .8}} {
			at := fmt.Sprintf("together-%d@%d", n, bucket.depth)
			list = append(list, inAll(atLeast, at, "least", .25), atLeast(at, "use", bucket.use),
				Target{at, "throttled %, points above AWS's adaptive mode", false, 0, above(client.AWS().Name, at, "throttled")})
		}
	}
	list = append(list,
		atLeast("two-windows", "jain", .95), atMost("two-windows", "wait", 75),
		atLeast("silent-600/min-x3", "least", .25), atMost("silent-600/min-x3", "wait", 150), atMost("silent-600/min-x3", "throttled", 2.5),
		atLeast("silent-1000/min-x5", "least", .25), atMost("silent-1000/min-x5", "wait", 150), atMost("silent-1000/min-x5", "throttled", 2.5),
		inAll(atLeast, "secondary-900/min", "least", .5), atLeast("secondary-900/min", "use", .85),
		atLeast("left-20-400", "jain", .8), atLeast("left-20-400", "use", .9),
		atLeast("ten-30/s", "jain", .95),
		atLeast("heroku-10x1", "jain", .85), atMost("heroku-10x1", "throttled", 4), atMost("heroku-10x1", "wait", 50),

		// A Retry-After that is a constant, or a whole second, is no rate.
		atLeast("says-10s-10m", "use", .8), atLeast("says-30s-10m", "use", .6), atLeast("says-60s-10m", "use", .45),
		atLeast("says-10s-1h", "use", .93), atLeast("says-30s-1h", "use", .85), atLeast("says-60s-1h", "use", .75),
		atLeast("penalty-30s", "use", .6), atLeast("penalty-30s-told", "use", .6), atLeast("methods-20-50/min", "use", .8),
		atMost("bulk-10000", "clear", 57), atLeast("seconds-200/s", "use", .88), atLeast("seconds-20/s", "use", .93),
	)
	// Headers help, or do no harm.
	for _, pair := range scenario.Mutes() {
		list = append(list, Target{pair[0], "use / use without headers", true, .95, withoutHeaders(pair[0], pair[1])})
	}
	list = append(list, atLeast("h-concurrency-60", "use", .8))
	// Jobs that fit take as long as with a plain client.
	for _, job := range []string{"fits-90/15min", "fits-90/15min-10s", "fits-90/min", "fits-4000/h", "fits-4000/h-1s"} {
		list = append(list, Target{job, "clear s, beyond 1.2 times a plain client's", false, 1, late(job)}, inAll(atMost, job, "failed", 0))
	}
	list = append(list,
		atMost("github-5000/h", "wait", 30), atMost("github-5000/h", "throttled", 0), atLeast("github-5000/h", "jain", .95),
		atMost("heroku-4x5", "wait", 150), atLeast("heroku-4x5", "jain", .95),

		// Long calls hold up no short ones, and short closings fail no call.
		atLeast("long-polls", "use", .9), atMost("long-polls", "wait", 1), atLeast("streams", "use", .9), atMost("streams", "wait", 1),
		inAll(atMost, "haproxy-250", "failed", 0), inAll(atMost, "rack-attack-250", "failed", 0), inAll(atMost, "mod_qos-250", "failed", 0),
		atLeast("grow-.15x2^n", "use", .6),
		atMost("first-outage-1m", "recovery", 60),
	)
	// The times are the times of 50 calls at once and 10 a second from then on, divided by 0.70,
	// 0.6 and 0.75.
	return append(list,
		atMost("haproxy-240", "clear", 27.1), atMost("haproxy-240", "throttled", 4),
		atMost("haproxy-240-2s", "clear", 31.7), atMost("haproxy-240-2s", "throttled", 4),
		atMost("vsthrottle-240", "clear", 25.3), atMost("vsthrottle-240", "throttled", 4))
}

// kept returns the targets for good figures that must stay. A figure that no law can reach has a
// target for its distance from the genie.
func kept() []Target {
	return []Target{
		atMost("heroku-30min", "throttled", .15), atMost("heroku-30min", "wait", 17), atMost("heroku-30min", "stdev", 25),
		atMost("heroku-clear", "slow", 1.01),
		atLeast("emr-1000", "use", .98), atMost("emr-1000", "throttled", 1),
		atMost("h-window-100/min", "throttled", .2),

		{Suite, "throttled %, mean", false, 1.5, over(Suite, "throttled")},
		{Suite, "use, mean", true, .93, over(Suite, "use")},
		{Suite, "Jain, mean", true, .92, over(Suite, "jain")},
		{Suite, "longest wait s, geometric mean", false, 8, over(Suite, "wait")},
		{Suite, "throttled %, points above the genie, means", false, 1.2, over(Suite, "genie_throttled")},
		{Suite, "use above the genie's, means", true, 0, over(Suite, "genie_use")},

		{Keepable, "throttled %, mean", false, 4.3, over(Keepable, "throttled")},
		{Keepable, "use, mean", true, .79, over(Keepable, "use")},
		{Keepable, "Jain, mean", true, .88, over(Keepable, "jain")},
		{Keepable, "wait ratio, geometric mean", false, 6, over(Keepable, "ratio")},
		{Keepable, "throttled %, points above the genie, means", false, 2, over(Keepable, "genie_throttled")},
		{Keepable, "use above the genie's, means", true, -.08, over(Keepable, "genie_use")},
		{Keepable, "use / the pacer's, means", true, 1, usePacer},
		{tight, "throttled %, points above the pacer, means", false, 3, abovePacer},

		{"named", "scenarios with a better peer", false, 0, beatenNamed},
		{"random", "% of scenarios with a better peer", false, 3, beatenRandom},

		{"metastable-280", "recovery s", false, 60, in("metastable-280", "recovery")},
		{"metastable-280", "recovery s of plain retries: never", true, 140, of(client.Cenkalti().Name, "metastable-280", "recovery")},
	}
}

// atMost wants a figure of a scenario to be no more than that.
func atMost(where, metric string, want float64) Target {
	return Target{where, Title(Metrics(metric)[0]), false, want, in(where, metric)}
}

// atLeast wants a figure of a scenario to be no less than that.
func atLeast(where, metric string, want float64) Target {
	return Target{where, Title(Metrics(metric)[0]), true, want, in(where, metric)}
}

// inAll wants no more, or no less, in the worst of the runs.
func inAll(target func(where, metric string, want float64) Target, where, metric string, want float64) Target {
	t := target(where, metric, want)
	t.What += ", worst run"
	t.Of = figureOf(where, metric, func(r score.Result) score.Score {
		if t.AtMin {
			return r.Low
		}
		return r.High
	})
	return t
}

// inNine wants no more in nine of ten runs.
func inNine(where, metric string, want float64) Target {
	t := atMost(where, metric, want)
	t.What += ", nine of ten runs"
	t.Of = figureOf(where, metric, func(r score.Result) score.Score { return r.Ninth })
	return t
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

// figureOf is the own client's figure in a scenario, of some of its runs.
func figureOf(scenario, metric string, runs func(score.Result) score.Score) func(*Board) float64 {
	return func(b *Board) float64 {
		r, ok := b.Result(b.Own, scenario)
		if !ok {
			return math.NaN()
		}
		s := runs(r)
		return *Metrics(metric)[0].Of(&s)
	}
}

// above is how far the own client's figure is above a peer's.
func above(peer, scenario, metric string) func(*Board) float64 {
	return func(b *Board) float64 { return in(scenario, metric)(b) - of(peer, scenario, metric)(b) }
}

// withoutHeaders is the own client's use relative to that where the server tells nothing.
func withoutHeaders(told, mute string) func(*Board) float64 {
	return func(b *Board) float64 { return in(told, "use")(b) / in(mute, "use")(b) }
}

// late returns the seconds that a job takes beyond 1.2 times a plain client's time.
func late(job string) func(*Board) float64 {
	return func(b *Board) float64 {
		clear := in(job, "clear")(b)
		return clear - 1.2*clear/in(job, "plain")(b)
	}
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

// beaten counts the scenarios with a better peer, and all scenarios. It counts none unless every
// competing client ran.
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
