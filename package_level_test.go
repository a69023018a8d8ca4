package cruise_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/a7df5faa/cruise"
)

// api is what a program declares: one Retrier for each API, at package level.
var api = cruise.Must(cruise.New(cruise.WithLimiter(cruise.Must(cruise.NewTokenBucket(1000, 10))), cruise.WithBudget(cruise.Must(cruise.NewBudget(10, 1, 1)))))

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
