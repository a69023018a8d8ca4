package delay

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a7df5faa/cruise"
)

const ms = time.Millisecond

// within returns a context that ends after d.
func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// plain has no jitter.
var plain = Rule{First: time.Second, Factor: 2, Max: time.Minute, LowerBy: time.Second}

func TestWaitersWaitSideBySide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := cruise.Must(New(plain))
		start := time.Now()
		_ = d.WaitN(t.Context(), 1)
		if time.Since(start) != 0 {
			t.Error("waits before the first throttle")
		}
		d.Learn(cruise.Feedback{Outcome: cruise.OutcomeThrottled, Sent: time.Now(), Cost: 1})
		var wg sync.WaitGroup
		for i := range 5 {
			wg.Go(func() {
				came := time.Now()
				_ = d.WaitN(t.Context(), 1+i*100)
				if got := time.Since(came); got != time.Second {
					t.Errorf("waiter %d waited %v", i+1, got)
				}
			})
			synctest.Wait()
			if n := d.Stats().Waiting; n != i+1 {
				t.Errorf("%d wait", n)
			}
			time.Sleep(100 * ms)
		}
		wg.Wait()
		s := d.Stats()
		if want := (Stats{Delay: time.Second, Calls: 6, WentUp: 1, Slept: 5, TotalSleep: 5 * time.Second}); s != want {
			t.Errorf("got %+v, want %+v", s, want)
		}
	})
}

// The counters tell how often the delay moved.
func TestMovesAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := cruise.Must(New(Rule{First: time.Second, Max: time.Second, LowerRemaining: 10}))
		for _, q := range []*cruise.Quota{nil, {Remaining: 10}} {
			for range 3 {
				time.Sleep(ms)
				d.Learn(cruise.Feedback{Outcome: cruise.OutcomeThrottled, Sent: time.Now(), Cost: 1})
			}
			d.Learn(cruise.Feedback{Outcome: cruise.OutcomeSuccess, Cost: 1, Quota: q})
		}
		if s := d.Stats(); s.WentUp != 1 || s.WentDown != 1 || s.Delay != 0 || s.PauseLeft != 0 {
			t.Errorf("%+v", s)
		}
		d.Pause(time.Minute)
		if s := d.Stats(); s.PauseLeft != time.Minute {
			t.Errorf("%+v", s)
		}
	})
}

// Any answer lowers the delay; a failure does not.
func TestAnswersLowerTheDelay(t *testing.T) {
	for outcome, want := range map[cruise.Outcome]time.Duration{
		cruise.OutcomeSuccess: 0, cruise.OutcomePermanent: 0,
		cruise.OutcomeTransient: time.Second, cruise.OutcomeQuotaExhausted: time.Second, cruise.OutcomeDropped: time.Second,
	} {
		t.Run(outcome.String(), func(t *testing.T) {
			d := cruise.Must(New(plain))
			d.Learn(cruise.Feedback{Outcome: cruise.OutcomeThrottled, Cost: 1})
			d.Learn(cruise.Feedback{Outcome: outcome, Cost: 1})
			if got := d.Delay(); got != want {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
}

// The throttles of one burst raise the delay once, unless the rule says otherwise.
func TestBurstOfThrottles(t *testing.T) {
	for each, want := range map[bool]time.Duration{false: time.Second, true: 4 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			rule := plain
			rule.EachThrottle = each
			d := cruise.Must(New(rule))
			sent := time.Now()
			for range 3 {
				time.Sleep(ms)
				d.Learn(cruise.Feedback{Outcome: cruise.OutcomeThrottled, Sent: sent, Cost: 1})
			}
			if got := d.Delay(); got != want {
				t.Errorf("each %v: %v, want %v", each, got, want)
			}
		})
	}
}

func TestChangeReachesWaiters(t *testing.T) {
	throttled := func(sent time.Time) cruise.Feedback {
		return cruise.Feedback{Outcome: cruise.OutcomeThrottled, Sent: sent, Cost: 1}
	}
	for _, tt := range []struct {
		name   string
		change func(*Limiter) // half a second after the waiter came, at a delay of 1 s
		want   time.Duration  // the whole wait
	}{
		{"nothing", func(*Limiter) {}, time.Second},
		{"raised", func(d *Limiter) { d.Learn(throttled(time.Now())) }, 2 * time.Second},
		{"raised by a late throttle", func(d *Limiter) { d.Learn(throttled(time.Now().Add(-time.Second))) }, time.Second},
		{"lowered to none", func(d *Limiter) { d.Learn(cruise.Feedback{Outcome: cruise.OutcomeSuccess, Cost: 1}) }, 500 * ms},
		{"dropped", func(d *Limiter) { d.Learn(cruise.Feedback{Outcome: cruise.OutcomeDropped, Cost: 1}) }, time.Second},
		{"never admitted", func(d *Limiter) { d.Learn(cruise.Feedback{Outcome: cruise.OutcomeThrottled}) }, time.Second},
		{"paused for less", func(d *Limiter) { d.Pause(100 * ms) }, time.Second},
		{"paused", func(d *Limiter) { d.Pause(3 * time.Second) }, 3500 * ms},
		{"paused and resumed", func(d *Limiter) { d.Pause(3 * time.Second); d.Resume() }, time.Second},
		{"told to wait", func(d *Limiter) {
			d.Learn(cruise.Feedback{Outcome: cruise.OutcomeQuotaExhausted, Cost: 1, RetryAfter: 5 * time.Second})
		}, 5500 * ms},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := cruise.Must(New(plain))
				d.Learn(throttled(time.Now()))
				start := time.Now()
				done := make(chan time.Duration)
				go func() {
					_ = d.WaitN(t.Context(), 1)
					done <- time.Since(start)
				}()
				time.Sleep(500 * ms)
				tt.change(d)
				got := <-done
				// A call that waited through a pause leaves within one delay after it.
				if spread := got - tt.want; spread < 0 || spread > 0 && (tt.want < 3*time.Second || spread >= time.Second) {
					t.Errorf("waited %v, want %v", got, tt.want)
				}
			})
		})
	}
}

// Many small steps down reach a waiter within a sixteenth of the delay.
func TestSmallStepsReachWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := cruise.Must(New(Rule{First: time.Second, Max: time.Second, LowerFactor: .99}))
		for range 2 { // the second time, too
			d.Learn(cruise.Feedback{Outcome: cruise.OutcomeThrottled, Cost: 1})
			from := d.Delay()
			start := time.Now()
			time.AfterFunc(from/2, func() {
				for range 10 {
					d.Learn(cruise.Feedback{Outcome: cruise.OutcomeSuccess, Cost: 1})
				}
			})
			_ = d.WaitN(t.Context(), 1)
			if got := time.Since(start); got < d.Delay() || got > from*15/16 {
				t.Errorf("waited %v of %v, at a delay of %v", got, from, d.Delay())
			}
			time.Sleep(time.Minute)
		}
	})
}

// A limiter outlives a bubble of synctest, with callers that wait in each.
func TestLimiterOutlivesABubble(t *testing.T) {
	d := cruise.Must(New(plain))
	for range 2 {
		synctest.Test(t, func(t *testing.T) {
			d.Learn(cruise.Feedback{Outcome: cruise.OutcomeThrottled, Cost: 1})
			time.AfterFunc(100*ms, func() { d.Pause(10 * time.Second) })
			start := time.Now()
			_ = d.WaitN(t.Context(), 1)
			if got := time.Since(start); got < 10*time.Second {
				t.Errorf("waited %v", got)
			}
		})
	}
}

// Callers that come at one moment go in the order of their jitter.
func TestJitterSpreads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rule := plain
		rule.JitterBelow, rule.JitterAbove = .3, .3
		d := cruise.Must(New(rule))
		d.Learn(cruise.Feedback{Outcome: cruise.OutcomeThrottled, Cost: 1})
		var mu sync.Mutex
		seen := make(map[time.Duration]bool)
		var wg sync.WaitGroup
		start := time.Now()
		for range 200 {
			wg.Go(func() {
				_ = d.WaitN(t.Context(), 1)
				got := time.Since(start)
				if got < 700*ms || got > 1300*ms {
					t.Errorf("waited %v", got)
				}
				mu.Lock()
				seen[got] = true
				mu.Unlock()
			})
		}
		wg.Wait()
		if len(seen) < lanes-2 { // 200 callers miss 3 of 16 once in 10^14 runs
			t.Errorf("%d different waits", len(seen))
		}
	})
}

func TestRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := cruise.Must(New(plain))
		d.Learn(cruise.Feedback{Outcome: cruise.OutcomeThrottled, Cost: 1})
		if err := d.WaitN(t.Context(), -1); err == nil {
			t.Error("negative cost")
		}
		if err := d.WaitN(t.Context(), 0); err != nil {
			t.Error(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second-1)
		defer cancel()
		start := time.Now()
		if err := d.WaitN(ctx, 1); !errors.Is(err, cruise.ErrDeadline) || time.Since(start) != 0 {
			t.Errorf("got %v after %v", err, time.Since(start))
		}
		ctx, cancel = context.WithCancel(t.Context())
		time.AfterFunc(300*ms, cancel)
		if err := d.WaitN(ctx, 1); !errors.Is(err, context.Canceled) || time.Since(start) != 300*ms {
			t.Errorf("got %v after %v", err, time.Since(start))
		}
		if s := d.Stats(); s.Waiting != 0 || s.Calls != 0 {
			t.Errorf("%+v", s)
		}
		// A waiter is refused once the delay, or a pause, has grown too long for it.
		for _, f := range []cruise.Feedback{
			{Outcome: cruise.OutcomeThrottled, Cost: 1},
			{Outcome: cruise.OutcomeQuotaExhausted, Cost: 1, RetryAfter: time.Minute},
		} {
			ctx, cancel = context.WithTimeout(t.Context(), d.Delay()+500*ms)
			defer cancel()
			start = time.Now()
			time.AfterFunc(400*ms, func() { d.Learn(f) })
			if err := d.WaitN(ctx, 1); !errors.Is(err, cruise.ErrDeadline) || time.Since(start) != 400*ms {
				t.Errorf("%v: got %v after %v", f.Outcome, err, time.Since(start))
			}
		}
	})
}

// A call behind others waits for its whole delay, and is refused at once if there is no time.
func TestBehindOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := cruise.Must(New(plain))
		d.Learn(cruise.Feedback{Outcome: cruise.OutcomeThrottled, Cost: 1})
		for range 300 { // in every lane
			go func() { _ = d.WaitN(t.Context(), 1) }()
		}
		time.Sleep(900 * ms)
		start := time.Now()
		if err := d.WaitN(within(t, 500*ms), 1); !errors.Is(err, cruise.ErrDeadline) || time.Since(start) != 0 {
			t.Errorf("got %v after %v", err, time.Since(start))
		}
		time.Sleep(time.Second)
	})
}

// A call whose delay ends just after a pause may be behind a call that waited through the
// pause and leaves later. It is refused at once if there is no time for that.
func TestBehindThePaused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := cruise.Must(New(Rule{First: 10 * time.Second, Max: 10 * time.Second, Reset: true}))
		d.Learn(cruise.Feedback{Outcome: cruise.OutcomeThrottled, Cost: 1})
		for range 300 {
			go func() { _ = d.WaitN(t.Context(), 1) }()
		}
		synctest.Wait()
		d.Pause(11 * time.Second)
		time.Sleep(1100 * ms) // a call that comes now is ready just after the pause
		for range 100 {
			go func() {
				ctx, cancel := context.WithTimeout(t.Context(), 11*time.Second)
				defer cancel()
				if err := d.WaitN(ctx, 1); errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, cruise.ErrDeadline) {
					t.Error("waited in vain")
				}
			}()
		}
		time.Sleep(time.Minute)
	})
}

// Pauses that follow each other within less than a delay let all lanes go in the end.
func TestShortPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := cruise.Must(New(Linear(time.Minute)))
		d.Learn(cruise.Feedback{Outcome: cruise.OutcomeThrottled, Cost: 1})
		for range 100 {
			go func() { _ = d.WaitN(t.Context(), 1) }()
			time.Sleep(10 * ms)
		}
		for range 1000 { // each lets one lane of 16 go
			d.Pause(900 * ms)
			time.Sleep(time.Second)
		}
		if left := d.Stats().Waiting; left > 0 {
			t.Errorf("%d still wait", left)
		}
		time.Sleep(time.Hour)
	})
}
