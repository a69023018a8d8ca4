package cruise_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/delay"
	"github.com/a7df5faa/cruise/shared"
)

func ExampleRetrier_Scopes() {
	api := cruise.Must(cruise.New(cruise.WithMaxRate(50)))
	call := func(context.Context) error { return nil }
	_ = api.Scope("ACCOUNT", "7").Scope("TABLE", "orders").Do(context.Background(), call)

	for s := range api.Scopes() {
		fmt.Printf("%v, %d admitted\n", s, s.Admitted)
	}
	// Output:
	// 50/s, 0 waiting, 1 admitted
	// ACCOUNT 7: 50/s, 0 waiting, 1 admitted
	// ACCOUNT 7: TABLE orders: 50/s, 0 waiting, 1 admitted
}

// A limiter without a limit is printed in a word, not in 309 digits, whoever prints it.
func TestNoLimitIsPrintedInAWord(t *testing.T) {
	adaptive := cruise.Must(cruise.NewAdaptiveLimiter())
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("now", "stats", adaptive.Stats())
	assert.Contains(t, log.String(), `stats="unlimited, 0 waiting"`)
	for want, printed := range map[string]any{
		"unlimited, 0 waiting":             adaptive.Stats(),
		"0.05/s, 3 waiting, paused for 5s": cruise.Stats{Limit: 0.05, Waiting: 3, PauseLeft: 5 * time.Second},
		"no rate, 0 waiting":               cruise.Stats{},
		"0/s, 0 waiting, degraded":         cruise.Stats{Degraded: true},
		"A a: B b: 12.35/s, 0 waiting":     cruise.Stats{Path: []cruise.ScopeKey{{Scope: "A", Key: "a"}, {Scope: "B", Key: "b"}}, Limit: 12.3456},
		"7.5/s, was unlimited: throttle":   cruise.RateChanged{From: rate.Inf, To: 7.5, Why: cruise.CauseThrottle},
		"unlimited, was 0.002/s: set":      cruise.RateChanged{From: .002, To: rate.Inf, Why: cruise.CauseSet},
	} {
		assert.Equal(t, []string{want, want}, []string{fmt.Sprint(printed), fmt.Sprintf("%+v", printed)})
	}
}

func TestScopesTellsTheStateOfEachLimiter(t *testing.T) {
	type stats struct {
		limit   rate.Limit
		waiting int
		pause   time.Duration
	}
	throttled := func(context.Context) error { return cruise.Throttled(errBoom, cruise.RetryAfter(5*time.Second)) }
	for _, tt := range []struct {
		name    string
		limiter cruise.Limiter
		call    func(context.Context) error
		want    stats
	}{
		{"adaptive, paused", cruise.Must(cruise.NewAdaptiveLimiter(cruise.WithInitialRate(4))), throttled, stats{4, 3, 4 * time.Second}},
		{"bucket, paused", cruise.Must(cruise.NewTokenBucket(2, 1)), throttled, stats{2, 3, 4 * time.Second}},
		{"bucket, not paused", cruise.Must(cruise.NewTokenBucket(.1, 1)), succeeds, stats{.1, 3, 0}},
		{"window, paused", cruise.Must(cruise.NewSlidingWindow(cruise.Window{Calls: 9, Per: time.Minute})), throttled, stats{0, 3, 4 * time.Second}},
		{"delays, paused", cruise.Must(delay.New(delay.HerokuGradual())), throttled, stats{0, 3, 4 * time.Second}},
		{"x/time", rate.NewLimiter(.1, 1), succeeds, stats{.1, 0, 0}},
		{"x/time, of an infinite limit, which JSON has not", rate.NewLimiter(rate.Limit(math.Inf(1)), 1), succeeds, stats{rate.Inf, 0, 0}},
		{"somebody's", strangers{}, succeeds, stats{}},
		{"somebody's, of an infinite limit", boundless{}, succeeds, stats{rate.Inf, 0, 0}},
		{"bucket that nobody made", new(cruise.TokenBucket), succeeds, stats{}},
		{"window that nobody made", new(cruise.SlidingWindow), succeeds, stats{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := cruise.Must(cruise.New(cruise.WithLimiter(tt.limiter)))
				ctx, cancel := context.WithCancel(t.Context())
				defer synctest.Wait()
				defer cancel()
				for range 3 {
					go func() { _ = api.Do(ctx, tt.call) }()
				}
				time.Sleep(time.Second)
				for s := range api.Scopes() {
					want := tt.want
					if _, foreign := tt.limiter.(*rate.Limiter); !foreign && want.waiting > 0 && want.pause == 0 {
						want.waiting-- // the first went
					}
					assert.Equal(t, want, stats{s.Limit, s.Waiting, s.PauseLeft})
					assert.Empty(t, s.Path)
				}
			})
		})
	}
}

func TestScopesTellsWhichLimitersLearn(t *testing.T) {
	for _, tt := range []struct {
		name    string
		limiter cruise.Limiter
		want    bool
	}{
		{"adaptive", cruise.Must(cruise.NewAdaptiveLimiter()), true},
		{"adaptive, in a struct", struct{ *cruise.AdaptiveLimiter }{cruise.Must(cruise.NewAdaptiveLimiter())}, true},
		{"shared", cruise.Must(shared.New(shared.NewMemoryStore())), true},
		{"shared, pauses alone", cruise.Must(shared.New(shared.NewMemoryStore(), shared.WithPauseOnly())), true},
		{"bucket", cruise.Must(cruise.NewTokenBucket(2, 1)), false},
		{"window", cruise.Must(cruise.NewSlidingWindow(cruise.Window{Calls: 9, Per: time.Minute})), false},
		{"delays", cruise.Must(delay.New(delay.HerokuGradual())), false},
		{"x/time", rate.NewLimiter(2, 1), false},
		{"somebody's", strangers{}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for s := range cruise.Must(cruise.New(cruise.WithLimiter(tt.limiter))).Scopes() {
				assert.Equal(t, tt.want, s.Learns)
			}
		})
	}
}

// counting stands for all limiters that embed one of this package: what it overrides
// is what is called.
type counting struct {
	*cruise.AdaptiveLimiter
	waits, learns int
}

func (c *counting) WaitN(ctx context.Context, n int) error {
	c.waits++
	return c.AdaptiveLimiter.WaitN(ctx, n)
}

func (c *counting) Learn(f cruise.Feedback) {
	c.learns++
	c.AdaptiveLimiter.Learn(f)
}

type closed struct{ *cruise.TokenBucket }

var errMaintenance = errors.New("maintenance")

func (closed) WaitN(context.Context, int) error { return errMaintenance }

func TestEmbeddedLimiters(t *testing.T) {
	succeed := func(context.Context) error { return nil }
	one := &counting{AdaptiveLimiter: cruise.Must(cruise.NewAdaptiveLimiter())}
	each := &counting{AdaptiveLimiter: cruise.Must(cruise.NewAdaptiveLimiter())}
	api := cruise.Must(cruise.New(cruise.WithLimiter(one), cruise.WithScopeLimiter(func(string, string) (cruise.Limiter, error) { return each, nil })))
	require.NoError(t, api.Do(t.Context(), succeed))
	require.NoError(t, api.Scope("TENANT", "a").Do(t.Context(), succeed))
	assert.Equal(t, []int{2, 2, 1, 1}, []int{one.waits, one.learns, each.waits, each.learns})

	api = cruise.Must(cruise.New(cruise.WithLimiter(closed{cruise.Must(cruise.NewTokenBucket(1, 1))})))
	for _, r := range []*cruise.Retrier{api, api.Scope("TENANT", "a")} {
		assert.ErrorIs(t, r.Do(t.Context(), func(context.Context) error { t.Error("called"); return nil }), errMaintenance)
	}
}

type strangers struct{}

func (strangers) WaitN(context.Context, int) error { return nil }

type boundless struct{ strangers }

func (boundless) Stats() cruise.Stats {
	return cruise.Stats{Limit: rate.Limit(math.Inf(1))}
}

// A scope that has made no retry yet has all that are allowed, whatever others have spent.
func TestScopesTellTheRetriesOfEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := cruise.Must(cruise.New())
		fails := func(context.Context) error { return errBoom }
		require.Error(t, api.Do(t.Context(), fails))
		require.Error(t, api.Scope("A", "1").Do(t.Context(), fails))
		require.NoError(t, api.Scope("A", "2").Do(t.Context(), succeeds))
		all := budgetCapacity
		for s := range api.Scopes() {
			switch {
			case len(s.Path) == 0, s.Path[0].Key == "1":
				assert.Less(t, s.BudgetLeft, all, "%v", s.Path)
			default:
				assert.Equal(t, all, s.BudgetLeft, "%v", s.Path)
			}
		}
	})
}

func TestScopesTellTheCountsOfASharedLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen []cruise.ThrottleSeen
		fleet := cruise.Must(shared.New(shared.NewMemoryStore(), cruise.WithObserver(cruise.ObserverFunc(func(_ context.Context, e cruise.Event) {
			if e, ok := e.(cruise.ThrottleSeen); ok {
				seen = append(seen, e)
			}
		}))))
		api := cruise.Must(cruise.New(cruise.WithLimiter(fleet)))
		require.NoError(t, api.Do(t.Context(), succeeds))
		time.Sleep(time.Second)
		n := 0
		require.NoError(t, api.Do(t.Context(), func(context.Context) error {
			if n++; n == 1 {
				return cruise.Throttled(errBoom, cruise.RetryAfter(3*time.Second), cruise.InScope("A"))
			}
			return nil
		}))
		for s := range api.Scopes() {
			assert.Equal(t, []uint64{3, 2, 1}, []uint64{s.Admitted, s.Successes, s.Throttles})
			assert.False(t, s.Degraded)
		}
		assert.Equal(t, []cruise.ThrottleSeen{{RetryAfter: 3 * time.Second, Scope: "A"}}, seen)
		time.Sleep(time.Minute) // for the last syncs
	})
	synctest.Test(t, func(t *testing.T) {
		fleet := cruise.Must(shared.New(lostStore{}))
		require.NoError(t, fleet.WaitN(t.Context(), 1))
		for s := range cruise.Must(cruise.New(cruise.WithLimiter(fleet))).Scopes() {
			assert.True(t, s.Degraded)
		}
	})
}

type lostStore struct{}

func (lostStore) Sync(context.Context, shared.Request) (shared.Reply, error) {
	return shared.Reply{}, errBoom
}

func TestScopesNameTheLimiterOfTheirStats(t *testing.T) {
	api := cruise.Must(cruise.New())
	account := api.Scope("ACCOUNT", "1")
	want := []cruise.Limiter{api.Limiter(), account.Limiter()}
	for s := range account.Scopes() {
		assert.Same(t, want[len(s.Path)], s.Limiter)
	}
}

func TestScopesOf(t *testing.T) {
	paths := func(r *cruise.Retrier) (all []string) {
		for s := range r.Scopes() {
			all = append(all, fmt.Sprint(s.Path))
		}
		return all
	}
	api := cruise.Must(cruise.New(cruise.WithoutLimiter(), cruise.WithMaxScopes(2)))
	require.Empty(t, paths(api))
	require.Empty(t, paths(nil))
	require.Empty(t, paths(new(cruise.Retrier)))
	long := strings.Repeat("x", 65)
	for _, key := range []string{"a", "b", long, "c"} {
		require.NoError(t, api.Scope("S", key).Do(t.Context(), succeeds))
	}
	got := paths(api.Scope("T", "of the same"))
	require.GreaterOrEqual(t, len(got), 2)
	assert.Equal(t, "[{S c}]", got[0])
	assert.Regexp(t, `^\[\{S [0-9a-f]{32}\}\]$`, got[1])

	api = cruise.Must(cruise.New(cruise.WithMaxScopes(2)))
	require.NoError(t, api.Scope("S", long[:64]).Do(t.Context(), succeeds))
	assert.Equal(t, []string{"[]", "[{S " + long[:64] + "}]"}, paths(api))
	for s := range api.Scopes() {
		require.Empty(t, s.Path)
		break
	}
	for range api.Scopes() { // a body that calls back, and leaves
		require.NoError(t, api.Scope("S", "d").Do(t.Context(), succeeds))
		break
	}
}

// Who waits is counted once, however many limiters are around.
func TestScopesCountACallThatWaitsOnce(t *testing.T) {
	for name, limiter := range map[string]func() (cruise.Limiter, error){
		"adaptive": func() (cruise.Limiter, error) { return cruise.NewAdaptiveLimiter() },
		"bucket":   func() (cruise.Limiter, error) { return cruise.NewTokenBucket(rate.Inf, 1) },
		"window": func() (cruise.Limiter, error) {
			return cruise.NewSlidingWindow(cruise.Window{Calls: 9, Per: time.Second})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := cruise.Must(cruise.New(cruise.WithScopeLimiter(func(string, string) (cruise.Limiter, error) { return limiter() })))
				api.Limiter().(*cruise.AdaptiveLimiter).Pause(time.Second)
				ctx, cancel := context.WithCancel(t.Context())
				defer synctest.Wait()
				defer cancel()
				for range 3 {
					go func() { _ = api.Scope("A", "1").Scope("B", "2").Do(ctx, succeeds) }()
				}
				synctest.Wait()
				var waiting []int
				for s := range api.Scopes() {
					waiting = append(waiting, s.Waiting)
				}
				assert.Equal(t, []int{1, 0, 2}, waiting)
			})
		})
	}
}

func BenchmarkScopesOfTenThousand(b *testing.B) {
	api := cruise.Must(cruise.New())
	for i := range maxScopes {
		_ = api.Scope("S", fmt.Sprint(i)).Do(b.Context(), succeeds)
	}
	for b.Loop() {
		for range api.Scopes() {
		}
	}
}

func TestScopeOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []string
		observer := cruise.ObserverFunc(func(ctx context.Context, e cruise.Event) {
			_ = ctx.Err() // it is a whole context, of whatever event
			told = append(told, fmt.Sprintf("%T %v", e, cruise.ScopeOf(ctx))[len("cruise."):])
		})
		api := cruise.Must(cruise.New(cruise.WithObserver(observer), cruise.WithInitialRate(1), cruise.WithMaxAttempts(1)))
		throttled := func(ctx context.Context) error {
			told = append(told, fmt.Sprint("call ", cruise.ScopeOf(ctx)))
			return cruise.Throttled(errBoom, cruise.RetryAfter(time.Second))
		}
		ended, end := context.WithCancel(t.Context())
		end()
		for _, tt := range []struct {
			path string
			api  *cruise.Retrier
		}{
			{" []", api},
			{" [{A 1}]", api.Scope("A", "1")},
			{" [{A 1} {B 2}]", api.Scope("A", "1").Scope("B", "2")},
		} {
			require.NoError(t, tt.api.Do(t.Context(), succeeds))
			told = nil
			_ = tt.api.Do(t.Context(), throttled)
			var want []string
			for _, what := range []string{"Waiting", "AttemptStarted", "call", "ThrottleSeen", "RateChanged", "Paused", "AttemptEnded", "GaveUp"} {
				want = append(want, what+tt.path)
			}
			assert.Equal(t, want, told)
			told = nil
			assert.Error(t, tt.api.Do(ended, succeeds))
			assert.Error(t, tt.api.Refuse(t.Context(), cruise.ErrQuotaExhausted, 0, nil))
			assert.Equal(t, []string{"GaveUp" + tt.path, "GaveUp" + tt.path}, told)
		}
	})
	long := strings.Repeat("x", 65)
	_ = cruise.Must(cruise.New()).Scope("A", long).Do(t.Context(), func(ctx context.Context) error {
		path := cruise.ScopeOf(ctx)
		assert.Regexp(t, "^[0-9a-f]+$", path[0].Key)
		path[0].Key = "" // one's own copy
		assert.NotEmpty(t, cruise.ScopeOf(ctx)[0].Key)
		return nil
	})
	assert.Nil(t, cruise.ScopeOf(t.Context()))
	var none context.Context
	assert.Nil(t, cruise.ScopeOf(none))
}

// What an observer does with the context that it is given is not part of the call.
func TestAnObserversOwnCallsAreNotNested(t *testing.T) {
	own := cruise.Must(cruise.New(cruise.WithoutLimiter(), cruise.WithBackoff(cruise.Must(cruise.NewBackoff(cruise.WithBase(time.Nanosecond))))))
	attempts := map[string]int{}
	api := cruise.Must(cruise.New(cruise.WithLimiter(cruise.Must(cruise.NewTokenBucket(100, 1))),
		cruise.WithObserver(cruise.ObserverFunc(func(ctx context.Context, e cruise.Event) {
			switch e.(type) {
			case cruise.Waiting, cruise.AttemptStarted:
				_ = own.Do(ctx, func(context.Context) error { attempts[fmt.Sprintf("%T", e)]++; return errBoom })
			}
		}))))
	require.NoError(t, api.Do(t.Context(), succeeds))
	require.NoError(t, api.Do(t.Context(), succeeds)) // waits
	assert.Equal(t, map[string]int{
		"cruise.AttemptStarted": 2 * maxAttempts,
		"cruise.Waiting":        maxAttempts,
	}, attempts)
}
