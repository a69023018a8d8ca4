package shared

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/a7df5faa/cruise"
)

func TestOptions(t *testing.T) {
	store := NewMemoryStore()
	for _, tt := range []struct {
		name  string
		store Store
		opts  []Option
		want  string
	}{
		{"none", store, nil, ""},
		{"all at their bounds", store, []Option{cruise.WithInitialRate(1e6), cruise.WithTuning(cruise.Tuning{MinRate: 1e-4}), cruise.WithMaxRate(1e6), cruise.WithTuning(cruise.Tuning{Burst: 10_000}), cruise.WithTuning(cruise.Tuning{DecreaseFactor: 1e-6}), cruise.WithTuning(cruise.Tuning{Increase: 1e-6}), WithStoreTimeout(time.Millisecond), WithFallback(FallbackOpen)}, ""},
		{"no maximum, said so", store, []Option{cruise.WithMaxRate(rate.Inf), WithStoreTimeout(10 * time.Second)}, ""},
		{"pause only takes any rate", store, []Option{WithPauseOnly(), cruise.WithMaxRate(1e9)}, ""},
		{"store nil", nil, nil, "cruise: shared.New: store is nil: want a Store"},
		{"store a nil pointer", (*MemoryStore)(nil), nil, "cruise: shared.New: store is nil: want a Store"},
		{"option nil", store, []Option{nil}, "cruise: option 1 is nil"},
		{"timeout 0", store, []Option{WithStoreTimeout(0)}, "cruise: WithStoreTimeout(0s): want 1ms to 10s"},
		{"timeout too long", store, []Option{WithStoreTimeout(time.Minute)}, "cruise: WithStoreTimeout(1m0s): want 1ms to 10s"},
		{"unknown fallback", store, []Option{WithFallback(3)}, "cruise: WithFallback(3): want FallbackShare, FallbackClosed or FallbackOpen"},
		{"minimum too low", store, []Option{cruise.WithTuning(cruise.Tuning{MinRate: 1e-5})}, "cruise: WithTuning: MinRate 1e-05: want 0.0001 to 1000000 calls per second for a shared rate"},
		{"maximum too high", store, []Option{cruise.WithMaxRate(2e6)}, "cruise: WithMaxRate(2e+06): want 0.0001 to 1000000 calls per second for a shared rate"},
		{"initial too high", store, []Option{cruise.WithInitialRate(2e6)}, "cruise: WithInitialRate(2e+06): want 0.0001 to 1000000 calls per second for a shared rate"},
		{"burst too high", store, []Option{cruise.WithTuning(cruise.Tuning{Burst: 10_001})}, "cruise: WithTuning: Burst 10001: want 1 to 10000 for a shared rate"},
		{"decrease too low", store, []Option{cruise.WithTuning(cruise.Tuning{DecreaseFactor: 1e-9})}, "cruise: WithTuning: DecreaseFactor 1e-09: want 0.000001 to 0.999999 for a shared rate"},
		{"increase too low", store, []Option{cruise.WithTuning(cruise.Tuning{Increase: 1e-9})}, "cruise: WithTuning: Increase 1e-09: want 0.000001 to 1 for a shared rate"},
		{"minimum above maximum", store, []Option{cruise.WithTuning(cruise.Tuning{MinRate: 2}), cruise.WithMaxRate(1)}, "cruise: WithTuning: MinRate 2: want at most 1, the maximum rate"},
		{"initial above maximum", store, []Option{cruise.WithInitialRate(2), cruise.WithMaxRate(1)}, "cruise: WithInitialRate(2): want 0.0016666666666666668 to 1, the minimum and maximum rate"},
		{"observer nil", store, []Option{cruise.WithObserver(nil)}, "cruise: WithObserver(nil): want an Observer"},
		{"all that is wrong at once", nil, []Option{cruise.WithTuning(cruise.Tuning{Burst: -1})}, "cruise: shared.New: store is nil: want a Store\ncruise: WithTuning: Burst -1: want 1 to 2147483647"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, err := New(tt.store, tt.opts...)
			if tt.want == "" {
				require.NoError(t, err)
				assert.NotNil(t, s)
				return
			}
			assert.EqualError(t, err, tt.want)
			assert.Nil(t, s)
		})
	}
}

func TestRefusals(t *testing.T) {
	s := cruise.Must(New(NewMemoryStore(), cruise.WithTuning(cruise.Tuning{Burst: 3})))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	var none context.Context
	assert.EqualError(t, s.WaitN(none, 1), "cruise: nil context")
	assert.ErrorIs(t, s.WaitN(ended, 1), context.Canceled)
	assert.ErrorIs(t, s.WaitN(t.Context(), 4), cruise.ErrCost)
	assert.ErrorIs(t, cruise.Must(New(NewMemoryStore())).WaitN(t.Context(), 10_001), cruise.ErrCost)
	assert.EqualError(t, s.WaitN(t.Context(), -1), "cruise: cost -1: want 0 or more")
	assert.NoError(t, s.WaitN(t.Context(), 0))
	assert.Zero(t, s.Stats().Syncs)
}

func TestZeroValues(t *testing.T) {
	var s Limiter
	assert.EqualError(t, s.WaitN(t.Context(), 1), "cruise: limiter not made by its constructor")
	s.Learn(cruise.Feedback{Outcome: cruise.OutcomeThrottled, Cost: 1, RetryAfter: time.Hour})
	s.Pause(time.Hour)
	s.Resume()
	assert.Equal(t, cruise.Stats{}, s.Stats())
	var m MemoryStore
	_, err := m.Sync(t.Context(), Request{})
	assert.EqualError(t, err, "cruise: MemoryStore not made by NewMemoryStore")
}

// While the store is down, the limit is what this worker keeps to. A throttle that was not
// told cuts its share.
func TestLimitWithoutStore(t *testing.T) {
	const throttled, not = true, false
	for _, tt := range []struct {
		name      string
		throttled bool
		opts      []Option
		want      rate.Limit
		pause     time.Duration
	}{
		{"share", not, nil, 5, 0},
		{"share, after a throttle", throttled, nil, 2.5, 1600 * ms},
		{"closed", not, []Option{WithFallback(FallbackClosed)}, 0, 0},
		{"open", not, []Option{WithFallback(FallbackOpen)}, rate.Inf, 0},
		{"pause only", not, []Option{WithPauseOnly()}, 10, 0},
		{"pause only, closed", not, []Option{WithPauseOnly(), WithFallback(FallbackClosed)}, 10, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				long := cruise.Must(cruise.NewBackoff(cruise.WithBase(time.Hour), cruise.WithMaxDelay(time.Hour), cruise.NoJitter()))
				store := newFaultyStore()
				workers := fleet(t, store, 2, append(tt.opts, cruise.WithInitialRate(10), cruise.WithMaxRate(10), cruise.WithTuning(cruise.Tuning{PauseBackoff: long}))...)
				assert.EqualValues(t, 10, workers[0].Limit(), "before the first call")
				for _, s := range append(workers, workers[0]) {
					require.NoError(t, s.WaitN(t.Context(), 2))
					time.Sleep(time.Second)
					s.Learn(cruise.Feedback{Outcome: cruise.OutcomeSuccess, Sent: time.Now(), Cost: 2})
				}
				synctest.Wait()
				assert.EqualValues(t, 10, workers[0].Limit())
				store.fails(down)
				s := workers[0]
				if tt.throttled {
					s.Learn(cruise.Feedback{Outcome: cruise.OutcomeThrottled, Sent: time.Now(), Cost: 2}) // which it tells at once
				} else {
					s.Resume() // as this
				}
				synctest.Wait()
				assert.True(t, s.Stats().Degraded)
				assert.Equal(t, tt.want, s.Limit())
				assert.Equal(t, tt.pause, s.PauseLeft())
			})
		})
	}
}

func TestAbandonedLimiterIsCollected(t *testing.T) {
	gone := make(chan struct{})
	func() {
		s := cruise.Must(New(NewMemoryStore()))
		runtime.AddCleanup(s, func(c chan struct{}) { close(c) }, gone)
		require.NoError(t, s.WaitN(t.Context(), 1))
		s.Pause(time.Hour)
	}()
	require.Eventually(t, func() bool {
		runtime.GC()
		select {
		case <-gone:
			return true
		default:
			return false
		}
	}, 10*time.Second, time.Millisecond)
}

func TestMemoryStoreLooksAtItsContext(t *testing.T) {
	store := NewMemoryStore()
	var none context.Context
	_, err := store.Sync(none, Request{})
	assert.EqualError(t, err, "cruise: nil context")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = store.Sync(ctx, Request{})
	assert.Equal(t, context.Canceled, err)
}
