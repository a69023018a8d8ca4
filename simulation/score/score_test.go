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
	check("use beyond the best possible", Of(rec, scenario.Best{Successes: 279, Fair: best.Fair}).Use, 1)

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

// A run that should end with its calls, and does not, gets a use in proportion to the calls done.
func TestCallsThatAreNotDoneCountAsUse(t *testing.T) {
	s := &scenario.Scenario{Processes: 1, Callers: 2, Latency: time.Second, Duration: 100 * time.Second, Calls: 60}
	best := scenario.Best{Time: 25 * time.Second, Fair: []float64{60}}
	for successes, want := range map[int]float64{60: .25, 30: .125} {
		rec := &engine.Recording{Scenario: s, Width: time.Second, Callers: []engine.Caller{{Successes: successes}, {}}, Elapsed: s.Duration}
		if got := Of(rec, best).Use; got != want {
			t.Errorf("%d of 60 calls: use %v, want %v", successes, got, want)
		}
	}
}

// Where the server could serve them at once, callers wait for its answers only.
func TestATurnTakesALatencyAtLeast(t *testing.T) {
	s := &scenario.Scenario{Processes: 2, Callers: 5, Latency: 3 * time.Second, Duration: 100 * time.Second,
		Server: server.Spec{Kind: server.Bucket, Rate: server.Constant(100), Work: time.Second}}
	for rate, want := range map[float64]float64{100: 4, 2: 5, 0: 4} {
		s.Server.Rate = server.Constant(rate)
		if got := turn(s); got != want {
			t.Errorf("%v a second: %v s, want %v", rate, got, want)
		}
	}
}

// A caller that comes later gets fewer successes, and that is fair.
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

// Callers that want less than the server's rate have recovered when their calls succeed.
func TestRecoveryIsMeasuredByDemand(t *testing.T) {
	s := &scenario.Scenario{
		Processes: 1, Callers: 5, Latency: 500 * time.Millisecond, Duration: 200 * time.Second,
		Server: server.Spec{Kind: server.Bucket, Rate: server.Constant(100), Burst: 1, Down: []server.Span{{From: 50 * time.Second, To: 100 * time.Second}}},
	}
	rec := &engine.Recording{Scenario: s, Width: time.Second, Bins: make([]engine.Bin, 200), Callers: make([]engine.Caller, 5), Elapsed: s.Duration}
	for i := range rec.Bins {
		if i < 50 || i >= 110 {
			rec.Bins[i].Successes = 10 // of five callers that wait for half a second each
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

// A queue that falls back has not recovered, and four fifths of the demand are enough.
func TestRecoveryOfAnOpenLoopIsForGood(t *testing.T) {
	s := &scenario.Scenario{
		Processes: 1, Callers: 1, Latency: 10 * time.Millisecond, Duration: 200 * time.Second, Arrivals: 100,
		Server: server.Spec{Kind: server.Queue, Rate: server.Constant(300), Stall: []server.Span{{From: 50 * time.Second, To: 60 * time.Second}}},
	}
	for _, c := range []struct {
		relapse int32 // successes a second from 100 s to 120 s
		want    float64
	}{{100, 0}, {81, 0}, {70, 61}} { // the last five seconds with too few have four of these
		rec := &engine.Recording{Scenario: s, Width: time.Second, Bins: make([]engine.Bin, 200), Callers: make([]engine.Caller, 1), Elapsed: s.Duration}
		for i := range rec.Bins {
			rec.Bins[i].Successes = 100
			if i >= 50 && i < 60 {
				rec.Bins[i].Successes = 0
			}
			if i >= 100 && i < 120 {
				rec.Bins[i].Successes = c.relapse
			}
		}
		if got := Of(rec, scenario.Best{Successes: 1, Fair: []float64{1}}).Recovery; got != c.want {
			t.Errorf("%d a second for a while: recovered after %v s, want %v", c.relapse, got, c.want)
		}
	}
}

// A slow rate is measured over more time: two successes in two seconds are no rate of one a second.
func TestAdaptLooksAtTwentyCalls(t *testing.T) {
	s := &scenario.Scenario{Processes: 1, Callers: 10, Latency: 100 * time.Millisecond, Duration: 400 * time.Second, Server: server.Spec{
		Kind: server.Bucket, Burst: 1, Rate: server.Schedule{{At: 0, Rate: 5}, {At: 100 * time.Second, Rate: 1}}}}
	rec := &engine.Recording{Scenario: s, Width: time.Second, Bins: make([]engine.Bin, 400), Callers: make([]engine.Caller, 1)}
	for i := range rec.Bins {
		if i < 100 || i >= 160 || i%10 < 2 { // two by two, of twenty in twenty seconds
			rec.Bins[i].Successes = 1
		}
	}
	if got := Of(rec, scenario.Best{Successes: 1, Fair: []float64{1}}).Adapt; got < 50 || got > 60 {
		t.Errorf("%v s, want 50 to 60", got)
	}
}

func TestAdaptIsTheTimeUntilTheRateFits(t *testing.T) {
	s := &scenario.Scenario{Processes: 1, Callers: 10, Latency: 100 * time.Millisecond, Duration: 200 * time.Second, Server: server.Spec{
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

// Callers that want less than the new limit have adapted when their calls succeed.
func TestAdaptIsOfWhatIsWanted(t *testing.T) {
	s := &scenario.Scenario{
		Processes: 1, Callers: 5, Latency: 500 * time.Millisecond, Duration: 200 * time.Second,
		Server: server.Spec{Kind: server.Bucket, Burst: 1, Rate: server.Schedule{{At: 0, Rate: 5}, {At: 100 * time.Second, Rate: 50}}},
	}
	rec := &engine.Recording{Scenario: s, Width: time.Second, Bins: make([]engine.Bin, 200), Callers: make([]engine.Caller, 5)}
	for i := range rec.Bins {
		rec.Bins[i].Successes = 5
		if i >= 110 {
			rec.Bins[i].Successes = 10 // of five callers that wait for half a second each
		}
	}
	if got := Of(rec, scenario.Best{Successes: 1, Fair: []float64{1}}).Adapt; got < 9 || got > 10 {
		t.Errorf("%v s, want about 10", got)
	}
}

func TestGatherTakesTheMiddleAndTheRange(t *testing.T) {
	s := &scenario.Scenario{}
	r := Gather(s, "x", []Score{{Use: .5, Clear: math.NaN()}, {Use: .9, Clear: math.NaN()}, {Use: .6, Clear: math.NaN()}})
	if r.Median.Use != .6 || r.Low.Use != .5 || r.High.Use != .9 || !math.IsNaN(r.Median.Clear) {
		t.Errorf("%+v", r)
	}
	for _, c := range []struct {
		values []float64
		want   float64
	}{{[]float64{3}, 3}, {[]float64{3, 1, 2}, 3}, {[]float64{9, 1, 2, 3, 4, 10, 5, 6, 7, 8}, 9}, {[]float64{math.NaN(), 2}, 2}} {
		if got := ninth(c.values); got != c.want {
			t.Errorf("nine of ten of %v do not exceed %v, want %v", c.values, got, c.want)
		}
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
	// A wait of exactly 0 does not happen, and it would make the mean 0 with any other values.
	if m := Means([]Result{{Median: Score{Wait: 0}}, {Median: Score{Wait: 50}}}); math.Abs(m.Wait-.5) > 1e-9 {
		t.Errorf("wait %v, want .5", m.Wait)
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

func TestTheLeastShareIsThatOfTheWorstOff(t *testing.T) {
	for _, c := range []struct {
		name      string
		processes int
		got       []int // of callers
		fair      []float64
		rivals    int
		want      float64
	}{
		{"of processes", 2, []int{10, 20, 80, 0}, []float64{100, 100}, 0, .3},
		{"of one process", 1, []int{50, 20, 30}, []float64{120}, 0, .5},
		{"of who comes later", 2, []int{75, 75, 10, 10}, []float64{150, 50}, 0, .4},
		{"of what a competitor leaves", 2, []int{25, 0, 25, 25}, []float64{100, 100}, 100, .5},
		{"of who has no share", 2, []int{50, 0, 0, 0}, []float64{100, 0}, 0, .5},
	} {
		s := &scenario.Scenario{Processes: c.processes, Callers: len(c.got) / c.processes, Latency: time.Second, Duration: time.Minute}
		rec := &engine.Recording{Scenario: s, Width: time.Second, Elapsed: s.Duration, Rivals: c.rivals}
		best := scenario.Best{Fair: c.fair}
		for _, fair := range c.fair {
			best.Successes += fair
		}
		for i, n := range c.got {
			rec.Callers = append(rec.Callers, engine.Caller{Process: i / s.Callers, Successes: n})
		}
		if got := Of(rec, best).Least; math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// It joins after 100 s of 300 s, and its fair share is one a second: half of that in half a
// minute is 15.
func TestANewcomerIsMeasuredFromWhenItJoins(t *testing.T) {
	every := func(n int, from, gap time.Duration) (at []time.Duration) {
		for i := range n {
			at = append(at, from+time.Duration(i)*gap)
		}
		return at
	}
	const s = time.Second
	for _, c := range []struct {
		name        string
		at          []time.Duration
		first, half float64
	}{
		{"at once", every(100, 101*s, s), 1, 0},
		{"never", nil, 200, 200},
		{"never enough", every(60, 110*s, 3*s), 10, 200},
		{"later", append(every(5, 120*s, 10*s), every(100, 200*s, s)...), 20, 84},
	} {
		sc := &scenario.Scenario{Processes: 2, Callers: 1, Latency: s, Duration: 300 * s, Late: 100 * s}
		rec := &engine.Recording{Scenario: sc, Width: s, Callers: make([]engine.Caller, 2), Elapsed: sc.Duration, Newcomer: c.at}
		got := Of(rec, scenario.Best{Successes: 400, Fair: []float64{200, 200}})
		if got.First != c.first || got.Half != c.half {
			t.Errorf("%s: first %v s and half %v s, want %v and %v", c.name, got.First, got.Half, c.first, c.half)
		}
		sc.Late = 0
		if got := Of(rec, scenario.Best{Successes: 400, Fair: []float64{200, 200}}); !math.IsNaN(got.First) || !math.IsNaN(got.Half) {
			t.Errorf("%s: there is a newcomer though nobody joins", c.name)
		}
	}
}

func TestFiguresAreRelatedToTheYardsticksOfTheScenario(t *testing.T) {
	a, b := &scenario.Scenario{Name: "a"}, &scenario.Scenario{Name: "b"}
	nan := math.NaN()
	one := func(s *scenario.Scenario, client string, slow, throttled, use float64) Result {
		m := Score{Slow: slow, Throttled: throttled, Use: use, Plain: nan, GenieThrottled: nan, GenieUse: nan}
		return Result{Scenario: s, Client: client, Median: m, Low: m, High: m}
	}
	results := []Result{
		one(a, "x", 3, 4, .5), one(a, "plain", 2, 9, 1), one(a, "genie", nan, 1, .75),
		one(b, "x", 3, 4, .5),
	}
	results[0].High.Slow = 6
	Relate(results, "plain", "genie")
	if m := results[0].Median; m.Plain != 1.5 || m.GenieThrottled != 3 || m.GenieUse != -.25 {
		t.Errorf("%+v", m)
	}
	if got := results[0].High.Plain; got != 3 {
		t.Errorf("the slowest run takes %v times as long, want 3", got)
	}
	if m := results[3].Median; !math.IsNaN(m.Plain) || !math.IsNaN(m.GenieThrottled) || !math.IsNaN(m.GenieUse) {
		t.Errorf("%+v where no yardstick ran", m)
	}
}
