package engine_test

import (
	"context"
	"math"
	"testing"
	"time"

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

func TestARunCountsWhatTheServerSaw(t *testing.T) {
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

// Who wants nothing waits for nothing.
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
