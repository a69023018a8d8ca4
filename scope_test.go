package cruise

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/a7df5faa/cruise/internal/limits"
)

var errBusy = errors.New("busy")

// buckets makes scopes of token buckets.
func buckets(limit rate.Limit, burst int) Option {
	return WithScopeLimiter(func(string, string) (Limiter, error) { return NewTokenBucket(limit, burst) })
}

func ok(context.Context) error { return nil }

func pauseLeft(l Limiter) time.Duration {
	_, pause := limits.QueueOf(l).Report()
	return pause
}

func TestScopeOptions(t *testing.T) {
	for _, tt := range []struct {
		name string
		opt  Option
		want string
	}{
		{"nil function", WithScopeLimiter(nil), "WithScopeLimiter"},
		{"no scopes", WithMaxScopes(0), "WithMaxScopes(0)"},
		{"negative scopes", WithMaxScopes(-1), "WithMaxScopes(-1)"},
		{"no idle time", WithScopeIdle(0), "WithScopeIdle(0s)"},
		{"negative idle time", WithScopeIdle(-1), "WithScopeIdle(-1ns)"},
	} {
		if _, err := New(tt.opt); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	for _, r := range []*Retrier{nil, {}} {
		if err := r.Scope("A", "1").Do(t.Context(), ok); !errors.Is(err, errZeroRetrier) {
			t.Errorf("not made by New: %v", err)
		}
	}
}

// A pause reaches exactly the members of the scope that the throttle named, or
// of the innermost one if it named none.
func TestScopePauseReachesItsMembers(t *testing.T) {
	for seed := range uint64(30) {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 3))
			root := Must(NewTokenBucket(rate.Inf, 1))
			r := Must(New(WithLimiter(root), buckets(rate.Inf, 1), WithMaxAttempts(1), WithoutBudget()))
			type path [2]int // account, table; 0: the Retrier above
			members := map[path]*Retrier{}
			for a := range 4 {
				for table := range 4 {
					x := r
					if a > 0 {
						x = x.Scope("ACCOUNT", fmt.Sprint(a))
					}
					if table > 0 {
						x = x.Scope("TABLE", fmt.Sprint(table))
					}
					members[path{a, table}] = x
				}
			}
			who := path{rnd.IntN(4), rnd.IntN(4)}
			named := []string{"", "ACCOUNT", "TABLE", "DEVELOPER"}[rnd.IntN(4)]
			err := members[who].Do(t.Context(), func(context.Context) error {
				return Throttled(errBusy, RetryAfter(time.Minute), InScope(named))
			})
			if !errors.Is(err, errBusy) {
				t.Fatal(err)
			}
			paused := func(p path) bool {
				switch {
				case named == "" && who[1] > 0, named == "TABLE" && who[1] > 0:
					return p == who
				case (named == "" || named == "ACCOUNT") && who[0] > 0:
					return p[0] == who[0]
				}
				return true // the developer's, who has no scope: everyone
			}
			for p, x := range members {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				err := x.Do(ctx, ok)
				cancel()
				if got := errors.Is(err, ErrDeadline); got != paused(p) {
					t.Fatalf("%v was throttled in %q: %v got %v", who, named, p, err)
				}
			}
		})
	}
}

// Only the limiter that is to blame is cut; every other one hears that the call
// is over, and nothing more.
func TestScopeCutsOnlyTheLimiterToBlame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := Must(New(WithInitialRate(100), WithMaxAttempts(1)))
		account := r.Scope("ACCOUNT", "1")
		table := account.Scope("TABLE", "t")
		limiters := []*AdaptiveLimiter{r.Limiter().(*AdaptiveLimiter), account.Limiter().(*AdaptiveLimiter), table.Limiter().(*AdaptiveLimiter)}
		for range 20 {
			if err := table.Do(t.Context(), func(ctx context.Context) error {
				Report(ctx, Quota{Limit: 1000, Remaining: 900})
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
		_ = table.Do(t.Context(), func(context.Context) error { return Throttled(errBusy, InScope("ACCOUNT")) })
		for i, a := range limiters {
			s := a.Stats()
			if want := map[bool]uint64{true: 1, false: 0}[i == 1]; s.Throttles != want || s.Successes != 20 || s.Admitted != 21 {
				t.Errorf("limiter %d: %+v", i, s)
			}
			if got := s.Limit < 100; got != (i == 1) {
				t.Errorf("limiter %d: limit %v", i, s.Limit)
			}
			if got := s.Quota != nil; got != (i == 2) {
				t.Errorf("limiter %d: quota %v", i, s.Quota)
			}
			if n := a.law.InFlight(); n != 0 {
				t.Errorf("limiter %d: %d in flight", i, n)
			}
		}
	})
}

// The default limiter of a scope tells the observer of the Retrier.
func TestScopeObserver(t *testing.T) {
	for name, opts := range map[string][]Option{"own": nil, "given": {WithoutLimiter()}} {
		pauses := 0
		o := ObserverFunc(func(_ context.Context, e Event) {
			if _, is := e.(Paused); is {
				pauses++
			}
		})
		r := Must(New(append(opts, WithObserver(o), WithMaxAttempts(1))...))
		_ = r.Scope("A", "a").Do(t.Context(), func(context.Context) error { return Throttled(errBusy) })
		if pauses != 1 {
			t.Errorf("%s limiter: told of %d pauses", name, pauses)
		}
	}
}

func TestScopeCost(t *testing.T) {
	s := Must(New(buckets(1, 3))).Scope("A", "a")
	for cost, want := range map[int]error{0: nil, 3: nil, 4: ErrCost} {
		if err := s.Do(t.Context(), ok, WithCost(cost)); !errors.Is(err, want) {
			t.Errorf("cost %d: %v", cost, err)
		}
	}
	if err := s.Do(t.Context(), ok, WithCost(-1)); err == nil {
		t.Error("negative cost")
	}
	checkUnused(t, s)
}

// By hand too what the limit around a scope never lets go is refused, not waited for.
func TestScopeCostByHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := Must(New(WithLimiter(Must(NewTokenBucket(10, 1))), buckets(10, 3)))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		start := time.Now()
		assert.ErrorIs(t, r.Scope("A", "a").Limiter().WaitN(ctx, 2), ErrCost)
		assert.Zero(t, time.Since(start))
	})
}

// Whose rate it is that WithMaxRate bounds.
func TestMaxRateOfScopes(t *testing.T) {
	own := func(r *Retrier, tenant string) *Retrier { return r.Scope("TENANT", tenant) }
	for _, tt := range []struct {
		name string
		opts []Option
		of   func(r *Retrier, tenant string) *Retrier
		took time.Duration // for 5 calls each of 4 tenants
	}{
		{"each key, and all together", []Option{WithMaxRate(5)}, own, 3800 * ms},
		{"each key", []Option{WithoutLimiter(), WithMaxRate(5)}, own, 800 * ms},
		{"nobody, outside a scope", []Option{WithoutLimiter(), WithMaxRate(5)}, func(r *Retrier, _ string) *Retrier { return r }, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := Must(New(tt.opts...))
				start := time.Now()
				var all sync.WaitGroup
				for _, tenant := range []string{"a", "b", "c", "d"} {
					for range 5 {
						all.Go(func() {
							if err := tt.of(r, tenant).Do(t.Context(), func(context.Context) error { return nil }); err != nil {
								t.Error(err)
							}
						})
					}
				}
				all.Wait()
				if took := time.Since(start); took != tt.took {
					t.Errorf("took %v, want %v", took, tt.took)
				}
			})
		})
	}
}

// A throttled call backs off by itself only where the limiter of the scope cannot pause.
func TestPauseOfAScopeIsTheBackoff(t *testing.T) {
	for _, tt := range []struct {
		name    string
		limiter func() (Limiter, error)
		paced   bool
	}{
		{"bucket", func() (Limiter, error) { return NewTokenBucket(1, 1) }, true},
		{"adaptive", func() (Limiter, error) { return NewAdaptiveLimiter() }, true},
		{"somebody's that learns nothing", func() (Limiter, error) { return stranger{}, nil }, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var delays []time.Duration
				r := Must(New(WithoutLimiter(), WithScopeLimiter(func(string, string) (Limiter, error) { return tt.limiter() }), WithObserver(ObserverFunc(func(_ context.Context, e Event) {
					if e, ok := e.(RetryScheduled); ok {
						delays = append(delays, e.Delay)
					}
				}))))
				n := 0
				require.NoError(t, r.Scope("A", "a").Do(t.Context(), func(context.Context) error {
					if n++; n == 1 {
						return Throttled(errBusy)
					}
					return nil
				}))
				require.Len(t, delays, 1)
				assert.Equal(t, tt.paced, delays[0] == 0, "%v", delays)
			})
		})
	}
}

// A success that costs nothing may be the first call of its key, when others have spent from
// budgets of theirs.
func TestFreeCallOfANewKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := Must(New(WithoutLimiter()))
		n := 0
		require.NoError(t, r.Scope("A", "a").Do(t.Context(), func(context.Context) error {
			if n++; n == 1 {
				return errBusy
			}
			return nil
		}))
		require.NoError(t, r.Scope("A", "b").Do(t.Context(), ok, WithCost(0)))
	})
}
