package cruise_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/a7df5faa/cruise"
)

func TestErrorMessage(t *testing.T) {
	last := errors.New("503 Service Unavailable")
	for _, tt := range []struct {
		err  cruise.Error
		want string
	}{
		{cruise.Error{}, "cruise: call not made: no reason"},
		{cruise.Error{Reason: context.Canceled}, "cruise: call not made: context canceled"},
		{cruise.Error{Reason: cruise.ErrDeadline, RetryAfter: 5 * time.Second}, "cruise: call not made: wait would pass the deadline (try again in 5s)"},
		{cruise.Error{Reason: fmt.Errorf("%w: cost 5, at most 3", cruise.ErrCost)}, "cruise: call not made: cost above what the limiter ever admits at once: cost 5, at most 3"},
		{
			cruise.Error{Reason: cruise.ErrServerDelay, Attempts: 1, Elapsed: 120 * time.Millisecond, RetryAfter: time.Hour, Last: last},
			"cruise: gave up after 1 attempt in 120ms: told to wait for longer than WithMaxServerDelay allows (try again in 1h0m0s): 503 Service Unavailable",
		},
		{
			cruise.Error{Reason: cruise.ErrAttemptsExhausted, Attempts: 5, Elapsed: 1234567891, Last: last},
			"cruise: gave up after 5 attempts in 1.235s: attempts exhausted: 503 Service Unavailable",
		},
		{
			cruise.Error{Reason: cruise.ErrBudgetExhausted, Attempts: 2, Elapsed: time.Second, Last: last},
			"cruise: gave up after 2 attempts in 1s: retry budget of this client exhausted: 503 Service Unavailable",
		},
		{
			cruise.Error{Reason: cruise.ErrMaxElapsed, Attempts: 2, Elapsed: time.Minute, Last: last},
			"cruise: gave up after 2 attempts in 1m0s: time of WithMaxElapsed used up: 503 Service Unavailable",
		},
		{
			cruise.Error{Reason: cruise.ErrQuotaExhausted, Attempts: 1, Last: last},
			"cruise: gave up after 1 attempt in 0s: quota of the server used up: 503 Service Unavailable",
		},
		{
			cruise.Error{Reason: cruise.ErrPermanent, Attempts: 2, Elapsed: time.Second, Last: last},
			"cruise: gave up after 2 attempts in 1s: permanent failure: 503 Service Unavailable",
		},
		{
			cruise.Error{Reason: context.DeadlineExceeded, Attempts: 1, Elapsed: 10 * time.Second, Last: context.DeadlineExceeded},
			"cruise: gave up after 1 attempt in 10s: context deadline exceeded",
		},
		{cruise.Error{Reason: grumpyError{}, Attempts: 1, Last: (*typedNil)(nil)}, "cruise: gave up after 1 attempt in 0s: %!v(PANIC=Error method: Error): <nil>"},
	} {
		assert.EqualError(t, &tt.err, tt.want)
	}
}

func TestErrorThatIsNil(t *testing.T) {
	var none *cruise.Error
	assert.EqualError(t, none, "cruise: nil *Error")
	assert.NotErrorIs(t, none, cruise.ErrPermanent)
	err := plain(cruise.WithLimiter(&witness{refuse: none})).Do(t.Context(), func(context.Context) error { return nil })
	assert.EqualError(t, err, "cruise: call not made: nil *Error")
	assert.Equal(t, math.Inf(1), plain(cruise.WithoutBudget()).Budget().Left())
}

func TestErrorMatches(t *testing.T) {
	all := []error{
		cruise.ErrAttemptsExhausted, cruise.ErrBudgetExhausted, cruise.ErrMaxElapsed, cruise.ErrServerDelay,
		cruise.ErrQuotaExhausted, cruise.ErrPermanent, cruise.ErrDeadline, cruise.ErrCost,
		context.DeadlineExceeded, context.Canceled, errServer, errShutdown,
	}
	for _, reason := range all[:8] {
		err := fmt.Errorf("sync: %w", &cruise.Error{Reason: reason, Attempts: 2, Last: cruise.Throttled(fmt.Errorf("list: %w", errServer))})
		for _, target := range all {
			want := target == reason || target == errServer || reason == cruise.ErrDeadline && target == context.DeadlineExceeded
			assert.Equal(t, want, errors.Is(err, target), "%v is %v", err, target)
		}
		e, ok := errors.AsType[*cruise.Error](err)
		assert.True(t, ok)
		assert.Equal(t, reason, e.Reason)
	}
}

func TestErrorUnwrap(t *testing.T) {
	for _, tt := range []struct {
		err  cruise.Error
		want []error
	}{
		{cruise.Error{}, []error{}},
		{cruise.Error{Reason: cruise.ErrDeadline}, []error{cruise.ErrDeadline}},
		{cruise.Error{Last: errServer}, []error{errServer}},
		{cruise.Error{Reason: cruise.ErrDeadline, Last: errServer}, []error{cruise.ErrDeadline, errServer}},
	} {
		assert.Equal(t, tt.want, tt.err.Unwrap())
		assert.NoError(t, errors.Unwrap(&tt.err))
	}
}

func TestErrorFindsTheServersErrorByType(t *testing.T) {
	err := plain(cruise.WithMaxAttempts(1)).Do(t.Context(), func(context.Context) error {
		return fmt.Errorf("list: %w", statusError(503))
	})
	status, ok := errors.AsType[statusError](err)
	assert.True(t, ok)
	assert.Equal(t, statusError(503), status)
}
