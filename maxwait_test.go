package cruise_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/shared"
)

func nothing(context.Context) error { return nil }

// whole is a limiter of another package that can only wait.
type whole struct{ cruise.Limiter }

func TestMaxWait(t *testing.T) {
	const limit, burst = 1, 2
	for name, limiter := range map[string]func() cruise.Limiter{
		"token bucket": func() cruise.Limiter { return cruise.Must(cruise.NewTokenBucket(limit, burst)) },
		"sliding window": func() cruise.Limiter {
			return cruise.Must(cruise.NewSlidingWindow(cruise.Window{Calls: burst, Per: time.Second}))
		},
		"x/time":  func() cruise.Limiter { return rate.NewLimiter(limit, burst) },
		"another": func() cruise.Limiter { return whole{cruise.Must(cruise.NewTokenBucket(limit, burst))} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := limiter()
				r := cruise.Must(cruise.New(cruise.WithLimiter(l)))
				for range burst {
					require.NoError(t, r.Do(t.Context(), nothing, cruise.WithMaxWait(0)))
				}
				began := time.Now()
				for d, most := range map[time.Duration]time.Duration{0: time.Millisecond, time.Millisecond: 0, 999 * time.Millisecond: 0} {
					err := r.Do(t.Context(), nothing, cruise.WithMaxWait(d))
					require.ErrorIs(t, err, cruise.ErrMaxWait)
					assert.NotErrorIs(t, err, context.DeadlineExceeded)
					e, _ := errors.AsType[*cruise.Error](err)
					assert.Equal(t, 0, e.Attempts)
					assert.InDelta(t, time.Second, e.RetryAfter, float64(2*time.Millisecond))
					assert.LessOrEqual(t, time.Since(began), most, "refused at once")
					began = time.Now()
				}
				began = time.Now()
				require.NoError(t, r.Do(t.Context(), nothing, cruise.WithMaxWait(1100*time.Millisecond)))
				assert.InDelta(t, time.Second, time.Since(began), float64(3*time.Millisecond))
				require.NoError(t, r.Do(t.Context(), nothing, cruise.WithMaxWait(math.MaxInt64)))
			})
		})
	}
}

// A wait of exactly the bound is one that it allows.
func TestMaxWaitToTheNanosecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 20 {
			r := cruise.Must(cruise.New(cruise.WithLimiter(cruise.Must(cruise.NewTokenBucket(1, 1)))))
			require.NoError(t, r.Do(t.Context(), nothing))
			assert.ErrorIs(t, r.Do(t.Context(), nothing, cruise.WithMaxWait(time.Second-1)), cruise.ErrMaxWait)
			assert.NoError(t, r.Do(t.Context(), nothing, cruise.WithMaxWait(time.Second)))
		}
	})
}

// What could not be foreseen ends the wait when its time is over.
func TestMaxWaitThatCouldNotBeForeseen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket := cruise.Must(cruise.NewTokenBucket(1, 1))
		r := cruise.Must(cruise.New(cruise.WithLimiter(bucket)))
		require.NoError(t, bucket.WaitN(t.Context(), 1))
		began, refused := time.Now(), make(chan error, 2)
		for range 2 {
			go func() { refused <- r.Do(t.Context(), nothing, cruise.WithMaxWait(3*time.Second)) }()
		}
		synctest.Wait()
		require.NoError(t, bucket.SetLimit(0.1))
		synctest.Wait()
		assert.Len(t, refused, 2, "told as soon as it is known")
		assert.Zero(t, time.Since(began))
		assert.ErrorIs(t, <-refused, cruise.ErrMaxWait)

		// An AdaptiveLimiter without a rate cannot tell.
		r = cruise.Must(cruise.New())
		go func() {
			_ = r.Do(t.Context(), func(context.Context) error { time.Sleep(900 * time.Millisecond); return nil })
		}()
		synctest.Wait()
		began = time.Now()
		err := r.Do(t.Context(), nothing, cruise.WithMaxWait(200*time.Millisecond))
		assert.ErrorIs(t, err, cruise.ErrMaxWait)
		assert.Equal(t, 200*time.Millisecond, time.Since(began))
		assert.ErrorIs(t, r.Do(t.Context(), nothing, cruise.WithMaxWait(0)), cruise.ErrMaxWait)
		assert.Zero(t, r.Limiter().(*cruise.AdaptiveLimiter).Stats().Waiting)
		time.Sleep(time.Second)
		assert.NoError(t, r.Do(t.Context(), nothing, cruise.WithMaxWait(0)))
	})
}

// The bound is that of the wait: the attempt has its context, and each retry the same bound.
func TestMaxWaitBoundsTheWaitAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := cruise.Must(cruise.NewTokenBucket(1, 1))
		r := cruise.Must(cruise.New(cruise.WithLimiter(cruise.Must(cruise.NewTokenBucket(1, 1))), cruise.WithMaxWait(2*time.Second), cruise.WithBackoff(cruise.Backoff{})))
		began, attempts := time.Now(), 0
		err := r.Do(t.Context(), func(ctx context.Context) error {
			attempts++
			_, has := ctx.Deadline()
			assert.False(t, has)
			for range 5 { // a limiter within the call is none of it
				assert.NoError(t, inner.WaitN(ctx, 1))
			}
			time.Sleep(time.Hour)
			if attempts < 3 {
				return errBoom
			}
			return nil
		})
		assert.NoError(t, err)
		assert.Equal(t, 3*time.Hour+(4+2*4)*time.Second, time.Since(began))

		// A throttle makes the retry wait for too long.
		err = r.Do(t.Context(), func(context.Context) error { return cruise.Throttled(errBoom, cruise.RetryAfter(time.Minute)) })
		assert.ErrorIs(t, err, cruise.ErrMaxWait)
		assert.ErrorIs(t, err, errBoom)
		e, _ := errors.AsType[*cruise.Error](err)
		assert.Equal(t, 1, e.Attempts)
		assert.Equal(t, time.Minute, e.RetryAfter)
		assert.Equal(t, time.Minute, e.Paused)
		assert.EqualError(t, err, "cruise: gave up after 1 attempt in 0s: wait for the limiter longer than WithMaxWait allows: everyone is paused for 1m0s (try again in 1m0s): boom")

		// A deadline that comes first is a deadline.
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		assert.ErrorIs(t, r.Do(ctx, nothing), cruise.ErrDeadline)
		assert.ErrorIs(t, r.Do(ctx, nothing, cruise.WithMaxWait(0)), cruise.ErrMaxWait)
	})
	assert.EqualError(t, cruise.Must(cruise.New()).Do(t.Context(), nothing, cruise.WithMaxWait(-1)), "cruise: WithMaxWait(-1ns): want 0 or more")
}

func TestMaxWaitInScopes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, within := range map[string]cruise.Option{
			"ours":   cruise.WithScopeLimiter(func(string, string) (cruise.Limiter, error) { return cruise.NewTokenBucket(1, 1) }),
			"x/time": cruise.WithScopeLimiter(func(string, string) (cruise.Limiter, error) { return rate.NewLimiter(1, 1), nil }),
		} {
			r := cruise.Must(cruise.New(cruise.WithLimiter(cruise.Must(cruise.NewTokenBucket(0.5, 2))), within))
			a, b := r.Scope("HOST", "a"), r.Scope("HOST", "b")
			for _, tt := range []struct {
				r    *cruise.Retrier
				want time.Duration
			}{{a, 0}, {a, time.Second}, {b, 0}, {b, 2 * time.Second}} {
				err := tt.r.Do(t.Context(), nothing, cruise.WithMaxWait(0))
				if tt.want == 0 {
					assert.NoError(t, err, name)
					continue
				}
				require.ErrorIs(t, err, cruise.ErrMaxWait, name)
				e, _ := errors.AsType[*cruise.Error](err)
				assert.InDelta(t, tt.want, e.RetryAfter, float64(5*time.Millisecond), name)
			}
		}
	})
}

func TestTryN(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket := cruise.Must(cruise.NewTokenBucket(1, 3))
		window := cruise.Must(cruise.NewSlidingWindow(cruise.Window{Calls: 3, Per: 3 * time.Second}))
		paced := cruise.Must(cruise.NewAdaptiveLimiter(cruise.WithMaxRate(1), cruise.WithTuning(cruise.Tuning{Burst: 3})))
		time.Sleep(10 * time.Second)
		fleet := cruise.Must(shared.New(shared.NewMemoryStore(), cruise.WithMaxRate(1), cruise.WithTuning(cruise.Tuning{Burst: 3})))
		type tryer interface {
			cruise.Learner
			TryN(int) bool
			Pause(time.Duration)
		}
		for _, l := range []tryer{bucket, window, paced} {
			assert.False(t, l.TryN(4), "%T", l)
			assert.True(t, l.TryN(0), "%T", l)
			assert.False(t, l.TryN(-1), "%T", l)
			assert.False(t, l.TryN(math.MinInt), "%T", l)
			assert.False(t, l.TryN(math.MaxInt), "%T", l)
			assert.True(t, l.TryN(2), "%T", l)
			assert.False(t, l.TryN(2), "%T", l)
			assert.True(t, l.TryN(1), "%T", l)
			assert.False(t, l.TryN(1), "%T", l)
			time.Sleep(3 * time.Second)
			assert.True(t, l.TryN(1), "%T", l)
			l.Pause(time.Minute)
			assert.False(t, l.TryN(1), "%T", l)
			time.Sleep(time.Minute)
			assert.True(t, l.TryN(1), "%T", l)
			assert.Zero(t, testing.AllocsPerRun(100, func() { l.TryN(1) }), "%T", l)
		}
		tries := 0
		for !fleet.TryN(1) { // the first of them ask the store
			require.Less(t, tries, 10)
			tries++
			time.Sleep(500 * time.Millisecond)
		}
		for _, l := range []tryer{&cruise.TokenBucket{}, &cruise.AdaptiveLimiter{}, &cruise.SlidingWindow{}, &shared.Limiter{}} {
			assert.False(t, l.TryN(0))
			assert.False(t, l.TryN(1))
		}
	})
}

// Nobody goes past those who wait.
func TestTryNBehindOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket := cruise.Must(cruise.NewTokenBucket(1, 2))
		require.True(t, bucket.TryN(1))
		go func() { _ = bucket.WaitN(t.Context(), 2) }()
		synctest.Wait()
		assert.False(t, bucket.TryN(1), "though there is one token")
		time.Sleep(time.Second)
		synctest.Wait()
		assert.False(t, bucket.TryN(1))
		time.Sleep(time.Second)
		assert.True(t, bucket.TryN(1))
	})
}

func BenchmarkTryN(b *testing.B) {
	b.Run("cruise", func(b *testing.B) {
		bucket := cruise.Must(cruise.NewTokenBucket(1e9, 1e9))
		for b.Loop() {
			bucket.TryN(1)
		}
	})
	b.Run("xtime", func(b *testing.B) {
		limiter := rate.NewLimiter(1e9, 1e9)
		for b.Loop() {
			limiter.Allow()
		}
	})
	b.Run("cruise-refused", func(b *testing.B) {
		bucket := cruise.Must(cruise.NewTokenBucket(1e-6, 1))
		for b.Loop() {
			bucket.TryN(1)
		}
	})
	b.Run("xtime-refused", func(b *testing.B) {
		limiter := rate.NewLimiter(1e-6, 1)
		for b.Loop() {
			limiter.Allow()
		}
	})
}

func ExampleWithMaxWait() {
	bucket := cruise.Must(cruise.NewTokenBucket(0.01, 1)) // one call in 100 s
	api := cruise.Must(cruise.New(cruise.WithLimiter(bucket)))
	for range 2 {
		err := api.Do(context.Background(), func(context.Context) error { return nil }, cruise.WithMaxWait(0))
		e, _ := errors.AsType[*cruise.Error](err)
		if errors.Is(err, cruise.ErrMaxWait) {
			fmt.Println("busy for", e.RetryAfter.Round(time.Second))
			continue
		}
		fmt.Println("done")
	}
	// Output:
	// done
	// busy for 1m40s
}

func ExampleTokenBucket_TryN() {
	bucket := cruise.Must(cruise.NewTokenBucket(0.01, 2))
	fmt.Println(bucket.TryN(1), bucket.TryN(1), bucket.TryN(1))
	// Output: true true false
}
