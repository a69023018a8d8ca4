package cruise_test

import (
	"context"
	"errors"
	"fmt"
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

var errServer = errors.New("server says 503")

func busy(hints ...cruise.Hint) error { return cruise.Throttled(errServer, hints...) }

// A wait that cannot end in time is not begun.
func TestDeadline(t *testing.T) {
	oneASecond := func() cruise.Option {
		b := cruise.Must(cruise.NewTokenBucket(1, 1))
		return cruise.WithLimiter(b)
	}
	for _, tt := range []struct {
		name       string
		opts       func() cruise.Option
		returns    error
		attempts   int
		elapsed    time.Duration
		retryAfter time.Duration
		reason     error
	}{
		{"backoff", cruise.WithoutLimiter, errServer, 2, 100 * time.Millisecond, 200 * time.Millisecond, cruise.ErrDeadline},
		{"backoff for a throttle", cruise.WithoutLimiter, busy(), 1, 0, time.Second, cruise.ErrDeadline},
		{"wait that the server asked for", cruise.WithoutLimiter, busy(cruise.RetryAfter(time.Minute)), 1, 0, time.Minute, cruise.ErrDeadline},
		{"wait that ends in the moment of the deadline", cruise.WithoutLimiter, cruise.Transient(errServer, cruise.RetryAfter(300*time.Millisecond)), 1, 0, 300 * time.Millisecond, cruise.ErrDeadline},
		{"pace", oneASecond, errServer, 1, 100 * time.Millisecond, 900 * time.Millisecond, cruise.ErrDeadline},
		{"pace of x/time", func() cruise.Option { return cruise.WithLimiter(rate.NewLimiter(1, 1)) }, errServer, 1, 100 * time.Millisecond, 900 * time.Millisecond, cruise.ErrDeadline},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				budget := cruise.Must(cruise.NewBudget(10, 1, 0))
				r := plain(tt.opts(), cruise.WithBudget(budget))
				ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
				defer cancel()
				start := time.Now()
				err := r.Do(ctx, func(context.Context) error { return tt.returns })

				assert.Equal(t, &cruise.Error{
					Reason: tt.reason, Attempts: tt.attempts, Elapsed: tt.elapsed, RetryAfter: tt.retryAfter, Last: tt.returns,
				}, err)
				assert.Equal(t, tt.elapsed, time.Since(start))
				assert.ErrorIs(t, err, cruise.ErrDeadline)
				assert.ErrorIs(t, err, context.DeadlineExceeded)
				assert.ErrorIs(t, err, errServer)
				assert.Equal(t, 10-float64(tt.attempts-1), budget.Left(), "a retry that was ruled out costs nothing")
			})
		})
	}
}

// A call whose context has ended before takes no time.
func TestContextEndedBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		r := cruise.Must(cruise.New(cruise.WithLimiter(cruise.Must(cruise.NewTokenBucket(1, 1)))))
		err := r.Do(ctx, func(context.Context) error { t.Error("called"); return nil })
		e := gaveUp(t, err)
		assert.ErrorIs(t, err, context.Canceled)
		assert.Zero(t, e.Attempts)
		assert.Zero(t, e.Elapsed)
	})
}

func TestDeadlineBehindAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := cruise.Must(cruise.New())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		err := r.Do(ctx, func(context.Context) error { return busy(cruise.RetryAfter(time.Minute)) })
		assert.ErrorIs(t, err, cruise.ErrDeadline)
		assert.Equal(t, time.Minute, gaveUp(t, err).RetryAfter)

		err = r.Do(ctx, func(context.Context) error { t.Error("called during the pause"); return nil })
		assert.ErrorIs(t, err, cruise.ErrDeadline)
		assert.Equal(t, time.Minute, gaveUp(t, err).RetryAfter)
		assert.Zero(t, time.Since(start))
	})
}

// A call that could go no sooner than at its deadline is told so at once: there, its
// timer would race the context's.
func TestDeadlineAtTheMomentOfTheTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket := cruise.Must(cruise.NewTokenBucket(1, 1))
		r := cruise.Must(cruise.New(cruise.WithLimiter(bucket), cruise.WithMaxElapsed(time.Second)))
		require.NoError(t, bucket.WaitN(t.Context(), 1))
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		assert.ErrorIs(t, bucket.WaitN(ctx, 1), cruise.ErrDeadline)
		assert.ErrorIs(t, r.Do(t.Context(), func(context.Context) error { t.Error("called"); return nil }), cruise.ErrMaxElapsed)
		assert.Zero(t, time.Since(start))
	})
}

// Whoever is told that there is no point in waiting is not ahead of others any more,
// be it in a scope's line.
func TestDeadlineBehindAWaiterThatLeaves(t *testing.T) {
	for _, tt := range []struct{ name, scope string }{{"of the same line", ""}, {"of a scope's line", "A"}} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				bucket := cruise.Must(cruise.NewTokenBucket(1, 1))
				r := cruise.Must(cruise.New(cruise.WithLimiter(bucket), cruise.WithScopeLimiter(func(string, string) (cruise.Limiter, error) {
					return cruise.NewTokenBucket(rate.Inf, 1)
				})))
				first := r
				if tt.scope != "" {
					first = r.Scope(tt.scope, "1")
				}
				require.NoError(t, bucket.WaitN(t.Context(), 1))
				call := func(r *cruise.Retrier, within time.Duration) chan error {
					done := make(chan error, 1)
					go func() {
						ctx, cancel := context.WithTimeout(t.Context(), within)
						defer cancel()
						done <- r.Do(ctx, func(context.Context) error { return nil })
					}()
					synctest.Wait()
					return done
				}
				leaves, goes := call(first, 1500*time.Millisecond), call(r, 2400*time.Millisecond)
				require.NoError(t, bucket.SetLimit(.5))
				assert.ErrorIs(t, <-leaves, cruise.ErrDeadline, "its turn is in two seconds now")
				assert.NoError(t, <-goes)
			})
		})
	}
}

func TestSoonerOfDeadlineAndMaxElapsedIsTheReason(t *testing.T) {
	limiters := map[string]func() cruise.Option{
		"backoff":      cruise.WithoutLimiter,
		"token bucket": func() cruise.Option { return cruise.WithLimiter(cruise.Must(cruise.NewTokenBucket(.01, 1))) },
		"x/time":       func() cruise.Option { return cruise.WithLimiter(rate.NewLimiter(.01, 1)) },
	}
	for name, limiter := range limiters {
		for _, tt := range []struct {
			name              string
			deadline, elapsed time.Duration
			reason            error
		}{
			{"deadline", time.Second, 2 * time.Second, cruise.ErrDeadline},
			{"max elapsed", 2 * time.Second, time.Second, cruise.ErrMaxElapsed},
		} {
			t.Run(name+", "+tt.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := plain(limiter(), cruise.WithMaxElapsed(tt.elapsed), cruise.WithBackoff(cruise.Must(cruise.ConstantBackoff(900*time.Millisecond))))
					ctx, cancel := context.WithTimeout(t.Context(), tt.deadline)
					defer cancel()
					err := r.Do(ctx, func(context.Context) error { return errServer })
					assert.Equal(t, tt.reason, gaveUp(t, err).Reason)
					assert.ErrorIs(t, err, errServer)
					assert.Equal(t, tt.reason == cruise.ErrDeadline, errors.Is(err, context.DeadlineExceeded))
				})
			})
		}
	}
}

// A limiter may have deadlines of its own, such as that of a network.
func TestMaxElapsedHidesNoErrorOfTheLimiter(t *testing.T) {
	lost := fmt.Errorf("dial: %w", context.DeadlineExceeded)
	r := plain(cruise.WithLimiter(broken{lost}), cruise.WithMaxElapsed(time.Hour))
	e := gaveUp(t, r.Do(t.Context(), func(context.Context) error { return nil }))
	assert.Equal(t, lost, e.Reason)
}

type broken struct{ err error }

func (b broken) WaitN(context.Context, int) error { return b.err }

// The time that is left is counted from the call of Do, with a limiter or without.
func TestMaxElapsedCountsTheFirstAttempt(t *testing.T) {
	for name, opt := range map[string]cruise.Option{
		"no limiter": cruise.WithoutLimiter(),
		"bucket":     cruise.WithLimiter(cruise.Must(cruise.NewTokenBucket(rate.Inf, 1))),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := plain(opt, cruise.WithMaxElapsed(time.Second))
				e := gaveUp(t, r.Do(t.Context(), func(context.Context) error { time.Sleep(time.Second); return errServer }))
				assert.Equal(t, cruise.ErrMaxElapsed, e.Reason)
				assert.Equal(t, 1, e.Attempts)
				assert.Equal(t, time.Second, e.Elapsed)
			})
		})
	}
}

type endless struct{}

func (endless) WaitN(ctx context.Context, _ int) error {
	<-ctx.Done()
	return ctx.Err()
}

// A limiter that looks at its context only is told of the time that is left.
func TestMaxElapsedEndsTheWaitForTheLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := plain(cruise.WithLimiter(endless{}), cruise.WithMaxElapsed(time.Second))
		e := gaveUp(t, r.Do(t.Context(), func(context.Context) error { t.Error("called"); return nil }))
		assert.Equal(t, cruise.ErrMaxElapsed, e.Reason)
		assert.Equal(t, time.Second, e.Elapsed)
	})
}

func TestMaxElapsedCountsTheWaitForTheLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := plain(cruise.WithLimiter(cruise.Must(cruise.NewTokenBucket(1, 1))), cruise.WithMaxElapsed(2500*time.Millisecond))
		n := 0
		err := r.Do(t.Context(), func(context.Context) error { n++; return errServer })
		e := gaveUp(t, err)
		assert.Equal(t, cruise.ErrMaxElapsed, e.Reason)
		assert.Equal(t, 3, n) // at 0, 1 and 2 s
		assert.Equal(t, 2*time.Second+400*time.Millisecond, e.Elapsed)
		assert.Equal(t, 600*time.Millisecond, e.RetryAfter)
		assert.NotErrorIs(t, err, context.DeadlineExceeded)
	})
}

func TestServerDelayStopsEveryone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := cruise.Must(cruise.New(cruise.WithMaxServerDelay(time.Minute)))
		err := r.Do(t.Context(), func(context.Context) error { return busy(cruise.RetryAfter(time.Hour)) })
		assert.Equal(t, &cruise.Error{Reason: cruise.ErrServerDelay, Attempts: 1, RetryAfter: time.Hour, Last: busy(cruise.RetryAfter(time.Hour))}, err)

		time.Sleep(10 * time.Minute)
		err = r.Do(t.Context(), func(context.Context) error { t.Error("called during the pause"); return nil })
		assert.Equal(t, &cruise.Error{Reason: cruise.ErrServerDelay, RetryAfter: 50 * time.Minute, Paused: 50 * time.Minute}, err)

		time.Sleep(49*time.Minute + 30*time.Second)
		start := time.Now()
		assert.NoError(t, r.Do(t.Context(), func(context.Context) error { return nil }))
		assert.Equal(t, 30*time.Second, time.Since(start), "a wait that is short enough is waited for")
	})
}

// Where a retry would have been worth it, the error tells how long a pause would have held
// it up, whoever it is for.
func TestErrorTellsTheRestOfThePause(t *testing.T) {
	spent := cruise.Must(cruise.NewBudget(1, 1, 0))
	spend(t, spent, 1)
	once := []cruise.Option{cruise.WithMaxAttempts(1)}
	for _, tt := range []struct {
		name             string
		opts             []cruise.Option
		scoped, free     bool
		deadline, cancel time.Duration // 0: none
		returns          error
		reason           error
		want             time.Duration
	}{
		{name: "attempts exhausted", opts: once, returns: errServer, reason: cruise.ErrAttemptsExhausted, want: time.Minute},
		{name: "throttled, and no wait named", opts: once, returns: busy(), reason: cruise.ErrAttemptsExhausted, want: time.Minute},
		{name: "a longer wait of the server's", opts: once, returns: cruise.Transient(errServer, cruise.RetryAfter(time.Hour)), reason: cruise.ErrAttemptsExhausted, want: time.Hour},
		{name: "budget exhausted", opts: []cruise.Option{cruise.WithBudget(spent)}, returns: errServer, reason: cruise.ErrBudgetExhausted, want: time.Minute},
		{name: "deadline", deadline: 50 * time.Millisecond, returns: errServer, reason: cruise.ErrDeadline, want: time.Minute},
		{name: "around a scope", opts: once, scoped: true, returns: errServer, reason: cruise.ErrAttemptsExhausted, want: time.Minute},
		{name: "a call that is free passes by it", opts: once, free: true, returns: errServer, reason: cruise.ErrAttemptsExhausted},
		{name: "a call that is cancelled does not ask", cancel: 50 * time.Millisecond, returns: errServer, reason: context.Canceled},
		{name: "a quota outlasts it", returns: cruise.QuotaExhausted(errServer), reason: cruise.ErrQuotaExhausted},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limiter := cruise.Must(cruise.NewAdaptiveLimiter())
				r := plain(append([]cruise.Option{cruise.WithLimiter(limiter)}, tt.opts...)...)
				if tt.scoped {
					r = r.Scope("ACCOUNT", "1").Scope("TABLE", "t")
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if tt.deadline > 0 {
					ctx, cancel = context.WithTimeout(ctx, tt.deadline)
					defer cancel()
				}
				if tt.cancel > 0 {
					defer time.AfterFunc(tt.cancel, cancel).Stop()
				}
				cost := 1
				if tt.free {
					cost = 0
				}
				e := gaveUp(t, r.Do(ctx, func(context.Context) error {
					limiter.Pause(time.Minute)
					return tt.returns
				}, cruise.WithCost(cost)))
				assert.Equal(t, tt.reason, e.Reason)
				assert.Equal(t, tt.want, e.RetryAfter)
			})
		})
	}
}

var errShutdown = errors.New("shutting down")

// The cause of a cancellation is kept, and the server's error is never hidden.
func TestCancellation(t *testing.T) {
	inLine := func() cruise.Option { return cruise.WithLimiter(cruise.Must(cruise.NewTokenBucket(.001, 1))) }
	for _, tt := range []struct {
		name     string
		limiter  func() cruise.Option
		fn       func(ctx context.Context, attempt int) error
		attempts int
	}{
		{"backing off", cruise.WithoutLimiter, func(context.Context, int) error { return busy(cruise.RetryAfter(time.Minute)) }, 1},
		{"in line for a retry", inLine, func(context.Context, int) error { return errServer }, 1},
		{"in line for a retry, x/time", func() cruise.Option { return cruise.WithLimiter(rate.NewLimiter(.001, 1)) },
			func(context.Context, int) error { return errServer }, 1},
		{"in the call, which returns the server's error", cruise.WithoutLimiter, func(ctx context.Context, _ int) error {
			<-ctx.Done()
			return errServer
		}, 1},
		{"in a retry, which returns the context's error", cruise.WithoutLimiter, func(ctx context.Context, attempt int) error {
			if attempt == 1 {
				return errServer
			}
			<-ctx.Done()
			return ctx.Err()
		}, 2},
		{"in a retry, which returns the cause", cruise.WithoutLimiter, func(ctx context.Context, attempt int) error {
			if attempt == 1 {
				return errServer
			}
			<-ctx.Done()
			return errors.Join(ctx.Err(), context.Cause(ctx))
		}, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				budget := cruise.Must(cruise.NewBudget(10, 1, 0))
				spend(t, budget, 3)
				r := plain(tt.limiter(), cruise.WithBudget(budget))
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(10*time.Second, func() { cancel(errShutdown) })
				start, n := time.Now(), 0
				err := r.Do(ctx, func(ctx context.Context) error { n++; return tt.fn(ctx, n) })
				assert.Equal(t, 10*time.Second, time.Since(start))
				e := gaveUp(t, err)
				assert.Equal(t, tt.attempts, e.Attempts)
				assert.ErrorIs(t, err, context.Canceled)
				assert.ErrorIs(t, err, errShutdown)
				assert.ErrorIs(t, err, errServer)
				assert.Equal(t, 7-float64(tt.attempts-1), budget.Left(), "a retry that was not made costs nothing")
			})
		})
	}
}

// Of the wait that the server asked for, what is left is told.
func TestCancellationTellsTheRestOfTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(50*time.Second, cancel)
		err := plain().Do(ctx, func(context.Context) error { return cruise.Transient(errServer, cruise.RetryAfter(time.Minute)) })
		assert.ErrorIs(t, err, context.Canceled)
		assert.Equal(t, 10*time.Second, gaveUp(t, err).RetryAfter)
	})
}

// Who is slow to hear of a retry makes no attempt start late.
func TestMaxElapsedCountsASlowObserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		slow := cruise.ObserverFunc(func(_ context.Context, event cruise.Event) {
			if _, ok := event.(cruise.RetryScheduled); ok {
				time.Sleep(10 * time.Second)
			}
		})
		err := plain(cruise.WithMaxElapsed(5*time.Second), cruise.WithObserver(slow)).
			Do(t.Context(), func(context.Context) error { calls++; return errServer })
		assert.Equal(t, cruise.ErrMaxElapsed, gaveUp(t, err).Reason)
		assert.Equal(t, 1, calls)
	})
}

// A quota that is used up is the reason for all who come while it is, not for the first alone.
func TestQuotaIsTheReasonWhileItIsUsedUp(t *testing.T) {
	for name, newLimiter := range map[string]func() (cruise.Limiter, error){
		"adaptive": func() (cruise.Limiter, error) { return cruise.NewAdaptiveLimiter() },
		"bucket":   func() (cruise.Limiter, error) { return cruise.NewTokenBucket(1000, 1000) },
		"window": func() (cruise.Limiter, error) {
			return cruise.NewSlidingWindow(cruise.Window{Calls: 1000, Per: time.Second})
		},
		"delay":  func() (cruise.Limiter, error) { return delay.New(delay.Responsive()) },
		"shared": func() (cruise.Limiter, error) { return shared.New(shared.NewMemoryStore()) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limiter := cruise.Must(newLimiter())
				r := plain(cruise.WithLimiter(limiter))
				succeeds := func(context.Context) error { return nil }
				daily := cruise.QuotaExhausted(errServer, cruise.RetryAfter(10*time.Hour))
				assert.ErrorIs(t, r.Do(t.Context(), func(context.Context) error { return daily }), cruise.ErrQuotaExhausted)
				time.Sleep(time.Hour)
				err := r.Do(t.Context(), succeeds)
				assert.EqualError(t, err, "cruise: call not made: quota of the server used up: everyone is paused for 9h0m0s (try again in 9h0m0s)")
				assert.Equal(t, cruise.ErrQuotaExhausted, gaveUp(t, err).Reason)

				for _, quota := range []time.Duration{0, time.Minute} {
					limiter.(interface{ Resume() }).Resume()
					hint := cruise.RetryAfter(quota)
					assert.ErrorIs(t, r.Do(t.Context(), func(context.Context) error { return cruise.QuotaExhausted(errServer, hint) }), cruise.ErrQuotaExhausted)
					limiter.(interface{ Pause(time.Duration) }).Pause(time.Hour)
					assert.Equal(t, cruise.ErrServerDelay, gaveUp(t, r.Do(t.Context(), succeeds)).Reason, "of the pause by hand, after a quota of %v", quota)
				}
			})
		})
	}
}

// Who waits in vain is told for how long, and whether there was a pause.
func TestErrorOfAWaitThatEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := cruise.Must(cruise.NewAdaptiveLimiter())
		l.Pause(time.Minute)
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(10*time.Second, func() { cancel(errShutdown) })
		err := plain(cruise.WithLimiter(l)).Do(ctx, func(context.Context) error { return nil })
		assert.EqualError(t, err, "cruise: call not made, after a wait of 10s: context canceled: shutting down: everyone is paused for 50s")
	})
}

func TestCancellationWhileAnErrorPanics(t *testing.T) {
	w := &witness{}
	ctx, cancel := context.WithCancel(t.Context())
	err := plain(cruise.WithLimiter(w)).Do(ctx, func(context.Context) error { cancel(); return grumpyError{} })
	assert.Equal(t, context.Canceled, gaveUp(t, err).Reason)
	assert.Equal(t, []cruise.Outcome{cruise.OutcomeTransient}, w.outcomes())
}

// A cancelled call ends alike whether it waited or was under way.
func TestCancellationDuringTheFirstAttempt(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	var returned error
	call := func(ctx context.Context) error {
		cancel(errShutdown)
		returned = errors.Join(errors.New("call"), ctx.Err())
		return returned
	}
	err := plain().Do(ctx, call)
	e, ok := err.(*cruise.Error)
	require.True(t, ok)
	assert.Equal(t, 1, e.Attempts)
	assert.True(t, e.Last == returned)
	assert.ErrorIs(t, e.Reason, context.Canceled)
	assert.ErrorIs(t, e.Reason, errShutdown)

	// One within another Retrier leaves that to the outer one.
	ctx, cancel = context.WithCancelCause(t.Context())
	outer := cruise.Must(cruise.New()).Do(ctx, func(ctx context.Context) error {
		err := plain().Do(ctx, call)
		assert.True(t, err == returned)
		return err
	})
	cancel(nil)
	e, ok = outer.(*cruise.Error)
	require.True(t, ok)
	assert.True(t, e.Last == returned)
}

func TestCallUnderADeadContextIsNotMade(t *testing.T) {
	limiters := map[string]cruise.Option{
		"none":     cruise.WithoutLimiter(),
		"adaptive": cruise.WithInitialRate(1),
		"bucket":   cruise.WithLimiter(cruise.Must(cruise.NewTokenBucket(1, 1))),
		"x/time":   cruise.WithLimiter(rate.NewLimiter(1, 1)),
	}
	for name, limiter := range limiters {
		t.Run(name, func(t *testing.T) {
			r := cruise.Must(cruise.New(limiter))
			ctx, cancel := context.WithCancelCause(t.Context())
			cancel(errShutdown)
			err := r.Do(ctx, func(context.Context) error { t.Error("called"); return nil })
			assert.EqualError(t, err, "cruise: call not made: context canceled: shutting down")
			assert.ErrorIs(t, err, context.Canceled)
			assert.ErrorIs(t, err, errShutdown)

			// Its token is there for the next one.
			require.NoError(t, r.Do(t.Context(), func(context.Context) error { return nil }))
		})
	}
}

func TestContextErrorsOfOthersAreNotOurs(t *testing.T) {
	dead, cancel := context.WithTimeout(t.Context(), -1)
	defer cancel()
	synctest.Test(t, func(t *testing.T) {
		n := 0
		err := plain().Do(t.Context(), func(context.Context) error {
			if n++; n < 3 {
				return dead.Err() // a timeout somewhere within the call
			}
			return nil
		})
		assert.NoError(t, err)
		assert.Equal(t, 3, n)
	})
}

// One cancellation ends every call with an Error of one shape, wherever the call was.
func TestCancellationHasOneShape(t *testing.T) {
	inLine := func(l cruise.Limiter) []cruise.Option { return []cruise.Option{cruise.WithLimiter(l)} }
	fails := func(context.Context) error { return errServer }
	ends := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	unpaced := cruise.WithoutLimiter()
	for name, tt := range map[string]struct {
		opts []cruise.Option
		fn   func(context.Context) error
		last error // nil if the call waits for a limiter whose only token is taken
	}{
		"in line, bucket":    {inLine(cruise.Must(cruise.NewTokenBucket(1e-3, 1))), fails, nil},
		"in line, window":    {inLine(cruise.Must(cruise.NewSlidingWindow(cruise.Window{Calls: 1, Per: time.Hour}))), fails, nil},
		"in line, adaptive":  {[]cruise.Option{cruise.WithMaxRate(1e-3)}, fails, nil},
		"in line, x/time":    {inLine(rate.NewLimiter(1e-3, 1)), fails, nil},
		"in the backoff":     {[]cruise.Option{unpaced, cruise.WithBackoff(doubling(time.Hour))}, fails, errServer},
		"in an attempt":      {nil, ends, context.Canceled},
		"in a timed attempt": {[]cruise.Option{cruise.WithAttemptTimeout(time.Hour)}, ends, context.Canceled},
		"of an unpaced call": {[]cruise.Option{unpaced}, ends, context.Canceled},
		"with its cause":     {nil, func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }, errShutdown},
		"with another error": {nil, func(ctx context.Context) error { <-ctx.Done(); return errServer }, errServer},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := cruise.Must(cruise.New(tt.opts...))
				if tt.last == nil {
					require.NoError(t, r.Limiter().WaitN(t.Context(), 1))
				}
				do := func(ctx context.Context) error { return r.Do(ctx, tt.fn) }
				loop := func(ctx context.Context) (err error) {
					for attempt, gaveUp := range r.Attempts(ctx) {
						if err = gaveUp; err == nil {
							attempt.Done(tt.fn(attempt.Context()))
						}
					}
					return err
				}
				retry := func(ctx context.Context) error {
					calls := 0
					return r.Do(ctx, func(ctx context.Context) error {
						if calls++; calls == 1 && tt.last != nil {
							return errBoom
						}
						return tt.fn(ctx)
					})
				}
				for _, call := range []func(context.Context) error{do, loop, retry} {
					ctx, cancel := context.WithCancelCause(t.Context())
					began := time.Now()
					time.AfterFunc(10*time.Second, func() { cancel(errShutdown) })
					err := call(ctx)
					assert.Equal(t, 10*time.Second, time.Since(began))
					e, ok := err.(*cruise.Error)
					require.True(t, ok, "%T: %v", err, err)
					assert.EqualError(t, e.Reason, "context canceled: shutting down")
					assert.ErrorIs(t, err, context.Canceled)
					assert.ErrorIs(t, err, errShutdown)
					assert.Equal(t, tt.last != nil, e.Last != nil)
				}
			})
		})
	}
}
