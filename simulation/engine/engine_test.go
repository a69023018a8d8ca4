package engine_test

import (
	"context"
	"math"
	"reflect"
	"sync/atomic"
	"testing"
	"time"

	"github.com/a7df5faa/cruise/internal/calm"
	"github.com/a7df5faa/cruise/internal/replay"
	"github.com/a7df5faa/cruise/simulation/client"
	"github.com/a7df5faa/cruise/simulation/engine"
	"github.com/a7df5faa/cruise/simulation/scenario"
	"github.com/a7df5faa/cruise/simulation/server"
)

// hasty retries at once.
var hasty = engine.Client{Name: "hasty", New: func(engine.Env) engine.Process {
	return engine.ProcessFunc(func(ctx context.Context, attempt engine.Attempt) error {
		for {
			if _, err := attempt(ctx); err == nil || ctx.Err() != nil {
				return err
			}
		}
	})
}}

// once gives up at once.
var once = engine.Client{Name: "once", New: func(engine.Env) engine.Process {
	return engine.ProcessFunc(func(ctx context.Context, attempt engine.Attempt) error {
		_, err := attempt(ctx)
		return err
	})
}}

func TestARunCountsTheRequestsAtTheServer(t *testing.T) {
	s := &scenario.Scenario{
		Name: "t", Processes: 2, Callers: 3, Latency: 100 * time.Millisecond, Duration: time.Minute,
		Server: server.Spec{Kind: server.Bucket, Rate: server.Constant(10), Burst: 5},
	}
	rec := engine.Run(s, hasty, 1)
	total := rec.Totals()
	if total.Requests < 3590 || total.Requests > 3606 {
		t.Errorf("%d requests of six callers that never pause", total.Requests)
	}
	if total.Successes < 600 || total.Successes > 605 {
		t.Errorf("%d successes, want all that there are", total.Successes)
	}
	if total.Successes+total.Throttled != total.Requests {
		t.Errorf("%+v does not add up", total)
	}
	var bins engine.Bin
	for _, b := range rec.Bins {
		bins.Requests += b.Requests
		bins.Successes += b.Successes
		bins.Throttled += b.Throttled
	}
	if int(bins.Requests) != total.Requests || int(bins.Successes) != total.Successes || int(bins.Throttled) != total.Throttled {
		t.Errorf("the series has %+v, the callers %+v", bins, total)
	}
	if rec.Elapsed != time.Minute {
		t.Errorf("it took %v", rec.Elapsed)
	}
}

func TestARunMayEndWithItsCalls(t *testing.T) {
	s, err := scenario.Find("emr-1000")
	if err != nil {
		t.Fatal(err)
	}
	rec := engine.Run(s, client.Oracle(), 1)
	if n := rec.Totals().Successes; n != 1000 {
		t.Errorf("%d successes", n)
	}
	if sec := rec.Elapsed.Seconds(); math.Abs(sec-249.8) > .3 {
		t.Errorf("%v s, want 999 steps of 250 ms", sec)
	}
}

func TestProcessesJoinAndLeave(t *testing.T) {
	s := &scenario.Scenario{
		Name: "t", Processes: 2, Callers: 1, Latency: time.Second, Duration: 100 * time.Second,
		Join: 30 * time.Second, Leave: 20*time.Second + 300*time.Millisecond, // not while a request begins
		Server: server.Spec{Kind: server.Bucket, Rate: server.Constant(1000), Burst: 1000},
	}
	rec := engine.Run(s, hasty, 1)
	if a, b := rec.Callers[0].Successes, rec.Callers[1].Successes; a != 100 || b != 50 {
		t.Errorf("%d and %d successes, want 100 and 50", a, b)
	}
	for i, c := range rec.Callers {
		if c.Longest > 1500*time.Millisecond {
			t.Errorf("caller %d waited for %v, want a request and a half at most: nobody waits who is not there", i, c.Longest)
		}
	}
}

// Idle callers do not wait.
func TestIdleTimeIsNoWait(t *testing.T) {
	s := &scenario.Scenario{
		Name: "t", Processes: 1, Callers: 1, Latency: 100 * time.Millisecond, Duration: time.Minute, Period: 10 * time.Second, Duty: .5,
		Server: server.Spec{Kind: server.Bucket, Rate: server.Constant(1000), Burst: 1000},
	}
	if c := engine.Run(s, hasty, 1).Callers[0]; c.Successes != 6*50 || c.Longest > 150*time.Millisecond {
		t.Errorf("%+v, want 300 successes, 100ms apart", c)
	}
}

// A run that takes longer than it was thought to is cut into longer stretches, and loses nothing.
func TestTheSeriesOfALongRunGetsCoarser(t *testing.T) {
	slow := engine.Client{Name: "slow", New: func(engine.Env) engine.Process {
		return engine.ProcessFunc(func(ctx context.Context, attempt engine.Attempt) error {
			if err := engine.Sleep(ctx, 2*time.Second); err != nil {
				return err
			}
			_, err := attempt(ctx)
			return err
		})
	}}
	s := &scenario.Scenario{
		Name: "t", Processes: 1, Callers: 1, Latency: 100 * time.Millisecond, Duration: time.Hour, Calls: 1000,
		Server: server.Spec{Kind: server.Bucket, Rate: server.Constant(1000), Burst: 1000},
	}
	rec := engine.Run(s, slow, 1)
	successes := 0
	for _, b := range rec.Bins {
		successes += int(b.Successes)
	}
	last := time.Duration(len(rec.Bins)-1) * rec.Width
	if successes != 1000 || len(rec.Bins) > 1200 || rec.Elapsed < last || rec.Elapsed > last+rec.Width {
		t.Errorf("%d successes in %d stretches of %v, in a run of %v", successes, len(rec.Bins), rec.Width, rec.Elapsed)
	}
}

func TestTimeoutsAreNoThrottles(t *testing.T) {
	if calm.Raced {
		t.Skip("it takes long, and others race as much")
	}
	s, err := scenario.Find("metastable-280")
	if err != nil {
		t.Fatal(err)
	}
	total := engine.Run(s, client.Cenkalti(), 1).Totals()
	if total.Throttled != 0 || total.Errors == 0 {
		t.Errorf("%+v", total)
	}
}

// Calls are counted as they arrive, not as they end, and silence belongs to a run.
func TestCallsThatOnlyWaitAreCounted(t *testing.T) {
	idle := engine.Client{Name: "idle", New: func(engine.Env) engine.Process {
		return engine.ProcessFunc(func(ctx context.Context, _ engine.Attempt) error {
			<-ctx.Done()
			return ctx.Err()
		})
	}}

	s := &scenario.Scenario{
		Name: "t", Processes: 2, Callers: 1, Latency: time.Second, Duration: time.Minute, Arrivals: 5,
		Server: server.Spec{Kind: server.Bucket, Rate: server.Constant(10), Burst: 1},
	}
	rec := engine.Run(s, idle, 1)
	if rec.Calls < 200 || rec.Calls > 400 || rec.Failed != 0 {
		t.Errorf("%d calls, want about 300; %d failed", rec.Calls, rec.Failed)
	}
	if d := time.Duration(len(rec.Bins)) * rec.Width; d < s.Duration {
		t.Errorf("the series ends after %v of %v", d, s.Duration)
	}
}

func TestEveryClientGetsThroughAndEnds(t *testing.T) {
	s := &scenario.Scenario{
		Name: "t", Processes: 2, Callers: 3, Latency: 50 * time.Millisecond, Duration: 2 * time.Minute,
		Server: server.Spec{Kind: server.Bucket, Rate: server.Constant(5), Burst: 10, Signal: server.RetryAfter},
	}
	for _, c := range client.All() {
		rec := engine.Run(s, c, 1)
		if n := rec.Totals().Successes; n < 300 {
			t.Errorf("%s: only %d of 610 got through", c.Name, n)
		}
		if rec.Elapsed != s.Duration {
			t.Errorf("%s: the run took %v", c.Name, rec.Elapsed)
		}
	}
}

// plenty is a server that never throttles.
var plenty = server.Spec{Kind: server.Bucket, Rate: server.Constant(1e6), Burst: 1e6}

// Callers that call now and then begin apart from each other, do not make up for missed calls, and
// wait only from their call on.
func TestCallersMayCallNowAndThen(t *testing.T) {
	s := &scenario.Scenario{
		Name: "t", Processes: 2, Callers: 5, Every: 500 * time.Millisecond, Latency: 20 * time.Millisecond, Duration: time.Minute, Server: plenty,
	}
	rec := engine.Run(s, hasty, 1)
	for i, c := range rec.Callers {
		if c.Successes != 120 || c.Longest > 25*time.Millisecond {
			t.Errorf("caller %d: %+v, want 120 successes, each after its latency", i, c)
		}
	}
	s.Server.Broken = []server.Span{{From: 10 * time.Second, To: 40 * time.Second}}
	s.Server.Work = 2 * time.Second // longer than a turn
	for i, c := range engine.Run(s, hasty, 1).Callers {
		if c.Successes > 15 {
			t.Errorf("caller %d: %+v, want no more than one success each 2.02 s of 30 s", i, c)
		}
	}
}

// Odd callers take nothing of the limit and are in no figure.
func TestOddCallersAreCountedApart(t *testing.T) {
	s := &scenario.Scenario{
		Name: "t", Processes: 2, Callers: 1, Latency: 100 * time.Millisecond, Duration: time.Minute,
		Server: server.Spec{Kind: server.Bucket, Rate: server.Constant(1), Burst: 20},
	}
	totals := func() engine.Caller {
		c := engine.Run(s, once, 1).Totals()
		c.Longest = 0 // by the order of callers
		return c
	}
	without := totals()
	for _, c := range []struct {
		name     string
		odd      scenario.Odd
		requests int // of each
	}{
		{"refused", scenario.Odd{Callers: 3, Refused: true}, 600},
		{"refused until", scenario.Odd{Callers: 3, Refused: true, Until: 30 * time.Second}, 300},
		{"now and then", scenario.Odd{Callers: 3, Refused: true, Every: time.Second}, 60},
		{"long", scenario.Odd{Callers: 3, Hold: 9900 * time.Millisecond}, 6},
		{"without an end", scenario.Odd{Callers: 3, Hold: time.Hour}, 1},
	} {
		s.Odd = c.odd
		if got := totals(); got != without {
			t.Errorf("%s: %+v beside odd ones, %+v without", c.name, got, without)
		}
		rec := engine.Run(s, once, 1)
		if len(rec.Odd) != 6 || len(rec.Callers) != 2 {
			t.Errorf("%s: %d odd callers and %d others", c.name, len(rec.Odd), len(rec.Callers))
		}
		for _, o := range rec.Odd {
			if o.Requests != c.requests {
				t.Errorf("%s: %+v, want %d requests", c.name, o, c.requests)
			}
		}
	}
}

// A job is each of its calls once: it is over when all of them are, whether done or given up.
func TestAJobIsItsCalls(t *testing.T) {
	s := &scenario.Scenario{
		Name: "t", Processes: 2, Callers: 4, Latency: 100 * time.Millisecond, Duration: time.Hour, Job: 100,
		Server: server.Spec{Kind: server.Bucket, Rate: server.Constant(0), Burst: 70},
	}
	rec := engine.Run(s, once, 1)
	if n := rec.Totals(); n.Requests != 100 || n.Successes != 70 || rec.Calls != 100 || rec.Failed != 30 {
		t.Errorf("%+v, %d calls, %d failed", n, rec.Calls, rec.Failed)
	}
	if rec.Elapsed != 1300*time.Millisecond {
		t.Errorf("100 calls by 8 workers took %v, want 13 of 100ms", rec.Elapsed)
	}
	// A caller without work left does not wait.
	slow := engine.Client{Name: "slow", New: func(engine.Env) engine.Process {
		var begun atomic.Bool
		return engine.ProcessFunc(func(ctx context.Context, attempt engine.Attempt) error {
			if !begun.Swap(true) {
				if err := engine.Sleep(ctx, time.Minute); err != nil {
					return err
				}
			}
			_, err := attempt(ctx)
			return err
		})
	}}
	s.Server, s.Processes = plenty, 1
	rec = engine.Run(s, slow, 1)
	waits := 0
	for _, c := range rec.Callers {
		if c.Longest > time.Second {
			waits++
		}
	}
	if waits != 1 || rec.Elapsed < time.Minute {
		t.Errorf("%d of 4 callers waited, in %v; want the one with the slow call", waits, rec.Elapsed)
	}
}

func TestADeadlineEndsCallsOfAClosedLoop(t *testing.T) {
	s := &scenario.Scenario{
		Name: "t", Processes: 1, Callers: 3, Latency: 100 * time.Millisecond, Duration: time.Minute, Deadline: time.Second, Job: 30,
		Server: server.Spec{Kind: server.Bucket, Rate: server.Constant(0), Burst: 10},
	}
	rec := engine.Run(s, hasty, 1)
	if rec.Failed != 20 || rec.Calls != 30 {
		t.Errorf("%d of %d calls failed, want 20 of 30", rec.Failed, rec.Calls)
	}
}

// The first seconds show in no figure.
func TestAWarmUpDoesNotCount(t *testing.T) {
	s := &scenario.Scenario{
		Name: "t", Processes: 1, Callers: 1, Latency: 100 * time.Millisecond, Duration: time.Minute, Warm: 20 * time.Second,
		Server: server.Spec{Kind: server.Bucket, Rate: server.Constant(1000), Burst: 1000, Broken: []server.Span{{To: 19 * time.Second}}},
	}
	rec := engine.Run(s, hasty, 1)
	if c := rec.Callers[0]; c.Successes < 399 || c.Successes > 401 || c.Errors > 0 || c.Longest > 200*time.Millisecond {
		t.Errorf("%+v, want 400 successes", c)
	}
	if n := int(s.Warm / rec.Width); rec.Bins[n-1].Requests > 0 || rec.Bins[n+1].Requests == 0 {
		t.Errorf("the series counts from elsewhere on than %v", s.Warm)
	}
}

func TestTheLastProcessMayJoinLate(t *testing.T) {
	s := &scenario.Scenario{
		Name: "t", Processes: 3, Callers: 1, Latency: time.Second, Duration: 100 * time.Second, Late: 60 * time.Second, Server: plenty,
	}
	rec := engine.Run(s, hasty, 1)
	if a, b, c := rec.Callers[0].Successes, rec.Callers[1].Successes, rec.Callers[2].Successes; a != 100 || b != 100 || c != 40 {
		t.Errorf("%d, %d and %d successes, want 100, 100 and 40", a, b, c)
	}
	if n := len(rec.Newcomer); n != 40 || rec.Newcomer[0] != 60*time.Second+500*time.Millisecond {
		t.Errorf("%d successes of the newcomer, %v", n, rec.Newcomer)
	}
}

// On one processor the seed of a run repeats all of it, the jitter of cruise included.
func TestASeedRepeatsARun(t *testing.T) {
	if calm.Raced {
		t.Skip("the race detector shuffles goroutines")
	}
	replay.Alone(t)
	for _, name := range []string{"ten-30/s", "bursts-20/s", "leave-8", "outage-1m", "bulk-10000", "doomed", "heroku-30min"} {
		s, err := scenario.Find(name)
		if err != nil {
			t.Fatal(err)
		}
		play := func(seed uint64) (rec *engine.Recording) {
			engine.Batch([]engine.Job{{Scenario: s, Client: client.Cruise("cruise"), Seed: seed}},
				func(_ int, r *engine.Recording) { rec = r })
			return rec
		}
		first, other := play(1), play(2)
		if reflect.DeepEqual(first.Callers, other.Callers) {
			t.Errorf("%s: seeds 1 and 2 play the same run", name)
		}
		same := false
		for range 3 { // a machine that stops the program for 10 ms changes the order
			again := play(1)
			same = same || reflect.DeepEqual(first, again)
		}
		if !same {
			t.Errorf("%s: a seed plays other runs", name)
		}
	}
}
