package cruise_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/internal/calm"
)

// Scopes get the same share by cost, whatever a call of each costs: of any two neither is ahead by
// more than three times the largest cost.
func TestScopesShareByCost(t *testing.T) {
	if calm.Raced {
		t.Skip("it takes long, and others race as much")
	}
	for _, costs := range [][]int{{1, 20}, {20, 1}, {1, 1, 1}, {7, 3, 20, 1}, {1, 1000}} {
		t.Run(fmt.Sprint(costs), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				largest := 0
				for _, n := range costs {
					largest = max(largest, n)
				}
				r := cruise.Must(cruise.New(
					cruise.WithLimiter(cruise.Must(cruise.NewTokenBucket(100, largest))),
					cruise.WithScopeLimiter(func(string, string) (cruise.Limiter, error) { return cruise.NewTokenBucket(1e6, 1e6) })))
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
				defer cancel()
				got := make([]int, len(costs))
				var mu sync.Mutex
				var wg sync.WaitGroup
				for i, n := range costs {
					tenant := r.Scope("TENANT", fmt.Sprint(i))
					for range 4 {
						wg.Go(func() {
							for tenant.Do(ctx, func(context.Context) error {
								mu.Lock()
								defer mu.Unlock()
								got[i] += n
								for _, other := range got {
									if ahead := got[i] - other; ahead > 3*largest {
										return fmt.Errorf("ahead by %d", ahead)
									}
								}
								return nil
							}, cruise.WithCost(n), cruise.WithoutRetries()) == nil {
							}
						})
					}
				}
				wg.Wait()
				total := 0
				for _, n := range got {
					total += n
				}
				assert.GreaterOrEqual(t, total, 59_000)
				for i, n := range got {
					assert.InDelta(t, total/len(got), n, float64(3*largest), "%d: %v", i, got)
				}
			})
		})
	}
}
