package shared

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"golang.org/x/time/rate"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/internal/chance"
	"github.com/a7df5faa/cruise/internal/replay"
)

// Scopes with shared limiters stand within each other like others.
func TestScopes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		stores := map[string]Store{}
		process := func() *cruise.Retrier {
			return cruise.Must(cruise.New(
				cruise.WithLimiter(cruise.Must(New(storeOf(&mu, stores, "DEVELOPER"), steady(100)...))),
				cruise.WithScopeLimiter(func(scope, key string) (cruise.Limiter, error) {
					return New(storeOf(&mu, stores, scope+key), steady(10)...)
				})))
		}
		one, other := process(), process()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		var wg sync.WaitGroup
		counts := make([]atomic.Int64, 3)
		for _, r := range []*cruise.Retrier{one, other} {
			for i, key := range []string{"a", "b", "c"} {
				for range 2 {
					wg.Go(func() {
						for r.Scope("ACCOUNT", key).Do(ctx, func(context.Context) error {
							counts[i].Add(1)
							return nil
						}) == nil {
						}
					})
				}
			}
		}
		wg.Wait()
		for i := range counts {
			assert.InDelta(t, 100, counts[i].Load(), 15, "account %d", i)
		}
	})
}

func storeOf(mu *sync.Mutex, stores map[string]Store, key string) Store {
	mu.Lock()
	defer mu.Unlock()
	if stores[key] == nil {
		stores[key] = NewMemoryStore()
	}
	return stores[key]
}

// A call that a limit around its own holds up for long keeps its slots, and its place: so
// each scope has its turn, whatever its calls cost and however many wait in it.
func TestScopesHaveTheirTurnsBehindASlowLimit(t *testing.T) {
	shared := func(limit rate.Limit) (cruise.Limiter, error) { return New(NewMemoryStore(), steady(limit)...) }
	for name, around := range map[string]func() (cruise.Limiter, error){
		"shared": func() (cruise.Limiter, error) { return shared(3) },
		"bucket": func() (cruise.Limiter, error) { return cruise.NewTokenBucket(3, 10) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				developer := cruise.Must(cruise.New(cruise.WithLimiter(cruise.Must(around())),
					cruise.WithScopeLimiter(func(string, string) (cruise.Limiter, error) { return shared(40) })))
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
				defer cancel()
				var group sync.WaitGroup
				costs := [][]int{{5, 5}, {2}, {3}}
				calls := make([]atomic.Int64, len(costs))
				for account, costs := range costs {
					for _, cost := range costs {
						group.Go(func() {
							for developer.Scope("ACCOUNT", strconv.Itoa(account)).Do(ctx, func(context.Context) error {
								time.Sleep(50 * ms)
								calls[account].Add(1)
								return nil
							}, cruise.WithCost(cost)) == nil {
							}
						})
					}
				}
				group.Wait()
				for account := range calls {
					assert.InDelta(t, 180, calls[account].Load(), 10, "account %d, by turns at 3 a second for 10 in all", account)
				}
				for s := range developer.Scopes() {
					if len(s.Path) == 1 {
						assert.EqualValues(t, s.Successes, s.Admitted, "%v", s.Path)
					}
				}
				time.Sleep(time.Hour) // for the last syncs
			})
		})
	}
}

// So does a call of a limiter that shares pauses alone: it has no time to ask for news when
// its turn has come.
func TestPauseOnlyHasItsTurnsBehindASlowLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		developer := cruise.Must(cruise.New(cruise.WithLimiter(cruise.Must(cruise.NewTokenBucket(.5, 1))), cruise.WithScopeLimiter(func(_, account string) (cruise.Limiter, error) {
			if account == "shared" {
				return New(nearStore(), append(steady(100), WithPauseOnly())...)
			}
			return cruise.NewTokenBucket(100, 1)
		})))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		var group sync.WaitGroup
		calls := make([]int, 2)
		for i, account := range []string{"shared", "own"} {
			group.Go(func() {
				for developer.Scope("ACCOUNT", account).Do(ctx, ok) == nil {
					calls[i]++
				}
			})
		}
		group.Wait()
		assert.InDeltaSlice(t, []int{150, 150}, calls, 2)
		time.Sleep(time.Minute) // for the last syncs
	})
}

// Limiters within a slow one, whose own slots are void each time that of the slow one
// is due, come back for it in time, whoever is first and whatever the calls cost.
func TestWithinASlowOne(t *testing.T) {
	for _, tt := range []struct {
		every, rtt  time.Duration
		costs       [2]int // of background and other calls
		calls, most int    // of each kind; the time that all take, in slots of the slow one
	}{
		{3 * time.Second, 0, [2]int{3, 4}, 1, 7},
		{3 * time.Second, 60 * time.Millisecond, [2]int{3, 4}, 1, 7},
		{3 * time.Second, 60 * time.Millisecond, [2]int{1, 2}, 3, 9},
		{18 * time.Second, 0, [2]int{3, 4}, 1, 7},
		{18 * time.Second, 60 * time.Millisecond, [2]int{1, 4}, 3, 16}, // 15, and of 50 runs one misses a slot
		{1500 * time.Millisecond, 60 * time.Millisecond, [2]int{1, 4}, 3, 20},
	} {
		t.Run(fmt.Sprintf("a call in %v, a store %v away, costs %v", tt.every, tt.rtt, tt.costs), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limiter := func(every time.Duration) *Limiter {
					return fleet(t, &distantStore{Store: NewMemoryStore(), rtt: tt.rtt}, 1, steady(rate.Every(every))...)[0]
				}
				r := cruise.Must(cruise.New(cruise.WithLimiter(limiter(tt.every)), cruise.WithScopeLimiter(func(_, key string) (cruise.Limiter, error) {
					if key == "background" {
						return limiter(37 * time.Millisecond), nil
					}
					return limiter(25 * time.Millisecond), nil
				})))
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				start := time.Now()
				var wg sync.WaitGroup
				run := func(key string, opts ...cruise.CallOption) {
					for range tt.calls {
						wg.Go(func() {
							assert.NoError(t, r.Scope("ACCOUNT", key).Do(ctx, func(context.Context) error { return nil }, opts...))
						})
					}
				}
				run("background", cruise.WithBackground(), cruise.WithCost(tt.costs[0]))
				run("other", cruise.WithCost(tt.costs[1]))
				wg.Wait()
				assert.LessOrEqual(t, time.Since(start), time.Duration(tt.most)*tt.every+time.Second)
				time.Sleep(time.Minute) // for the last syncs
			})
		})
	}
}

// A shared limit within another one gives its calls what both give, whatever they cost and
// however long each waits for the slots of the other.
func TestWithinAnother(t *testing.T) {
	for _, tt := range []struct {
		workers, cost int // 0: 1 to 3
		outer         rate.Limit
		accounts      int
		inner         rate.Limit // of each
		pauses        bool       // of 20 s, which leave half of the time
		least         int        // of the units of 600 s, at one a second
	}{
		{2, 5, 1, 1, 1, false, 580},
		{20, 5, 1, 1, 1, false, 580},
		{2, 0, 1, 1, 1, false, 480},
		{10, 1, 1, 2, 1, false, 580},
		{10, 1, 1, 5, .25, false, 580},
		{20, 5, 1, 1, 10, false, 580},
		{20, 5, 10, 1, 1, false, 580},
		{20, 1, 1, 1, 1, true, 260},
		{20, 1, 10, 1, 1, true, 260},
		{20, 5, 10, 1, 1, true, 240},
		{20, 1, 100, 1, 1, true, 260},
	} {
		t.Run(fmt.Sprintf("%d workers, cost %d, %d limits of %v in %v a second, pauses %v", tt.workers, tt.cost, tt.accounts, tt.inner, tt.outer, tt.pauses), func(t *testing.T) {
			replay.Test(t, func(t *testing.T) {
				outer, inner := NewMemoryStore(), make([]*MemoryStore, tt.accounts)
				for i := range inner {
					inner[i] = NewMemoryStore()
				}
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
				defer cancel()
				var mu sync.Mutex
				var went []time.Time // of each unit
				var wg sync.WaitGroup
				var around *Limiter
				for range tt.workers {
					around = fleet(t, outer, 1, steady(tt.outer)...)[0]
					r := cruise.Must(cruise.New(cruise.WithLimiter(around), cruise.WithScopeLimiter(func(_, account string) (cruise.Limiter, error) {
						return New(inner[account[0]], steady(tt.inner)...)
					})))
					for i := range 3 * tt.accounts {
						scope := r.Scope("ACCOUNT", string(rune(i%tt.accounts)))
						wg.Go(func() {
							for err := error(nil); err == nil; {
								cost := cmp.Or(tt.cost, 1+chance.N(3))
								err = scope.Do(ctx, func(context.Context) error {
									mu.Lock()
									defer mu.Unlock()
									went = append(went, slices.Repeat([]time.Time{time.Now()}, cost)...)
									return nil
								}, cruise.WithCost(cost))
							}
						})
					}
				}
				for tt.pauses && ctx.Err() == nil {
					time.Sleep(20 * time.Second)
					around.Pause(20 * time.Second)
					time.Sleep(20 * time.Second)
				}
				wg.Wait()
				assert.Greater(t, len(went), tt.least)
				for i := range len(went) - 20 { // units of 10 s, and of a call of each limit
					assert.Greater(t, went[i+20].Sub(went[i]), 10*time.Second)
				}
				time.Sleep(time.Minute) // for the last syncs
			})
		})
	}
}
