package cruise_test

import (
	"context"
	"errors"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/delay"
	"github.com/a7df5faa/cruise/internal/calm"
)

func succeeds(context.Context) error { return nil }

// Ten thousand goroutines share a Retrier, on one processor and on many.
func TestDoFromTenThousandGoroutines(t *testing.T) {
	const crowd = 10_000
	for _, procs := range []int{1, 64} {
		for name, limiter := range map[string]func() cruise.Option{
			"adaptive": func() cruise.Option { return cruise.WithInitialRate(1e5) },
			"without rate": func() cruise.Option {
				return cruise.WithObserver(cruise.ObserverFunc(func(context.Context, cruise.Event) {}))
			},
			"token bucket": func() cruise.Option { return cruise.WithLimiter(cruise.Must(cruise.NewTokenBucket(1e5, 10))) },
			"no limiter":   cruise.WithoutLimiter,
		} {
			t.Run(name, func(t *testing.T) {
				defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
				r := cruise.Must(cruise.New(limiter()))
				var ran, failed atomic.Int64
				var wg sync.WaitGroup
				for range crowd {
					wg.Go(func() {
						if err := r.Do(t.Context(), func(context.Context) error { ran.Add(1); return nil }); err != nil {
							failed.Add(1)
						}
					})
				}
				wg.Wait()
				assert.EqualValues(t, crowd, ran.Load())
				assert.Zero(t, failed.Load())
				if a, ok := r.Limiter().(*cruise.AdaptiveLimiter); ok {
					s := a.Stats()
					assert.Zero(t, s.Waiting)
					assert.EqualValues(t, crowd, s.Admitted)
					assert.EqualValues(t, crowd, s.Successes)
				}
			})
		}
	}
}

// Whoever drops a Retrier drops all of it: no goroutine and no timer keeps a
// limiter alive, even one that pauses, or whose waiters went away.
func TestAbandonedLimitersAreCollected(t *testing.T) {
	type limiter interface {
		cruise.Learner
		Pause(time.Duration)
	}
	makers := map[string]func() (limiter, func(chan struct{})){
		"adaptive": func() (limiter, func(chan struct{})) {
			l := cruise.Must(cruise.NewAdaptiveLimiter(cruise.WithInitialRate(.1)))
			return l, func(gone chan struct{}) { runtime.AddCleanup(l, func(c chan struct{}) { close(c) }, gone) }
		},
		"token bucket": func() (limiter, func(chan struct{})) {
			l := cruise.Must(cruise.NewTokenBucket(.1, 1))
			return l, func(gone chan struct{}) { runtime.AddCleanup(l, func(c chan struct{}) { close(c) }, gone) }
		},
		"sliding window": func() (limiter, func(chan struct{})) {
			l := cruise.Must(cruise.NewSlidingWindow(cruise.Window{Calls: 1, Per: time.Hour}))
			return l, func(gone chan struct{}) { runtime.AddCleanup(l, func(c chan struct{}) { close(c) }, gone) }
		},
		"delay": func() (limiter, func(chan struct{})) {
			l := cruise.Must(delay.New(delay.Linear(time.Minute)))
			return l, func(gone chan struct{}) { runtime.AddCleanup(l, func(c chan struct{}) { close(c) }, gone) }
		},
	}
	for name, make2 := range makers {
		t.Run(name, func(t *testing.T) {
			gone := make(chan struct{})
			func() {
				l, watch := make2()
				watch(gone)
				r := cruise.Must(cruise.New(cruise.WithLimiter(l)))
				require.NoError(t, r.Do(t.Context(), succeeds))
				if name == "delay" { // which has none before a throttle
					l.Learn(cruise.Feedback{Outcome: cruise.OutcomeThrottled, Cost: 1})
				}
				ctx, cancel := context.WithCancel(t.Context())
				var wg sync.WaitGroup
				for range 100 {
					wg.Go(func() { assert.ErrorIs(t, r.Do(ctx, succeeds), context.Canceled) })
				}
				time.Sleep(10 * time.Millisecond)
				l.Pause(time.Minute)
				cancel()
				wg.Wait()
			}()
			deadline := time.After(30 * time.Second)
			for {
				wakeProcessors()
				runtime.GC()
				select {
				case <-gone:
					return
				case <-deadline:
					t.Fatal("something holds on to the limiter")
				case <-time.After(10 * time.Millisecond):
				}
			}
		})
	}
}

// wakeProcessors gives work to all processors of the runtime: one that is idle keeps
// a timer that was stopped until it has something to do, or that would have gone off.
func wakeProcessors() {
	var wg sync.WaitGroup
	for range 4 * runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for began := time.Now(); time.Since(began) < time.Millisecond; {
			}
		})
	}
	wg.Wait()
}

// Calls leave no goroutine behind.
func TestNoGoroutineStays(t *testing.T) {
	before := runtime.NumGoroutine()
	r := cruise.Must(cruise.New(cruise.WithInitialRate(1000), cruise.WithAttemptTimeout(time.Millisecond)))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	var wg sync.WaitGroup
	for range 200 {
		wg.Go(func() {
			_ = r.Do(ctx, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		})
	}
	wg.Wait()
	assert.Eventually(t, func() bool { return runtime.NumGoroutine() <= before+1 }, 5*time.Second, 10*time.Millisecond)
}

// However a cancellation and a turn race, either the call is made, or it is told
// of the cancellation and has used nothing.
func TestCancellationRacesWithTheLimiter(t *testing.T) {
	for _, tt := range []struct {
		name string
		at   time.Duration // of the cancellation; the turn is at 100 ms
	}{{"before", 99 * time.Millisecond}, {"at the same moment", 100 * time.Millisecond}, {"after", 101 * time.Millisecond}} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for range 100 {
					r := cruise.Must(cruise.New(cruise.WithInitialRate(10), cruise.WithMaxRate(10)))
					require.NoError(t, r.Do(t.Context(), succeeds))
					ctx, cancel := context.WithCancel(t.Context())
					time.AfterFunc(tt.at, cancel)
					ran := uint64(0)
					err := r.Do(ctx, func(context.Context) error { ran++; return nil })
					if err != nil {
						assert.ErrorIs(t, err, context.Canceled)
					}
					require.Equal(t, err == nil, ran == 1)
					s := r.Limiter().(*cruise.AdaptiveLimiter).Stats()
					require.Equal(t, 1+ran, s.Admitted)
					require.Equal(t, s.Admitted, s.Successes)
					start := time.Now()
					require.NoError(t, r.Do(t.Context(), succeeds))
					require.LessOrEqual(t, time.Since(start), 100*time.Millisecond, "the next waits for its own turn at most")
				}
			})
		})
	}
}

// A deadline that could have been met, and was not, gives the place in line back.
func TestDeadlineDuringTheWaitFreesThePlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := cruise.Must(cruise.New()) // one call in flight until it knows more
		var wg sync.WaitGroup
		wg.Go(func() {
			assert.NoError(t, r.Do(t.Context(), func(context.Context) error { time.Sleep(200 * time.Millisecond); return nil }))
		})
		synctest.Wait()
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		err := r.Do(ctx, func(context.Context) error { t.Error("called"); return nil })
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, 100*time.Millisecond, time.Since(start))
		assert.Zero(t, gaveUp(t, err).Attempts)
		assert.NoError(t, r.Do(t.Context(), succeeds))
		assert.Equal(t, 200*time.Millisecond, time.Since(start))
		wg.Wait()
	})
}

// A deadline of zero has long passed; it is not one that was forgotten.
func TestZeroDeadline(t *testing.T) {
	for name, limiter := range map[string]cruise.Option{
		"no limiter":   cruise.WithoutLimiter(),
		"adaptive":     cruise.WithInitialRate(1),
		"token bucket": cruise.WithLimiter(cruise.Must(cruise.NewTokenBucket(1, 1))),
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithDeadline(t.Context(), time.Time{})
			defer cancel()
			r := cruise.Must(cruise.New(limiter))
			assert.ErrorIs(t, r.Do(ctx, func(context.Context) error { t.Error("called"); return nil }), context.DeadlineExceeded)
			assert.NoError(t, r.Do(t.Context(), succeeds))
		})
	}
}

// A call may use its own limiter, in any way.
func TestCallUsesItsOwnLimiter(t *testing.T) {
	const ms = time.Millisecond
	for _, tt := range []struct {
		name string
		call func(ctx context.Context, r *cruise.Retrier, l *cruise.AdaptiveLimiter) error
		next time.Duration // until the next call goes
	}{
		{"sets the limit", func(_ context.Context, _ *cruise.Retrier, l *cruise.AdaptiveLimiter) error { return l.SetLimit(2) }, 500 * ms},
		{"pauses", func(_ context.Context, _ *cruise.Retrier, l *cruise.AdaptiveLimiter) error {
			l.Pause(time.Second)
			return nil
		}, 1000 * ms},
		{"pauses and resumes", func(_ context.Context, _ *cruise.Retrier, l *cruise.AdaptiveLimiter) error {
			l.Pause(time.Second)
			l.Resume()
			return nil
		}, 100 * ms},
		{"looks at it", func(_ context.Context, _ *cruise.Retrier, l *cruise.AdaptiveLimiter) error { l.Stats(); return nil }, 100 * ms},
		{"makes a call", func(ctx context.Context, r *cruise.Retrier, _ *cruise.AdaptiveLimiter) error {
			return r.Do(ctx, succeeds)
		}, 100 * ms},
		{"makes a free call", func(ctx context.Context, r *cruise.Retrier, _ *cruise.AdaptiveLimiter) error {
			return r.Do(ctx, succeeds, cruise.WithCost(0))
		}, 100 * ms},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := cruise.Must(cruise.New(cruise.WithInitialRate(10), cruise.WithMaxRate(10)))
				l := r.Limiter().(*cruise.AdaptiveLimiter)
				require.NoError(t, r.Do(t.Context(), func(ctx context.Context) error { return tt.call(ctx, r, l) }))
				start := time.Now()
				require.NoError(t, r.Do(t.Context(), succeeds))
				assert.Equal(t, tt.next, time.Since(start))
			})
		})
	}
}

// Calls within calls of a limiter that lets one go at a time: a call that waits for
// itself waits 0.3 s, not forever, and less where its context says so.
func TestCallWithinACallIsNoDeadlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := cruise.Must(cruise.New())
		start := time.Now()
		assert.NoError(t, r.Do(t.Context(), func(ctx context.Context) error { return r.Do(ctx, succeeds) }))
		assert.Equal(t, 300*time.Millisecond, time.Since(start))

		r = cruise.Must(cruise.New())
		start = time.Now()
		assert.ErrorIs(t, r.Do(t.Context(), func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
			defer cancel()
			return cruise.Permanent(r.Do(ctx, succeeds))
		}), context.DeadlineExceeded)
		assert.Equal(t, 100*time.Millisecond, time.Since(start))
	})
}

// What the outer call needs so that the one within it does not stand still: a limiter of
// its own, or none, or a rate.
func TestCallWithinACallNeedNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, fast := cruise.Must(cruise.New()), cruise.Must(cruise.New(cruise.WithMaxRate(1000)))
		for name, rs := range map[string][2]*cruise.Retrier{
			"another limiter": {cruise.Must(cruise.New()), inner},
			"none":            {cruise.Must(cruise.New(cruise.WithoutLimiter())), inner},
			"a maximum rate":  {fast, fast},
		} {
			start := time.Now()
			assert.NoError(t, rs[0].Do(t.Context(), func(ctx context.Context) error { return rs[1].Do(ctx, succeeds) }))
			assert.LessOrEqual(t, time.Since(start), time.Millisecond, name)
		}
	})
}

// A call that takes an hour holds nobody up for long, and its late throttle neither
// cuts the rate that others have found meanwhile, nor pauses them.
func TestCallOfAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, opt := range []cruise.Option{cruise.WithTuning(cruise.Tuning{ForgiveAfter: 10}), cruise.WithInitialRate(10)} {
			r := cruise.Must(cruise.New(opt, cruise.WithMaxAttempts(1)))
			var wg sync.WaitGroup
			wg.Go(func() {
				err := r.Do(t.Context(), func(context.Context) error { time.Sleep(time.Hour); return cruise.Throttled(errBoom) })
				assert.ErrorIs(t, err, cruise.ErrAttemptsExhausted)
				assert.Equal(t, time.Hour, gaveUp(t, err).Elapsed)
			})
			synctest.Wait()
			start := time.Now()
			for range 20 {
				assert.NoError(t, r.Do(t.Context(), succeeds))
			}
			assert.LessOrEqual(t, time.Since(start), 25*time.Second)
			assert.ErrorIs(t, r.Do(t.Context(), func(context.Context) error { return cruise.Throttled(errBoom) }), cruise.ErrAttemptsExhausted)
			for range 20 {
				assert.NoError(t, r.Do(t.Context(), succeeds))
			}
			before := r.Limiter().(*cruise.AdaptiveLimiter).Stats()
			assert.Less(t, before.Limit, rate.Inf)
			wg.Wait()
			after := r.Limiter().(*cruise.AdaptiveLimiter).Stats()
			assert.Equal(t, before.Throttles+1, after.Throttles)
			assert.Equal(t, before.Limit, after.Limit, "the late throttle")
			assert.Zero(t, after.PauseLeft, "the late throttle")
			assert.NoError(t, r.Do(t.Context(), succeeds))
		}
	})
}

// blocker is an observer that does not return before it may.
type blocker struct{ blocked, release chan struct{} }

func (b *blocker) Observe(context.Context, cruise.Event) {
	b.blocked <- struct{}{}
	<-b.release
}

// An observer that blocks holds up the call that it is told of, and nothing else.
func TestObserverThatBlocksHoldsNoLock(t *testing.T) {
	for name, happen := range map[string]func(*cruise.AdaptiveLimiter){
		"a pause":     func(a *cruise.AdaptiveLimiter) { a.Pause(time.Second) },
		"a new limit": func(a *cruise.AdaptiveLimiter) { _ = a.SetLimit(5) },
		"a throttle": func(a *cruise.AdaptiveLimiter) {
			a.Learn(cruise.Feedback{Outcome: cruise.OutcomeThrottled, Cost: 1, RetryAfter: time.Second})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &blocker{make(chan struct{}), make(chan struct{})}
				a := cruise.Must(cruise.NewAdaptiveLimiter(cruise.WithInitialRate(10), cruise.WithObserver(b)))
				var wg sync.WaitGroup
				wg.Go(func() { happen(a) })
				<-b.blocked
				start := time.Now()
				a.Stats()
				wg.Go(a.Resume)
				synctest.Wait()
				for range 3 {
					assert.NoError(t, a.WaitN(t.Context(), 1))
					a.Learn(cruise.Feedback{Outcome: cruise.OutcomeDropped, Cost: 1})
				}
				assert.Less(t, time.Since(start), 2*time.Second)
				go func() {
					for range b.blocked {
					}
				}()
				close(b.release)
				wg.Wait()
				close(b.blocked)
			})
		})
	}
}

// thinker is an error whose methods take their time.
type thinker struct{ took time.Duration }

func (e thinker) Error() string     { time.Sleep(e.took); return "thinking" }
func (e thinker) Is(error) bool     { time.Sleep(e.took); return false }
func (e thinker) As(any) bool       { time.Sleep(e.took); return false }
func (e thinker) ErrorCode() string { time.Sleep(e.took); return "" }
func (e thinker) StatusCode() int   { time.Sleep(e.took); return 503 }

// An error whose methods are slow holds up its own call alone.
func TestSlowErrorHoldsNoLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := cruise.Must(cruise.New(cruise.WithInitialRate(1000), cruise.WithMaxAttempts(1)))
		var wg sync.WaitGroup
		wg.Go(func() {
			assert.ErrorIs(t, r.Do(t.Context(), func(context.Context) error { return thinker{time.Hour} }), cruise.ErrAttemptsExhausted)
		})
		synctest.Wait()
		start := time.Now()
		for range 100 {
			assert.NoError(t, r.Do(t.Context(), succeeds))
		}
		assert.Less(t, time.Since(start), time.Second)
		wg.Wait()
	})
}

// A classifier that panics, on whatever attempt, releases what its call held.
func TestClassifierThatPanicsReleasesTheSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := cruise.Must(cruise.New(cruise.WithClassifier(func(error) cruise.Verdict { panic("classifier") })))
		assert.PanicsWithValue(t, "classifier", func() { _ = r.Do(t.Context(), func(context.Context) error { return errBoom }) })
		start := time.Now()
		assert.NoError(t, r.Do(t.Context(), succeeds))
		assert.Zero(t, time.Since(start))
	})
}

// What can not be called takes nothing.
func TestNilFunctionTakesNoToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := cruise.Must(cruise.New(cruise.WithLimiter(cruise.Must(cruise.NewTokenBucket(.001, 1)))))
		start := time.Now()
		assert.Error(t, r.Do(t.Context(), nil))
		_, err := cruise.DoValue[int](t.Context(), r, nil)
		assert.Error(t, err)
		assert.NoError(t, r.Do(t.Context(), succeeds))
		assert.Zero(t, time.Since(start))
	})
}

// A call that costs much gets its turn among many that cost little and never end.
func TestLargeCostDoesNotStarve(t *testing.T) {
	const burst = 10
	for name, limiter := range map[string]func() cruise.Limiter{
		"token bucket": func() cruise.Limiter { return cruise.Must(cruise.NewTokenBucket(10, burst)) },
		"adaptive": func() cruise.Limiter {
			return cruise.Must(cruise.NewAdaptiveLimiter(cruise.WithInitialRate(10), cruise.WithMaxRate(10), cruise.WithTuning(cruise.Tuning{Burst: burst})))
		},
		"sliding window": func() cruise.Limiter {
			return cruise.Must(cruise.NewSlidingWindow(cruise.Window{Calls: burst, Per: time.Second}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := cruise.Must(cruise.New(cruise.WithLimiter(limiter())))
				ctx, cancel := context.WithCancel(t.Context())
				var wg sync.WaitGroup
				for range 20 {
					wg.Go(func() {
						for r.Do(ctx, succeeds) == nil {
						}
					})
				}
				time.Sleep(5 * time.Second)
				start := time.Now()
				assert.NoError(t, r.Do(t.Context(), succeeds, cruise.WithCost(burst)))
				assert.LessOrEqual(t, time.Since(start), 4*time.Second, "behind 20 of cost 1, and then 10 of its own")
				cancel()
				wg.Wait()
			})
		})
	}
}

// What was let go in the long run is what the rate says, whatever rounding does
// to each wait.
func TestRateInTheLongRun(t *testing.T) {
	if calm.Raced {
		t.Skip("it takes long, and others race as much")
	}
	for _, tt := range []struct {
		name  string
		limit rate.Limit
		calls int
	}{
		{"10/13 a second", 10. / 13, 10_000},
		{"a third of a second", 3, 10_000},
		{"7777 a second", 7777, 20_000},
		{"three million a second", 3e6, 20_000},
		{"once a day", 1. / 86400, 1000},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for _, l := range []cruise.Limiter{
					cruise.Must(cruise.NewTokenBucket(tt.limit, 1)),
					cruise.Must(cruise.NewAdaptiveLimiter(cruise.WithInitialRate(tt.limit), cruise.WithTuning(cruise.Tuning{MinRate: tt.limit}), cruise.WithMaxRate(tt.limit), cruise.WithTuning(cruise.Tuning{Burst: 1}))),
				} {
					r := cruise.Must(cruise.New(cruise.WithLimiter(l)))
					start := time.Now()
					for range tt.calls + 1 {
						require.NoError(t, r.Do(t.Context(), succeeds))
					}
					got := float64(tt.calls) / time.Since(start).Seconds()
					assert.LessOrEqual(t, got, float64(tt.limit)*(1+1e-9), "%T", l)
					assert.InEpsilon(t, float64(tt.limit), got, max(1e-6, 2e-9*float64(tt.limit)), "%T: a nanosecond a call is lost at most", l)
				}
			})
		})
	}
}

// Attempts without number end all the same: by the budget, or the deadline.
func TestEndlessAttemptsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fails := func(context.Context) error { return errBoom }
		for _, n := range []int{math.MaxInt, math.MaxInt - 1, math.MaxInt/2 + 1} {
			r := cruise.Must(cruise.New(cruise.WithMaxAttempts(n), cruise.WithBackoff(cruise.Backoff{})))
			err := r.Do(t.Context(), fails)
			assert.ErrorIs(t, err, cruise.ErrBudgetExhausted)

			r = cruise.Must(cruise.New(cruise.WithMaxAttempts(n), cruise.WithoutBudget(), cruise.WithMaxElapsed(time.Hour)))
			err = r.Do(t.Context(), fails)
			assert.ErrorIs(t, err, cruise.ErrMaxElapsed)
			assert.Less(t, gaveUp(t, err).Attempts, 1000, "the backoff goes on to its maximum")
		}
		err := cruise.Must(cruise.New(cruise.WithBackoff(cruise.Backoff{}))).Do(t.Context(), fails)
		assert.ErrorIs(t, err, cruise.ErrAttemptsExhausted)
		assert.Equal(t, maxAttempts, gaveUp(t, err).Attempts)
	})
}

// A program may run with the channels that timers had before Go 1.23. Bubbles
// cannot, so this is on real time.
func TestWithChannelTimersOfOld(t *testing.T) {
	t.Setenv("GODEBUG", "asynctimerchan=1")
	r := cruise.Must(cruise.New(cruise.WithInitialRate(200), cruise.WithBackoff(cruise.Must(cruise.ConstantBackoff(time.Millisecond)))))
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			n := 0
			assert.NoError(t, r.Do(t.Context(), func(context.Context) error {
				if n++; n == 1 && i%4 == 0 {
					return errBoom
				}
				return nil
			}))
		})
	}
	wg.Wait()
	ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, errors.New("enough"))
	defer cancel()
	r.Limiter().(*cruise.AdaptiveLimiter).Pause(time.Minute)
	assert.ErrorIs(t, r.Do(ctx, succeeds), cruise.ErrDeadline)
}
