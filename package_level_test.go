package cruise_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/shared"
)

// api is what a program declares: one Retrier for each API, at package level.
var api = cruise.Must(cruise.New(cruise.WithLimiter(cruise.Must(cruise.NewTokenBucket(1000, 10))), cruise.WithBudget(cruise.Must(cruise.NewBudget(10, 1, 1)))))

// What an adaptive limiter learnt in one bubble holds in the next: neither the
// years between their clocks nor the pauses of another one count.
func TestPackageLevelAdaptive(t *testing.T) {
	adaptive := cruise.Must(cruise.New()) // in no bubble, as at package level, but anew for each run of the test
	limiter := adaptive.Limiter().(*cruise.AdaptiveLimiter)
	use := func(t *testing.T) {
		start := time.Now()
		for i := range 40 {
			throttled := i != 20
			assert.NoError(t, adaptive.Do(t.Context(), func(context.Context) error {
				time.Sleep(10 * time.Millisecond)
				if throttled = !throttled; throttled {
					return cruise.Throttled(errBoom)
				}
				return nil
			}))
		}
		took := time.Since(start)
		assert.GreaterOrEqual(t, took, 400*time.Millisecond)
		assert.Less(t, took, time.Minute)
		assert.Greater(t, float64(limiter.Limit()), 1., "one call in 10 ms, halved and grown")
		assert.Less(t, float64(limiter.Limit()), 200.)
	}
	use(t)
	for range 5 {
		synctest.Test(t, use)
	}
	use(t)
	synctest.Test(t, use)
}

// A rate that was given in no bubble grows in the first one, whose clock is decades behind.
func TestPackageLevelRates(t *testing.T) {
	rates := []cruise.LimiterOption{cruise.WithInitialRate(2), cruise.WithMaxRate(8)}
	worker := func(opts ...shared.Option) *shared.Limiter {
		for _, opt := range rates {
			opts = append(opts, opt)
		}
		return cruise.Must(shared.New(shared.NewMemoryStore(), opts...))
	}
	for name, limiter := range map[string]interface {
		cruise.Learner
		Limit() rate.Limit
	}{
		"adaptive":            cruise.Must(cruise.NewAdaptiveLimiter(rates...)),
		"shared":              worker(),
		"shared, pauses only": worker(shared.WithPauseOnly()),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for range 300 {
					require.NoError(t, limiter.WaitN(t.Context(), 1))
					limiter.Learn(cruise.Feedback{Outcome: cruise.OutcomeSuccess, Sent: time.Now(), Cost: 1})
				}
				assert.Equal(t, rate.Limit(8), limiter.Limit())
			})
		})
	}
}

// A throttle is not late because the last one was in a bubble that had gone on for longer.
func TestPackageLevelThrottles(t *testing.T) {
	for name, limiter := range map[string]interface {
		cruise.Learner
		PauseLeft() time.Duration
		Resume()
	}{
		"bucket": cruise.Must(cruise.NewTokenBucket(1000, 10)),
		"window": cruise.Must(cruise.NewSlidingWindow(cruise.Window{Calls: 1000, Per: time.Second})),
	} {
		t.Run(name, func(t *testing.T) {
			for _, age := range []time.Duration{time.Hour, time.Second} {
				synctest.Test(t, func(t *testing.T) {
					time.Sleep(age)
					require.NoError(t, limiter.WaitN(t.Context(), 1)) // where the limiter's time goes on
					time.Sleep(10 * time.Millisecond)
					sent := time.Now()
					time.Sleep(10 * time.Millisecond)
					limiter.Learn(cruise.Feedback{Outcome: cruise.OutcomeThrottled, Sent: sent, Cost: 1})
					assert.NotZero(t, limiter.PauseLeft())
					limiter.Resume()
				})
			}
		})
	}
}

// A Retrier at package level serves tests in bubbles, each with a clock of its
// own, and code outside of them.
func TestPackageLevelRetrier(t *testing.T) {
	use := func(t *testing.T) {
		start := time.Now()
		n := 0
		assert.NoError(t, api.Do(t.Context(), func(context.Context) error {
			if n++; n < 3 {
				return cruise.Throttled(errBoom, cruise.RetryAfter(10*time.Millisecond))
			}
			return nil
		}))
		took := time.Since(start)
		assert.GreaterOrEqual(t, took, 20*time.Millisecond)
		assert.Less(t, took, 5*time.Second)
	}
	inBubble := func(t *testing.T) {
		use(t)
		spend(t, api.Budget(), 5)
		spent := api.Budget().Left()
		time.Sleep(time.Second)
		assert.InDelta(t, min(10, spent+1), api.Budget().Left(), 1e-6, "time gives back in a bubble too")
		time.Sleep(time.Minute)
		assert.Equal(t, 10.0, api.Budget().Left())
	}
	use(t)
	synctest.Test(t, inBubble)
	synctest.Test(t, inBubble)
	use(t)
	synctest.Test(t, inBubble)
}

// As the package's documentation has it.
func TestWaitsTakeNoTimeInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := cruise.Must(cruise.New())
		begun, calls := time.Now(), 0
		err := api.Do(t.Context(), func(context.Context) error {
			if calls++; calls < 3 {
				return cruise.Throttled(errors.New("429"), cruise.RetryAfter(time.Minute))
			}
			return nil
		})
		assert.NoError(t, err)
		assert.Equal(t, 2*time.Minute, time.Since(begun))
	})
}
