package score

import (
	"math"
	"testing"
	"time"

	"github.com/a7df5faa/cruise/simulation/engine"
	"github.com/a7df5faa/cruise/simulation/scenario"
	"github.com/a7df5faa/cruise/simulation/server"
)

func TestScoresOfARunByHand(t *testing.T) {
	s := &scenario.Scenario{
		Name: "by hand", Processes: 2, Callers: 2, Latency: time.Second, Duration: 100 * time.Second,
		Server: server.Spec{Kind: server.Bucket, Rate: server.Constant(2), Burst: 1},
	}
	rec := &engine.Recording{
		Scenario: s, Width: time.Second, Bins: make([]engine.Bin, 100), Elapsed: s.Duration,
		Callers: []engine.Caller{
			{Process: 0, Requests: 100, Throttled: 50, Successes: 50, Longest: 3 * time.Second},
			{Process: 0, Requests: 40, Throttled: 0, Successes: 40, Longest: 9 * time.Second},
			{Process: 1, Requests: 50, Throttled: 0, Successes: 50},
			{Process: 1, Requests: 50, Throttled: 10, Successes: 40},
		},
	}
	best := scenario.Best{Successes: 200, Fair: []float64{100, 100}}
	check := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 1e-9 {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	got := Of(rec, best)
	check("throttled by caller", got.Throttled, (50+0+0+20)/4.)
	check("throttled in all", got.Total, 25)
	check("use", got.Use, .9)
	check("wait", got.Wait, 9)
	check("wait ratio", got.Ratio, 9/2.)
	check("fairness of callers", got.Jain, 180*180/(4*(2*2500+2*1600.)))
	check("stdev", got.Stdev, math.Sqrt((1600+400+100+100)/3.))

	s.Random = true
	got = Of(rec, scenario.Best{Successes: 300, Fair: []float64{90, 180}})
	check("throttled, random", got.Throttled, 25)
	check("use, random", got.Use, .6)
	check("fairness of processes", got.Jain, 1.5*1.5/(2*(1+.25)))
	rec.Rivals = 100
	check("use beside a competitor", Of(rec, scenario.Best{Successes: 300, Fair: best.Fair}).Use, .9)

	check("requests a call, closed loop", got.Amplification, 240/180.)
	if !math.IsNaN(got.Failed) {
		t.Errorf("failed, closed loop: %v", got.Failed)
	}
	rec.Calls, rec.Failed, s.Arrivals = 120, 30, 1
	check("requests a call, open loop", Of(rec, best).Amplification, 2)
	check("failed", Of(rec, best).Failed, 25)
	s.Arrivals = 0

	s.Random, rec.Callers[1] = false, engine.Caller{}
	check("whoever sends nothing is throttled nowhere", Of(rec, best).Throttled, (50+0+20)/3.)
}

// Who comes later gets less of what there is, and that is fair.
func TestFairnessIsOfTheTimeThatACallerIsThere(t *testing.T) {
	s := &scenario.Scenario{
		Name: "t", Processes: 2, Callers: 2, Latency: 10 * time.Millisecond, Duration: 100 * time.Second, Join: 50 * time.Second,
		Server: server.Spec{Kind: server.Bucket, Rate: server.Constant(10), Burst: 1},
	}
	caller := func(process, successes int) engine.Caller {
		return engine.Caller{Process: process, Requests: successes, Successes: successes}
	}
	rec := &engine.Recording{Scenario: s, Width: time.Second, Bins: make([]engine.Bin, 100), Elapsed: s.Duration,
		Callers: []engine.Caller{caller(0, 375), caller(0, 375), caller(1, 125), caller(1, 125)}}
	best := s.Ideal()
	if got := Of(rec, best).Jain; got < .999 {
		t.Errorf("Jain's index is %v where each got its share of each moment", got)
	}
	for i, share := range Shares(rec, best) {
		if math.Abs(share-1) > .01 {
			t.Errorf("caller %d got %v of an equal share", i, share)
		}
	}
	for i := range rec.Callers {
		rec.Callers[i].Successes = 250
	}
	if got := Of(rec, best).Jain; got > .9 {
		t.Errorf("Jain's index is %v where who came later got as much", got)
	}
	none := scenario.Best{Fair: []float64{0, 0}} // a window that does not open before the end
	if got := Of(&engine.Recording{Scenario: s, Width: time.Second, Callers: make([]engine.Caller, 4), Elapsed: s.Duration}, none).Jain; got != 1 {
		t.Errorf("Jain's index is %v of nothing", got)
	}
}

// Callers who want less than the server gives are back when they get what they want.
func TestRecoveryIsOfWhatIsWanted(t *testing.T) {
	s := &scenario.Scenario{
		Processes: 1, Callers: 5, Latency: 500 * time.Millisecond, Duration: 200 * time.Second,
		Server: server.Spec{Kind: server.Bucket, Rate: server.Constant(100), Burst: 1, Down: []server.Span{{From: 50 * time.Second, To: 100 * time.Second}}},
	}
	rec := &engine.Recording{Scenario: s, Width: time.Second, Bins: make([]engine.Bin, 200), Callers: make([]engine.Caller, 5), Elapsed: s.Duration}
	for i := range rec.Bins {
		if i < 50 || i >= 110 {
			rec.Bins[i].Successes = 10 // of five callers who wait for half a second each
		}
	}
	if got := Of(rec, scenario.Best{Successes: 1, Fair: []float64{1}}).Recovery; got < 5 || got > 20 {
		t.Errorf("recovered after %v s", got)
	}
}

// Bins that do not begin when the trouble ends add nothing to the time after it.
func TestWhoIsBackAtOnceTakesNoTime(t *testing.T) {
	s := &scenario.Scenario{
		Processes: 1, Callers: 5, Latency: 500 * time.Millisecond, Duration: 220 * time.Second,
		Server: server.Spec{Kind: server.Bucket, Rate: server.Constant(100), Burst: 1, Down: []server.Span{{From: 50 * time.Second, To: 100 * time.Second}}},
	}
	rec := &engine.Recording{Scenario: s, Width: 2200 * time.Millisecond, Bins: make([]engine.Bin, 100), Callers: make([]engine.Caller, 5), Elapsed: s.Duration}
	for i := range rec.Bins {
		rec.Bins[i].Successes = 22
	}
	if got := Of(rec, scenario.Best{Successes: 1, Fair: []float64{1}}).Recovery; got != 0 {
		t.Errorf("recovered after %v s", got)
	}
}

func TestAdaptIsTheTimeUntilTheRateFits(t *testing.T) {
	s := &scenario.Scenario{Duration: 200 * time.Second, Server: server.Spec{
		Kind: server.Bucket, Burst: 1, Rate: server.Schedule{{At: 0, Rate: 20}, {At: 100 * time.Second, Rate: 10}}}}
	rec := &engine.Recording{Scenario: s, Width: time.Second, Bins: make([]engine.Bin, 200), Callers: make([]engine.Caller, 1)}
	for i := range rec.Bins {
		rec.Bins[i].Successes = 20
		if i >= 110 {
			rec.Bins[i].Successes = 10
		}
	}
	if got := Of(rec, scenario.Best{Successes: 1, Fair: []float64{1}}).Adapt; got != 10 {
		t.Errorf("%v s, want 10", got)
	}
}

func TestGatherTakesTheMiddleAndTheRange(t *testing.T) {
	s := &scenario.Scenario{}
	r := Gather(s, "x", []Score{{Use: .5, Clear: math.NaN()}, {Use: .9, Clear: math.NaN()}, {Use: .6, Clear: math.NaN()}})
	if r.Median.Use != .6 || r.Low.Use != .5 || r.High.Use != .9 || !math.IsNaN(r.Median.Clear) {
		t.Errorf("%+v", r)
	}
	if m := Median([]float64{4, 1, math.NaN(), 2, 3}); m != 2.5 {
		t.Errorf("median %v, want 2.5", m)
	}
}

func TestMeansOfWaitsAreGeometric(t *testing.T) {
	m := Means([]Result{
		{Median: Score{Wait: 1, Use: .5, Throttled: 1}},
		{Median: Score{Wait: 100, Use: .7, Throttled: 2}},
	})
	if math.Abs(m.Wait-10) > 1e-9 || math.Abs(m.Use-.6) > 1e-9 || m.Throttled != 1.5 {
		t.Errorf("%+v", m)
	}
}

func TestCollapsesAreCounted(t *testing.T) {
	a, b := &scenario.Scenario{Name: "a"}, &scenario.Scenario{Name: "b"}
	got := Count([]Result{
		{Scenario: a, Median: Score{Use: .4, Throttled: 11, Jain: .9}},
		{Scenario: b, Median: Score{Use: .5, Throttled: 10, Jain: .69}},
	}, map[string]float64{"a": .8, "b": .8})
	if (got != Collapses{Use: 1, Throttled: 1, Jain: 1}) {
		t.Errorf("%+v", got)
	}
}
