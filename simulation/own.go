package main

import (
	"errors"
	"flag"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/a7df5faa/cruise"

	"github.com/a7df5faa/cruise/simulation/client"
	"github.com/a7df5faa/cruise/simulation/engine"
	"github.com/a7df5faa/cruise/simulation/scenario"
	"github.com/a7df5faa/cruise/simulation/server"
)

// own is a server and a limiter of the user's.
type own struct {
	kind, signal       string
	rate, burst        float64
	window, work       time.Duration
	empty              bool
	processes, workers int
	latency, duration  time.Duration
	knobs              [len(knobs)]float64
}

// serverFlags describe the server and its callers.
var serverFlags = []string{"server", "rate", "burst", "window", "work", "empty", "signal", "processes", "workers", "latency", "duration"}

// idle flags say nothing about a kind of server.
var idle = map[server.Kind][]string{
	server.Bucket:        {"window"},
	server.FixedWindow:   {"burst"},
	server.SlidingWindow: {"burst"},
	server.Concurrency:   {"rate", "window", "empty"},
}

// concurrentWork is how long a request holds the slot of a concurrency limit, unless -work says
// otherwise.
const concurrentWork = 250 * time.Millisecond

// mostRequests are served in a run, which takes a minute or so.
const mostRequests = 10_000_000

// mostWaiting bounds the time of all callers together, including throttled callers that wait: a run
// of that much takes a minute or so.
const mostWaiting = 10_000 * time.Hour

// mostWindows of a run take the best possible result a quarter of a second to work out.
const mostWindows = 400_000

// leastWhole is the least share of the rate that whole requests in a window must reach, so that the
// simulated rate is near the wanted one.
const leastWhole = .95

// knob is a flag that is an option of the adaptive limiter.
type knob struct {
	flag, usage string
	code        string // the option in Go, with %s for the number
	option      func(float64) cruise.LimiterOption
	whole       bool // the option takes an int
}

var knobs = [...]knob{
	{"initial-rate", "the limiter's `rate` at the start, calls a second; default none until the first throttle", "WithInitialRate(%s)",
		func(v float64) cruise.LimiterOption { return cruise.WithInitialRate(rate.Limit(v)) }, false},
	{"min-rate", "the limiter's lowest `rate`; default a call in ten minutes", "WithTuning(cruise.Tuning{MinRate: %s})",
		func(v float64) cruise.LimiterOption { return cruise.WithTuning(cruise.Tuning{MinRate: rate.Limit(v)}) }, false},
	{"max-rate", "the limiter's highest `rate`; default none", "WithMaxRate(%s)",
		func(v float64) cruise.LimiterOption { return cruise.WithMaxRate(rate.Limit(v)) }, false},
	{"limiter-burst", "`calls` that the limiter lets go at once; default 10 ms' worth of its rate, 1 at least", "WithTuning(cruise.Tuning{Burst: %s})",
		func(v float64) cruise.LimiterOption { return cruise.WithTuning(cruise.Tuning{Burst: int(v)}) }, true},
	{"decrease", "`factor` by which a throttle multiplies what the server delivered; default 0.5", "WithTuning(cruise.Tuning{DecreaseFactor: %s})", func(v float64) cruise.LimiterOption { return cruise.WithTuning(cruise.Tuning{DecreaseFactor: v}) }, false},
	{"increase", "`share` of its last ceiling that the limiter adds over 128 calls while it probes; default 0.1", "WithTuning(cruise.Tuning{Increase: %s})", func(v float64) cruise.LimiterOption { return cruise.WithTuning(cruise.Tuning{Increase: v}) }, false},
}

// flags declares the flags of a server and a limiter of the user's.
func (o *own) flags(f *flag.FlagSet) {
	f.StringVar(&o.kind, "server", "", "`kind` of the server: bucket, fixed, sliding or concurrency; default bucket")
	f.Var(decimal(&o.rate), "rate", "`requests` a second that the server serves")
	f.Var(decimal(&o.burst), "burst", "`tokens` of the server's bucket, by default a second's worth; slots of its concurrency limit")
	o.window, o.latency, o.duration = time.Minute, 100*time.Millisecond, 10*time.Minute
	f.Var((*span)(&o.window), "window", "`length` of the server's window")
	f.Var((*span)(&o.work), "work", "`time` that the server works on a request that it lets through, while throttles come at once; default none, of a concurrency limit 250ms")
	f.BoolVar(&o.empty, "empty", false, "the server's bucket or window is used up at the start")
	f.StringVar(&o.signal, "signal", "none", "`what` the server tells: none, retry-after, seconds (Retry-After in whole ones), remaining (with its limit), rest (remaining alone), reset (with both)")
	o.processes, o.workers = 1, 10
	f.Var(whole(&o.processes), "processes", "`clients` of the server that know nothing of each other")
	f.Var(whole(&o.workers), "workers", "`callers` in each client")
	f.Var((*span)(&o.latency), "latency", "`time` that a request takes, without -work")
	f.Var((*span)(&o.duration), "duration", "`length` of a run, in virtual time")
	for i, k := range knobs {
		f.Var(decimal(&o.knobs[i]), k.flag, k.usage)
	}
}

// span is a flag for a duration. Its error shows the format.
type span time.Duration

func (s *span) String() string { return time.Duration(*s).String() }

// Set reads a duration.
func (s *span) Set(text string) error {
	d, err := time.ParseDuration(text)
	if err != nil {
		return errors.New("want a duration with its unit, such as 10s or 1m30s")
	}
	*s = span(d)
	return nil
}

// number is a flag for a number. Its error shows the format.
type number[T any] struct {
	to    *T
	parse func(string) (T, error)
	want  string
}

func whole(to *int) flag.Value { return number[int]{to, strconv.Atoi, "a whole number, such as 3"} }

func seed(to *uint64) flag.Value {
	return number[uint64]{to, func(s string) (uint64, error) { return strconv.ParseUint(s, 10, 64) }, "a whole number from 0 to 18446744073709551615"}
}

func decimal(to *float64) flag.Value {
	return number[float64]{to, func(s string) (float64, error) { return strconv.ParseFloat(s, 64) }, "a number, such as 20 or 0.5"}
}

func (n number[T]) String() string {
	if n.to == nil { // package flag asks it which default goes without saying
		return "0"
	}
	return fmt.Sprint(*n.to)
}

// Set reads a number.
func (n number[T]) Set(text string) error {
	v, err := n.parse(text)
	if err != nil {
		return errors.New("want " + n.want)
	}
	*n.to = v
	return nil
}

// given tells whether the user brings a server or options of the limiter.
func (o *own) given(set map[string]bool) bool {
	isSet := func(name string) bool { return set[name] }
	return slices.ContainsFunc(serverFlags, isSet) || slices.ContainsFunc(knobs[:], func(k knob) bool { return set[k.flag] })
}

// scenario returns the scenario that the flags describe.
func (o *own) scenario(set map[string]bool) (*scenario.Scenario, error) {
	kinds := []server.Kind{server.Bucket, server.FixedWindow, server.SlidingWindow, server.Concurrency}
	spec := server.Spec{Kind: -1, Rate: server.Constant(o.rate), Burst: o.burst, Empty: o.empty}
	for _, k := range kinds {
		if o.kind == k.String() || o.kind == "" && k == server.Bucket {
			spec.Kind = k
		}
	}
	signal := slices.IndexFunc(server.Signals, func(s server.Signal) bool { return s.String() == o.signal })
	if signal >= 0 {
		spec.Signal = server.Signals[signal]
	}
	switch {
	case spec.Kind < 0:
		return nil, fmt.Errorf("-server %s: want bucket, fixed, sliding or concurrency", o.kind)
	case signal < 0:
		return nil, fmt.Errorf("-signal %q: want none, retry-after, seconds, remaining, rest or reset", o.signal)
	case o.processes < 1 || o.workers < 1 || o.processes > 10_000 || o.workers > 10_000/o.processes:
		return nil, fmt.Errorf("-processes %d -workers %d: want at least 1 of each, and at most 10,000 workers in all", o.processes, o.workers)
	case o.duration < time.Second || o.duration > 24*time.Hour:
		return nil, fmt.Errorf("-duration %v: want 1s to 24h", o.duration)
	case o.latency < time.Microsecond || o.latency > time.Hour:
		return nil, fmt.Errorf("-latency %v: want 1µs to 1h", o.latency)
	case set["work"] && (o.work < time.Microsecond || o.work > time.Hour):
		return nil, fmt.Errorf("-work %v: want 1µs to 1h", o.work)
	}
	spec.Work = o.work
	if spec.Kind == server.Concurrency && !set["work"] {
		spec.Work = concurrentWork
	}
	takes := o.latency + spec.Work
	if takes > o.duration { // nothing would be served
		return nil, fmt.Errorf("-latency %v -work %v: want at most the -duration %v together", o.latency, spec.Work, o.duration)
	}
	if most := mostWaiting / time.Duration(o.processes*o.workers); o.duration > most {
		return nil, fmt.Errorf("-duration %v: want at most %v for %d workers in all", o.duration, most, o.processes*o.workers)
	}
	for _, name := range idle[spec.Kind] {
		if set[name] {
			return nil, fmt.Errorf("-%s does not go with -server %v", name, spec.Kind)
		}
	}
	perSecond, about := o.rate, ""
	if spec.Kind == server.Concurrency {
		if !(o.burst >= 1 && o.burst <= 10_000) || o.burst != math.Trunc(o.burst) {
			return nil, fmt.Errorf("%s: want the slots of -server concurrency, a whole number from 1 to 10000", told(set, "burst", o.burst))
		}
		perSecond = o.burst / spec.Work.Seconds()
		spec.Rate = server.Constant(perSecond)
		about = fmt.Sprintf("%v requests at a time, %v each", o.burst, spec.Work)
	} else if !(o.rate >= 1e-4 && o.rate <= 1e6) {
		return nil, fmt.Errorf("%s: want the requests a second that the server serves, 0.0001 to 1000000", told(set, "rate", o.rate))
	}
	switch spec.Kind {
	case server.Bucket:
		if !set["burst"] {
			spec.Burst = math.Ceil(o.rate)
		}
		if !(spec.Burst >= 1 && spec.Burst <= 1e6) {
			return nil, fmt.Errorf("-burst %v: want 1 to 1000000", o.burst)
		}
		about = fmt.Sprintf("a bucket of %s that refills at %s a second", literal(spec.Burst), literal(o.rate))
	case server.FixedWindow, server.SlidingWindow:
		spec.Window = o.window
		if n := o.rate * o.window.Seconds(); !(n >= 1 && n <= 1e6) {
			return nil, fmt.Errorf("-window %v: want one that holds 1 to 1000000 requests, at -rate %v it is %v", o.window, o.rate, n)
		}
		if least := o.duration / mostWindows; o.window < least {
			return nil, fmt.Errorf("-window %v: want %v at least, a run of the -duration %v is of %d windows at most", o.window, least, o.duration, mostWindows)
		}
		if o.window > 100*o.duration {
			return nil, fmt.Errorf("-window %v: want at most 100 times the -duration %v", o.window, o.duration)
		}
		// The clients that know the rate must know how much of it the windows hold.
		whole := server.Allowed(spec.Rate, spec.Window, 0)
		spec.Rate = server.Constant(float64(whole) / o.window.Seconds())
		if spec.Rate.At(0) < leastWhole*o.rate {
			return nil, fmt.Errorf("-rate %v -window %v: want whole requests in a window, such as -rate %s for %d of them",
				o.rate, o.window, literal(spec.Rate.At(0)), whole)
		}
		if o.empty && spec.Kind == server.FixedWindow && o.window >= o.duration {
			return nil, fmt.Errorf("-empty -window %v: want a window shorter than the -duration %v, or nothing is served", o.window, o.duration)
		}
		about = fmt.Sprintf("%d requests in each %v", whole, o.window)
		if spec.Kind == server.SlidingWindow {
			about = fmt.Sprintf("%d requests in any %v", whole, o.window)
		}
	}
	if o.empty {
		least := 1 / spec.Rate.At(0) // until the first request can be served
		if spec.Kind != server.FixedWindow && o.duration.Seconds() <= least {
			return nil, fmt.Errorf("-empty -duration %v: want more than %s s, or nothing is served", o.duration, literal(least))
		}
		about += ", used up at the start"
	}
	if spec.Kind != server.Concurrency && spec.Work > 0 {
		about += fmt.Sprintf(", %v for each", spec.Work)
	}
	about += "; tells " + scenario.Tells(spec.Signal)
	perSecond = min(perSecond, float64(o.processes*o.workers)/takes.Seconds())
	if n := perSecond * o.duration.Seconds(); n > mostRequests {
		return nil, fmt.Errorf("-duration %v: want at most %d requests in a run, at this rate and latency it is %.0f", o.duration, mostRequests, n)
	}
	return &scenario.Scenario{
		Name: scenario.Yours, About: about,
		Server: spec, Processes: o.processes, Callers: o.workers,
		Latency: o.latency, Jitter: .1, Duration: o.duration,
	}, nil
}

// told is a flag and its value, or that it was not given.
func told(set map[string]bool, name string, value float64) string {
	if !set[name] {
		return "no -" + name
	}
	return fmt.Sprintf("-%s %v", name, value)
}

// goesOn describes the simulated clients' behaviour beyond the limiter, which gives all of them the
// same work.
const goesOn = `// Where callers make one call after the other, the simulator gives up none, as if you also
// set cruise.WithMaxAttempts(math.MaxInt), cruise.WithoutBudget() and
// cruise.WithMaxServerDelay(math.MaxInt64).
`

// limiter is a client with the options that were set, or none, and the Go code of them.
func (o *own) limiter(set map[string]bool) (yours []engine.Client, code string, err error) {
	var opts []cruise.LimiterOption
	var flags, lines []string
	for i, k := range knobs {
		v := o.knobs[i]
		if !set[k.flag] {
			continue
		}
		if !(v > 0) || math.IsInf(v, 0) {
			return nil, "", fmt.Errorf("-%s %v: want a finite number above 0", k.flag, v)
		}
		if k.whole && (!(v >= 1 && v <= math.MaxInt32) || v != math.Trunc(v)) {
			return nil, "", fmt.Errorf("-%s %v: want a whole number from 1 to %d", k.flag, v, math.MaxInt32)
		}
		opts = append(opts, k.option(v))
		flags = append(flags, fmt.Sprintf("-%s %v", k.flag, v))
		lines = append(lines, fmt.Sprintf("\tcruise."+k.code+",\n", literal(v)))
	}
	if _, err := cruise.NewAdaptiveLimiter(opts...); err != nil {
		return nil, "", fmt.Errorf("%s: %w", strings.Join(flags, " "), err)
	}
	if len(lines) == 0 {
		return nil, "retrier, err := cruise.New() // the defaults\n" + goesOn, nil
	}
	c := client.Cruise(scenario.Yours, opts...)
	c.About = "cruise with " + strings.Join(flags, " ")
	return []engine.Client{c}, "retrier, err := cruise.New(\n" + strings.Join(lines, "") + ")\n" + goesOn, nil
}

// literal is a number as it is written in Go, without exponent where people would.
func literal(v float64) string {
	format := byte('f')
	if v < 1e-6 || v >= 1e15 {
		format = 'g'
	}
	return strconv.FormatFloat(v, format, -1, 64)
}

// ownPlan returns the plan for the user's limiter at the user's server, or at the given scenarios,
// with the default and some well-known clients for comparison.
func (o *options) ownPlan() (plan, error) {
	for _, name := range []string{"quick", "full", "targets", "random", "from"} {
		if o.set[name] {
			return plan{}, fmt.Errorf("-%s does not go with a server or a limiter of yours", name)
		}
	}
	yours, code, err := o.own.limiter(o.set)
	if err != nil {
		return plan{}, err
	}
	var measure []engine.Client
	list := []*scenario.Scenario{}
	if o.set["scenarios"] {
		measure = measures()
		for _, name := range serverFlags {
			if o.set[name] {
				return plan{}, fmt.Errorf("-%s is about a server of yours: it does not go with -scenarios", name)
			}
		}
		list, err = pickScenarios(o.scenarios)
	} else {
		var s *scenario.Scenario
		s, err = o.own.scenario(o.set)
		list = append(list, s)
	}
	if err != nil {
		return plan{}, err
	}
	names := "cruise,aws-adaptive,cenkalti,pacer-0.8"
	if o.set["clients"] {
		names = o.clients
	}
	clients, err := pickClients(names)
	if err != nil {
		return plan{}, err
	}
	return plan{clients: append(yours, clients...), parts: []part{{"your", list, o.seeds, measure}}, code: code}, nil
}
