package cruise_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/a7df5faa/cruise"
)

// What New is told holds for every call that does not say otherwise.
func TestOptionsOfOneCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		second := cruise.WithBackoff(func(int, time.Duration) time.Duration { return time.Second })
		for _, without := range []cruise.Option{cruise.WithUncountedThrottles(), cruise.WithoutLimiter()} {
			r := cruise.Must(cruise.New(second, without, cruise.WithMaxAttempts(3), cruise.WithMaxElapsed(time.Hour), cruise.WithoutBudget()))
			for _, tt := range []struct {
				opts   []cruise.CallOption
				calls  int
				took   time.Duration
				reason error
			}{
				{nil, 3, 2 * time.Second, cruise.ErrAttemptsExhausted},
				{[]cruise.CallOption{cruise.WithMaxAttempts(7)}, 7, 6 * time.Second, cruise.ErrAttemptsExhausted},
				{[]cruise.CallOption{cruise.WithMaxAttempts(7), cruise.WithMaxAttempts(1)}, 1, 0, cruise.ErrAttemptsExhausted},
				{[]cruise.CallOption{cruise.WithMaxAttempts(math.MaxInt), cruise.WithMaxElapsed(9500 * time.Millisecond)}, 10, 9 * time.Second, cruise.ErrMaxElapsed},
				{[]cruise.CallOption{cruise.WithMaxElapsed(1)}, 1, 0, cruise.ErrMaxElapsed},
				{[]cruise.CallOption{cruise.WithMaxElapsed(math.MaxInt64)}, 3, 2 * time.Second, cruise.ErrAttemptsExhausted},
			} {
				began, calls := time.Now(), 0
				err := r.Do(t.Context(), func(context.Context) error { calls++; return errBoom }, tt.opts...)
				assert.ErrorIs(t, err, tt.reason)
				assert.ErrorIs(t, err, errBoom)
				assert.Equal(t, tt.calls, calls)
				assert.Equal(t, tt.took, time.Since(began))
			}
		}
	})
}

func TestAttemptTimeoutOfOneCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, opts := range [][]cruise.Option{nil, {cruise.WithoutLimiter()}, {cruise.WithAttemptTimeout(time.Hour)}} {
			r := cruise.Must(cruise.New(append(opts, cruise.WithBackoff(cruise.Backoff{}))...))
			calls, began := 0, time.Now()
			err := r.Do(t.Context(), func(ctx context.Context) error { calls++; <-ctx.Done(); return ctx.Err() },
				cruise.WithAttemptTimeout(2*time.Second), cruise.WithMaxAttempts(2))
			assert.ErrorIs(t, err, cruise.ErrAttemptsExhausted)
			assert.ErrorContains(t, err, "longer than 2s (WithAttemptTimeout)")
			assert.Equal(t, 2, calls)
			assert.Equal(t, 4*time.Second, time.Since(began))
		}
	})
}

func TestCallOptionsOutOfBounds(t *testing.T) {
	for want, opt := range map[string]cruise.CallOption{
		"cruise: WithCost(-1): want 0 or more":           cruise.WithCost(-1),
		"cruise: WithMaxAttempts(0): want 1 or more":     cruise.WithMaxAttempts(0),
		"cruise: WithMaxElapsed(0s): want above 0":       cruise.WithMaxElapsed(0),
		"cruise: WithAttemptTimeout(-1ns): want above 0": cruise.WithAttemptTimeout(-1),
	} {
		_, err := cruise.New(opt)
		assert.EqualError(t, err, want)
		r := cruise.Must(cruise.New())
		err = r.Do(t.Context(), func(context.Context) error { t.Error("called"); return nil }, opt)
		assert.EqualError(t, err, want)
	}
}

// Options of calls are those of a Retrier, too.
func TestEveryCallInTheBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := cruise.Must(cruise.NewTokenBucket(1, 10))
		batch := cruise.Must(cruise.New(cruise.WithLimiter(limiter), cruise.WithBackground(), cruise.WithoutRetries(), cruise.WithCost(10)))
		assert.ErrorIs(t, batch.Do(t.Context(), func(context.Context) error { return errBoom }), cruise.ErrAttemptsExhausted)
		order := make(chan string, 2)
		go func() {
			_ = batch.Do(t.Context(), func(context.Context) error { order <- "batch"; return nil }, cruise.WithCost(1))
		}()
		synctest.Wait()
		assert.NoError(t, cruise.Must(cruise.New(cruise.WithLimiter(limiter))).Do(t.Context(), func(context.Context) error { order <- "user"; return nil }))
		time.Sleep(time.Minute)
		assert.Equal(t, []string{"user", "batch"}, []string{<-order, <-order})
	})
}

func TestBackoffOfOnesOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked []string
		r := cruise.Must(cruise.New(cruise.WithMaxAttempts(6), cruise.WithBackoff(func(retry int, previous time.Duration) time.Duration {
			asked = append(asked, fmt.Sprint(retry, " ", previous))
			return []time.Duration{2 * time.Second, math.MinInt64, 0, -1, time.Minute}[retry-1]
		})))
		began := time.Now()
		err := r.Do(t.Context(), func(context.Context) error { return errBoom })
		assert.ErrorIs(t, err, cruise.ErrAttemptsExhausted)
		assert.Equal(t, time.Minute+2*time.Second, time.Since(began))
		assert.Equal(t, []string{"1 0s", "2 2s", "3 0s", "4 0s", "5 0s"}, asked)

		long := cruise.WithBackoff(func(int, time.Duration) time.Duration { return math.MaxInt64 })
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		assert.ErrorIs(t, cruise.Must(cruise.New(long)).Do(ctx, func(context.Context) error { return errBoom }), cruise.ErrDeadline)

		throttle := cruise.WithThrottleBackoff(func(int, time.Duration) time.Duration { return 3 * time.Second })
		began = time.Now()
		_ = cruise.Must(cruise.New(throttle, cruise.WithoutLimiter(), cruise.WithMaxAttempts(2))).Do(t.Context(), func(context.Context) error { return cruise.Throttled(errBoom) })
		assert.Equal(t, 3*time.Second, time.Since(began))
	})
	var none func(int, time.Duration) time.Duration
	_, err := cruise.New(cruise.WithBackoff(none), cruise.WithThrottleBackoff(none))
	assert.EqualError(t, err, "cruise: WithBackoff(nil): want a Backoff or a function\ncruise: WithThrottleBackoff(nil): want a Backoff or a function")
	assert.Panics(t, func() {
		_ = cruise.Must(cruise.New(cruise.WithBackoff(func(int, time.Duration) time.Duration { panic("mine") }))).Do(t.Context(), func(context.Context) error { return errBoom })
	})
}

func ExampleWithBackoff_function() {
	schedule := []time.Duration{2 * time.Millisecond, 6 * time.Millisecond, 14 * time.Millisecond, 30 * time.Millisecond}
	api := cruise.Must(cruise.New(
		cruise.WithMaxAttempts(len(schedule)+1),
		cruise.WithBackoff(func(retry int, _ time.Duration) time.Duration { return schedule[retry-1] }),
	))
	began := time.Now()
	err := api.Do(context.Background(), func(context.Context) error { return errors.New("down") })
	fmt.Println(time.Since(began) >= 52*time.Millisecond, errors.Is(err, cruise.ErrAttemptsExhausted))
	// Output: true true
}

func ExampleCallOption() {
	api := cruise.Must(cruise.New(cruise.WithMaxAttempts(3))) // of every call
	attempts := 0
	err := api.Do(context.Background(), func(context.Context) error {
		attempts++
		return errors.New("down")
	}, cruise.WithMaxAttempts(1)) // of this one
	fmt.Println(attempts, errors.Is(err, cruise.ErrAttemptsExhausted))
	// Output: 1 true
}
