package cruise_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/a7df5faa/cruise"
)

// spending is a Retrier that retries at once, for as long as the budget pays.
func spending(b *cruise.Budget) *cruise.Retrier {
	return cruise.Must(cruise.New(cruise.WithoutLimiter(), cruise.WithBudget(b), cruise.WithBackoff(cruise.Backoff{}), cruise.WithMaxAttempts(math.MaxInt)))
}

// spend makes n retries, paid from b.
func spend(t *testing.T, b *cruise.Budget, n int) {
	t.Helper()
	attempts := 0
	_ = spending(b).Do(t.Context(), func(context.Context) error {
		if attempts++; attempts > n {
			return cruise.Permanent(errBoom)
		}
		return errBoom
	})
	require.Equal(t, n+1, attempts)
}

func succeed(t *testing.T, b *cruise.Budget, times int) {
	t.Helper()
	r := spending(b)
	for range times {
		require.NoError(t, r.Do(t.Context(), func(context.Context) error { return nil }))
	}
}

func TestBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := cruise.Must(cruise.NewBudget(10, .25, .5))
		for _, step := range []struct {
			name              string
			retries, succeeds int
			wait              time.Duration
			left              float64
		}{
			{"full at first", 0, 0, 0, 10},
			{"never above full by success", 0, 100, 0, 10},
			{"never above full by time", 0, 0, 24 * time.Hour, 10},
			{"a retry takes one", 1, 0, 0, 9},
			{"so do nine", 9, 0, 0, 0},
			{"a success gives back its ratio", 0, 1, 0, .25},
			{"time gives back the refill", 0, 0, 3 * time.Second, 1.75},
			{"a part of a retry is none", 1, 0, 0, .75},
			{"a part of a second counts", 0, 0, 500 * time.Millisecond, 1},
			{"so that there is one again", 1, 0, 0, 0},
			{"both together, to the brim", 0, 20, 10 * time.Second, 10},
		} {
			time.Sleep(step.wait)
			succeed(t, b, step.succeeds)
			spend(t, b, step.retries)
			assert.InDelta(t, step.left, b.Left(), 1e-9, step.name)
		}
	})
}

// Defaults, as the documentation has them.
const (
	budgetCapacity = 100.0
	budgetRatio    = 0.1
	budgetRefill   = 0.1
	maxAttempts    = 5
	maxScopes      = 10_000
)

func TestTenSuccessesPayForOneRetry(t *testing.T) {
	for _, capacity := range []float64{1, 10, budgetCapacity, 12345} {
		b := cruise.Must(cruise.NewBudget(capacity, .1, 0))
		spend(t, b, int(capacity))
		for range 20 {
			succeed(t, b, 10)
			spend(t, b, 1)
			assert.GreaterOrEqual(t, b.Left(), 0.)
		}
	}
}

func TestBudgetDenial(t *testing.T) {
	b := cruise.Must(cruise.NewBudget(2, 1, 0))
	err := spending(b).Do(t.Context(), func(context.Context) error { return errServer })
	e := gaveUp(t, err)
	assert.Equal(t, cruise.ErrBudgetExhausted, e.Reason)
	assert.Equal(t, 3, e.Attempts)
	assert.ErrorIs(t, err, errServer)
	assert.ErrorContains(t, err, "retry budget of this client exhausted: server says 503")

	err = spending(b).Do(t.Context(), func(context.Context) error { return nil })
	assert.NoError(t, err, "first attempts are free")
}

// What the limiter slows down anyway may be tried until it gets through.
func TestUncountedThrottlesNeedNoBudget(t *testing.T) {
	for _, tt := range []struct {
		name string
		opts []cruise.Option
		cost int
		err  error // what each attempt but the last ends with
		want error
	}{
		{"paced", nil, 1, cruise.Throttled(errServer), nil},
		{"past the limiter", nil, 0, cruise.Throttled(errServer), cruise.ErrBudgetExhausted},
		{"without a limiter", []cruise.Option{cruise.WithoutLimiter()}, 1, cruise.Throttled(errServer), cruise.ErrBudgetExhausted},
		{"other failures", []cruise.Option{cruise.WithMaxAttempts(100)}, 1, errServer, cruise.ErrBudgetExhausted},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := cruise.Must(cruise.New(append(tt.opts, cruise.WithUncountedThrottles(), cruise.WithBudget(cruise.Must(cruise.NewBudget(2, 1, 0))))...))
				attempts := 0
				err := r.Do(t.Context(), func(context.Context) error {
					if attempts++; attempts > 20 {
						return nil
					}
					return tt.err
				}, cruise.WithCost(tt.cost))
				assert.ErrorIs(t, err, tt.want)
			})
		})
	}
}

func TestNewBudgetErrors(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, tt := range []struct {
		name                    string
		capacity, ratio, refill float64
		want                    string
	}{
		{"all at their highest", math.MaxInt32, math.MaxInt32, math.MaxInt32, ""},
		{"all at their lowest, with a ratio", 1, 1e-9, 0, ""},
		{"all at their lowest, with a refill", 1, 0, 1e-9, ""},
		{"no capacity", 0, 1, 1, "cruise: budget capacity 0: want 1 to 2147483647"},
		{"less than a retry", .5, 1, 1, "cruise: budget capacity 0.5: want 1 to 2147483647"},
		{"negative capacity", -1, 1, 1, "cruise: budget capacity -1: want 1 to 2147483647"},
		{"capacity no number", nan, 1, 1, "cruise: budget capacity NaN: want 1 to 2147483647"},
		{"capacity infinite", inf, 1, 1, "cruise: budget capacity +Inf: want 1 to 2147483647"},
		{"capacity above the highest", math.MaxInt32 + .5, 1, 1, "cruise: budget capacity 2.1474836475e+09: want 1 to 2147483647"},
		{"negative ratio", 1, -.1, 1, "cruise: budget ratio -0.1: want 0 to 2147483647"},
		{"ratio no number", 1, nan, 1, "cruise: budget ratio NaN: want 0 to 2147483647"},
		{"ratio infinite", 1, inf, 1, "cruise: budget ratio +Inf: want 0 to 2147483647"},
		{"negative refill", 1, 1, -1, "cruise: budget refill -1: want 0 to 2147483647"},
		{"refill infinite", 1, 1, inf, "cruise: budget refill +Inf: want 0 to 2147483647"},
		{"never recovers", 1, 0, 0, "cruise: budget ratio and refill 0: want one above 0, or it never recovers"},
		{"several", 0, -1, 1, "cruise: budget capacity 0: want 1 to 2147483647\ncruise: budget ratio -1: want 0 to 2147483647"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b, err := cruise.NewBudget(tt.capacity, tt.ratio, tt.refill)
			if tt.want == "" {
				require.NoError(t, err)
				assert.Equal(t, tt.capacity, b.Left())
				return
			}
			assert.EqualError(t, err, tt.want)
			assert.Nil(t, b)
		})
	}
}

// Whatever happened to a budget, success alone and time alone fill it again.
func TestBudgetAlwaysRecovers(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			capacity := float64(1 + rnd.IntN(50))
			for _, byTime := range []bool{false, true} {
				ratio, refill := .01+rnd.Float64(), 0.
				if byTime {
					ratio, refill = 0, .001+rnd.Float64()
				}
				b := cruise.Must(cruise.NewBudget(capacity, ratio, refill))
				for range 50 {
					switch rnd.IntN(3) {
					case 0:
						_ = spending(b).Do(t.Context(), func(context.Context) error { return errBoom })
					case 1:
						succeed(t, b, rnd.IntN(5))
					case 2:
						time.Sleep(rand.N(time.Minute))
					}
					require.True(t, b.Left() >= -1e-9 && b.Left() <= capacity, "left %v of %v", b.Left(), capacity)
				}
				if byTime {
					time.Sleep(time.Duration(math.Ceil(capacity / refill * 1e9)))
				} else {
					succeed(t, b, int(math.Ceil(capacity/ratio))+1)
				}
				assert.InDelta(t, capacity, b.Left(), 1e-6)
			}
		})
	}
}

// storm is 100 calls a second for a minute by some clients, of which a share
// fails. It returns attempts, calls and successes.
func storm(t *testing.T, clients int, failing float64, opts func() []cruise.Option) (attempts, calls, successes float64) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		rnd := rand.New(rand.NewPCG(2, 3))
		retriers := make([]*cruise.Retrier, clients)
		for i := range retriers {
			retriers[i] = cruise.Must(cruise.New(append(opts(), cruise.WithoutLimiter(), cruise.WithBackoff(cruise.Backoff{}), cruise.WithMaxAttempts(4))...))
		}
		for calls = 0; calls < 6000; calls++ {
			err := retriers[int(calls)%clients].Do(t.Context(), func(context.Context) error {
				attempts++
				if rnd.Float64() < failing {
					return errBoom
				}
				return nil
			})
			if err == nil {
				successes++
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
	return attempts, calls, successes
}

func TestAmplificationWithoutBudget(t *testing.T) {
	for failing, want := range map[float64]float64{.1: 1.11, .3: 1.41, .5: 1.88, 1: 4} {
		attempts, calls, _ := storm(t, 10, failing, func() []cruise.Option { return []cruise.Option{cruise.WithoutBudget()} })
		assert.InDelta(t, want, attempts/calls, .03, "at %v", failing)
	}
}

func TestAmplificationIsBoundedByTheBudget(t *testing.T) {
	const capacity, ratio, refill, seconds = 5, .1, .05, 60
	for _, clients := range []int{1, 10, 100} {
		for _, failing := range []float64{.1, .3, .5, 1} {
			attempts, calls, successes := storm(t, clients, failing, func() []cruise.Option {
				return []cruise.Option{cruise.WithBudget(cruise.Must(cruise.NewBudget(capacity, ratio, refill)))}
			})
			each := capacity + refill*seconds
			assert.LessOrEqual(t, attempts, calls+ratio*successes+each*float64(clients), "%d clients at %v", clients, failing)
			assert.LessOrEqual(t, attempts, calls*(1+ratio)+each*float64(clients))
		}
	}
}

func TestSharedBudgetBoundsAllThatShareIt(t *testing.T) {
	const capacity, ratio = 5, .1
	shared := cruise.Must(cruise.NewBudget(capacity, ratio, 0))
	attempts, calls, successes := storm(t, 100, .5, func() []cruise.Option { return []cruise.Option{cruise.WithBudget(shared)} })
	assert.LessOrEqual(t, attempts, calls+ratio*successes+capacity)
	assert.Greater(t, attempts, calls+ratio*successes-1, "what is there is spent")
}

func TestBudgetUnderConcurrency(t *testing.T) {
	const capacity, workers = 50, 20
	b := cruise.Must(cruise.NewBudget(capacity, .5, 0))
	var attempts, calls, successes atomic.Int64
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			r := spending(b)
			for i := range 50 {
				calls.Add(1)
				err := r.Do(t.Context(), func(context.Context) error {
					attempts.Add(1)
					if (w+i)%3 > 0 {
						return errBoom
					}
					return nil
				})
				if err == nil {
					successes.Add(1)
				}
			}
		})
	}
	wg.Wait()
	retries := attempts.Load() - calls.Load()
	assert.LessOrEqual(t, float64(retries), capacity+.5*float64(successes.Load()))
	assert.GreaterOrEqual(t, retries, int64(capacity))
	assert.Less(t, b.Left(), 1+.5*workers)
}

// Half of all calls go to a host that is down, and a tenth of the others fail
// once: they get their retry for as long as the outage lasts, and the retries of
// each host stay within its own budget.
func TestAScopeThatIsDownTakesNoRetriesFromOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := cruise.Must(cruise.New(cruise.WithoutLimiter(), cruise.WithBackoff(cruise.Backoff{})))
		const calls = 2000
		attempts := map[string]float64{}
		for i := range calls {
			_ = r.Scope("HOST", "down").Do(t.Context(), func(context.Context) error {
				attempts["down"]++
				return errBoom
			})
			tries := 0
			assert.NoError(t, r.Scope("HOST", "up").Do(t.Context(), func(context.Context) error {
				attempts["up"]++
				if tries++; tries == 1 && i%10 == 0 {
					return errBoom
				}
				return nil
			}))
			time.Sleep(10 * time.Millisecond)
		}
		assert.InDelta(t, calls*1.1, attempts["up"], 1)
		const refill = budgetRefill * calls / 100 // in those seconds
		assert.InDelta(t, calls+budgetCapacity+refill, attempts["down"], 1)
		assert.Equal(t, budgetCapacity, r.Budget().Left(), "nothing is paid by the Retrier itself")
		assert.Less(t, r.Scope("HOST", "down").Budget().Left(), 1.01)
		assert.Greater(t, r.Scope("HOST", "up").Budget().Left(), 98.)
		for s := range r.Scopes() {
			assert.Equal(t, r.Scope("HOST", s.Path[0].Key).Budget().Left(), s.BudgetLeft)
		}
	})
}

// Success gives back to the key that it is of, by whatever way the call was made
// and whatever it costs.
func TestScopesEarnTheirRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fail := cruise.WithBackoff(cruise.Backoff{})
		for name, succeed := range map[string]func(r *cruise.Retrier){
			"Do": func(r *cruise.Retrier) { _ = r.Do(t.Context(), func(context.Context) error { return nil }) },
			"free": func(r *cruise.Retrier) {
				_ = r.Do(t.Context(), func(context.Context) error { return nil }, cruise.WithCost(0))
			},
			"Attempts": func(r *cruise.Retrier) {
				for a := range r.Attempts(t.Context()) {
					a.Done(nil)
				}
			},
			"Attempts, left": func(r *cruise.Retrier) {
				for a := range r.Attempts(t.Context()) {
					a.Done(nil)
					break
				}
			},
		} {
			r := cruise.Must(cruise.New(cruise.WithoutLimiter(), fail, cruise.WithMaxAttempts(2)))
			one, other := r.Scope("A", "1"), r.Scope("A", "1").Scope("B", "2")
			for _, s := range []*cruise.Retrier{one, other} {
				_ = s.Do(t.Context(), func(context.Context) error { return errBoom })
				assert.InDelta(t, 99, s.Budget().Left(), 1e-6, name)
			}
			for range 5 {
				succeed(other)
			}
			assert.InDelta(t, 99.5, other.Budget().Left(), 1e-6, name)
			assert.InDelta(t, 99, one.Budget().Left(), 1e-6, name)
		}
	})
}

func TestWithBudgetIsForAllScopes(t *testing.T) {
	b := cruise.Must(cruise.NewBudget(3, .1, 0))
	for _, r := range []*cruise.Retrier{
		cruise.Must(cruise.New(cruise.WithBudget(b))),
		cruise.Must(cruise.New(cruise.WithoutBudget())),
	} {
		s := r.Scope("A", "1").Scope("B", "2")
		assert.Same(t, r.Budget(), s.Budget())
		require.NoError(t, s.Do(t.Context(), func(context.Context) error { return nil }))
		want := math.Inf(1)
		if r.Budget() != nil {
			want = 3
		}
		for s := range r.Scopes() {
			assert.Equal(t, want, s.BudgetLeft, "%v", s.Path)
		}
	}

	s := cruise.Must(cruise.New(cruise.WithBudget(b), cruise.WithBackoff(cruise.Backoff{}))).Scope("A", "1")
	spent := 0
	require.NoError(t, s.Do(t.Context(), func(context.Context) error {
		if spent++; spent <= 2 {
			return errBoom
		}
		return nil
	}))
	assert.InDelta(t, 1.1, b.Left(), 1e-9, "a success within a scope gives back too")
}

// A budget goes with the limiter of its key. With the default values nothing is
// lost by that: until a key may be forgotten, time has given back everything.
func TestBudgetsAreForgottenWithTheirScopes(t *testing.T) {
	assert.GreaterOrEqual(t, budgetRefill*(30*time.Minute).Seconds(), budgetCapacity)
	synctest.Test(t, func(t *testing.T) {
		r := cruise.Must(cruise.New(cruise.WithoutLimiter(), cruise.WithMaxScopes(2), cruise.WithBackoff(cruise.Backoff{})))
		spend := func(key string) {
			_ = r.Scope("A", key).Do(t.Context(), func(context.Context) error { return errBoom })
		}
		spend("a")
		assert.InDelta(t, 96, r.Scope("A", "a").Budget().Left(), 1e-6)
		for _, key := range []string{"b", "c", "d"} {
			spend(key)
		}
		assert.Equal(t, budgetCapacity, r.Scope("A", "a").Budget().Left())
	})
}

func TestBudgetOfAScopeUnderConcurrency(t *testing.T) {
	r := cruise.Must(cruise.New(cruise.WithoutLimiter(), cruise.WithBackoff(cruise.Backoff{}), cruise.WithMaxScopes(50)))
	var attempts, calls, successes atomic.Int64
	var wg sync.WaitGroup
	for w := range 20 {
		wg.Go(func() {
			for i := range 100 {
				_ = r.Scope("A", fmt.Sprint("rare", i%40)).Do(t.Context(), func(context.Context) error { return nil })
				calls.Add(1)
				if r.Scope("A", "busy").Do(t.Context(), func(context.Context) error {
					attempts.Add(1)
					if (w+i)%3 > 0 {
						return errBoom
					}
					return nil
				}) == nil {
					successes.Add(1)
				}
			}
		})
	}
	wg.Wait()
	retries := float64(attempts.Load() - calls.Load())
	assert.LessOrEqual(t, retries, budgetCapacity+budgetRatio*float64(successes.Load())+10)
	assert.GreaterOrEqual(t, retries, budgetCapacity)
}
