package delay_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/delay"
)

var errBusy = errors.New("busy")

func ok(context.Context) error { return nil }

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func throttle(l *delay.Limiter) {
	l.Learn(cruise.Feedback{Outcome: cruise.OutcomeThrottled, Cost: 1})
}

// A Limiter that New did not make says so.
func TestZeroLimiter(t *testing.T) {
	var l delay.Limiter
	const want = "cruise: delay.Limiter not made by delay.New"
	assert.EqualError(t, l.WaitN(t.Context(), 1), want)
	assert.EqualError(t, l.WaitN(t.Context(), 0), want)
	l.Learn(cruise.Feedback{Outcome: cruise.OutcomeThrottled, Cost: 1, RetryAfter: time.Second})
	l.Pause(time.Second)
	l.Resume()
	assert.Zero(t, l.Stats())
}

func TestContextsThatHaveEnded(t *testing.T) {
	l := cruise.Must(delay.New(delay.Linear(time.Second)))
	//lint:ignore SA1012 a nil context on purpose
	assert.EqualError(t, l.WaitN(nil, 1), "cruise: nil context")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errBusy)
	for _, n := range []int{0, 1} {
		err := l.WaitN(ctx, n)
		assert.ErrorIs(t, err, context.Canceled)
		assert.ErrorIs(t, err, errBusy)
	}
}

// A pause holds all calls but free ones until it is lifted.
func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := cruise.Must(delay.New(delay.Linear(time.Second)))
		l.Pause(time.Hour)
		start := time.Now()
		require.NoError(t, l.WaitN(t.Context(), 0))
		assert.ErrorIs(t, l.WaitN(within(t, time.Minute), 1), cruise.ErrDeadline)
		assert.Zero(t, time.Since(start))
		time.AfterFunc(time.Minute, l.Resume)
		require.NoError(t, l.WaitN(t.Context(), 1))
		assert.Equal(t, time.Minute, time.Since(start))

		assert.Zero(t, l.PauseLeft())
		l.Pause(time.Minute)
		l.Pause(time.Second) // a pause is never shortened
		time.Sleep(20 * time.Second)
		assert.Equal(t, 40*time.Second, l.PauseLeft())
		time.Sleep(40 * time.Second)
		assert.Zero(t, l.PauseLeft())
	})
}

// The time between two clocks does not count: a pause lasts as long as it was set to.
func TestPauseAcrossBubbles(t *testing.T) {
	l := cruise.Must(delay.New(delay.Linear(time.Second)))
	for range 2 {
		synctest.Test(t, func(t *testing.T) {
			l.Pause(time.Hour)
			time.Sleep(20 * time.Minute)
			assert.Equal(t, 40*time.Minute, l.PauseLeft())
			l.Resume()
			require.NoError(t, l.WaitN(within(t, time.Minute), 1))
		})
	}
	require.NoError(t, l.WaitN(within(t, time.Minute), 1))
}

// An attempt that was never admitted teaches nothing.
func TestLearnIgnoresAttemptsNeverAdmitted(t *testing.T) {
	for _, outcome := range []cruise.Outcome{cruise.OutcomeThrottled, cruise.OutcomeQuotaExhausted} {
		synctest.Test(t, func(t *testing.T) {
			l := cruise.Must(delay.New(delay.Responsive()))
			for _, cost := range []int{0, -1} {
				l.Learn(cruise.Feedback{Outcome: outcome, Cost: cost, RetryAfter: time.Hour})
			}
			require.NoError(t, l.WaitN(within(t, 1), 1))
			l.Learn(cruise.Feedback{Outcome: outcome, Cost: 1, RetryAfter: time.Hour})
			assert.Equal(t, time.Hour, l.PauseLeft())
		})
	}
}

// A Retrier that may not wait for a long pause is refused at once: when it comes, and when the
// pause begins while it waits.
func TestRefusesLongPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := cruise.Must(delay.New(delay.Linear(time.Minute)))
		throttle(l)
		r := cruise.Must(cruise.New(cruise.WithLimiter(l), cruise.WithMaxServerDelay(10*time.Minute)))
		start := time.Now()
		time.AfterFunc(time.Second, func() { l.Pause(time.Hour) })
		for _, at := range []time.Duration{time.Second, time.Second} {
			assert.ErrorIs(t, r.Do(t.Context(), ok), cruise.ErrServerDelay)
			assert.Equal(t, at, time.Since(start))
		}
		l.Resume()
		l.Learn(cruise.Feedback{Outcome: cruise.OutcomeQuotaExhausted, Cost: 1, RetryAfter: time.Hour})
		assert.ErrorIs(t, r.Do(t.Context(), ok), cruise.ErrQuotaExhausted)
		assert.Equal(t, time.Second, time.Since(start))
	})
}

// In a scope a call that the limiters around refuse is not made to wait for the delay first.
func TestAroundAScope(t *testing.T) {
	for _, tt := range []struct {
		name           string
		deadline, most time.Duration
		want           error
	}{
		{"the deadline", 10 * time.Second, time.Hour, cruise.ErrDeadline},
		{"the longest wait", time.Hour, 10 * time.Second, cruise.ErrServerDelay},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				around := cruise.Must(delay.New(delay.Linear(5 * time.Second)))
				throttle(around)
				r := cruise.Must(cruise.New(cruise.WithLimiter(around), cruise.WithMaxServerDelay(tt.most),
					cruise.WithScopeLimiter(func(string, string) (cruise.Limiter, error) { return cruise.NewTokenBucket(10, 1) })))
				s := r.Scope("A", "a")
				s.Limiter().(*cruise.TokenBucket).Pause(time.Minute)
				start := time.Now()
				err := s.Do(within(t, tt.deadline), ok)
				assert.ErrorIs(t, err, tt.want)
				assert.ErrorContains(t, err, "(try again in 1m0s)")
				assert.Zero(t, time.Since(start))
			})
		})
	}
}

// The limit around a scope holds for calls behind a delay too.
func TestWithinALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := cruise.Must(cruise.New(cruise.WithLimiter(cruise.Must(cruise.NewTokenBucket(1, 1))),
			cruise.WithScopeLimiter(func(string, string) (cruise.Limiter, error) { return delay.New(delay.Responsive()) })))
		start := time.Now()
		for i := range 3 {
			require.NoError(t, r.Scope("A", "a").Do(t.Context(), ok))
			assert.Equal(t, time.Duration(i)*time.Second, time.Since(start))
		}
	})
}

// A scope whose server asked for a pause is kept while the pause lasts, and forgotten later.
func TestScopesAreKeptWhileTheyPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := cruise.Must(cruise.New(cruise.WithoutLimiter(), cruise.WithMaxScopes(1), cruise.WithMaxAttempts(1),
			cruise.WithScopeLimiter(func(string, string) (cruise.Limiter, error) { return delay.New(delay.Linear(time.Second)) })))
		_ = r.Scope("A", "paused").Do(t.Context(), func(context.Context) error {
			return cruise.Throttled(errBusy, cruise.RetryAfter(time.Minute))
		})
		for i := range 10 {
			require.NoError(t, r.Scope("A", fmt.Sprint(i)).Do(t.Context(), ok))
		}
		start := time.Now()
		require.NoError(t, r.Scope("A", "paused").Do(t.Context(), ok))
		assert.GreaterOrEqual(t, time.Since(start), time.Minute)
		for i := range 10 {
			require.NoError(t, r.Scope("A", fmt.Sprint(i)).Do(t.Context(), ok))
		}
		for s := range r.Scopes() {
			assert.NotEqual(t, "paused", s.Path[0].Key)
		}
	})
}

func TestHerokuBackoffHasALongestDelay(t *testing.T) {
	for range 100 {
		assert.LessOrEqual(t, delay.HerokuBackoff().Delay(100, 0), 15*time.Minute)
	}
}
