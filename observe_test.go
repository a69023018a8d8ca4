package cruise_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/a7df5faa/cruise"
)

// diary keeps what it is told, line by line, with the time since it was begun.
type diary struct {
	began time.Time
	lines []string
}

func (d *diary) Observe(_ context.Context, event cruise.Event) {
	var text string
	switch e := event.(type) {
	case cruise.Waiting:
		text = fmt.Sprintf("waits %v or more, paused for %v, behind %d", e.AtLeast, e.Paused, e.Ahead)
	case cruise.AttemptStarted:
		text = fmt.Sprintf("attempt %d after %v", e.Attempt, e.Waited)
	case cruise.AttemptEnded:
		text = fmt.Sprintf("ended %d: %v in %v: %v", e.Attempt, e.Outcome, e.Took, e.Err)
	case cruise.RetryScheduled:
		text = fmt.Sprintf("retry %d in %v: %v: %v", e.Attempt, e.Delay, e.Reason, e.Err)
	case cruise.GaveUp:
		text = e.Err.Error()
	case cruise.ThrottleSeen:
		text = fmt.Sprintf("throttle, wait %v, scope %q, late %t", e.RetryAfter, e.Scope, e.Late)
	case cruise.RateChanged:
		text = fmt.Sprintf("rate %v to %v by %v", e.From, e.To, e.Why)
	case cruise.Paused:
		text = fmt.Sprintf("paused for %v", e.For)
	case cruise.Resumed:
		text = fmt.Sprintf("resumed %v early", e.Left)
	}
	d.lines = append(d.lines, fmt.Sprintf("%v %s", time.Since(d.began), text))
}

// Whoever begins to wait is told for how long at least, and behind what.
func TestObserverIsToldWhyACallWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var waits []cruise.Waiting
		r := cruise.Must(cruise.New(
			cruise.WithLimiter(cruise.Must(cruise.NewTokenBucket(1, 4))),
			cruise.WithScopeLimiter(func(string, string) (cruise.Limiter, error) { return cruise.NewTokenBucket(100, 10) }),
			cruise.WithObserver(cruise.ObserverFunc(func(_ context.Context, e cruise.Event) {
				if w, ok := e.(cruise.Waiting); ok {
					waits = append(waits, w)
				}
			})),
		))
		call := func(r *cruise.Retrier, cost int) {
			go func() {
				assert.NoError(t, r.Do(t.Context(), func(context.Context) error { return nil }, cruise.WithCost(cost)))
			}()
			synctest.Wait()
		}
		call(r, 4)
		call(r, 3)
		call(r, 2)
		r.Limiter().(*cruise.TokenBucket).Pause(10 * time.Second)
		call(r, 1)
		account := r.Scope("ACCOUNT", "1")
		call(account, 2)
		time.Sleep(time.Minute)
		account.Limiter().(*cruise.TokenBucket).Pause(20 * time.Second)
		call(account, 1)
		time.Sleep(time.Minute)
		assert.Equal(t, []cruise.Waiting{
			{AtLeast: 3 * time.Second},
			{AtLeast: 5 * time.Second, Ahead: 3},
			{AtLeast: 15 * time.Second, Paused: 10 * time.Second, Ahead: 5},
			{AtLeast: 11 * time.Second, Paused: 10 * time.Second},
			{AtLeast: 20 * time.Second, Paused: 20 * time.Second},
		}, waits)
	})
}

func TestObserverIsToldInOrder(t *testing.T) {
	asked := cruise.Throttled(errServer, cruise.RetryAfter(3*time.Second), cruise.InScope("ACCOUNT"))
	for _, tt := range []struct {
		name    string
		opts    []cruise.Option
		returns []error
		want    []string
	}{
		{"success", []cruise.Option{cruise.WithoutLimiter()}, []error{nil}, []string{
			"0s attempt 1 after 0s",
			"1s ended 1: success in 1s: <nil>",
		}},
		{"retry", []cruise.Option{cruise.WithoutLimiter()}, []error{errBoom, nil}, []string{
			"0s attempt 1 after 0s",
			"1s ended 1: transient in 1s: boom",
			"1s retry 2 in 100ms: transient: boom",
			"1.1s attempt 2 after 0s",
			"2.1s ended 2: success in 1s: <nil>",
		}},
		{"throttle, without limiter", []cruise.Option{cruise.WithoutLimiter()}, []error{asked, nil}, []string{
			"0s attempt 1 after 0s",
			"1s ended 1: throttled in 1s: server says 503",
			"1s retry 2 in 3s: throttled: server says 503",
			"4s attempt 2 after 0s",
			"5s ended 2: success in 1s: <nil>",
		}},
		{"throttle, with a limiter that pauses", []cruise.Option{cruise.WithInitialRate(10)}, []error{asked, nil}, []string{
			"0s attempt 1 after 0s",
			`1s throttle, wait 3s, scope "ACCOUNT", late false`,
			"1s paused for 3s",
			"1s ended 1: throttled in 1s: server says 503",
			"1s retry 2 in 0s: throttled: server says 503",
			"1s waits 3s or more, paused for 3s, behind 0",
			"4s attempt 2 after 3s",
			"5s ended 2: success in 1s: <nil>",
		}},
		{"permanent at first is done, not given up", []cruise.Option{cruise.WithoutLimiter()}, []error{cruise.Permanent(errBoom)}, []string{
			"0s attempt 1 after 0s",
			"1s ended 1: permanent in 1s: boom",
		}},
		{"gave up", []cruise.Option{cruise.WithoutLimiter(), cruise.WithMaxAttempts(2)}, []error{errBoom, errBoom}, []string{
			"0s attempt 1 after 0s",
			"1s ended 1: transient in 1s: boom",
			"1s retry 2 in 100ms: transient: boom",
			"1.1s attempt 2 after 0s",
			"2.1s ended 2: transient in 1s: boom",
			"2.1s cruise: gave up after 2 attempts in 2.1s: attempts exhausted: boom",
		}},
		{"gave up on a wait", []cruise.Option{cruise.WithoutLimiter(), cruise.WithMaxServerDelay(time.Second)}, []error{asked}, []string{
			"0s attempt 1 after 0s",
			"1s ended 1: throttled in 1s: server says 503",
			"1s cruise: gave up after 1 attempt in 1s: told to wait for longer than WithMaxServerDelay allows (try again in 3s): server says 503",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &diary{began: time.Now()}
				r := cruise.Must(cruise.New(append(tt.opts, cruise.WithObserver(d), cruise.WithBackoff(doubling(100*time.Millisecond)))...))
				n := 0
				_ = r.Do(t.Context(), func(context.Context) error {
					time.Sleep(time.Second)
					n++
					return tt.returns[n-1]
				})
				assert.Equal(t, tt.want, d.lines)
			})
		})
	}
}

func TestObserverOfACallThatIsNotMade(t *testing.T) {
	d := &diary{began: time.Now()}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_ = plain(cruise.WithObserver(d)).Do(ctx, func(context.Context) error { return nil })
	require.Len(t, d.lines, 1)
	assert.Contains(t, d.lines[0], "cruise: call not made: context canceled")
}

func TestObserverSeesPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &diary{began: time.Now()}
		assert.Panics(t, func() {
			_ = plain(cruise.WithObserver(d)).Do(t.Context(), func(context.Context) error { panic("call") })
		})
		assert.Equal(t, []string{
			"0s attempt 1 after 0s",
			"0s ended 1: dropped in 0s: cruise: call panicked or exited its goroutine",
		}, d.lines)
	})
}

// An observer that ends the goroutine as an attempt begins leaves one that took no time.
func TestObserverThatEndsTheGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ended []cruise.AttemptEnded
		r := plain(cruise.WithObserver(cruise.ObserverFunc(func(_ context.Context, e cruise.Event) {
			switch e := e.(type) {
			case cruise.AttemptStarted:
				runtime.Goexit()
			case cruise.AttemptEnded:
				ended = append(ended, e)
			}
		})))
		go func() { _ = r.Do(t.Context(), func(context.Context) error { t.Error("called"); return nil }) }()
		synctest.Wait()
		require.Len(t, ended, 1)
		assert.Equal(t, cruise.OutcomeDropped, ended[0].Outcome)
		assert.Zero(t, ended[0].Took)
	})
}

// How long an attempt waited is told whatever the limiter is, and a free one did not.
func TestObserverIsToldHowLongACallWaited(t *testing.T) {
	bucket := func() cruise.Limiter { return cruise.Must(cruise.NewTokenBucket(1, 1)) }
	xtime := func() cruise.Limiter { return rate.NewLimiter(1, 1) }
	for _, tt := range []struct {
		name    string
		limiter func() cruise.Limiter
		cost    int
		want    time.Duration
	}{
		{"bucket", bucket, 1, time.Second},
		{"bucket, free", bucket, 0, 0},
		{"x/time", xtime, 1, time.Second},
		{"x/time, free", xtime, 0, 0},
	} {
		for name, scoped := range map[string]bool{"": false, ", in a scope": true} {
			t.Run(tt.name+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var waited []time.Duration
					opts := []cruise.Option{cruise.WithObserver(cruise.ObserverFunc(func(_ context.Context, e cruise.Event) {
						if e, ok := e.(cruise.AttemptStarted); ok {
							waited = append(waited, e.Waited)
						}
					}))}
					limiter := tt.limiter()
					if scoped {
						opts = append(opts, cruise.WithoutLimiter(), cruise.WithScopeLimiter(func(string, string) (cruise.Limiter, error) { return limiter, nil }))
					} else {
						opts = append(opts, cruise.WithLimiter(limiter))
					}
					r := cruise.Must(cruise.New(opts...))
					if scoped {
						r = r.Scope("A", "a")
					}
					require.NoError(t, limiter.WaitN(t.Context(), 1))
					require.NoError(t, r.Do(t.Context(), succeeds, cruise.WithCost(tt.cost)))
					assert.Equal(t, []time.Duration{tt.want}, waited)
				})
			})
		}
	}
}

func TestASlowObserverIsNoPartOfTheCall(t *testing.T) {
	for _, tt := range []struct {
		name string
		slow func(cruise.Event) bool
	}{
		{"when it waits", func(e cruise.Event) bool { _, is := e.(cruise.Waiting); return is }},
		{"when it begins", func(e cruise.Event) bool { _, is := e.(cruise.AttemptStarted); return is }},
		{"when it was throttled", func(e cruise.Event) bool { _, is := e.(cruise.ThrottleSeen); return is }},
		{"when it brought about a pause", func(e cruise.Event) bool { _, is := e.(cruise.Paused); return is }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var took []time.Duration
				slowed := false
				r := cruise.Must(cruise.New(cruise.WithMaxAttempts(1), cruise.WithInitialRate(1), cruise.WithObserver(cruise.ObserverFunc(func(_ context.Context, e cruise.Event) {
					if tt.slow(e) {
						slowed = true
						time.Sleep(2 * time.Second)
					}
					if e, ok := e.(cruise.AttemptEnded); ok {
						took = append(took, e.Took)
					}
				}))))
				for range 2 {
					_ = r.Do(t.Context(), func(context.Context) error {
						time.Sleep(100 * time.Millisecond)
						return cruise.Throttled(errBoom)
					})
				}
				assert.Equal(t, []time.Duration{100 * time.Millisecond, 100 * time.Millisecond}, took)
				assert.True(t, slowed)
			})
		})
	}
}

func TestObserverIsGivenTheContextOfTheCall(t *testing.T) {
	type key struct{}
	ctx := context.WithValue(t.Context(), key{}, "request 7")
	seen := 0
	r := plain(cruise.WithMaxAttempts(1), cruise.WithObserver(cruise.ObserverFunc(func(ctx context.Context, _ cruise.Event) {
		seen++
		assert.Equal(t, "request 7", ctx.Value(key{}))
	})))
	_ = r.Do(ctx, func(context.Context) error { return errBoom })
	assert.Equal(t, 3, seen)
}

// Events are delivered outside of every lock.
func TestObserverMayCallBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r *cruise.Retrier
		var l *cruise.AdaptiveLimiter
		events, inner := 0, false
		r = cruise.Must(cruise.New(cruise.WithInitialRate(10), cruise.WithObserver(cruise.ObserverFunc(func(ctx context.Context, e cruise.Event) {
			events++
			_ = l.Stats()
			r.Budget().Left()
			l.Pause(time.Millisecond)
			if _, ok := e.(cruise.RateChanged); !ok {
				assert.NoError(t, l.SetLimit(rate.Limit(10+events)))
			}
			if !inner {
				inner = true
				assert.NoError(t, r.Do(ctx, func(context.Context) error { return nil }))
			}
		}))))
		l = r.Limiter().(*cruise.AdaptiveLimiter)
		n := 0
		assert.NoError(t, r.Do(t.Context(), func(context.Context) error {
			if n++; n == 1 {
				return cruise.Throttled(errBoom)
			}
			return nil
		}))
		assert.Greater(t, events, 8)
	})
}

func TestObserverThatPanicsDoesNoHarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := cruise.Must(cruise.New(cruise.WithInitialRate(10), cruise.WithObserver(cruise.ObserverFunc(func(context.Context, cruise.Event) {
			panic("observer")
		}))))
		n := 0
		assert.NoError(t, r.Do(t.Context(), func(context.Context) error {
			if n++; n == 1 {
				return cruise.Throttled(errBoom)
			}
			return nil
		}))
		assert.ErrorIs(t, r.Do(t.Context(), func(context.Context) error { return cruise.QuotaExhausted(errBoom) }), cruise.ErrQuotaExhausted)
	})
}

func TestSeveralObserversAreAllTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []string
		observer := func(name string) cruise.Observer {
			return cruise.ObserverFunc(func(_ context.Context, e cruise.Event) {
				told = append(told, fmt.Sprintf("%s: %T", name, e))
				panic("observer")
			})
		}
		r := cruise.Must(cruise.New(cruise.WithObserver(observer("a")), cruise.WithObserver(observer("b")), cruise.WithObserver(observer("c")),
			cruise.WithMaxAttempts(1)))
		assert.Error(t, r.Scope("ACCOUNT", "1").Do(t.Context(), func(context.Context) error { return cruise.Throttled(errBoom) }))
		var want []string
		for _, event := range []string{"AttemptStarted", "ThrottleSeen", "Paused", "AttemptEnded", "GaveUp"} {
			for _, name := range []string{"a", "b", "c"} {
				want = append(want, name+": cruise."+event)
			}
		}
		assert.Equal(t, want, told)
	})
}

func TestNobodyListensNothingIsAllocated(t *testing.T) {
	ctx := context.Background()
	ok := func(context.Context) error { return nil }
	for _, tt := range []struct {
		name string
		r    *cruise.Retrier
		most float64
	}{
		{"no limiter", cruise.Must(cruise.New(cruise.WithoutLimiter())), 0},
		{"adaptive", cruise.Must(cruise.New()), 1}, // the context that marks the call
		{"token bucket", cruise.Must(cruise.New(cruise.WithLimiter(cruise.Must(cruise.NewTokenBucket(rate.Inf, 1))))), 1},
	} {
		got := testing.AllocsPerRun(100, func() { _ = tt.r.Do(ctx, ok) })
		assert.LessOrEqual(t, got, tt.most, tt.name)
	}
}
