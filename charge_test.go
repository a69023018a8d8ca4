package cruise_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/shared"
)

// Calls reserve 2,000 and use 200, of 10,000 a minute.
func TestChargeGivesBackWhatWasNotUsed(t *testing.T) {
	const perMinute, used = 10_000, 200
	const perSecond = perMinute / 60.0
	for name, limiter := range map[string]func() cruise.Limiter{
		"token bucket": func() cruise.Limiter { return cruise.Must(cruise.NewTokenBucket(perSecond, perMinute)) },
		"sliding window": func() cruise.Limiter {
			return cruise.Must(cruise.NewSlidingWindow(cruise.Window{Calls: perMinute, Per: time.Minute}))
		},
		"adaptive": func() cruise.Limiter { return cruise.Must(cruise.NewAdaptiveLimiter(cruise.WithMaxRate(perSecond))) },
		"shared": func() cruise.Limiter {
			return cruise.Must(shared.New(shared.NewMemoryStore(), cruise.WithMaxRate(perSecond), cruise.WithInitialRate(perSecond)))
		},
	} {
		for _, scoped := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, scoped=%v", name, scoped), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := cruise.Must(cruise.New(cruise.WithLimiter(limiter())))
					if scoped {
						around := cruise.Must(cruise.NewTokenBucket(10*perSecond, perMinute))
						r = cruise.Must(cruise.New(cruise.WithLimiter(around), cruise.WithScopeLimiter(func(string, string) (cruise.Limiter, error) { return limiter(), nil }))).Scope("KEY", "1")
					}
					reserved := 2_000
					if name == "sliding window" {
						reserved = 500 // a window has no room for 2,000 once 8,000 are used
					}
					const minutes = 10
					ctx, cancel := context.WithTimeout(t.Context(), minutes*time.Minute)
					defer cancel()
					total := 0
					var mu sync.Mutex
					var wg sync.WaitGroup
					for range 8 {
						wg.Go(func() {
							for ctx.Err() == nil {
								err := r.Do(ctx, func(ctx context.Context) error {
									time.Sleep(time.Second)
									cruise.Charge(ctx, used-reserved)
									mu.Lock()
									defer mu.Unlock()
									total += used
									return nil
								}, cruise.WithCost(reserved))
								if errors.Is(err, cruise.ErrDeadline) {
									return
								}
							}
						})
					}
					wg.Wait()
					assert.GreaterOrEqual(t, total, perMinute*minutes*95/100)
					assert.LessOrEqual(t, total, perMinute*(minutes+1)+8*reserved)
				})
			})
		}
	}
}

// What a call costs above what it reserved, others wait for.
func TestChargeMore(t *testing.T) {
	for name, limiter := range map[string]func() cruise.Limiter{
		"token bucket": func() cruise.Limiter { return cruise.Must(cruise.NewTokenBucket(1, 10)) },
		"sliding window": func() cruise.Limiter {
			return cruise.Must(cruise.NewSlidingWindow(cruise.Window{Calls: 10, Per: 10 * time.Second}))
		},
		"shared": func() cruise.Limiter {
			return cruise.Must(shared.New(shared.NewMemoryStore(), cruise.WithMaxRate(1), cruise.WithInitialRate(1)))
		},
		"shared, no call costs more than 1": func() cruise.Limiter {
			return cruise.Must(shared.New(shared.NewMemoryStore(), cruise.WithMaxRate(1), cruise.WithInitialRate(1), cruise.WithTuning(cruise.Tuning{Burst: 1})))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := cruise.Must(cruise.New(cruise.WithLimiter(limiter())))
				began := time.Now()
				require.NoError(t, r.Do(t.Context(), func(ctx context.Context) error {
					cruise.Charge(ctx, 4)
					cruise.Charge(ctx, -2)
					cruise.Charge(ctx, 27)
					assert.Zero(t, time.Since(began), "it does not wait")
					return nil
				}))
				for range 10 {
					require.NoError(t, r.Do(t.Context(), nothing))
				}
				took := time.Since(began)
				if name != "sliding window" { // it forgets them with the window
					assert.GreaterOrEqual(t, took, 28*time.Second)
				}
				assert.GreaterOrEqual(t, took, 10*time.Second)
				assert.LessOrEqual(t, took, 42*time.Second)
				for range 100 { // the limit is what it was
					ctx, cancel := context.WithTimeout(t.Context(), 11*time.Second)
					require.NoError(t, r.Do(ctx, nothing))
					cancel()
				}
				assert.InDelta(t, 100*time.Second, time.Since(began)-took, float64(11*time.Second))
			})
		})
	}
}

func TestChargeToTheToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := cruise.Must(cruise.NewTokenBucket(1, 10))
		r := cruise.Must(cruise.New(cruise.WithLimiter(b)))
		charge := func(cost int, ns ...int) {
			require.NoError(t, r.Do(t.Context(), func(ctx context.Context) error {
				for _, n := range ns {
					cruise.Charge(ctx, n)
				}
				return nil
			}, cruise.WithCost(cost)))
		}
		charge(10, -4)
		assert.True(t, b.TryN(4))
		assert.False(t, b.TryN(1))
		time.Sleep(10 * time.Second)

		charge(2, 3, math.MinInt, -1) // no more than it has cost
		assert.True(t, b.TryN(10))
		time.Sleep(10 * time.Second)

		charge(0, 7) // a free call, charged for what it was
		assert.True(t, b.TryN(3))
		assert.False(t, b.TryN(1))
		time.Sleep(10 * time.Second)

		charge(1, 14) // into debt, which a change of limit and a pause keep
		require.NoError(t, b.SetLimit(5))
		time.Sleep(time.Second)
		assert.False(t, b.TryN(1))
		require.NoError(t, b.SetLimit(1))
		b.Pause(time.Nanosecond)
		time.Sleep(time.Second)
		assert.True(t, b.TryN(1))
		assert.False(t, b.TryN(1))
		time.Sleep(10 * time.Second)

		charge(1, math.MaxInt, math.MaxInt)
		assert.ErrorIs(t, r.Do(t.Context(), nothing, cruise.WithMaxWait(365*24*time.Hour)), cruise.ErrMaxWait)
		charge(0, -1) // nothing of its own

		// Whoever waits for what is given back goes at once.
		b = cruise.Must(cruise.NewTokenBucket(0.001, 10))
		r = cruise.Must(cruise.New(cruise.WithLimiter(b)))
		began := time.Now()
		go func() {
			_ = r.Do(t.Context(), func(ctx context.Context) error { time.Sleep(time.Second); cruise.Charge(ctx, -9); return nil }, cruise.WithCost(10))
		}()
		synctest.Wait()
		require.NoError(t, r.Do(t.Context(), nothing, cruise.WithCost(5)))
		assert.Equal(t, time.Second, time.Since(began))
	})
}

// What is given back to a window is what went at that time, or earlier.
func TestChargeOfAWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := cruise.Must(cruise.NewSlidingWindow(cruise.Window{Calls: 10, Per: time.Minute}))
		r := cruise.Must(cruise.New(cruise.WithLimiter(w)))
		require.NoError(t, w.WaitN(t.Context(), 1))
		time.Sleep(time.Second)
		require.NoError(t, r.Do(t.Context(), func(ctx context.Context) error {
			time.Sleep(10 * time.Second)
			require.NoError(t, w.WaitN(t.Context(), 2))
			cruise.Charge(ctx, -3)
			assert.Equal(t, 5, w.Free())
			cruise.Charge(ctx, 6)
			assert.Equal(t, 0, w.Free(), "11 of 10")
			time.Sleep(40 * time.Second)
			return nil
		}, cruise.WithCost(5)))
		time.Sleep(9 * time.Second) // 60 s after the first
		assert.Equal(t, 0, w.Free(), "10 of 10")
		time.Sleep(time.Second)
		assert.Equal(t, 2, w.Free(), "the call's own two are out")
		assert.NoError(t, r.Do(t.Context(), func(ctx context.Context) error {
			time.Sleep(time.Hour) // it is long out of the window
			require.NoError(t, w.WaitN(t.Context(), 10))
			cruise.Charge(ctx, -2)
			assert.Equal(t, 0, w.Free())
			return nil
		}, cruise.WithCost(2)))
	})
}

// A charge concerns the Retrier that makes the call, or the next one around it that has a limiter.
func TestWhoIsCharged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cruise.Charge(t.Context(), 1)
		//lint:ignore SA1012 a nil context on purpose
		cruise.Charge(nil, 1)
		requests, tokens := cruise.Must(cruise.NewTokenBucket(1, 100)), cruise.Must(cruise.NewTokenBucket(1, 100))
		outer, inner := cruise.Must(cruise.New(cruise.WithLimiter(requests))), cruise.Must(cruise.New(cruise.WithLimiter(tokens)))
		bare := cruise.Must(cruise.New(cruise.WithoutLimiter(), cruise.WithObserver(cruise.ObserverFunc(func(context.Context, cruise.Event) {}))))
		xtime := cruise.Must(cruise.New(cruise.WithLimiter(rate.NewLimiter(1, 10))))
		assert.NoError(t, xtime.Do(t.Context(), func(ctx context.Context) error { cruise.Charge(ctx, 5); return nil }))
		assert.NoError(t, bare.Do(t.Context(), func(ctx context.Context) error { cruise.Charge(ctx, 5); return nil }))
		require.NoError(t, outer.Do(t.Context(), func(ctx context.Context) error {
			return inner.Do(ctx, func(ctx context.Context) error {
				return bare.Do(ctx, func(ctx context.Context) error { cruise.Charge(ctx, 49); return nil })
			})
		}))
		assert.True(t, requests.TryN(99))
		assert.True(t, tokens.TryN(50))
		assert.False(t, tokens.TryN(1))
	})
}

// A language model's API counts requests and tokens a minute, and tells both in headers. What a
// request costs in tokens is known when the answer is there: reserve what is likely, or the most
// that it may be, and charge the difference.
func ExampleCharge() {
	requests := cruise.Must(cruise.New())
	tokens := cruise.Must(cruise.New(cruise.WithMaxRate(90_000.0/60), cruise.WithTuning(cruise.Tuning{Burst: 90_000})))

	ask := func(ctx context.Context, maxTokens int) error {
		return requests.Do(ctx, func(ofRequests context.Context) error { // it retries
			return tokens.Do(ofRequests, func(ofTokens context.Context) error {
				resp := complete()
				cruise.Report(ofRequests, quota(resp.Header, "requests"))
				cruise.Report(ofTokens, quota(resp.Header, "tokens"))
				cruise.Charge(ofTokens, resp.totalTokens-maxTokens)
				return resp.err
			}, cruise.WithCost(maxTokens))
		})
	}
	fmt.Println(ask(context.Background(), 50))
	// Output: <nil>
}

type completion struct {
	Header      http.Header
	totalTokens int
	err         error
}

// complete stands for the call of an SDK.
func complete() completion {
	return completion{totalTokens: 20, Header: http.Header{
		"X-Ratelimit-Limit-Requests": {"500"}, "X-Ratelimit-Remaining-Requests": {"499"}, "X-Ratelimit-Reset-Requests": {"120ms"},
		"X-Ratelimit-Limit-Tokens": {"90000"}, "X-Ratelimit-Remaining-Tokens": {"89980"}, "X-Ratelimit-Reset-Tokens": {"13ms"},
	}}
}

// quota reads the headers of one of several limits. What is missing or is no number counts as not
// reported.
func quota(h http.Header, of string) (q cruise.Quota) {
	var err error
	if q.Remaining, err = strconv.Atoi(h.Get("X-Ratelimit-Remaining-" + of)); err != nil {
		return cruise.Quota{Remaining: -1}
	}
	q.Limit, _ = strconv.Atoi(h.Get("X-Ratelimit-Limit-" + of))
	q.Reset, _ = time.ParseDuration(h.Get("X-Ratelimit-Reset-" + of))
	return q
}
