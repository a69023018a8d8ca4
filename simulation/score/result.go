package score

import (
	"math"

	"github.com/a7df5faa/cruise/simulation/engine"
	"github.com/a7df5faa/cruise/simulation/scenario"
)

// Metric is one figure of a Score.
type Metric struct {
	Name      string
	Unit      string
	About     string // its meaning; "" if no board shows it
	Of        func(*Score) *float64
	MoreWins  bool // the greatest is the best
	NoWinner  bool // neither the greatest nor the least is the best
	Geometric bool // means over scenarios are geometric
}

// Metrics are all figures of a Score, the most important first.
var Metrics = []Metric{
	{Name: "throttled", Unit: "%", Of: func(s *Score) *float64 { return &s.Throttled },
		About: "share of requests that were throttled: mean over callers, in random scenarios over all requests"},
	{Name: "wait", Unit: "s", Of: func(s *Score) *float64 { return &s.Wait }, Geometric: true,
		About: "that any caller went without a success, idle time left out; means are geometric"},
	{Name: "jain", Of: func(s *Score) *float64 { return &s.Jain }, MoreWins: true,
		About: "fairness: 1 if all callers got the same whenever they were there, 1/n if one got all; in random scenarios of processes"},
	{Name: "use", Of: func(s *Score) *float64 { return &s.Use }, MoreWins: true,
		About: "what was got of what a perfect client would have got; where the number of calls is fixed, least possible time over time taken"},
	{Name: "stdev", Of: func(s *Score) *float64 { return &s.Stdev },
		About: "of the callers' request counts"},
	{Name: "ratio", Unit: "x", Of: func(s *Score) *float64 { return &s.Ratio }, Geometric: true,
		About: "the longest wait, relative to the mean time between a caller's turns"},
	{Name: "total", Unit: "%", Of: func(s *Score) *float64 { return &s.Total }},
	{Name: "clear", Unit: "s", Of: func(s *Score) *float64 { return &s.Clear },
		About: "time until a fixed number of calls is done"},
	{Name: "adapt", Unit: "s", Of: func(s *Score) *float64 { return &s.Adapt },
		About: "time until the rate fits within a fifth after the limit changed: mean over its changes, down and up"},
	{Name: "amplification", Unit: "x", Of: func(s *Score) *float64 { return &s.Amplification }, NoWinner: true,
		About: "amplification: the least is not the best, as a client that gives up sends little"},
	{Name: "failed", Unit: "%", Of: func(s *Score) *float64 { return &s.Failed },
		About: "share of the calls that were given up, where a call may be"},
	{Name: "least", Of: func(s *Score) *float64 { return &s.Least }, MoreWins: true,
		About: "what the worst-off process got of its fair share of what could be had; where there is one process, the worst-off caller"},
	{Name: "slow", Unit: "x", Of: func(s *Score) *float64 { return &s.Slow },
		About: "time for a fixed number of calls, relative to the least possible"},
	{Name: "plain", Unit: "x", Of: func(s *Score) *float64 { return &s.Plain },
		About: "the same, relative to a plain client, in which each call waits for itself alone"},
	{Name: "first", Unit: "s", Of: func(s *Score) *float64 { return &s.First },
		About: "time from when the last process joined until its first success"},
	{Name: "half", Unit: "s", Of: func(s *Score) *float64 { return &s.Half },
		About: "time from when the last process joined until the first half minute in which it had half of its fair share"},
	{Name: "genie_throttled", Unit: "%", Of: func(s *Score) *float64 { return &s.GenieThrottled }, NoWinner: true,
		About: "points of throttled share above those of the genie, which is told its share once it is throttled"},
	{Name: "genie_use", Of: func(s *Score) *float64 { return &s.GenieUse }, NoWinner: true,
		About: "use above the genie's"},
	{Name: "recovery", Unit: "s", Of: func(s *Score) *float64 { return &s.Recovery },
		About: "time after an outage, a stall or odd calls until the server is used again"},
}

// Result is how a client did in a scenario over several seeds.
type Result struct {
	Scenario          *scenario.Scenario
	Client            string
	Runs              int
	Median, Low, High Score // of each figure by itself
	Ninth             Score // no more in nine of ten runs
}

// Gather puts the scores of several runs together.
func Gather(s *scenario.Scenario, client string, runs []Score) Result {
	out := Result{Scenario: s, Client: client, Runs: len(runs)}
	values := make([]float64, len(runs))
	for _, m := range Metrics {
		low, high := math.Inf(1), math.Inf(-1)
		for i := range runs {
			v := *m.Of(&runs[i])
			values[i] = v
			if !math.IsNaN(v) {
				low, high = min(low, v), max(high, v)
			}
		}
		*m.Of(&out.Median), *m.Of(&out.Ninth) = Median(values), ninth(values)
		if low > high {
			low, high = math.NaN(), math.NaN()
		}
		*m.Of(&out.Low), *m.Of(&out.High) = low, high
	}
	return out
}

// floor keeps geometric means of waits from being ruled by an instant.
const floor = .005

// Means are the means of the medians over scenarios, geometric for waits.
func Means(results []Result) Score {
	var out Score
	for _, m := range Metrics {
		sum, n := 0.0, 0
		for i := range results {
			v := *m.Of(&results[i].Median)
			if math.IsNaN(v) {
				continue
			}
			if m.Geometric {
				v = math.Log(max(v, floor))
			}
			sum += v
			n++
		}
		mean := sum / float64(n) // NaN if there is none
		if m.Geometric {
			mean = math.Exp(mean)
		}
		*m.Of(&out) = mean
	}
	return out
}

// Collapses counts the scenarios in which a client breaks down.
type Collapses struct {
	Use       int // below 0.6 of the pacer's
	Throttled int // above 10 %
	Jain      int // below 0.7
}

// Count counts a client's collapses. pacer is the use of the pacer in each scenario.
func Count(results []Result, pacer map[string]float64) Collapses {
	var c Collapses
	for _, r := range results {
		if use, ok := pacer[r.Scenario.Name]; ok && r.Median.Use < .6*use {
			c.Use++
		}
		if r.Median.Throttled > 10 {
			c.Throttled++
		}
		if r.Median.Jain < .7 {
			c.Jain++
		}
	}
	return c
}

// Tight is the throttled share of the pacer above which no client can keep the limit, in percent.
const Tight = 3

// Seeds are 1 to n.
func Seeds(n int) []uint64 {
	list := make([]uint64, n)
	for i := range list {
		list[i] = uint64(i) + 1
	}
	return list
}

// Play makes runs of every client that fits in every scenario, with the given
// seeds, and gathers the scores: by scenario, then by client. progress hears
// how many of all runs are done; seen gets each recording, in no particular
// order. Both may be nil.
func Play(scenarios []*scenario.Scenario, clients []engine.Client, seeds []uint64, progress func(done, all int), seen func(*engine.Recording)) []Result {
	var jobs []engine.Job
	for _, s := range scenarios {
		for _, c := range clients {
			if c.Fits != nil && !c.Fits(s) {
				continue
			}
			for _, seed := range seeds {
				jobs = append(jobs, engine.Job{Scenario: s, Client: c, Seed: seed})
			}
		}
	}
	scores := make([]Score, len(jobs))
	best := map[*scenario.Scenario]scenario.Best{}
	done := 0
	engine.Batch(jobs, func(i int, rec *engine.Recording) {
		s := rec.Scenario
		if _, ok := best[s]; !ok {
			best[s] = s.Ideal()
		}
		scores[i] = Of(rec, best[s])
		done++
		if progress != nil {
			progress(done, len(jobs))
		}
		if seen != nil {
			seen(rec)
		}
	})
	var results []Result
	for i := 0; i < len(jobs); i += len(seeds) {
		results = append(results, Gather(jobs[i].Scenario, jobs[i].Client.Name, scores[i:i+len(seeds)]))
	}
	return results
}

// Relate works out the figures that compare a client with the medians of a plain client and of the
// genie in the same scenario.
func Relate(results []Result, plain, genie string) {
	of := map[string]map[string]Score{plain: {}, genie: {}}
	for _, r := range results {
		if scores := of[r.Client]; scores != nil {
			scores[r.Scenario.Name] = r.Median
		}
	}
	for i := range results {
		r := &results[i]
		for _, s := range []*Score{&r.Median, &r.Low, &r.High, &r.Ninth} {
			if p, ok := of[plain][r.Scenario.Name]; ok {
				s.Plain = s.Slow / p.Slow
			}
			if g, ok := of[genie][r.Scenario.Name]; ok {
				s.GenieThrottled, s.GenieUse = s.Throttled-g.Throttled, s.Use-g.Use
			}
		}
	}
}
