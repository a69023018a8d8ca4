package client

import (
	"math"
	"testing"
	"time"

	"github.com/a7df5faa/cruise/simulation/engine"
	"github.com/a7df5faa/cruise/simulation/scenario"
	"github.com/a7df5faa/cruise/simulation/server"
)

func TestNamesAreFoundAndUnique(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range All() {
		if seen[c.Name] || c.About == "" || c.Own && c.Yardstick {
			t.Errorf("%+v", c)
		}
		seen[c.Name] = true
		if got, err := Find(c.Name); err != nil || got.Name != c.Name {
			t.Errorf("%s: %v, %v", c.Name, got.Name, err)
		}
	}
	if _, err := Find("nobody"); err == nil {
		t.Error("found nobody")
	}
}

// Attempts bound every client, or a comparison of amplification is unfair.
func TestAttemptsAreAsManyAsTheScenarioAllows(t *testing.T) {
	s := &scenario.Scenario{
		Name: "t", Processes: 1, Callers: 1, Latency: 20 * time.Millisecond, Duration: 3 * time.Minute,
		Arrivals: .2, Attempts: 3,
		Server: server.Spec{Kind: server.Bucket, Rate: server.Constant(1), Burst: 1,
			Broken: []server.Span{{From: 0, To: time.Hour}}},
	}
	for _, c := range All() {
		if c.Yardstick {
			continue
		}
		rec := engine.Run(s, c, 1)
		// A few are under way at the end.
		if n := rec.Totals().Requests; rec.Calls < 20 || rec.Failed < rec.Calls-5 || n < 2*rec.Calls || n > 3*rec.Calls {
			t.Errorf("%s: %d requests of %d calls, %d failed", c.Name, n, rec.Calls, rec.Failed)
		}
	}
}

func TestRetryAfterIsHeeded(t *testing.T) {
	s := &scenario.Scenario{
		Name: "t", Processes: 1, Callers: 1, Latency: 10 * time.Millisecond, Duration: 10 * time.Minute,
		Server: server.Spec{Kind: server.FixedWindow, Rate: server.Constant(1), Window: time.Minute, Signal: server.RetryAfter},
	}
	for _, c := range []engine.Client{Cruise("cruise"), FailsafeAdaptive(), Cenkalti(), Avast(), Sethvargo(), RetryableHTTP()} {
		if total := engine.Run(s, c, 1).Totals(); total.Successes < 500 || total.Throttled > 30 {
			t.Errorf("%s: %+v", c.Name, total)
		}
	}
}

// However slow the server is, the SDK's limiter gives a token every two seconds.
func TestAWSAsksAsOftenAsItsOwnLimiterLetsIt(t *testing.T) {
	s := &scenario.Scenario{
		Name: "t", Processes: 1, Callers: 10, Latency: 100 * time.Millisecond, Duration: 100 * time.Second,
		Server: server.Spec{Kind: server.FixedWindow, Rate: server.Constant(1e-4), Window: 10_000 * time.Second, Empty: true},
	}
	// Ten at once, before it knows of any throttle, and then one each 2 s.
	if n := engine.Run(s, AWS(), 1).Totals().Requests; n < 50 || n > 62 {
		t.Errorf("%d requests in 100 s, want about 10 + 100/2", n)
	}
}

func TestAShareCountsTheProcessesPresent(t *testing.T) {
	for _, tt := range []struct {
		name        string
		join, leave time.Duration
		at          time.Duration
		greedy      float64
		want        float64
	}{
		{name: "all are there", want: 2},
		{name: "others join later", join: time.Minute, at: 30 * time.Second, want: 8},
		{name: "the second has joined", join: time.Minute, at: 90 * time.Second, want: 4},
		{name: "all but the first have left", leave: time.Minute, at: 9*time.Minute + 30*time.Second, want: 8},
		{name: "nobody is there any more", at: 11 * time.Minute, want: 8},
		{name: "a competitor takes half", greedy: 4, want: 1},
		{name: "a competitor takes all", greedy: 10, want: .025},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := &scenario.Scenario{Processes: 4, Duration: 10 * time.Minute, Join: tt.join, Leave: tt.leave, Server: server.Spec{Greedy: tt.greedy}}
			if got := fair(s, server.Constant(8), tt.at); math.Abs(got-tt.want) > 1e-9 {
				t.Errorf("%v, want %v", got, tt.want)
			}
		})
	}
}

// The rate that it knows leaves it below the limit until it has probed for a while.
func TestAClientThatIsToldTheLimitBeginsBelowIt(t *testing.T) {
	s := &scenario.Scenario{
		Name: "t", Processes: 4, Callers: 5, Latency: 10 * time.Millisecond, Duration: 5 * time.Second,
		Server: server.Spec{Kind: server.Bucket, Rate: server.Constant(20), Burst: 20},
	}
	total := engine.Run(s, Told(), 1).Totals()
	if got := float64(total.Requests) / (20 * s.Duration.Seconds()); got < .8 || got > .9 {
		t.Errorf("%.2f of the limit, want little more than %v", got, pacerPart)
	}
	if total.Throttled > 0 {
		t.Errorf("%d throttled", total.Throttled)
	}
}

// The pacer shows which limits can be kept, so it must keep every limit that it can.
func TestThePacerWaitsForTheFirstWindowToEnd(t *testing.T) {
	s := &scenario.Scenario{
		Name: "t", Processes: 3, Callers: 2, Latency: 10 * time.Millisecond, Duration: 10 * time.Minute,
		Server: server.Spec{Kind: server.FixedWindow, Rate: server.Constant(1), Window: time.Minute, Empty: true},
	}
	if total := engine.Run(s, Pacer(), 1).Totals(); total.Throttled > 0 || total.Successes < 400 {
		t.Errorf("%+v", total)
	}
}

// Nor may it count more than the whole number of requests that a window holds.
func TestThePacerKnowsTheCallsOfAWindow(t *testing.T) {
	s := &scenario.Scenario{
		Name: "t", Processes: 1, Callers: 2, Latency: 10 * time.Millisecond, Duration: 10 * time.Minute,
		Server: server.Spec{Kind: server.FixedWindow, Rate: server.Constant(1.9), Window: time.Second},
	}
	total := engine.Run(s, Pacer(), 1).Totals()
	if share := float64(total.Throttled) / float64(total.Requests); share > .03 || total.Successes < 450 {
		t.Errorf("%+v", total)
	}
}

// Until the first throttle it is as cold as cruise. After that, knowledge could prevent every
// throttle, and does.
func TestTheGenieIsToldOnceItIsThrottled(t *testing.T) {
	for _, c := range []struct {
		name      string
		server    server.Spec
		processes int
		throttled int // at most
		use       float64
	}{
		{"a bucket", server.Spec{Kind: server.Bucket, Rate: server.Constant(10), Burst: 1}, 1, 5, .88},
		{"a window", server.Spec{Kind: server.FixedWindow, Rate: server.Constant(10), Window: time.Minute}, 1, 5, .88},
		{"an empty window", server.Spec{Kind: server.FixedWindow, Rate: server.Constant(10), Window: time.Minute, Empty: true}, 1, 5, .88},
		{"a window that slides", server.Spec{Kind: server.SlidingWindow, Rate: server.Constant(10), Window: time.Minute}, 1, 20, .88},
		{"processes", server.Spec{Kind: server.Bucket, Rate: server.Constant(10), Burst: 5}, 4, 20, .88},
	} {
		s := &scenario.Scenario{Name: c.name, Processes: c.processes, Callers: 5, Latency: 10 * time.Millisecond, Duration: 10 * time.Minute, Server: c.server}
		total := engine.Run(s, Genie(), 1).Totals()
		if use := float64(total.Successes) / s.Ideal().Successes; total.Throttled > c.throttled || total.Throttled == 0 || use < c.use {
			t.Errorf("%s: %d throttled, use %.3f", c.name, total.Throttled, use)
		}
	}
	s := &scenario.Scenario{Name: "never throttled", Processes: 1, Callers: 5, Latency: 10 * time.Millisecond, Duration: time.Minute, Server: server.Spec{Kind: server.Bucket, Rate: server.Constant(1e4), Burst: 1e4}}
	if n := engine.Run(s, Genie(), 1).Totals().Successes; n < 25_000 {
		t.Errorf("%d successes of five callers whom nobody throttles, want 30,000", n)
	}
}

// Ten in ten seconds: thirty are done once the third window has begun.
func TestPlainCallsWaitAsLongAsTheyMust(t *testing.T) {
	s := &scenario.Scenario{
		Name: "t", Processes: 1, Callers: 5, Latency: 10 * time.Millisecond, Duration: time.Hour, Job: 30,
		Server: server.Spec{Kind: server.FixedWindow, Rate: server.Constant(1), Window: 10 * time.Second},
	}
	for signal, most := range map[server.Signal]time.Duration{server.RetryAfter: 20*time.Second + 100*time.Millisecond, 0: 80 * time.Second} {
		s.Server.Signal = signal
		rec := engine.Run(s, Plain(), 1)
		if n := rec.Totals().Successes; n != 30 || rec.Elapsed < 20*time.Second || rec.Elapsed > most {
			t.Errorf("%v: %d of 30 calls in %v", signal, n, rec.Elapsed)
		}
	}
}
