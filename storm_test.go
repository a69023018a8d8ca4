package cruise_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/internal/calm"
	"github.com/a7df5faa/cruise/internal/chance"
	"github.com/a7df5faa/cruise/internal/replay"
)

// A hundred calls a second come for a minute, whether earlier ones are done or
// not, to a server of which a share of attempts fails, every other one by a
// throttle. With all its parts a client sends no more than its budget allows, and
// many small clients as many times that.
func TestAmplificationOfTheWholeStack(t *testing.T) {
	const calls, capacity, ratio, refill = 6000, 5, .1, .05
	for _, tt := range []struct {
		name    string
		clients int
		shared  bool
	}{{"one", 1, false}, {"ten", 10, false}, {"a thousand", 1000, false}, {"a thousand with one budget", 1000, true}} {
		for _, failing := range []float64{.1, .3, .5, 1} {
			if calm.Raced && failing != .3 {
				continue // it takes long, and the others race as much
			}
			t.Run(fmt.Sprint(tt.name, ", failing ", failing), func(t *testing.T) {
				replay.Test(t, func(t *testing.T) {
					retriers := make([]*cruise.Retrier, tt.clients)
					budget := cruise.Must(cruise.NewBudget(capacity, ratio, refill))
					for i := range retriers {
						if !tt.shared {
							budget = cruise.Must(cruise.NewBudget(capacity, ratio, refill))
						}
						retriers[i] = cruise.Must(cruise.New(cruise.WithBudget(budget)))
					}
					var attempts, successes atomic.Int64
					start := time.Now()
					var wg sync.WaitGroup
					for i := range calls {
						wg.Go(func() {
							ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
							defer cancel()
							if retriers[i%tt.clients].Do(ctx, func(context.Context) error {
								n := attempts.Add(1)
								replay.Sleep(20 * time.Millisecond)
								switch {
								case chance.Float64() >= failing:
									return nil
								case n%2 == 0:
									return cruise.Throttled(errBoom)
								}
								return errBoom
							}) == nil {
								successes.Add(1)
							}
						})
						replay.Sleep(10 * time.Millisecond)
					}
					wg.Wait()
					each := capacity + refill*time.Since(start).Seconds()
					budgets := float64(tt.clients)
					if tt.shared {
						budgets = 1
					}
					assert.LessOrEqual(t, float64(attempts.Load()), calls+ratio*float64(successes.Load())+each*budgets)
					assert.LessOrEqual(t, float64(attempts.Load()), calls*(1+ratio)+each*budgets)
				})
			})
		}
	}
}

// For some minutes a server of 50 a second throttles everything, and twenty
// workers go on calling the moment that they are told of a failure. It is spared,
// whatever is left of the budget; and soon after it works again so do they.
func TestOutageEndsWithoutAStorm(t *testing.T) {
	const limit, burst = 50., 10.
	bucket := func() cruise.Option { return cruise.WithLimiter(cruise.Must(cruise.NewTokenBucket(limit, burst))) }
	nothing := func() cruise.Option { return cruise.WithMaxAttempts(maxAttempts) }
	rated := func() cruise.Option { return cruise.WithInitialRate(100) }
	for _, tt := range []struct {
		name     string
		opt      func() cruise.Option
		from, to time.Duration
	}{
		{"from the beginning", nothing, 0, 10 * time.Minute},
		{"from the beginning, with a rate", rated, 0, 10 * time.Minute},
		{"from the beginning, token bucket", bucket, 0, 10 * time.Minute},
		{"after a second", nothing, time.Second, 10 * time.Minute},
		{"after a second, with a rate", rated, time.Second, 10 * time.Minute},
		{"after a minute", nothing, time.Minute, 10 * time.Minute},
		{"after half an hour", nothing, 30 * time.Minute, 40 * time.Minute},
		{"for an hour", nothing, time.Minute, time.Hour},
	} {
		if calm.Raced && tt.to > 10*time.Minute {
			continue // as above
		}
		t.Run(tt.name, func(t *testing.T) {
			replay.Test(t, func(t *testing.T) {
				r := cruise.Must(cruise.New(tt.opt()))
				start := time.Now()
				// No deadline, which would refuse calls at once, without end.
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(tt.to+6*time.Minute, cancel)
				var mu sync.Mutex
				tokens, last := burst, start
				during, late := 0, 0 // attempts in the outage, successes in the sixth minute after it
				serve := func(context.Context) error {
					replay.Sleep(20 * time.Millisecond)
					mu.Lock()
					defer mu.Unlock()
					at := time.Since(start)
					if at >= tt.from && at < tt.to {
						during++
						return cruise.Throttled(errBoom)
					}
					tokens = min(burst, tokens+limit*time.Since(last).Seconds())
					last = time.Now()
					if tokens < 1 {
						return cruise.Throttled(errBoom)
					}
					tokens--
					if at >= tt.to+5*time.Minute {
						late++
					}
					return nil
				}
				var wg sync.WaitGroup
				for range 20 {
					wg.Go(func() {
						for ctx.Err() == nil {
							_ = r.Do(ctx, serve)
						}
					})
				}
				wg.Wait()
				assert.LessOrEqual(t, during, 30+5*int((tt.to-tt.from)/time.Minute), "attempts in the outage")
				assert.GreaterOrEqual(t, late, int(.8*limit*60), "successes in the sixth minute after it")
			})
		})
	}
}
