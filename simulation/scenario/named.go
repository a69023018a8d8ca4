package scenario

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/a7df5faa/cruise/simulation/server"
)

// herokus is Heroku's limit: 4,500 requests an hour.
const herokus = 4500.0 / 3600

// jitter is the latency's in all named scenarios.
const jitter = .1

// Named is the table of scenarios, the thirteen of the suite first.
func Named() []*Scenario {
	return slices.Concat(suite(), told(suite()), hard(), trouble(), users())
}

// Suite is the thirteen scenarios over which means are reported.
func Suite() []*Scenario { return suite() }

// Find is the scenario of that name, random-N included.
func Find(name string) (*Scenario, error) {
	if n, found := strings.CutPrefix(name, "random-"); found {
		if seed, err := strconv.ParseUint(n, 10, 64); err == nil {
			return Random(seed), nil
		}
	}
	all := Named()
	if i := slices.IndexFunc(all, func(s *Scenario) bool { return s.Name == name }); i >= 0 {
		return all[i], nil
	}
	return nil, fmt.Errorf("there is no scenario %q", name)
}

func suite() []*Scenario {
	list := []*Scenario{{
		Name:      "heroku-30min",
		About:     "the Ruby gem's benchmark: an empty bucket of 4,500 that refills in an hour and tells what is left, and its limit, too, which Heroku's own does not",
		Server:    server.Spec{Kind: server.Bucket, Rate: server.Constant(herokus), Burst: 4500, Empty: true, Signal: server.Remaining},
		Processes: 2, Callers: 5, Latency: 165 * time.Millisecond, Duration: 30 * time.Minute,
	}, {
		Name:      "heroku-clear",
		About:     "the gem's other benchmark: how long it takes to use up a full bucket that does not refill",
		Server:    server.Spec{Kind: server.Bucket, Rate: server.Constant(0), Burst: 4500, Signal: server.Remaining},
		Processes: 2, Callers: 5, Latency: 165 * time.Millisecond, Duration: 2 * time.Hour, Calls: 4490,
	}, {
		Name:      "emr-1000",
		About:     "1,000 calls by 10 workers at an API of 4 a second with a burst of 4",
		Server:    server.Spec{Kind: server.Bucket, Rate: server.Constant(4), Burst: 4},
		Processes: 1, Callers: 10, Latency: 100 * time.Millisecond, Duration: 2 * time.Hour, Calls: 1000,
	}, {
		Name:      "heroku-10x1",
		About:     "ten processes of one caller share Heroku's empty bucket and are told nothing",
		Server:    server.Spec{Kind: server.Bucket, Rate: server.Constant(herokus), Burst: 4500, Empty: true},
		Processes: 10, Callers: 1, Latency: 165 * time.Millisecond, Duration: 30 * time.Minute,
	}, {
		Name:  "step-50-5-50",
		About: "the limit falls to a tenth for two minutes",
		Server: server.Spec{Kind: server.Bucket, Burst: 50,
			Rate: server.Schedule{{At: 0, Rate: 50}, {At: 2 * time.Minute, Rate: 5}, {At: 4 * time.Minute, Rate: 50}}},
		Processes: 2, Callers: 20, Latency: 50 * time.Millisecond, Duration: 6 * time.Minute,
	}, {
		Name:  "wave-20-8",
		About: "the limit swings between 20 and 8 a second every half minute",
		Server: server.Spec{Kind: server.Bucket, Burst: 20,
			Rate: server.Wave(30*time.Second, 10*time.Minute, 20, 8)},
		Processes: 3, Callers: 8, Latency: 80 * time.Millisecond, Duration: 10 * time.Minute,
	}, {
		Name:      "join-8",
		About:     "one more process every 20 seconds, until eight share 40 a second",
		Server:    server.Spec{Kind: server.Bucket, Rate: server.Constant(40), Burst: 40},
		Processes: 8, Callers: 4, Latency: 50 * time.Millisecond, Duration: 8 * time.Minute, Join: 20 * time.Second,
	}, {
		Name:  "grow-10x2^n",
		About: "the limit doubles every two minutes, from 10 to 160 a second",
		Server: server.Spec{Kind: server.Bucket, Burst: 100,
			Rate: server.Doubling(10, 2*time.Minute, 10*time.Minute)},
		Processes: 2, Callers: 20, Latency: 30 * time.Millisecond, Duration: 10 * time.Minute,
	}, {
		Name:      "high-1000",
		About:     "four processes of 50 callers share 1,000 a second for a minute",
		Server:    server.Spec{Kind: server.Bucket, Rate: server.Constant(1000), Burst: 1000},
		Processes: 4, Callers: 50, Latency: 20 * time.Millisecond, Duration: time.Minute,
	}, {
		Name:      "window-100/min",
		About:     "a fixed window of 100 a minute",
		Server:    server.Spec{Kind: server.FixedWindow, Rate: server.Constant(100. / 60), Window: time.Minute},
		Processes: 1, Callers: 10, Latency: 100 * time.Millisecond, Duration: 20 * time.Minute,
	}, {
		Name:      "sliding-100/10s",
		About:     "100 in any ten seconds, by an exact log",
		Server:    server.Spec{Kind: server.SlidingWindow, Rate: server.Constant(10), Window: 10 * time.Second},
		Processes: 2, Callers: 10, Latency: 100 * time.Millisecond, Duration: 10 * time.Minute,
	}, {
		Name:      "retry-after-2/s",
		About:     "four processes share 2 a second and are told an exact Retry-After",
		Server:    server.Spec{Kind: server.Bucket, Rate: server.Constant(2), Burst: 10, Signal: server.RetryAfter},
		Processes: 4, Callers: 4, Latency: 100 * time.Millisecond, Duration: 15 * time.Minute,
	}, {
		Name:      "idle-limit-never-hit",
		About:     "a limit that nobody reaches: what does caution cost?",
		Server:    server.Spec{Kind: server.Bucket, Rate: server.Constant(1e6), Burst: 1e6},
		Processes: 1, Callers: 100, Latency: 20 * time.Millisecond, Duration: 30 * time.Second,
	}}
	for _, s := range list {
		s.Suite, s.Jitter = true, jitter
	}
	return list
}

// told is some of the suite's scenarios with a server that tells more than
// there, or less.
func told(suite []*Scenario) []*Scenario {
	signals := []struct {
		of, name string
		signal   server.Signal
	}{
		{"heroku-30min", "n-heroku-30min", 0},
		{"heroku-10x1", "h-heroku-10x1", server.Remaining},
		{"emr-1000", "h-emr-1000", server.Remaining},
		{"step-50-5-50", "h-step-50-5-50", server.Remaining},
		{"join-8", "h-join-8", server.Remaining},
		{"high-1000", "h-high-1000", server.Remaining},
		{"window-100/min", "h-window-100/min", server.Remaining | server.Reset},
		{"sliding-100/10s", "h-sliding-100/10s", server.Remaining | server.Reset},
		{"window-100/min", "r-window-100/min", server.RetryAfter | server.WholeSeconds},
		{"retry-after-2/s", "w-retry-after-2/s", server.RetryAfter | server.WholeSeconds},
	}
	var list []*Scenario
	for _, v := range signals {
		i := slices.IndexFunc(suite, func(s *Scenario) bool { return s.Name == v.of })
		s := *suite[i]
		s.Name, s.Suite, s.Server.Signal = v.name, false, v.signal
		s.About = fmt.Sprintf("as %s, but the server tells %s", v.of, Tells(v.signal))
		list = append(list, &s)
	}
	return list
}

// Tells puts a server's signal into words.
func Tells(s server.Signal) string {
	switch {
	case s&server.Remaining != 0 && s&server.Reset != 0:
		return "the limit, what is left and until when"
	case s&server.NoLimit != 0:
		return "what is left"
	case s&server.Remaining != 0:
		return "the limit and what is left"
	case s&server.WholeSeconds != 0:
		return "Retry-After in whole seconds"
	case s&server.RetryAfter != 0:
		return "Retry-After"
	}
	return "nothing"
}

// hard returns extreme limits: slow, fast, far away, shared by many, changing in other ways.
func hard() []*Scenario {
	list := []*Scenario{{
		Name:      "whole-seconds-20/s",
		About:     "20 a second with Retry-After rounded up to a whole second, as real servers send it",
		Server:    server.Spec{Kind: server.Bucket, Rate: server.Constant(20), Burst: 20, Signal: server.RetryAfter | server.WholeSeconds},
		Processes: 2, Callers: 10, Latency: 80 * time.Millisecond, Duration: 5 * time.Minute,
	}, {
		Name:      "latency-2s",
		About:     "every request takes two seconds and 40 callers share 10 a second",
		Server:    server.Spec{Kind: server.Bucket, Rate: server.Constant(10), Burst: 20},
		Processes: 2, Callers: 20, Latency: 2 * time.Second, Duration: 10 * time.Minute,
	}, {
		Name:      "answers-10s",
		About:     "a language model: every answer takes ten seconds, throttles come at once, and 100 callers share 8 requests a second",
		Server:    server.Spec{Kind: server.Bucket, Rate: server.Constant(8), Burst: 60, Work: 10 * time.Second, Signal: server.RetryAfter | server.WholeSeconds},
		Processes: 1, Callers: 100, Latency: 100 * time.Millisecond, Duration: 10 * time.Minute,
	}, {
		Name:      "slow-0.05/s",
		About:     "three calls a minute, shared by two processes",
		Server:    server.Spec{Kind: server.Bucket, Rate: server.Constant(.05), Burst: 3, Signal: server.RetryAfter},
		Processes: 2, Callers: 2, Latency: 200 * time.Millisecond, Duration: 2 * time.Hour,
	}, {
		Name:      "minute-4x1",
		About:     "six calls a minute shared by four processes that are told nothing",
		Server:    server.Spec{Kind: server.Bucket, Rate: server.Constant(.1), Burst: 6},
		Processes: 4, Callers: 1, Latency: 200 * time.Millisecond, Duration: time.Hour,
	}, {
		Name:      "fast-10000/s",
		About:     "10,000 a second for 200 callers",
		Server:    server.Spec{Kind: server.Bucket, Rate: server.Constant(10_000), Burst: 10_000},
		Processes: 2, Callers: 100, Latency: 10 * time.Millisecond, Duration: 15 * time.Second,
	}, {
		Name:      "fast-3000x16",
		About:     "sixteen processes share 3,000 a second for half a minute",
		Server:    server.Spec{Kind: server.Bucket, Rate: server.Constant(3000), Burst: 3000},
		Processes: 16, Callers: 12, Latency: 20 * time.Millisecond, Duration: 30 * time.Second,
	}, {
		Name:      "leave-8",
		About:     "eight processes share 40 a second and leave one after the other",
		Server:    server.Spec{Kind: server.Bucket, Rate: server.Constant(40), Burst: 40},
		Processes: 8, Callers: 8, Latency: 50 * time.Millisecond, Duration: 8 * time.Minute, Leave: 50 * time.Second,
	}, {
		Name:  "sawtooth-10-50",
		About: "the limit climbs fivefold within a minute and falls again",
		Server: server.Spec{Kind: server.Bucket, Burst: 20,
			Rate: server.Wave(12*time.Second, 6*time.Minute, 10, 20, 30, 40, 50)},
		Processes: 2, Callers: 10, Latency: 60 * time.Millisecond, Duration: 6 * time.Minute,
	}, {
		Name:      "github-5000/h",
		About:     "5,000 an hour in windows of an hour, with the limit, what is left and until when on every response",
		Server:    server.Spec{Kind: server.FixedWindow, Rate: server.Constant(5000. / 3600), Window: time.Hour, Signal: server.Remaining | server.Reset},
		Processes: 2, Callers: 8, Latency: 120 * time.Millisecond, Duration: 2 * time.Hour,
	}, {
		Name:      "heroku-4x5",
		About:     "four processes of five callers share Heroku's full bucket for three hours and are told what is left",
		Server:    server.Spec{Kind: server.Bucket, Rate: server.Constant(herokus), Burst: 4500, Signal: server.Remaining},
		Processes: 4, Callers: 5, Latency: 165 * time.Millisecond, Duration: 3 * time.Hour,
	}, {
		Name:      "bursts-20/s",
		About:     "callers that want a lot for 20 seconds and nothing for 40",
		Server:    server.Spec{Kind: server.Bucket, Rate: server.Constant(20), Burst: 100},
		Processes: 2, Callers: 10, Latency: 60 * time.Millisecond, Duration: 10 * time.Minute, Period: time.Minute, Duty: 1. / 3,
	}, {
		Name:      "one-64-at-30/s",
		About:     "one process of 64 callers, 200 ms away from 30 a second with a bucket of 300",
		Server:    server.Spec{Kind: server.Bucket, Rate: server.Constant(30), Burst: 300},
		Processes: 1, Callers: 64, Latency: 200 * time.Millisecond, Duration: 10 * time.Minute,
	}, {
		Name:      "dead-100",
		About:     "two processes of 20 callers start at an empty bucket of 100 a second",
		Server:    server.Spec{Kind: server.Bucket, Rate: server.Constant(100), Burst: 100, Empty: true},
		Processes: 2, Callers: 20, Latency: 50 * time.Millisecond, Duration: 5 * time.Minute,
	}, {
		Name:      "concurrency-8",
		About:     "eight requests at a time, a quarter of a second each",
		Server:    server.Spec{Kind: server.Concurrency, Rate: server.Constant(32), Burst: 8, Work: 250 * time.Millisecond},
		Processes: 2, Callers: 12, Latency: 40 * time.Millisecond, Duration: 5 * time.Minute,
	}, {
		Name:      "h-concurrency-60",
		About:     "60 requests at a time, a second each, with the limit and how many are free",
		Server:    server.Spec{Kind: server.Concurrency, Rate: server.Constant(60), Burst: 60, Work: time.Second, Signal: server.Remaining},
		Processes: 1, Callers: 100, Latency: 100 * time.Millisecond, Duration: 5 * time.Minute,
	}}
	for _, s := range list {
		s.Jitter = jitter
	}
	return list
}

// trouble is servers that break, lie, or are shared with the reckless.
func trouble() []*Scenario {
	list := []*Scenario{{
		Name:  "outage-1m",
		About: "for one minute everything is throttled",
		Server: server.Spec{Kind: server.Bucket, Rate: server.Constant(50), Burst: 50,
			Down: []server.Span{{From: 2 * time.Minute, To: 3 * time.Minute}}},
		Processes: 2, Callers: 20, Latency: 50 * time.Millisecond, Duration: 6 * time.Minute,
	}, {
		Name:  "first-outage-1m",
		About: "a server that gives more than is wanted throttles everything for a minute, and never else",
		Server: server.Spec{Kind: server.Bucket, Rate: server.Constant(1000), Burst: 1000,
			Down: []server.Span{{From: 2 * time.Minute, To: 3 * time.Minute}}},
		Processes: 1, Callers: 10, Latency: 100 * time.Millisecond, Duration: 10 * time.Minute,
	}, {
		Name:  "outage-10m",
		About: "eight processes begin, and soon everything is throttled for ten minutes",
		Server: server.Spec{Kind: server.Bucket, Rate: server.Constant(20), Burst: 20,
			Down: []server.Span{{From: 2 * time.Minute, To: 12 * time.Minute}}},
		Processes: 8, Callers: 5, Latency: 50 * time.Millisecond, Duration: 22 * time.Minute,
	}, {
		Name:  "errors-1m",
		About: "for one minute everything fails, but nothing is throttled",
		Server: server.Spec{Kind: server.Bucket, Rate: server.Constant(50), Burst: 50,
			Broken: []server.Span{{From: 2 * time.Minute, To: 3 * time.Minute}}},
		Processes: 2, Callers: 20, Latency: 50 * time.Millisecond, Duration: 6 * time.Minute,
	}, {
		Name:      "liar-low",
		About:     "Retry-After is a tenth of the truth",
		Server:    server.Spec{Kind: server.Bucket, Rate: server.Constant(5), Burst: 10, Signal: server.RetryAfter, Lie: .1},
		Processes: 2, Callers: 5, Latency: 80 * time.Millisecond, Duration: 10 * time.Minute,
	}, {
		Name:      "liar-high",
		About:     "Retry-After is ten times the truth",
		Server:    server.Spec{Kind: server.Bucket, Rate: server.Constant(5), Burst: 10, Signal: server.RetryAfter, Lie: 10},
		Processes: 2, Callers: 5, Latency: 80 * time.Millisecond, Duration: 10 * time.Minute,
	}, {
		Name:      "greedy-half",
		About:     "a competitor takes half of 20 a second and never backs off",
		Server:    server.Spec{Kind: server.Bucket, Rate: server.Constant(20), Burst: 20, Greedy: 10},
		Processes: 2, Callers: 8, Latency: 80 * time.Millisecond, Duration: 10 * time.Minute,
	}}
	for _, arrivals := range []float64{150, 240, 280} {
		list = append(list, &Scenario{
			Name:  fmt.Sprintf("metastable-%.0f", arrivals),
			About: fmt.Sprintf("%.0f calls a second at a queue of 300 a second that stood still for 10 s; clients stop waiting after 1 s", arrivals),
			Server: server.Spec{Kind: server.Queue, Rate: server.Constant(300),
				Stall: []server.Span{{From: 30 * time.Second, To: 40 * time.Second}}},
			Processes: 10, Callers: 1, Latency: 20 * time.Millisecond, Duration: 3 * time.Minute,
			Arrivals: arrivals, Attempts: 4, Timeout: time.Second, Deadline: 10 * time.Second,
		})
	}
	for _, s := range list {
		s.Jitter = jitter
	}
	return list
}
