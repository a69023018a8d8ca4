package cruise_test

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/delay"
	"github.com/a7df5faa/cruise/shared"
)

// witness is a limiter that lets everyone go, or refuses, and keeps what it is told.
type witness struct {
	refuse error

	mu       sync.Mutex // guards the fields below
	admitted []int
	told     []cruise.Feedback
}

func (w *witness) WaitN(_ context.Context, n int) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.refuse != nil {
		return w.refuse
	}
	w.admitted = append(w.admitted, n)
	return nil
}

func (w *witness) Learn(f cruise.Feedback) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.told = append(w.told, f)
}

func (w *witness) outcomes() (os []cruise.Outcome) {
	for _, f := range w.told {
		os = append(os, f.Outcome)
	}
	return os
}

// One Learn for every attempt that was let go, whatever becomes of it.
func TestLearnerIsToldOnceForEveryAttempt(t *testing.T) {
	panicky := func(error) cruise.Verdict { panic("classifier") }
	for _, tt := range []struct {
		name string
		opts []cruise.Option
		fn   func(ctx context.Context) error
		want []cruise.Outcome
	}{
		{"success", nil, func(context.Context) error { return nil }, []cruise.Outcome{cruise.OutcomeSuccess}},
		{"permanent", nil, func(context.Context) error { return cruise.Permanent(errBoom) }, []cruise.Outcome{cruise.OutcomePermanent}},
		{"quota", nil, func(context.Context) error { return cruise.QuotaExhausted(errBoom) }, []cruise.Outcome{cruise.OutcomeQuotaExhausted}},
		{"throttled and retried", []cruise.Option{cruise.WithMaxAttempts(2)}, func(context.Context) error { return cruise.Throttled(errBoom) },
			[]cruise.Outcome{cruise.OutcomeThrottled, cruise.OutcomeThrottled}},
		{"transient and retried", []cruise.Option{cruise.WithMaxAttempts(2)}, func(context.Context) error { return errBoom },
			[]cruise.Outcome{cruise.OutcomeTransient, cruise.OutcomeTransient}},
		{"panic", nil, func(context.Context) error { panic("call") }, []cruise.Outcome{cruise.OutcomeDropped}},
		{"nil panic", nil, func(context.Context) error { panic(nil) }, []cruise.Outcome{cruise.OutcomeDropped}},
		{"exit of the goroutine", nil, func(context.Context) error { runtime.Goexit(); return nil }, []cruise.Outcome{cruise.OutcomeDropped}},
		{"panic of the classifier", []cruise.Option{cruise.WithClassifier(panicky)}, func(context.Context) error { return errBoom }, []cruise.Outcome{cruise.OutcomeDropped}},
		{"panic of the error before a classifier", []cruise.Option{cruise.WithMaxAttempts(1), cruise.WithClassifier(func(error) cruise.Verdict { return cruise.Verdict{} })}, func(context.Context) error { return grumpyError{} }, []cruise.Outcome{cruise.OutcomeTransient}},
		{"panic of the error", []cruise.Option{cruise.WithMaxAttempts(1)}, func(context.Context) error { return grumpyError{} }, []cruise.Outcome{cruise.OutcomeTransient}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &witness{}
				opts := append([]cruise.Option{cruise.WithLimiter(w)}, tt.opts...)
				done := make(chan struct{})
				go func() {
					defer close(done)
					defer func() { _ = recover() }()
					_ = plain(opts...).Do(t.Context(), tt.fn)
				}()
				<-done
				assert.Equal(t, tt.want, w.outcomes())
				assert.Len(t, w.admitted, len(tt.want))
			})
		})
	}
}

func TestNoLearnerIsToldOfACallThatWasNotLetGo(t *testing.T) {
	w := &witness{refuse: errServer}
	err := plain(cruise.WithLimiter(w)).Do(t.Context(), func(context.Context) error { t.Error("called"); return nil })
	assert.Equal(t, errServer, gaveUp(t, err).Reason)
	assert.ErrorIs(t, err, errServer)
	assert.Empty(t, w.told)
}

// What a limiter of another make says beside the reason is kept: such as what it asked
// itself by way of another Retrier, which gave up.
func TestRefusalOfAnotherMake(t *testing.T) {
	refused := &cruise.Error{Reason: cruise.ErrDeadline, RetryAfter: time.Minute}
	for _, tt := range []struct {
		name    string
		refuse  error
		reason  error // as it is
		matches error
	}{
		{"as ours do", refused, cruise.ErrDeadline, cruise.ErrDeadline},
		{"says for whom", fmt.Errorf("tenant 5: %w", refused), fmt.Errorf("tenant 5: %w", refused), cruise.ErrDeadline},
		{"gave up itself", &cruise.Error{Reason: cruise.ErrAttemptsExhausted, Attempts: 2, RetryAfter: time.Minute, Last: errServer},
			&cruise.Error{Reason: cruise.ErrAttemptsExhausted, Attempts: 2, RetryAfter: time.Minute, Last: errServer}, errServer},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := plain(cruise.WithLimiter(&witness{refuse: tt.refuse})).Do(t.Context(), func(context.Context) error { t.Error("called"); return nil })
			e := gaveUp(t, err)
			assert.Equal(t, tt.reason, e.Reason)
			assert.Equal(t, time.Minute, e.RetryAfter)
			assert.Zero(t, e.Attempts)
			assert.ErrorIs(t, err, tt.matches)
		})
	}
}

// A limiter that let a call go which another one refused is told that it was not made.
func TestACallThatIsNotLetGoIsDropped(t *testing.T) {
	outer, inner := &witness{}, &witness{refuse: errServer}
	r := plain(cruise.WithLimiter(outer), cruise.WithScopeLimiter(func(string, string) (cruise.Limiter, error) { return inner, nil }))
	err := r.Scope("A", "a").Do(t.Context(), func(context.Context) error { t.Error("called"); return nil }, cruise.WithCost(3))
	assert.ErrorIs(t, err, errServer)
	assert.Equal(t, []int{3}, outer.admitted)
	assert.Equal(t, []cruise.Feedback{{Outcome: cruise.OutcomeDropped, Cost: 3}}, outer.told)
	assert.Empty(t, inner.told)
}

func TestFeedback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &witness{}
		start, n := time.Now(), 0
		err := plain(cruise.WithLimiter(w)).Do(t.Context(), func(ctx context.Context) error {
			time.Sleep(time.Minute)
			if n++; n == 1 {
				cruise.Report(ctx, cruise.Quota{Limit: 100, Remaining: 0, Reset: time.Hour})
				return cruise.Throttled(errBoom, cruise.RetryAfter(5*time.Second), cruise.InScope("ACCOUNT"))
			}
			return nil
		}, cruise.WithCost(7))
		require.NoError(t, err)
		require.Len(t, w.told, 2)
		sent := func(i int) time.Duration { return w.told[i].Sent.Sub(start) }
		assert.Equal(t, []int{7, 7}, w.admitted)
		assert.Equal(t, time.Duration(0), sent(0))
		assert.Equal(t, 60*time.Second, sent(1), "the limiter pauses")
		w.told[0].Sent, w.told[1].Sent = time.Time{}, time.Time{}
		assert.Equal(t, []cruise.Feedback{
			{
				Outcome: cruise.OutcomeThrottled, Cost: 7, RetryAfter: 5 * time.Second, Scope: "ACCOUNT",
				Quota: &cruise.Quota{Limit: 100, Remaining: 0, Reset: time.Hour},
			},
			{Outcome: cruise.OutcomeSuccess, Cost: 7}, // the quota was that of the first attempt
		}, w.told)
	})
}

func TestFreeCallsPassTheLimiterUnseen(t *testing.T) {
	l := cruise.Must(cruise.NewAdaptiveLimiter(cruise.WithInitialRate(.01)))
	r := cruise.Must(cruise.New(cruise.WithLimiter(l)))
	for range 10 {
		require.NoError(t, r.Do(t.Context(), func(context.Context) error { return nil }, cruise.WithCost(0)))
	}
	assert.Zero(t, l.Stats().Admitted)

	w := &witness{}
	require.NoError(t, plain(cruise.WithLimiter(w)).Do(t.Context(), func(context.Context) error { return nil }, cruise.WithCost(0)))
	assert.Empty(t, w.told)
}

// Who watches makes no difference to what is reported.
func TestReportOfACallThatIsWatched(t *testing.T) {
	w := &witness{}
	r := plain(cruise.WithLimiter(w), cruise.WithObserver(cruise.ObserverFunc(func(context.Context, cruise.Event) {})))
	require.NoError(t, r.Do(t.Context(), func(ctx context.Context) error {
		cruise.Report(ctx, cruise.Quota{Limit: 5, Remaining: 4})
		return nil
	}))
	require.Len(t, w.told, 1)
	assert.Equal(t, &cruise.Quota{Limit: 5, Remaining: 4}, w.told[0].Quota)
}

func TestReport(t *testing.T) {
	call := func(t *testing.T, fn func(context.Context)) *cruise.Quota {
		w := &witness{}
		require.NoError(t, plain(cruise.WithLimiter(w)).Do(t.Context(), func(ctx context.Context) error { fn(ctx); return nil }))
		require.Len(t, w.told, 1)
		return w.told[0].Quota
	}
	t.Run("nothing", func(t *testing.T) {
		assert.Nil(t, call(t, func(context.Context) {}))
	})
	t.Run("the last one wins", func(t *testing.T) {
		assert.Equal(t, &cruise.Quota{Remaining: 3}, call(t, func(ctx context.Context) {
			cruise.Report(ctx, cruise.Quota{Remaining: 9})
			cruise.Report(ctx, cruise.Quota{Remaining: 3})
		}))
	})
	t.Run("a negative rest is no report", func(t *testing.T) {
		assert.Nil(t, call(t, func(ctx context.Context) { cruise.Report(ctx, cruise.Quota{Remaining: -1}) }))
	})
	t.Run("through derived contexts", func(t *testing.T) {
		assert.Equal(t, &cruise.Quota{Limit: 1}, call(t, func(ctx context.Context) {
			ctx, cancel := context.WithCancel(context.WithValue(ctx, t, t))
			cancel()
			cruise.Report(ctx, cruise.Quota{Limit: 1})
		}))
	})
	t.Run("from many goroutines", func(t *testing.T) {
		assert.NotNil(t, call(t, func(ctx context.Context) {
			var wg sync.WaitGroup
			for i := range 20 {
				wg.Go(func() { cruise.Report(ctx, cruise.Quota{Remaining: i}) })
			}
			wg.Wait()
		}))
	})
	t.Run("to the innermost", func(t *testing.T) {
		outer, inner := &witness{}, &witness{}
		require.NoError(t, plain(cruise.WithLimiter(outer)).Do(t.Context(), func(ctx context.Context) error {
			return plain(cruise.WithLimiter(inner)).Do(ctx, func(ctx context.Context) error {
				cruise.Report(ctx, cruise.Quota{Remaining: 5})
				return nil
			})
		}))
		assert.Equal(t, &cruise.Quota{Remaining: 5}, inner.told[0].Quota)
		assert.Nil(t, outer.told[0].Quota)
	})
	t.Run("past those without a limiter", func(t *testing.T) {
		for name, inner := range map[string]*cruise.Retrier{
			"bare":    plain(),
			"watched": plain(cruise.WithObserver(cruise.ObserverFunc(func(context.Context, cruise.Event) {}))),
			"bounded": plain(cruise.WithAttemptTimeout(time.Hour)),
		} {
			assert.Equal(t, &cruise.Quota{Remaining: 5}, call(t, func(ctx context.Context) {
				require.NoError(t, inner.Do(ctx, func(ctx context.Context) error {
					cruise.Report(ctx, cruise.Quota{Remaining: 5})
					return nil
				}))
			}), name)
		}
	})
	t.Run("outside of a Retrier, and after the call", func(t *testing.T) {
		var none context.Context
		cruise.Report(none, cruise.Quota{})
		cruise.Report(t.Context(), cruise.Quota{})
		var late context.Context
		call(t, func(ctx context.Context) { late = ctx })
		cruise.Report(late, cruise.Quota{})
	})
}

func TestPanicsPassThrough(t *testing.T) {
	value := fmt.Errorf("at the disco")
	for name, r := range map[string]*cruise.Retrier{
		"no limiter": plain(),
		"adaptive":   cruise.Must(cruise.New()),
		"timeout":    plain(cruise.WithAttemptTimeout(time.Hour)),
		"classifier": plain(cruise.WithClassifier(func(error) cruise.Verdict { panic(value) })),
	} {
		t.Run(name, func(t *testing.T) {
			assert.PanicsWithValue(t, value, func() {
				_ = r.Do(t.Context(), func(context.Context) error {
					if name == "classifier" {
						return errBoom
					}
					panic(value)
				})
			})
		})
	}
}

// Before its first throttle an adaptive limiter has one call in flight: a slot
// that leaked would hold up the next call.
func TestPanicsReleaseTheirSlot(t *testing.T) {
	for name, fn := range map[string]func(context.Context) error{
		"panic":  func(context.Context) error { panic("call") },
		"goexit": func(context.Context) error { runtime.Goexit(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := cruise.Must(cruise.New())
				done := make(chan struct{})
				go func() {
					defer close(done)
					defer func() { _ = recover() }()
					_ = r.Do(t.Context(), fn)
				}()
				<-done
				start := time.Now()
				require.NoError(t, r.Do(t.Context(), func(context.Context) error { return nil }))
				assert.Zero(t, time.Since(start))
			})
		})
	}
}

// So does an attempt that an observer ends with its goroutine before the call is made, as a
// test does that fails there.
func TestObserverThatEndsTheGoroutineReleasesTheSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		exit := true
		r := cruise.Must(cruise.New(cruise.WithObserver(cruise.ObserverFunc(func(_ context.Context, e cruise.Event) {
			if _, started := e.(cruise.AttemptStarted); started && exit {
				runtime.Goexit()
			}
		}))))
		for range 10 {
			done := make(chan struct{})
			go func() {
				defer close(done)
				_ = r.Do(t.Context(), func(context.Context) error { t.Error("called"); return nil })
			}()
			<-done
		}
		exit = false
		start := time.Now()
		require.NoError(t, r.Do(t.Context(), func(context.Context) error { return nil }))
		assert.Zero(t, time.Since(start))
	})
}

func TestCostAboveTheBurst(t *testing.T) {
	for name, limiter := range map[string]cruise.Limiter{
		"x/time":       rate.NewLimiter(1, 3),
		"token bucket": cruise.Must(cruise.NewTokenBucket(1, 3)),
		"adaptive":     cruise.Must(cruise.NewAdaptiveLimiter(cruise.WithTuning(cruise.Tuning{Burst: 3}))),
	} {
		t.Run(name, func(t *testing.T) {
			r := cruise.Must(cruise.New(cruise.WithLimiter(limiter)))
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			for _, cost := range []int{4, math.MaxInt} {
				err := r.Do(ctx, func(context.Context) error { t.Error("called"); return nil }, cruise.WithCost(cost))
				assert.ErrorIs(t, err, cruise.ErrCost)
				assert.NotErrorIs(t, err, context.DeadlineExceeded)
				assert.Less(t, gaveUp(t, err).Elapsed, time.Minute)
			}
			assert.NoError(t, r.Do(ctx, func(context.Context) error { return nil }, cruise.WithCost(3)))
		})
	}
}

// A wait that comes with anything but a throttle concerns the call alone.
func TestOnlyThrottlesPause(t *testing.T) {
	for name, limiter := range map[string]interface {
		cruise.Learner
		PauseLeft() time.Duration
	}{
		"adaptive": cruise.Must(cruise.NewAdaptiveLimiter()),
		"bucket":   cruise.Must(cruise.NewTokenBucket(1, 1)),
		"window":   cruise.Must(cruise.NewSlidingWindow(cruise.Window{Calls: 1, Per: time.Second})),
		"delay":    cruise.Must(delay.New(delay.HerokuGradual())),
		"shared":   cruise.Must(shared.New(shared.NewMemoryStore())),
	} {
		t.Run(name, func(t *testing.T) {
			for _, o := range []cruise.Outcome{cruise.OutcomeSuccess, cruise.OutcomeTransient, cruise.OutcomePermanent, cruise.OutcomeDropped} {
				limiter.Learn(cruise.Feedback{Outcome: o, Cost: 1, RetryAfter: time.Minute})
				assert.Zero(t, limiter.PauseLeft(), "%v", o)
			}
			limiter.Learn(cruise.Feedback{Outcome: cruise.OutcomeThrottled, Cost: 1, RetryAfter: time.Minute})
			assert.NotZero(t, limiter.PauseLeft())
		})
	}
}
