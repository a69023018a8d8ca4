package cruise_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/a7df5faa/cruise"
)

// worker makes calls until ctx ends. Do refuses at once what would wait in vain: a loop that went
// on then would spin.
func worker(ctx context.Context, api *cruise.Retrier, job func(context.Context) error) error {
	for ctx.Err() == nil {
		err := api.Do(ctx, job)
		e, gaveUp := errors.AsType[*cruise.Error](err)
		if !gaveUp || e.Attempts > 0 {
			continue // made, whatever came of it
		}
		select { // refused: the same would happen now
		case <-time.After(max(e.RetryAfter, time.Second)):
		case <-ctx.Done():
		}
	}
	return context.Cause(ctx)
}

func TestWorkerDoesNotSpin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket := cruise.Must(cruise.NewTokenBucket(1, 1))
		began, refused, made := time.Now(), 0, 0
		api := cruise.Must(cruise.New(cruise.WithLimiter(bucket), cruise.WithObserver(cruise.ObserverFunc(func(_ context.Context, e cruise.Event) {
			if _, ok := e.(cruise.GaveUp); ok {
				refused++
			}
		}))))
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		bucket.Pause(30 * time.Minute)
		err := worker(ctx, api, func(context.Context) error { made++; return nil })
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.InDelta(t, 1800, made, 1)
		assert.LessOrEqual(t, refused, 3)
		assert.Equal(t, time.Hour, time.Since(began), "it lasts as long as its context")
	})
}

func ExampleRetrier_Do_worker() {
	api := cruise.Must(cruise.New(cruise.WithLimiter(cruise.Must(cruise.NewTokenBucket(0.001, 1)))))
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	made, refused := 0, 0
	for ctx.Err() == nil {
		err := api.Do(ctx, func(context.Context) error { made++; return nil })
		if e, gaveUp := errors.AsType[*cruise.Error](err); gaveUp && e.Attempts == 0 {
			refused++
			select { // else the loop would spin until ctx ends
			case <-time.After(max(e.RetryAfter, time.Second)):
			case <-ctx.Done():
			}
		}
	}
	fmt.Println(made, refused)
	// Output: 1 1
}

// A calendarDay lets n calls go on each day of a zone. It stands in a scope, or around all of them
// by [cruise.WithLimiter].
type calendarDay struct {
	n    int
	zone *time.Location

	mu   sync.Mutex
	used int
	ends time.Time
}

func (c *calendarDay) WaitN(ctx context.Context, n int) error {
	for {
		c.mu.Lock()
		now := time.Now().In(c.zone)
		if !now.Before(c.ends) {
			c.used, c.ends = 0, time.Date(now.Year(), now.Month(), now.Day()+1, 0, 0, 0, 0, c.zone)
		}
		if n <= c.n-c.used {
			c.used += n
			c.mu.Unlock()
			return nil
		}
		left := c.ends.Sub(now)
		c.mu.Unlock()
		if d, ok := ctx.Deadline(); n > c.n || ok && time.Until(d) <= left {
			return &cruise.Error{Reason: cruise.ErrQuotaExhausted, RetryAfter: left}
		}
		select {
		case <-time.After(left):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func TestCalendarDay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // which begins at midnight UTC
		zone := time.FixedZone("UTC-5", -5*3600)
		day := &calendarDay{n: 3, zone: zone}
		api := cruise.Must(cruise.New(cruise.WithLimiter(day)))
		began := time.Now()
		for range 3 {
			require.NoError(t, api.Do(t.Context(), nothing))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		err := api.Do(ctx, nothing)
		assert.ErrorIs(t, err, cruise.ErrQuotaExhausted)
		e, _ := errors.AsType[*cruise.Error](err)
		assert.Equal(t, 5*time.Hour, e.RetryAfter)
		require.NoError(t, api.Do(t.Context(), nothing))
		assert.Equal(t, 5*time.Hour, time.Since(began), "midnight in the zone")
		require.NoError(t, api.Do(t.Context(), nothing, cruise.WithCost(2)))
		require.NoError(t, api.Do(t.Context(), nothing))
		assert.Equal(t, 29*time.Hour, time.Since(began))
	})
}

// Retry by result: a value that is not ready yet is an error within the call.
func ExampleDoValue_notReady() {
	errNotReady := errors.New("not ready")
	api := cruise.Must(cruise.New(cruise.WithBackoff(func(int, time.Duration) time.Duration { return time.Millisecond })))
	states := []string{"PENDING", "RUNNING", "DONE"}

	state, err := cruise.DoValue(context.Background(), api, func(context.Context) (string, error) {
		state := states[0]
		states = states[1:]
		if state != "DONE" {
			return state, errNotReady // transient, so that no limiter slows down
		}
		return state, nil
	})
	fmt.Println(state, err)
	// Output: DONE <nil>
}

// Reconnecting: a stream that was healthy for a while ends as a success, and the next one begins
// the backoff anew. One that broke at once is retried with it.
func TestBackoffBeginsAnewAfterAHealthyWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const healthy = time.Minute
		second := func(retry int, _ time.Duration) time.Duration { return time.Duration(retry) * time.Second }
		api := cruise.Must(cruise.New(cruise.WithBackoff(second), cruise.WithMaxAttempts(math.MaxInt), cruise.WithoutBudget()))
		lasts := []time.Duration{0, 0, 0, time.Hour, 0, 0, 2 * time.Hour, 0}
		var waits []time.Duration
		ended := time.Now()
		stream := func(context.Context) error {
			waits = append(waits, time.Since(ended))
			time.Sleep(lasts[0])
			lasts, ended = lasts[1:], time.Now()
			return errBoom
		}
		ctx, cancel := context.WithCancel(t.Context())
		for len(lasts) > 0 && ctx.Err() == nil {
			_ = api.Do(ctx, func(ctx context.Context) error {
				began := time.Now()
				err := stream(ctx)
				if time.Since(began) >= healthy || len(lasts) == 0 {
					return nil
				}
				return err
			})
		}
		cancel()
		const s = time.Second
		assert.Equal(t, []time.Duration{0, s, 2 * s, 3 * s, 0, s, 2 * s, 0}, waits)
	})
}
