package cruise_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/a7df5faa/cruise"
)

var errBoom = errors.New("boom")

// doubling waits base, 2·base, 4·base … to the millisecond.
func doubling(base time.Duration) cruise.Backoff {
	return cruise.Must(cruise.NewBackoff(cruise.WithBase(base), cruise.WithMaxDelay(time.Hour), cruise.NoJitter()))
}

// plain is a Retrier without limiter or chance: retries wait 100, 200, 400 ms,
// and 1, 2, 4 s after throttles.
func plain(opts ...cruise.Option) *cruise.Retrier {
	return cruise.Must(cruise.New(append([]cruise.Option{
		cruise.WithoutLimiter(),
		cruise.WithBackoff(doubling(100 * time.Millisecond)),
		cruise.WithThrottleBackoff(doubling(time.Second)),
	}, opts...)...))
}

func gaveUp(t *testing.T, err error) *cruise.Error {
	t.Helper()
	e, ok := errors.AsType[*cruise.Error](err)
	require.Truef(t, ok, "want a *cruise.Error, got %T: %v", err, err)
	return e
}

// step is one attempt: what the call returns, what that is taken for, how long
// it is until the next attempt, and what is left in the budget then.
type step struct {
	returns error
	outcome cruise.Outcome
	delay   time.Duration
	left    float64
}

type end struct {
	reason     error // nil: the last error untouched
	retryAfter time.Duration
}

func TestDo(t *testing.T) {
	const (
		success   = cruise.OutcomeSuccess
		throttled = cruise.OutcomeThrottled
		transient = cruise.OutcomeTransient
		permanent = cruise.OutcomePermanent
		quota     = cruise.OutcomeQuotaExhausted
		dropped   = cruise.OutcomeDropped
		ms        = time.Millisecond
		s         = time.Second
	)
	throttle := cruise.Throttled(errBoom)
	asked := func(d time.Duration) error { return cruise.Throttled(errBoom, cruise.RetryAfter(d)) }
	fatal := cruise.Permanent(errBoom)
	always := func(v cruise.Verdict) cruise.Option {
		return cruise.WithClassifier(func(error) cruise.Verdict { return v })
	}
	// The budget holds 10 retries; a success gives back a half, time nothing.
	for _, tt := range []struct {
		name  string
		opts  []cruise.Option
		steps []step
		end   end
	}{
		{"success", nil, []step{{nil, success, 0, 10}}, end{}},
		{"success after a retry", nil, []step{{errBoom, transient, 100 * ms, 9}, {nil, success, 0, 9.5}}, end{}},
		{"success after throttles", nil, []step{
			{throttle, throttled, s, 9}, {throttle, throttled, 2 * s, 8}, {nil, success, 0, 8.5},
		}, end{}},
		{"delays grow with the number of the attempt, whatever came before", nil, []step{
			{errBoom, transient, 100 * ms, 9}, {throttle, throttled, 2 * s, 8}, {errBoom, transient, 400 * ms, 7}, {nil, success, 0, 7.5},
		}, end{}},

		{"permanent at first is untouched", nil, []step{{fatal, permanent, 0, 10}}, end{}},
		{"permanent later is wrapped", nil, []step{{errBoom, transient, 100 * ms, 9}, {fatal, permanent, 0, 9}}, end{reason: cruise.ErrPermanent}},
		{"another's cancellation at first is untouched", nil, []step{{context.Canceled, dropped, 0, 10}}, end{}},
		{"attempts exhausted, five by default", nil, []step{
			{errBoom, transient, 100 * ms, 9}, {errBoom, transient, 200 * ms, 8}, {errBoom, transient, 400 * ms, 7},
			{errBoom, transient, 800 * ms, 6}, {errBoom, transient, 0, 6},
		}, end{reason: cruise.ErrAttemptsExhausted}},
		{"one attempt", []cruise.Option{cruise.WithMaxAttempts(1)}, []step{{errBoom, transient, 0, 10}}, end{reason: cruise.ErrAttemptsExhausted}},
		{"attempts exhausted, and how long the server asked to wait", []cruise.Option{cruise.WithMaxAttempts(1)},
			[]step{{asked(7 * s), throttled, 0, 10}}, end{cruise.ErrAttemptsExhausted, 7 * s}},
		{"a backoff that knows when to give up", []cruise.Option{cruise.WithBackoff(cruise.Must(cruise.ConstantBackoff(s, cruise.WithRetries(1))))},
			[]step{{errBoom, transient, s, 9}, {errBoom, transient, 0, 9}}, end{reason: cruise.ErrAttemptsExhausted}},
		{"the most retries that a backoff can have", []cruise.Option{cruise.WithBackoff(cruise.Must(cruise.ConstantBackoff(s, cruise.WithRetries(math.MaxInt))))},
			[]step{{errBoom, transient, s, 9}, {nil, success, 0, 9.5}}, end{}},
		{"attempts outrank the retries of the backoff", []cruise.Option{
			cruise.WithMaxAttempts(2), cruise.WithBackoff(cruise.Must(cruise.ConstantBackoff(s, cruise.WithRetries(9)))),
		}, []step{{errBoom, transient, s, 9}, {errBoom, transient, 0, 9}}, end{reason: cruise.ErrAttemptsExhausted}},

		{"the server's wait is a floor", nil, []step{{asked(30 * s), throttled, 30 * s, 9}, {nil, success, 0, 9.5}}, end{}},
		{"the server's wait does not shorten the backoff", nil, []step{{asked(ms), throttled, s, 9}, {nil, success, 0, 9.5}}, end{}},
		{"a wait of 0 is no licence to retry at once", nil, []step{{asked(0), throttled, s, 9}, {nil, success, 0, 9.5}}, end{}},
		{"a negative wait counts as none", nil, []step{{asked(-time.Hour), throttled, s, 9}, {nil, success, 0, 9.5}}, end{}},
		{"a transient failure with a wait", nil, []step{{cruise.Transient(errBoom, cruise.RetryAfter(5*s)), transient, 5 * s, 9}, {nil, success, 0, 9.5}}, end{}},
		{"a classifier's wait", []cruise.Option{always(cruise.Verdict{Outcome: transient, RetryAfter: 5 * s})},
			[]step{{errBoom, transient, 5 * s, 9}, {nil, success, 0, 9.5}}, end{}},
		{"a classifier's negative wait counts as none", []cruise.Option{always(cruise.Verdict{Outcome: transient, RetryAfter: math.MinInt64})},
			[]step{{errBoom, transient, 100 * ms, 9}, {nil, success, 0, 9.5}}, end{}},
		{"a classifier's negative wait is not passed on", []cruise.Option{cruise.WithMaxAttempts(1), always(cruise.Verdict{Outcome: throttled, RetryAfter: -1})},
			[]step{{errBoom, throttled, 0, 10}}, end{reason: cruise.ErrAttemptsExhausted}},
		{"the longest wait that is allowed", nil, []step{{asked(5 * time.Minute), throttled, 5 * time.Minute, 9}, {nil, success, 0, 9.5}}, end{}},
		{"a longer one", nil, []step{{asked(5*time.Minute + 1), throttled, 0, 10}}, end{cruise.ErrServerDelay, 5*time.Minute + 1}},
		{"the longest one that there is", nil, []step{{asked(math.MaxInt64), throttled, 0, 10}}, end{cruise.ErrServerDelay, math.MaxInt64}},
		{"a longer one where that is allowed", []cruise.Option{cruise.WithMaxServerDelay(time.Hour)},
			[]step{{asked(time.Hour), throttled, time.Hour, 9}, {nil, success, 0, 9.5}}, end{}},

		{"quota exhausted", nil, []step{{cruise.QuotaExhausted(errBoom), quota, 0, 10}}, end{reason: cruise.ErrQuotaExhausted}},
		{"quota exhausted, until when", nil, []step{{cruise.QuotaExhausted(errBoom, cruise.RetryAfter(time.Hour)), quota, 0, 10}}, end{cruise.ErrQuotaExhausted, time.Hour}},

		{"throttles that do not count", []cruise.Option{cruise.WithUncountedThrottles(), cruise.WithMaxAttempts(2)}, []step{
			{throttle, throttled, s, 9}, {throttle, throttled, 2 * s, 8}, {errBoom, transient, 100 * ms, 7},
			{throttle, throttled, 8 * s, 6}, {errBoom, transient, 0, 6},
		}, end{reason: cruise.ErrAttemptsExhausted}},
		{"delays of others grow for no throttle that does not count", []cruise.Option{cruise.WithUncountedThrottles()}, []step{
			{errBoom, transient, 100 * ms, 9}, {throttle, throttled, 2 * s, 8}, {throttle, throttled, 4 * s, 7},
			{errBoom, transient, 200 * ms, 6}, {nil, success, 0, 6.5},
		}, end{}},

		{"time used up before the next wait would end", []cruise.Option{cruise.WithMaxElapsed(500 * ms)}, []step{
			{errBoom, transient, 100 * ms, 9}, {errBoom, transient, 200 * ms, 8}, {errBoom, transient, 0, 8},
		}, end{cruise.ErrMaxElapsed, 400 * ms}},
		{"time used up when the next wait ends", []cruise.Option{cruise.WithMaxElapsed(300 * ms)},
			[]step{{errBoom, transient, 100 * ms, 9}, {errBoom, transient, 0, 9}}, end{cruise.ErrMaxElapsed, 200 * ms}},
		{"the longest time that there is", []cruise.Option{cruise.WithMaxElapsed(math.MaxInt64)},
			[]step{{errBoom, transient, 100 * ms, 9}, {nil, success, 0, 9.5}}, end{}},

		{"budget exhausted", []cruise.Option{cruise.WithMaxAttempts(math.MaxInt), cruise.WithBackoff(doubling(ms))}, []step{
			{errBoom, transient, ms, 9}, {errBoom, transient, 2 * ms, 8}, {errBoom, transient, 4 * ms, 7}, {errBoom, transient, 8 * ms, 6},
			{errBoom, transient, 16 * ms, 5}, {errBoom, transient, 32 * ms, 4}, {errBoom, transient, 64 * ms, 3}, {errBoom, transient, 128 * ms, 2},
			{errBoom, transient, 256 * ms, 1}, {errBoom, transient, 512 * ms, 0}, {errBoom, transient, 0, 0},
		}, end{reason: cruise.ErrBudgetExhausted}},

		{"a classifier calls an error a success", []cruise.Option{always(cruise.Verdict{Outcome: success})}, []step{{errBoom, success, 0, 10}}, end{}},
		{"a classifier drops an error", []cruise.Option{always(cruise.Verdict{Outcome: dropped})}, []step{{errBoom, dropped, 0, 10}}, end{}},
		{"a classifier declines", []cruise.Option{always(cruise.Verdict{RetryAfter: time.Hour})}, []step{{fatal, permanent, 0, 10}}, end{}},
		{"a classifier makes up an outcome", []cruise.Option{always(cruise.Verdict{Outcome: 99})}, []step{{fatal, permanent, 0, 10}}, end{}},
		{"a classifier outranks wrappers", []cruise.Option{always(cruise.Verdict{Outcome: permanent})}, []step{{throttle, permanent, 0, 10}}, end{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				budget := cruise.Must(cruise.NewBudget(10, .5, 0))
				var outcomes []cruise.Outcome
				seen := cruise.ObserverFunc(func(_ context.Context, e cruise.Event) {
					if e, ok := e.(cruise.AttemptEnded); ok {
						outcomes = append(outcomes, e.Outcome)
					}
				})
				r := plain(append([]cruise.Option{cruise.WithBudget(budget), cruise.WithObserver(seen)}, tt.opts...)...)
				var began []time.Time
				var left []float64
				start := time.Now()
				err := r.Do(t.Context(), func(context.Context) error {
					if began = append(began, time.Now()); len(began) > 1 {
						left = append(left, budget.Left())
					}
					return tt.steps[min(len(began), len(tt.steps))-1].returns
				})
				began = append(began, time.Now())
				left = append(left, budget.Left())

				var got []step
				for i, o := range outcomes {
					got = append(got, step{tt.steps[min(i, len(tt.steps)-1)].returns, o, began[i+1].Sub(began[i]), left[i]})
				}
				assert.Equal(t, tt.steps, got)
				last := tt.steps[len(tt.steps)-1].returns
				if tt.end.reason == nil {
					assert.True(t, err == last, "want the call's own error untouched, got %v", err)
					return
				}
				assert.Equal(t, &cruise.Error{
					Reason: tt.end.reason, Attempts: len(tt.steps), Elapsed: time.Since(start),
					RetryAfter: tt.end.retryAfter, Last: last,
				}, err)
			})
		})
	}
}

func TestJitterNeverShortensTheServersWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := cruise.Must(cruise.New(cruise.WithoutLimiter(), cruise.WithoutBudget(), cruise.WithMaxAttempts(2)))
		for range 200 {
			start := time.Now()
			_ = r.Do(t.Context(), func(context.Context) error {
				return cruise.Throttled(errBoom, cruise.RetryAfter(time.Second))
			})
			assert.Equal(t, time.Second, time.Since(start)) // the backoff draws from 0 to 1 s
		}
	})
}

// Nor is a throttle that does not count the previous delay of another failure.
func TestUncountedThrottlesLengthenNoDecorrelatedDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := plain(cruise.WithoutBudget(), cruise.WithUncountedThrottles(), cruise.WithBackoff(cruise.Must(cruise.NewBackoff(cruise.DecorrelatedJitter()))))
		for range 20 {
			calls, failed := 0, time.Time{}
			require.NoError(t, r.Do(t.Context(), func(context.Context) error {
				switch calls++; calls {
				case 1, 2, 3:
					return cruise.Throttled(errBoom)
				case 4:
					failed = time.Now()
					return errBoom
				}
				return nil
			}))
			assert.LessOrEqual(t, time.Since(failed), 300*time.Millisecond, "three times the base")
		}
	})
}

func TestDoValue(t *testing.T) {
	r := plain(cruise.WithBackoff(doubling(time.Millisecond)))
	t.Run("value", func(t *testing.T) {
		v, err := cruise.DoValue(t.Context(), r, func(context.Context) (int, error) { return 42, nil })
		assert.NoError(t, err)
		assert.Equal(t, 42, v)
	})
	t.Run("value and error", func(t *testing.T) {
		fatal := cruise.Permanent(errBoom)
		v, err := cruise.DoValue(t.Context(), r, func(context.Context) (string, error) { return "half", fatal })
		assert.True(t, err == fatal)
		assert.Equal(t, "half", v)
	})
	t.Run("value of the last attempt", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			n := 0
			v, err := cruise.DoValue(t.Context(), r, func(context.Context) (int, error) { n++; return n, errBoom })
			assert.ErrorIs(t, err, cruise.ErrAttemptsExhausted)
			assert.Equal(t, 5, v)
		})
	})
	t.Run("nil function", func(t *testing.T) {
		_, err := cruise.DoValue[int](t.Context(), r, nil)
		assert.EqualError(t, err, "cruise: nil function to call")
	})
}

// How long a call took is known whether or not anything else asked for the time.
func TestElapsed(t *testing.T) {
	drained := func() cruise.Limiter {
		l := rate.NewLimiter(1, 1)
		l.Allow()
		return l
	}
	for _, tt := range []struct {
		name string
		r    func() *cruise.Retrier
		want time.Duration
	}{
		{"no limiter", func() *cruise.Retrier { return plain(cruise.WithMaxAttempts(1)) }, time.Second},
		{"x/time", func() *cruise.Retrier { return plain(cruise.WithMaxAttempts(1), cruise.WithLimiter(drained())) }, 2 * time.Second},
		{"x/time, cancelled", func() *cruise.Retrier {
			l := drained()
			_ = l.(*rate.Limiter).ReserveN(time.Now(), 1)
			_ = l.(*rate.Limiter).ReserveN(time.Now(), 1)
			return plain(cruise.WithLimiter(l))
		}, 2500 * time.Millisecond},
		{"x/time in a scope, cancelled", func() *cruise.Retrier {
			l := drained()
			_ = l.(*rate.Limiter).ReserveN(time.Now(), 1)
			_ = l.(*rate.Limiter).ReserveN(time.Now(), 1)
			return plain(cruise.WithScopeLimiter(func(string, string) (cruise.Limiter, error) { return l, nil })).Scope("A", "a")
		}, 2500 * time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer time.AfterFunc(2500*time.Millisecond, cancel).Stop()
				err := tt.r().Do(ctx, func(context.Context) error { time.Sleep(time.Second); return errBoom }, cruise.WithBackground())
				assert.Equal(t, tt.want, gaveUp(t, err).Elapsed)
			})
		})
	}
}

// Who has cancelled the call is told that, not that attempts are used up.
func TestLastAttemptOfACancelledCall(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	e := gaveUp(t, plain(cruise.WithMaxAttempts(1)).Do(ctx, func(context.Context) error { cancel(); return errBoom }))
	assert.Equal(t, context.Canceled, e.Reason)
	assert.Equal(t, errBoom, e.Last)
}

// A retry that a classifier drops has no cause where the context has not ended.
func TestDroppedRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := errors.New("gone")
		r := plain(cruise.WithClassifier(func(err error) cruise.Verdict {
			if err == gone {
				return cruise.Verdict{Outcome: cruise.OutcomeDropped}
			}
			return cruise.Verdict{}
		}))
		n := 0
		e := gaveUp(t, r.Do(t.Context(), func(context.Context) error {
			if n++; n == 1 {
				return errBoom
			}
			return gone
		}))
		assert.Equal(t, gone, e.Reason)
		assert.Equal(t, errBoom, e.Last)
	})
}

func TestTheContextOfAnAttemptHasTheValuesOfTheCall(t *testing.T) {
	type key struct{}
	ctx := context.WithValue(t.Context(), key{}, "value")
	require.NoError(t, cruise.Must(cruise.New()).Do(ctx, func(ctx context.Context) error {
		assert.Equal(t, "value", ctx.Value(key{}))
		return nil
	}, cruise.WithBackground()))
}

func TestDoRefusesOptionsThatCannotWork(t *testing.T) {
	never := func(context.Context) error { t.Error("called"); return nil }
	good := plain()
	for _, tt := range []struct {
		name string
		r    *cruise.Retrier
		ctx  context.Context
		fn   func(context.Context) error
		cost int
		want string
	}{
		{"nil Retrier", nil, t.Context(), never, 1, "cruise: Retrier not made by New"},
		{"zero Retrier", &cruise.Retrier{}, t.Context(), never, 1, "cruise: Retrier not made by New"},
		{"nil context", good, nil, never, 1, "cruise: nil context"},
		{"nil function", good, t.Context(), nil, 1, "cruise: nil function to call"},
		{"negative cost", good, t.Context(), never, -5, "cruise: WithCost(-5): want 0 or more"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			assert.EqualError(t, tt.r.Do(tt.ctx, tt.fn, cruise.WithCost(tt.cost)), tt.want)
			if tt.fn == nil {
				return
			}
			turns := 0
			for _, err := range tt.r.Attempts(tt.ctx, cruise.WithCost(tt.cost)) {
				turns++
				assert.EqualError(t, err, tt.want)
			}
			assert.Equal(t, 1, turns)
		})
	}
	for name, r := range map[string]*cruise.Retrier{"nil Retrier": nil, "zero Retrier": {}} {
		t.Run(name+" in parts", func(t *testing.T) {
			assert.Nil(t, r.Limiter())
			assert.Nil(t, r.Budget())
			assert.Nil(t, r.Scope("ACCOUNT", "1").Limiter())
			for range r.Scopes() {
				t.Error("a scope")
			}
		})
	}
}

func TestAttemptTimeoutIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := plain(cruise.WithAttemptTimeout(time.Second), cruise.WithMaxAttempts(3))
		start, n := time.Now(), 0
		err := r.Do(t.Context(), func(ctx context.Context) error {
			if n++; n == 3 {
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		})
		assert.NoError(t, err)
		assert.Equal(t, 2*time.Second+300*time.Millisecond, time.Since(start))

		err = r.Do(t.Context(), func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		assert.ErrorIs(t, err, cruise.ErrAttemptsExhausted)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

// However the end of an attempt's time shows, it is what ended the attempt.
func TestAttemptTimeoutIsRetriedHoweverItShows(t *testing.T) {
	succeeds := func(context.Context) error { return nil }
	retried := plain(cruise.WithNestedRetries(), cruise.WithMaxAttempts(2), cruise.WithBackoff(cruise.Backoff{}))
	const deadline = time.Hour
	for _, tt := range []struct {
		name     string
		deadline time.Duration
		fn       func(ctx context.Context, empty *cruise.TokenBucket) error
		attempts int
	}{
		{"a cancellation", deadline, func(ctx context.Context, _ *cruise.TokenBucket) error {
			<-ctx.Done()
			return fmt.Errorf("rpc: %w", context.Canceled)
		}, 2},
		{"the cause", deadline, func(ctx context.Context, _ *cruise.TokenBucket) error { <-ctx.Done(); return context.Cause(ctx) }, 2},
		{"in line within", deadline, func(ctx context.Context, empty *cruise.TokenBucket) error {
			return plain(cruise.WithLimiter(empty)).Do(ctx, succeeds)
		}, 2},
		{"in line by hand", deadline, func(ctx context.Context, empty *cruise.TokenBucket) error { return empty.WaitN(ctx, 1) }, 2},
		{"in line at a limiter of x/time", deadline, func(ctx context.Context, _ *cruise.TokenBucket) error {
			empty := rate.NewLimiter(.01, 1)
			empty.Allow()
			return plain(cruise.WithLimiter(empty)).Do(ctx, succeeds)
		}, 2},
		{"in line, and the whole call has no more time either", time.Second, func(ctx context.Context, empty *cruise.TokenBucket) error {
			return empty.WaitN(ctx, 1)
		}, 1},
		{"but not a shorter deadline of its own", deadline, func(ctx context.Context, empty *cruise.TokenBucket) error {
			ctx, cancel := context.WithTimeout(ctx, time.Millisecond)
			defer cancel()
			empty.SetLimit(100)
			return empty.WaitN(ctx, 1)
		}, 1},
		{"nor what is marked", deadline, func(ctx context.Context, _ *cruise.TokenBucket) error {
			<-ctx.Done()
			return cruise.Permanent(ctx.Err())
		}, 1},
		{"nor what has been retried", deadline, func(ctx context.Context, _ *cruise.TokenBucket) error {
			inner := 0
			return retried.Do(ctx, func(ctx context.Context) error {
				if inner++; inner == 1 {
					return errServer
				}
				<-ctx.Done()
				return ctx.Err()
			})
		}, 1},
		{"nor a cancellation of other things", deadline, func(context.Context, *cruise.TokenBucket) error { return context.Canceled }, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), tt.deadline)
				defer cancel()
				empty := cruise.Must(cruise.NewTokenBucket(.01, 1))
				require.NoError(t, empty.WaitN(ctx, 1))
				attempts := 0
				err := plain(cruise.WithAttemptTimeout(time.Second), cruise.WithMaxAttempts(2), cruise.WithBackoff(cruise.Backoff{})).
					Do(ctx, func(ctx context.Context) error { attempts++; return tt.fn(ctx, empty) })
				assert.Equal(t, tt.attempts, attempts, "%v", err)
			})
		})
	}
}

// A body that takes too long makes the status that came before it no other one.
func TestAttemptTimeoutHidesNoThrottle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := cruise.Must(cruise.NewAdaptiveLimiter())
		err := plain(cruise.WithLimiter(limiter), cruise.WithAttemptTimeout(time.Second)).Do(t.Context(), func(ctx context.Context) error {
			<-ctx.Done()
			return errors.Join(statusError(http.StatusTooManyRequests), ctx.Err())
		}, cruise.WithoutRetries())
		assert.ErrorIs(t, err, cruise.ErrAttemptsExhausted)
		assert.EqualValues(t, 1, limiter.Stats().Throttles)
	})
}

// Who reads of a deadline that the caller never set finds out whose it was.
func TestAttemptTimeoutNamesItself(t *testing.T) {
	const timeout = "cruise: attempt took longer than 1s (WithAttemptTimeout)"
	for name, tt := range map[string]struct {
		end  func(context.Context) error
		want string
	}{
		"error":         {context.Context.Err, "context deadline exceeded: " + timeout},
		"cause":         {context.Cause, timeout},
		"wrapped cause": {func(ctx context.Context) error { return fmt.Errorf("get: %w", context.Cause(ctx)) }, "get: " + timeout},
		"another error": {func(context.Context) error { return errBoom }, "boom"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &witness{}
				r := plain(cruise.WithLimiter(w), cruise.WithAttemptTimeout(time.Second), cruise.WithMaxAttempts(1))
				err := r.Do(t.Context(), func(ctx context.Context) error {
					<-ctx.Done()
					return tt.end(ctx)
				})
				assert.EqualError(t, err, "cruise: gave up after 1 attempt in 1s: attempts exhausted: "+tt.want)
				assert.Equal(t, name != "another error", errors.Is(err, context.DeadlineExceeded))
				var e interface { // net.Error
					error
					Timeout() bool
					Temporary() bool
				}
				assert.Equal(t, name != "another error", errors.As(err, &e) && e.Timeout() && e.Temporary())
				assert.Equal(t, []cruise.Outcome{cruise.OutcomeTransient}, w.outcomes())
			})
		})
	}
	t.Run("caller's deadline is sooner", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
			defer cancel()
			err := plain(cruise.WithAttemptTimeout(time.Second)).Do(ctx, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
			assert.Equal(t, context.DeadlineExceeded, err.(*cruise.Error).Reason)
		})
	})
}

func TestAttemptTimeoutEndsWithTheAttempt(t *testing.T) {
	r := plain(cruise.WithAttemptTimeout(time.Hour))
	var of context.Context
	require.NoError(t, r.Do(t.Context(), func(ctx context.Context) error { of = ctx; return nil }))
	assert.ErrorIs(t, of.Err(), context.Canceled)
	for attempt, err := range r.Attempts(t.Context()) {
		require.NoError(t, err)
		of = attempt.Context()
		require.NoError(t, of.Err())
		attempt.Done(nil)
	}
	assert.ErrorIs(t, of.Err(), context.Canceled)
	require.NoError(t, t.Context().Err())
}

func TestFunctionThatIgnoresItsContextIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		err := plain(cruise.WithAttemptTimeout(time.Second)).Do(t.Context(), func(context.Context) error { time.Sleep(time.Hour); return nil })
		assert.NoError(t, err)
		assert.Equal(t, time.Hour, time.Since(start))
	})
}

func TestElapsedCountsFromTheBeginning(t *testing.T) {
	for name, limiter := range map[string]cruise.Option{
		"adaptive":     cruise.WithInitialRate(1000),
		"token bucket": cruise.WithLimiter(cruise.Must(cruise.NewTokenBucket(1000, 1000))),
		"time limit":   cruise.WithMaxElapsed(time.Hour),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := cruise.Must(cruise.New(limiter, cruise.WithMaxAttempts(1)))
				err := r.Do(t.Context(), func(context.Context) error { time.Sleep(time.Second); return errBoom })
				assert.Equal(t, time.Second, gaveUp(t, err).Elapsed)
			})
		})
	}
}

func TestRefuse(t *testing.T) {
	var told []error
	r := cruise.Must(cruise.New(cruise.WithObserver(cruise.ObserverFunc(func(_ context.Context, e cruise.Event) {
		if e, ok := e.(cruise.GaveUp); ok {
			told = append(told, e.Err)
		}
	}))))
	err := r.Refuse(t.Context(), cruise.ErrQuotaExhausted, time.Hour, errServer)
	e := gaveUp(t, err)
	assert.Equal(t, []error{err}, told)
	assert.ErrorIs(t, err, cruise.ErrQuotaExhausted)
	assert.ErrorIs(t, err, errServer)
	assert.Zero(t, e.Attempts)
	assert.Equal(t, time.Hour, e.RetryAfter)
	unwatched := gaveUp(t, cruise.Must(cruise.New()).Refuse(t.Context(), cruise.ErrQuotaExhausted, -time.Hour, nil))
	assert.Less(t, unwatched.Elapsed, time.Minute)
	assert.Zero(t, unwatched.RetryAfter)

	dead, cancel := context.WithCancel(t.Context())
	cancel()
	err = r.Refuse(dead, cruise.ErrQuotaExhausted, 0, errServer)
	assert.ErrorIs(t, err, context.Canceled)
	assert.ErrorIs(t, err, errServer)
	var none context.Context
	assert.EqualError(t, r.Refuse(none, cruise.ErrQuotaExhausted, 0, nil), "cruise: nil context")
	assert.EqualError(t, r.Refuse(t.Context(), nil, 0, nil), "cruise: nil reason")
	assert.Error(t, (*cruise.Retrier)(nil).Refuse(t.Context(), cruise.ErrQuotaExhausted, 0, nil))
	assert.Error(t, new(cruise.Retrier).Refuse(t.Context(), cruise.ErrQuotaExhausted, 0, nil))
}

// A call that is made once tells the limiter of a throttle all the same.
func TestWithoutRetries(t *testing.T) {
	for _, tt := range []struct {
		name  string
		fails error
		pause time.Duration
	}{
		{"throttled", cruise.Throttled(errBoom, cruise.RetryAfter(time.Minute)), time.Minute},
		{"transient", errBoom, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limiter := cruise.Must(cruise.NewAdaptiveLimiter())
				r := cruise.Must(cruise.New(cruise.WithLimiter(limiter), cruise.WithUncountedThrottles()))
				calls := 0
				err := r.Do(t.Context(), func(context.Context) error { calls++; return tt.fails }, cruise.WithoutRetries())
				assert.Equal(t, &cruise.Error{Reason: cruise.ErrAttemptsExhausted, Attempts: 1, RetryAfter: tt.pause, Last: tt.fails}, err)
				assert.Equal(t, 1, calls)
				assert.Equal(t, tt.pause, limiter.PauseLeft())
				assert.Equal(t, budgetCapacity, r.Budget().Left())
			})
		})
	}
}

// A loop that is left after Done tells the limiter of a throttle all the same.
func TestLoopLeftAfterAThrottle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := cruise.Must(cruise.NewAdaptiveLimiter())
		r := cruise.Must(cruise.New(cruise.WithLimiter(limiter)))
		for attempt, err := range r.Attempts(t.Context()) {
			require.NoError(t, err)
			attempt.Done(cruise.Throttled(errBoom, cruise.RetryAfter(time.Minute)))
			break
		}
		assert.Equal(t, time.Minute, limiter.PauseLeft())
	})
}
