package cruise_test

import (
	"context"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/a7df5faa/cruise"
)

func TestSetBurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := cruise.Must(cruise.NewTokenBucket(1, 10))
		assert.Equal(t, 10, b.Burst())
		require.NoError(t, b.SetBurst(4))
		assert.True(t, b.TryN(4), "what is above the new burst is lost")
		assert.False(t, b.TryN(1))
		time.Sleep(time.Hour)
		require.NoError(t, b.SetBurst(20))
		assert.False(t, b.TryN(5), "a larger one is saved up")
		time.Sleep(16 * time.Second)
		assert.True(t, b.TryN(20))

		began, waits := time.Now(), make(chan error, 3)
		for _, n := range []int{9, 3, 20} {
			go func() { waits <- b.WaitN(t.Context(), n) }()
			synctest.Wait()
		}
		require.NoError(t, b.SetBurst(5))
		for range 2 {
			assert.ErrorIs(t, <-waits, cruise.ErrCost, "who can never go any more")
		}
		assert.Zero(t, time.Since(began))
		require.NoError(t, <-waits)
		assert.Equal(t, 3*time.Second, time.Since(began))
		assert.EqualError(t, b.WaitN(t.Context(), 6), "cruise: call not made: cost above what the limiter ever admits at once: cost 6, at most 5")

		b.Pause(time.Minute)
		require.NoError(t, b.SetBurst(8))
		assert.Equal(t, time.Minute, b.PauseLeft())
		time.Sleep(time.Minute)
		assert.False(t, b.TryN(2), "a pause saves no burst")
		assert.True(t, b.TryN(1))
	})
	b := cruise.Must(cruise.NewTokenBucket(1, 3))
	for _, n := range []int{0, -1, math.MinInt} {
		assert.ErrorContains(t, b.SetBurst(n), fmt.Sprintf("cruise: burst %d: want", n))
	}
	assert.Equal(t, 3, b.Burst())
	assert.ErrorContains(t, new(cruise.TokenBucket).SetBurst(1), "not made by its constructor")
}

// A change of the burst reaches scopes, too.
func TestSetBurstAroundScopes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		outer := cruise.Must(cruise.NewTokenBucket(1, 10))
		r := cruise.Must(cruise.New(cruise.WithLimiter(outer), cruise.WithScopeLimiter(func(string, string) (cruise.Limiter, error) {
			return cruise.NewTokenBucket(1, 10)
		}))).Scope("A", "1")
		require.NoError(t, r.Do(t.Context(), nothing, cruise.WithCost(10)))
		refused := make(chan error, 1)
		go func() { refused <- r.Do(t.Context(), nothing, cruise.WithCost(8)) }()
		synctest.Wait()
		require.NoError(t, outer.SetBurst(2))
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.Len(t, refused, 1)
		assert.ErrorIs(t, <-refused, cruise.ErrCost)
		assert.NoError(t, r.Do(t.Context(), nothing, cruise.WithCost(2)))
	})
}

func TestSetWindows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const s = time.Second
		w := cruise.Must(cruise.NewSlidingWindow(cruise.Window{Calls: 3, Per: 10 * s}))
		for range 3 {
			require.True(t, w.TryN(1))
			time.Sleep(s)
		}
		// 3 s later: three went, 3, 2 and 1 s ago.
		require.NoError(t, w.SetWindows(cruise.Window{Calls: 5, Per: 10 * s}, cruise.Window{Calls: 2, Per: 2500 * time.Millisecond}))
		assert.Equal(t, 0, w.Free(), "two of them are in the short one")
		time.Sleep(s)
		assert.Equal(t, 1, w.Free())
		require.NoError(t, w.SetWindows(cruise.Window{Calls: 1, Per: 10 * s}))
		assert.Equal(t, 0, w.Free())
		began := time.Now()
		require.NoError(t, w.WaitN(t.Context(), 1))
		assert.Equal(t, 8*s, time.Since(began), "the last of the three went 2 s before")

		waits := make(chan error, 2)
		go func() { waits <- w.WaitN(t.Context(), 1) }()
		synctest.Wait()
		began = time.Now()
		require.NoError(t, w.SetWindows(cruise.Window{Calls: 2, Per: time.Hour}))
		require.NoError(t, <-waits, "who waits goes as soon as there is room")
		assert.Zero(t, time.Since(began))
		go func() { waits <- w.WaitN(t.Context(), 2) }()
		synctest.Wait()
		require.NoError(t, w.SetWindows(cruise.Window{Calls: 1, Per: time.Hour}))
		assert.ErrorIs(t, <-waits, cruise.ErrCost)

		for _, bad := range [][]cruise.Window{nil, {{Calls: 0, Per: s}}, {{Calls: 1, Per: -s}}, {{Calls: 1, Per: s}, {Calls: 2, Per: s}}, {{Calls: math.MaxInt, Per: math.MaxInt64}}} {
			assert.Error(t, w.SetWindows(bad...))
		}
		assert.Error(t, new(cruise.SlidingWindow).SetWindows(cruise.Window{Calls: 1, Per: s}))
	})
}

func ExampleTokenBucket_SetBurst() {
	bucket := cruise.Must(cruise.NewTokenBucket(10, 20))
	fmt.Println(bucket.SetLimit(50), bucket.SetBurst(5), bucket.Limit(), bucket.Burst()) // the plan has changed
	fmt.Println(bucket.WaitN(context.Background(), 6))
	// Output:
	// <nil> <nil> 50 5
	// cruise: call not made: cost above what the limiter ever admits at once: cost 6, at most 5
}

func ExampleSlidingWindow_SetWindows() {
	window := cruise.Must(cruise.NewSlidingWindow(cruise.Window{Calls: 10, Per: time.Hour}))
	fmt.Println(window.TryN(8), window.Free())
	fmt.Println(window.SetWindows(cruise.Window{Calls: 100, Per: time.Hour}), window.Free()) // what went counts on
	// Output:
	// true 2
	// <nil> 92
}
