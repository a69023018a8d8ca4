package cruise

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/a7df5faa/cruise/internal/calm"
	"github.com/a7df5faa/cruise/internal/clock"
)

// faultyStore is a store whose next answers can be spoilt.
type faultyStore struct {
	Store
	mu    sync.Mutex
	fault func(context.Context, StoreRequest) (StoreReply, error) // nil: none
	syncs int
	last  StoreRequest
}

func newFaultyStore() *faultyStore { return &faultyStore{Store: NewMemoryStore()} }

func (f *faultyStore) Sync(ctx context.Context, q StoreRequest) (StoreReply, error) {
	f.mu.Lock()
	f.syncs++
	f.last = q
	fault, store := f.fault, f.Store
	f.mu.Unlock()
	if fault != nil {
		return fault(ctx, q)
	}
	return store.Sync(ctx, q)
}

func (f *faultyStore) fails(fault func(context.Context, StoreRequest) (StoreReply, error)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fault = fault
}

var errDown = errors.New("store is down")

func down(context.Context, StoreRequest) (StoreReply, error) { return StoreReply{}, errDown }

// hangs answers after an hour, whatever its context says.
func hangs(context.Context, StoreRequest) (StoreReply, error) {
	time.Sleep(time.Hour)
	return StoreReply{}, errDown
}

func TestSharedOptions(t *testing.T) {
	store := NewMemoryStore()
	for _, tt := range []struct {
		name  string
		store Store
		opts  []SharedOption
		want  string
	}{
		{"none", store, nil, ""},
		{"all at their bounds", store, []SharedOption{WithInitialRate(1e6), WithMinRate(1e-4), WithMaxRate(1e6), WithBurst(10_000), WithDecreaseFactor(1e-6), WithIncrease(1e-6), WithStoreTimeout(time.Millisecond), WithFallback(FallbackOpen)}, ""},
		{"no maximum, said so", store, []SharedOption{WithMaxRate(rate.Inf), WithStoreTimeout(10 * time.Second)}, ""},
		{"pause only takes any rate", store, []SharedOption{WithPauseOnly(), WithMaxRate(1e9)}, ""},
		{"store nil", nil, nil, "cruise: NewSharedLimiter: store is nil: want a Store"},
		{"store a nil pointer", (*MemoryStore)(nil), nil, "cruise: NewSharedLimiter: store is nil: want a Store"},
		{"option nil", store, []SharedOption{nil}, "cruise: option 1 is nil"},
		{"timeout 0", store, []SharedOption{WithStoreTimeout(0)}, "cruise: WithStoreTimeout(0s): want 1ms to 10s"},
		{"timeout too long", store, []SharedOption{WithStoreTimeout(time.Minute)}, "cruise: WithStoreTimeout(1m0s): want 1ms to 10s"},
		{"unknown fallback", store, []SharedOption{WithFallback(3)}, "cruise: WithFallback(3): want FallbackShare, FallbackClosed or FallbackOpen"},
		{"minimum too low", store, []SharedOption{WithMinRate(1e-5)}, "cruise: WithMinRate(1e-05): want 0.0001 to 1000000 calls per second for a shared rate"},
		{"maximum too high", store, []SharedOption{WithMaxRate(2e6)}, "cruise: WithMaxRate(2e+06): want 0.0001 to 1000000 calls per second for a shared rate"},
		{"initial too high", store, []SharedOption{WithInitialRate(2e6)}, "cruise: WithInitialRate(2e+06): want 0.0001 to 1000000 calls per second for a shared rate"},
		{"burst too high", store, []SharedOption{WithBurst(10_001)}, "cruise: WithBurst(10001): want 1 to 10000 for a shared rate"},
		{"decrease too low", store, []SharedOption{WithDecreaseFactor(1e-9)}, "cruise: WithDecreaseFactor(1e-09): want 0.000001 to 0.999999 for a shared rate"},
		{"increase too low", store, []SharedOption{WithIncrease(1e-9)}, "cruise: WithIncrease(1e-09): want 0.000001 to 1 for a shared rate"},
		{"minimum above maximum", store, []SharedOption{WithMinRate(2), WithMaxRate(1)}, "cruise: WithMinRate(2): want at most 1, the maximum rate"},
		{"initial above maximum", store, []SharedOption{WithInitialRate(2), WithMaxRate(1)}, "cruise: WithInitialRate(2): want 0.0016666666666666668 to 1, the minimum and maximum rate"},
		{"observer nil", store, []SharedOption{WithObserver(nil)}, "cruise: WithObserver(nil): want an Observer"},
		{"all that is wrong at once", nil, []SharedOption{WithBurst(0)}, "cruise: NewSharedLimiter: store is nil: want a Store\ncruise: WithBurst(0): want 1 to 2147483647"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, err := NewSharedLimiter(tt.store, tt.opts...)
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

func TestSharedRefusals(t *testing.T) {
	s := Must(NewSharedLimiter(NewMemoryStore(), WithBurst(3)))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	var none context.Context
	assert.EqualError(t, s.WaitN(none, 1), "cruise: nil context")
	assert.ErrorIs(t, s.WaitN(ended, 1), context.Canceled)
	assert.ErrorIs(t, s.WaitN(t.Context(), 4), ErrCost)
	assert.ErrorIs(t, Must(NewSharedLimiter(NewMemoryStore())).WaitN(t.Context(), 10_001), ErrCost)
	assert.EqualError(t, s.WaitN(t.Context(), -1), "cruise: cost -1: want 0 or more")
	assert.NoError(t, s.WaitN(t.Context(), 0))
	assert.Zero(t, s.Stats().Syncs)
}

func TestSharedZeroValues(t *testing.T) {
	var s SharedLimiter
	assert.EqualError(t, s.WaitN(t.Context(), 1), "cruise: limiter not made by its constructor")
	s.Learn(Feedback{Outcome: OutcomeThrottled, Cost: 1, RetryAfter: time.Hour})
	s.Pause(time.Hour)
	s.Resume()
	assert.Equal(t, SharedStats{}, s.Stats())
	var m MemoryStore
	_, err := m.Sync(t.Context(), StoreRequest{})
	assert.EqualError(t, err, "cruise: MemoryStore not made by NewMemoryStore")
}

// fleet is some workers that share a store.
func fleet(t *testing.T, store Store, n int, opts ...SharedOption) []*SharedLimiter {
	t.Helper()
	workers := make([]*SharedLimiter, n)
	for i := range workers {
		var err error
		workers[i], err = NewSharedLimiter(store, opts...)
		require.NoError(t, err)
	}
	return workers
}

// steady is a rate that neither grows nor falls.
func steady(limit rate.Limit) []SharedOption {
	return []SharedOption{WithInitialRate(limit), WithMaxRate(limit), WithMinRate(limit)}
}

// No call goes before a slow limit would admit it, but for the microseconds that a store
// counts, and a rate of few digits is what it was.
func TestSharedMaximumIsNotRoundedUp(t *testing.T) {
	for _, tt := range []struct {
		limit rate.Limit
		want  rate.Limit
	}{
		{rate.Every(10 * time.Minute), .001666},
		{rate.Every(6 * time.Second), .166666},
		{rate.Every(600 * ms), 1.666666},
		{.29, .29},
		{.0003, .0003},
		{.57, .57},
		{1e6, 1e6},
	} {
		t.Run(fmt.Sprint(tt.limit), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := fleet(t, NewMemoryStore(), 1, steady(tt.limit)...)[0]
				assert.Equal(t, tt.want, s.Limit())
				require.NoError(t, s.WaitN(t.Context(), 1))
				for range 3 {
					start := time.Now()
					require.NoError(t, s.WaitN(t.Context(), 1))
					assert.GreaterOrEqual(t, time.Since(start), clock.CeilSeconds(1/float64(tt.limit))-time.Microsecond)
				}
			})
		})
	}
}

// All workers together keep to the rate, however many they are.
func TestSharedRate(t *testing.T) {
	for _, n := range []int{1, 3, 20} {
		synctest.Test(t, func(t *testing.T) {
			workers := fleet(t, NewMemoryStore(), n, steady(100)...)
			start := time.Now()
			var wg sync.WaitGroup
			var went atomic.Int64
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			for _, s := range workers {
				for range 10 {
					wg.Go(func() {
						for s.WaitN(ctx, 1) == nil {
							went.Add(1)
							s.Learn(Feedback{Outcome: OutcomeSuccess, Sent: time.Now(), Cost: 1})
						}
					})
				}
			}
			wg.Wait()
			assert.LessOrEqual(t, time.Since(start), 10*time.Second)
			assert.LessOrEqual(t, went.Load(), int64(1001), "%d workers", n)
			assert.Greater(t, went.Load(), int64(900), "%d workers", n)
			assert.Equal(t, rate.Limit(100), workers[0].Limit())
			assert.Equal(t, n, workers[0].Stats().Workers)
		})
	}
}

func TestSharedSlotsGoAtTheirTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fleet(t, NewMemoryStore(), 1, steady(10)...)[0]
		start := time.Now()
		for i, n := range []int{1, 1, 3, 1} {
			require.NoError(t, s.WaitN(t.Context(), n))
			assert.Equal(t, []time.Duration{0, 100, 400, 500}[i]*time.Millisecond, time.Since(start))
		}
	})
}

// drive makes calls of all workers in closed loops until ctx ends, and returns
// when they were sent.
func drive(ctx context.Context, workers []*SharedLimiter, callers int) func() []time.Time {
	var mu sync.Mutex
	var sent []time.Time
	var wg sync.WaitGroup
	for _, s := range workers {
		for range callers {
			wg.Go(func() {
				for s.WaitN(ctx, 1) == nil {
					at := time.Now()
					mu.Lock()
					sent = append(sent, at)
					mu.Unlock()
					time.Sleep(time.Millisecond)
					s.Learn(Feedback{Outcome: OutcomeSuccess, Sent: at, Cost: 1})
				}
			})
		}
	}
	return func() []time.Time {
		wg.Wait()
		return sent
	}
}

// countIn counts the times from a moment on, for a while.
func countIn(times []time.Time, from time.Time, d time.Duration) (n int) {
	for _, at := range times {
		if !at.Before(from) && at.Before(from.Add(d)) {
			n++
		}
	}
	return n
}

// A server's wait that one worker is told stops all of them as soon as they have
// synced, and they resume at the pace of the rate.
func TestSharedPause(t *testing.T) {
	for _, tt := range []struct {
		name  string
		opts  []SharedOption
		after int // calls in the first 100 ms after the pause, at most
	}{
		{"with a shared rate", steady(100), 11},
		{"pause only", []SharedOption{WithPauseOnly(), WithInitialRate(10), WithMaxRate(10), WithMinRate(10)}, 20},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				workers := fleet(t, NewMemoryStore(), 10, tt.opts...)
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				sent := drive(ctx, workers, 2)
				time.Sleep(2 * time.Second)
				require.NoError(t, workers[0].WaitN(ctx, 1))
				workers[0].Learn(Feedback{Outcome: OutcomeThrottled, Sent: time.Now(), Cost: 1, RetryAfter: 5 * time.Second})
				stop := time.Now()
				time.Sleep(time.Second)
				for _, s := range workers {
					assert.Equal(t, 4*time.Second, s.Stats().PauseLeft)
				}
				times := sent()
				assert.Positive(t, countIn(times, stop.Add(-time.Second), time.Second))
				assert.Zero(t, countIn(times, stop.Add(syncPeriod), 5*time.Second-syncPeriod), "calls inside the pause")
				assert.LessOrEqual(t, countIn(times, stop.Add(5*time.Second), 100*time.Millisecond), tt.after)
				assert.Positive(t, countIn(times, stop.Add(5*time.Second), 3*time.Second))
			})
		})
	}
}

// hearingStore is a worker's way to a store. It notes when the worker was first
// told of a pause.
type hearingStore struct {
	distantStore
	heard time.Time
}

func (h *hearingStore) Sync(ctx context.Context, q StoreRequest) (StoreReply, error) {
	r, err := h.distantStore.Sync(ctx, q)
	if r.Pause > 0 && h.heard.IsZero() {
		h.heard = time.Now()
	}
	return r, err
}

// No worker sends a call inside a pause once it has synced, and each syncs before it
// has used up what it had when the pause began.
func TestSharedPauseOneSyncLater(t *testing.T) {
	const rtt, long = 2 * time.Millisecond, 20 * time.Second
	for _, tt := range []struct {
		workers int
		limit   rate.Limit
		within  time.Duration // the last call of all after the pause began
	}{
		{10, 1000, syncPeriod + rtt},
		{100, 1000, syncPeriod + rtt},
		{100, 100, syncHorizon + rtt}, // who has few slots syncs after the last of them
	} {
		t.Run(fmt.Sprintf("%d workers, %v a second", tt.workers, tt.limit), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := NewMemoryStore()
				ctx, cancel := context.WithTimeout(t.Context(), 2*long)
				defer cancel()
				var wg sync.WaitGroup
				var stores []*hearingStore
				var workers []*SharedLimiter
				sent := make([][]time.Time, tt.workers)
				for i := range tt.workers {
					h := &hearingStore{distantStore: distantStore{Store: store, rtt: rtt}}
					s := Must(NewSharedLimiter(h, steady(tt.limit)...))
					stores, workers = append(stores, h), append(workers, s)
					var mu sync.Mutex // guards sent[i]
					for range 3 {
						wg.Go(func() {
							for s.WaitN(ctx, 1) == nil {
								at := time.Now()
								mu.Lock()
								sent[i] = append(sent[i], at)
								mu.Unlock()
								time.Sleep(time.Duration(rand.N(20)) * time.Millisecond)
								s.Learn(Feedback{Outcome: OutcomeSuccess, Sent: at, Cost: 1})
							}
						})
					}
				}
				time.Sleep(5 * time.Second)
				workers[0].Learn(Feedback{Outcome: OutcomeThrottled, Sent: time.Now(), Cost: 1, RetryAfter: long})
				began := time.Now()
				wg.Wait()
				time.Sleep(time.Second) // for the last syncs
				synctest.Wait()
				last, after := time.Duration(0), 0
				for i, h := range stores {
					require.False(t, h.heard.IsZero())
					for _, at := range sent[i] {
						if !at.Before(began.Add(long)) {
							after++
							continue
						}
						assert.False(t, at.After(h.heard), "a call %v after the pause began, which the worker knew since %v", at.Sub(began), h.heard.Sub(began))
						last = max(last, at.Sub(began))
					}
				}
				assert.Positive(t, after)
				assert.LessOrEqual(t, last, tt.within)
				t.Logf("the last call went %v after the pause began", last)
			})
		})
	}
}

// Telling a pause over and over does not make it longer, however long answers take.
func TestSharedPauseDoesNotGrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &distantStore{Store: NewMemoryStore(), rtt: 80 * time.Millisecond}
		workers := fleet(t, store, 3, steady(10)...)
		workers[0].Pause(10 * time.Second)
		start := time.Now()
		for range 30 {
			time.Sleep(200 * time.Millisecond)
			for _, s := range workers {
				s.Learn(Feedback{Outcome: OutcomeThrottled, Sent: time.Now(), Cost: 1, RetryAfter: time.Nanosecond})
			}
		}
		require.NoError(t, workers[2].WaitN(t.Context(), 1))
		assert.InDelta(t, 10, time.Since(start).Seconds(), .3)
		time.Sleep(time.Second) // for the last syncs
	})
}

func TestSharedPausesOnlyExtend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		workers := fleet(t, NewMemoryStore(), 2, steady(10)...)
		workers[0].Pause(time.Minute)
		synctest.Wait()
		workers[1].Pause(5 * time.Second)
		synctest.Wait()
		assert.Equal(t, time.Minute, workers[1].Stats().PauseLeft)
		workers[0].Pause(time.Second)
		assert.Equal(t, time.Minute, workers[0].Stats().PauseLeft)
		workers[0].Pause(-time.Second)
		assert.Equal(t, time.Minute, workers[0].Stats().PauseLeft)
	})
}

// A pause that begins while a shorter one is being told is told in full.
func TestSharedPauseWhileAsking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		workers := fleet(t, &distantStore{Store: NewMemoryStore(), rtt: 80 * ms}, 2, steady(10)...)
		workers[0].Pause(5 * time.Second)
		time.Sleep(20 * ms)
		workers[0].Pause(time.Minute)
		time.Sleep(time.Second)
		start := time.Now()
		require.NoError(t, workers[1].WaitN(t.Context(), 1))
		assert.InDelta(t, 59, time.Since(start).Seconds(), .2)
	})
}

// A pause that begins while a worker asks, and is about to be told that another one ended
// the last, holds for all.
func TestSharedPauseWhileAnotherIsLifted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		workers := fleet(t, &distantStore{Store: NewMemoryStore(), rtt: 80 * ms}, 3, steady(10)...)
		for _, s := range workers[:2] {
			s.Pause(time.Minute)
		}
		time.Sleep(time.Second)
		workers[1].Resume()
		time.Sleep(100 * ms)
		start := time.Now()
		var group sync.WaitGroup
		for _, s := range []*SharedLimiter{workers[0], workers[2]} {
			group.Go(func() {
				if s == workers[2] {
					time.Sleep(time.Second)
				}
				assert.NoError(t, s.WaitN(t.Context(), 1))
				assert.InDelta(t, 3600, time.Since(start).Seconds(), 1)
			})
		}
		time.Sleep(50 * ms)
		workers[0].Pause(time.Hour)
		group.Wait()
		time.Sleep(time.Second) // for the last syncs
	})
}

// A worker says once that it pauses, not again as the store is told and asked, nor for
// shorter pauses within.
func TestSharedSaysOnceThatItPauses(t *testing.T) {
	for _, tt := range []struct {
		name string
		stop func(s *SharedLimiter)
	}{
		{"by hand", func(s *SharedLimiter) { s.Pause(10 * time.Second) }},
		{"by a throttle", func(s *SharedLimiter) {
			s.Learn(Feedback{Outcome: OutcomeThrottled, Sent: time.Now(), Cost: 1, RetryAfter: 10 * time.Second})
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var paused []Paused
				watch := WithObserver(ObserverFunc(func(_ context.Context, e Event) {
					mu.Lock()
					defer mu.Unlock()
					if e, ok := e.(Paused); ok {
						paused = append(paused, e)
					}
				}))
				s := fleet(t, &distantStore{Store: NewMemoryStore(), rtt: 80 * ms}, 1, append(steady(10), watch)...)[0]
				require.NoError(t, s.WaitN(t.Context(), 1))
				s.Pause(-time.Second)
				until := time.Now().Add(10 * time.Second)
				tt.stop(s)
				time.Sleep(time.Second)
				s.Learn(Feedback{Outcome: OutcomeThrottled, Sent: time.Now(), Cost: 1, RetryAfter: time.Second})
				s.Pause(time.Second)
				require.NoError(t, s.WaitN(t.Context(), 1))
				time.Sleep(time.Second) // for the last syncs
				synctest.Wait()
				assert.Equal(t, []Paused{{Until: until, For: 10 * time.Second}}, paused)
			})
		})
	}
}

// A worker that hears of another one's pause says so, and so it does of its end before its
// time, and of one that is shorter.
func TestSharedSaysThatOthersPauseAndResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said []Event
		watch := WithObserver(ObserverFunc(func(_ context.Context, e Event) {
			switch e.(type) {
			case Paused, Resumed:
				said = append(said, e)
			}
		}))
		store := NewMemoryStore()
		const s = time.Second
		other, own := fleet(t, store, 1, steady(10)...)[0], fleet(t, store, 1, append(steady(10), watch)...)[0]
		other.Pause(20 * s)
		synctest.Wait()
		start := time.Now()
		time.AfterFunc(9750*ms, func() {
			other.Resume()
			other.Pause(5 * s)
		})
		require.NoError(t, own.WaitN(t.Context(), 1))
		assert.Equal(t, 14750*ms, time.Since(start))
		other.Pause(20 * s)
		synctest.Wait()
		start = time.Now()
		time.AfterFunc(9750*ms, other.Resume)
		require.NoError(t, own.WaitN(t.Context(), 1))
		assert.InDelta(t, 10, time.Since(start).Seconds(), .2)
		synctest.Wait() // for what the sync tells
		own.Pause(10 * s)
		own.Resume()
		synctest.Wait()
		for i, e := range said {
			if p, ok := e.(Paused); ok {
				p.Until = time.Time{}
				said[i] = p
			}
		}
		assert.Equal(t, []Event{
			Paused{For: 20 * s}, Resumed{Left: 10 * s}, Paused{For: 4750 * ms},
			Paused{For: 20 * s}, Resumed{Left: 10 * s}, Paused{For: 10 * s}, Resumed{Left: 10 * s},
		}, said)
	})
}

// With shared pauses alone, a worker says how its own rate changes.
func TestSharedPauseOnlySaysItsRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var changes []RateChanged
		watch := WithObserver(ObserverFunc(func(_ context.Context, e Event) {
			if e, ok := e.(RateChanged); ok {
				changes = append(changes, e)
			}
		}))
		s := fleet(t, NewMemoryStore(), 1, WithPauseOnly(), WithInitialRate(10), watch)[0]
		calls(t, s, 20)
		time.Sleep(time.Second)
		was := s.Limit()
		letGo(t, s, 1).ends(OutcomeThrottled, 0)
		require.NotEmpty(t, changes)
		assert.Equal(t, RateChanged{From: was, To: s.Limit(), Why: CauseThrottle}, changes[len(changes)-1])
		synctest.Wait()
	})
}

// With shared pauses alone, a wait that the server names stops all, if it is for a throttle
// or a quota; a pause for a throttle that names none stays the worker's own.
func TestSharedPauseOnlyStops(t *testing.T) {
	for _, tt := range []struct {
		name      string
		f         Feedback
		own, rest time.Duration // pauses of the worker, and of another one
	}{
		{"a throttle", Feedback{Outcome: OutcomeThrottled}, 150 * ms, 0}, // by chance
		{"a throttle that says how long", Feedback{Outcome: OutcomeThrottled, RetryAfter: time.Hour}, time.Hour, time.Hour},
		{"a quota that says how long", Feedback{Outcome: OutcomeQuotaExhausted, RetryAfter: time.Hour}, time.Hour, time.Hour},
		{"an error that says how long", Feedback{Outcome: OutcomeTransient, RetryAfter: time.Hour}, 0, 0},
		{"a success that says how long", Feedback{Outcome: OutcomeSuccess, RetryAfter: time.Hour}, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				workers := fleet(t, NewMemoryStore(), 2, append(steady(10), WithPauseOnly(), WithPauseBackoff(steadyPause))...)
				for _, s := range workers {
					calls(t, s, 3)
				}
				time.Sleep(time.Minute)
				require.NoError(t, workers[0].WaitN(t.Context(), 1))
				synctest.Wait()
				tt.f.Sent, tt.f.Cost = time.Now(), 1
				workers[0].Learn(tt.f)
				synctest.Wait()
				assert.InDelta(t, tt.own, workers[0].PauseLeft(), float64(51*ms))
				workers[1].Pause(1) // so that it asks
				synctest.Wait()
				assert.Equal(t, tt.rest, workers[1].PauseLeft().Truncate(ms))
			})
		})
	}
}

func TestSharedResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		workers := fleet(t, NewMemoryStore(), 2, steady(10)...)
		workers[0].Pause(time.Hour)
		synctest.Wait()
		start := time.Now()
		time.AfterFunc(time.Second, workers[0].Resume)
		require.NoError(t, workers[0].WaitN(t.Context(), 1))
		assert.Equal(t, time.Second, time.Since(start))
		require.NoError(t, workers[1].WaitN(t.Context(), 1), "who never knew of the pause")
		assert.InDelta(t, 1.1, time.Since(start).Seconds(), .01)
		workers[1].Pause(time.Minute)
		synctest.Wait()
		require.NoError(t, workers[0].WaitN(t.Context(), 1))
		assert.InDelta(t, 61.1, time.Since(start).Seconds(), .2, "a new pause counts after a resume")
	})
}

// Resume reaches workers that are in the pause already, within a period, if they
// have calls that wait; the others ask nothing meanwhile.
func TestSharedResumeReachesThePaused(t *testing.T) {
	for _, tt := range []struct {
		name string
		opts []SharedOption
	}{
		{"with a shared rate", steady(100)},
		{"pause only", append(steady(100), WithPauseOnly())},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newFaultyStore()
				workers := fleet(t, store, 3, tt.opts...)
				for _, s := range workers {
					s.Pause(time.Hour)
				}
				time.Sleep(syncPeriod)
				synctest.Wait()
				before, start := store.syncs, time.Now()
				var wg sync.WaitGroup
				for _, s := range workers[:2] {
					wg.Go(func() { assert.NoError(t, s.WaitN(t.Context(), 1)) })
				}
				time.Sleep(10 * time.Second)
				synctest.Wait()
				assert.LessOrEqual(t, store.syncs-before, 2*20+3)
				workers[2].Resume()
				wg.Wait()
				assert.LessOrEqual(t, time.Since(start), 10*time.Second+syncPeriod+100*time.Millisecond)
				assert.Zero(t, workers[1].Stats().PauseLeft)
			})
		})
	}
}

// The answer to a sync that was under way when the pause was ended does not bring it back.
func TestSharedResumeWhileAsking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ms = time.Millisecond
		s := fleet(t, &distantStore{Store: NewMemoryStore(), rtt: 80 * ms}, 1, steady(100)...)[0]
		s.Pause(time.Hour)
		start := time.Now()
		time.AfterFunc(600*ms, s.Resume) // it asks from 580 ms on
		time.AfterFunc(670*ms, func() { assert.Zero(t, s.Stats().PauseLeft) })
		require.NoError(t, s.WaitN(t.Context(), 1))
		assert.Equal(t, 740*ms, time.Since(start))
	})
}

// In a pause too, a store that is down is asked less and less often, and the pause
// holds.
func TestSharedPauseWithoutStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFaultyStore()
		s := fleet(t, store, 1, steady(100)...)[0]
		s.Pause(time.Minute)
		synctest.Wait()
		store.fails(down)
		start, before := time.Now(), store.syncs
		require.NoError(t, s.WaitN(t.Context(), 1))
		assert.InDelta(t, time.Minute.Seconds(), time.Since(start).Seconds(), .1)
		synctest.Wait()
		assert.Less(t, store.syncs-before, 32)
		time.Sleep(time.Minute)
	})
}

// One congestion, of which every worker hears many times, cuts the rate once.
func TestSharedCutOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := NewMemoryStore()
		workers := fleet(t, store, 10, WithInitialRate(100))
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		sent := drive(ctx, workers, 2)
		time.Sleep(2 * time.Second)
		was := workers[0].Limit()
		at := time.Now()
		for range 5 {
			for _, s := range workers {
				s.Learn(Feedback{Outcome: OutcomeThrottled, Sent: at, Cost: 1})
			}
			time.Sleep(10 * time.Millisecond)
		}
		synctest.Wait()
		store.mu.Lock()
		state := store.state
		store.mu.Unlock()
		assert.EqualValues(t, 2, state.Epoch)
		assert.Greater(t, state.Rate, int64(was/5*1e6))
		assert.LessOrEqual(t, state.Rate, int64(was*.9*1e6), "it is on its way back already")
		sent()
	})
}

// A throttle that a worker hears while it asks, and is about to be told of the cut, is of
// the congestion that was cut for.
func TestSharedCutOnceWhileAsking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := NewMemoryStore()
		epoch := func() int64 {
			memory.mu.Lock()
			defer memory.mu.Unlock()
			return memory.state.Epoch
		}
		workers := fleet(t, &distantStore{Store: memory, rtt: 40 * ms}, 2, WithInitialRate(10))
		var under []call
		for _, s := range workers {
			calls(t, s, 20)
			under = append(under, letGo(t, s, 1))
		}
		time.Sleep(time.Second)
		under[1].ends(OutcomeThrottled, 0)
		time.Sleep(2 * time.Second)
		require.EqualValues(t, 2, epoch())
		var group sync.WaitGroup
		group.Go(func() { calls(t, workers[0], 1) })
		time.Sleep(10 * ms)
		under[0].ends(OutcomeThrottled, 0)
		group.Wait()
		time.Sleep(time.Second)
		assert.EqualValues(t, 2, epoch())
		workers[0].queue.Lock()
		defer workers[0].queue.Unlock()
		assert.EqualValues(t, 2, workers[0].known.Epoch)
	})
}

// However the store fails, a caller waits for it no longer than the timeout, is
// refused nothing, the server is not taken to have throttled, and the store is asked again.
func TestSharedStoreFails(t *testing.T) {
	nonsense := func(change func(*StoreReply)) func(context.Context, StoreRequest) (StoreReply, error) {
		return func(_ context.Context, q StoreRequest) (StoreReply, error) {
			r := StoreReply{Slots: 1, Span: time.Second, Epoch: 1, Rate: 1, Workers: 1, Count: 1}
			change(&r)
			return r, nil
		}
	}
	for _, tt := range []struct {
		name  string
		fault func(context.Context, StoreRequest) (StoreReply, error)
		wait  time.Duration
		want  string
	}{
		{"down", down, 0, "store is down"},
		{"hangs", hangs, DefaultStoreTimeout, "cruise: store did not answer within the time of WithStoreTimeout"},
		{"slow", func(ctx context.Context, q StoreRequest) (StoreReply, error) {
			<-ctx.Done()
			return StoreReply{}, ctx.Err()
		}, DefaultStoreTimeout, ""},
		{"panics", func(context.Context, StoreRequest) (StoreReply, error) { panic("no memory") }, 0, "cruise: store panicked: no memory"},
		{"exits its goroutine", func(context.Context, StoreRequest) (StoreReply, error) { runtime.Goexit(); return StoreReply{}, nil }, 0, "cruise: store exited its goroutine"},
		{"nothing", nonsense(func(r *StoreReply) { *r = StoreReply{} }), 0, "cruise: store gave epoch 0, rate 0, ceiling 0: want 1 to 4503599627370496, 1 to 1000000000000, 0 or more"},
		{"too many slots", nonsense(func(r *StoreReply) { r.Slots = math.MaxInt }), 0, fmt.Sprintf("cruise: store gave %d slots: want 0 to 1", math.MaxInt)},
		{"negative slots", nonsense(func(r *StoreReply) { r.Slots = -1 }), 0, "cruise: store gave -1 slots: want 0 to 1"},
		{"no span", nonsense(func(r *StoreReply) { r.Span = 0 }), 0, "cruise: store gave slots for 0s: want more than 0, and less than 876000h0m0s"},
		{"slots next year", nonsense(func(r *StoreReply) { r.Wait = clock.Year }), 0, "cruise: store gave slots from 8760h0m0s on: want at most 1s"},
		{"endless pause", nonsense(func(r *StoreReply) { r.Pause = math.MaxInt64 }), 0, "cruise: store gave a pause of 2562047h47m16.854775807s: want 0 to 744h0m0s"},
		{"nobody there", nonsense(func(r *StoreReply) { r.Workers = 0 }), 0, "cruise: store gave 0 workers, level 0, 0 resumes: want 1 or more, 0 or more, 0 or more"},
		{"an epoch after which none could come", nonsense(func(r *StoreReply) { r.Epoch = math.MaxInt64 }), 0, "cruise: store gave epoch 9223372036854775807, rate 1, ceiling 0: want 1 to 4503599627370496, 1 to 1000000000000, 0 or more"},
		{"an error that is a nil pointer", func(context.Context, StoreRequest) (StoreReply, error) {
			var e *net.OpError
			return StoreReply{}, e
		}, 0, "cruise: store panicked: runtime error: invalid memory address or nil pointer dereference"},
		{"negative rate", nonsense(func(r *StoreReply) { r.Rate = -1 }), 0, "cruise: store gave epoch 1, rate -1, ceiling 0: want 1 to 4503599627370496, 1 to 1000000000000, 0 or more"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newFaultyStore()
				store.fails(tt.fault)
				var told []string
				s := Must(NewSharedLimiter(store, WithObserver(ObserverFunc(func(_ context.Context, e Event) { told = append(told, fmt.Sprintf("%T", e)) }))))
				start := time.Now()
				require.NoError(t, s.WaitN(t.Context(), 1))
				assert.Equal(t, tt.wait, time.Since(start))
				synctest.Wait()
				st := s.Stats()
				assert.True(t, st.Degraded)
				assert.Equal(t, []string{"cruise.StoreDegraded"}, told)
				assert.Zero(t, st.Throttles)
				require.Error(t, st.Err)
				if tt.want != "" {
					assert.EqualError(t, st.Err, tt.want)
				}
				time.Sleep(2 * time.Hour) // a hanging sync ends
				store.fails(func(context.Context, StoreRequest) (StoreReply, error) { return StoreReply{}, errBusy })
				require.NoError(t, s.WaitN(t.Context(), 1))
				synctest.Wait()
				assert.Equal(t, errBusy, s.Stats().Err, "the last one counts")
				time.Sleep(time.Hour)
				store.fails(nil)
				require.NoError(t, s.WaitN(t.Context(), 1))
				synctest.Wait()
				assert.False(t, s.Stats().Degraded)
			})
		})
	}
}

// Whatever a store gives, nobody is faster than their own maximum rate.
func TestSharedStoreGivesTooMuch(t *testing.T) {
	for _, tt := range []struct {
		name  string
		cost  int
		reply func(q StoreRequest) StoreReply
	}{
		{"at once", 1, func(q StoreRequest) StoreReply { return StoreReply{Slots: q.Want, Span: 1, Epoch: 1} }},
		{"at once, for calls that cost more", 7, func(q StoreRequest) StoreReply { return StoreReply{Slots: q.Want, Span: 1, Epoch: 1} }},
		{"saved for a year", 1, func(q StoreRequest) StoreReply {
			return StoreReply{Slots: q.Want, Wait: -clock.Year, Span: time.Hour, Epoch: 1}
		}},
		{"anew each time", 1, func(q StoreRequest) StoreReply {
			return StoreReply{Slots: q.Want, Span: time.Duration(q.Want) * time.Second / 10, Epoch: q.Epoch + 1}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newFaultyStore()
				store.fails(func(_ context.Context, q StoreRequest) (StoreReply, error) {
					r := tt.reply(q)
					r.Rate, r.Ceiling, r.Workers, r.Count = 1e12, 1, 1, 1
					return r, nil
				})
				s := Must(NewSharedLimiter(store, WithMaxRate(10)))
				const lasts = time.Minute
				ctx, cancel := context.WithTimeout(t.Context(), lasts)
				defer cancel()
				var sent atomic.Int64
				var all sync.WaitGroup
				for range 20 {
					all.Go(func() {
						for s.WaitN(ctx, tt.cost) == nil {
							sent.Add(int64(tt.cost))
							s.Learn(Feedback{Outcome: OutcomeSuccess, Cost: tt.cost, Sent: time.Now()})
							time.Sleep(time.Millisecond)
						}
					})
				}
				all.Wait()
				// A second's worth may have been late, one call saved, and another one be
				// under way.
				assert.LessOrEqual(t, sent.Load(), int64(10*(lasts+slotLife).Seconds())+1+int64(tt.cost))
				assert.Greater(t, sent.Load(), int64(10*lasts.Seconds()*.9))
				assert.EqualValues(t, 10, s.Limit())

				store.fails(down) // nor does the share begin above it
				time.Sleep(slotLife)
				require.NoError(t, s.WaitN(t.Context(), 1))
				synctest.Wait()
				assert.True(t, s.Stats().Degraded)
				assert.LessOrEqual(t, s.Limit(), rate.Limit(10))
			})
		})
	}
}

// Workers that share pauses alone do so at whatever rate: no store is told one of 0.
func TestSharedPauseOnlyIsForAnyRate(t *testing.T) {
	for _, most := range []rate.Limit{rate.Every(clock.Year), 1e-6, 1e9, rate.Inf} {
		synctest.Test(t, func(t *testing.T) {
			store := NewMemoryStore()
			a := Must(NewSharedLimiter(store, WithPauseOnly(), WithMaxRate(most)))
			b := Must(NewSharedLimiter(store, WithPauseOnly()))
			a.Pause(time.Minute)
			synctest.Wait()
			began := time.Now()
			letGo(t, b, 1).ends(OutcomeSuccess, 0)
			assert.Equal(t, time.Minute, time.Since(began), "%v", most)
			synctest.Wait()
			assert.NoError(t, a.Stats().Err, "%v", most)
			assert.NoError(t, b.Stats().Err, "%v", most)
		})
	}
}

// A limiter that loses its store keeps to its share, comes back by itself, and
// sends no burst at any time.
func TestSharedOutage(t *testing.T) {
	for _, tt := range []struct {
		name     string
		fallback Fallback
		fewest   int // calls in the outage, at most
		most     int
	}{
		{"share", FallbackShare, 800, 1200},
		{"closed", FallbackClosed, 0, 10},
		{"open", FallbackOpen, 10_000, math.MaxInt},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newFaultyStore()
				var mu sync.Mutex
				var events []Event
				watch := WithObserver(ObserverFunc(func(_ context.Context, e Event) {
					mu.Lock()
					defer mu.Unlock()
					switch e.(type) {
					case StoreDegraded, StoreRecovered:
						events = append(events, e)
					}
				}))
				workers := append(fleet(t, store, 9, append(steady(100), WithFallback(tt.fallback))...),
					fleet(t, store, 1, append(steady(100), WithFallback(tt.fallback), watch)...)...)
				ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
				defer cancel()
				sent := drive(ctx, workers, 2)
				time.Sleep(10 * time.Second)
				store.fails(down)
				broken := time.Now()
				time.Sleep(10 * time.Second)
				for _, s := range workers {
					assert.True(t, s.Stats().Degraded)
					if tt.fallback == FallbackShare {
						assert.InDelta(t, 10, float64(s.Limit()), 2, "a tenth of the rate for each")
					}
				}
				store.fails(nil)
				back := time.Now()
				time.Sleep(10 * time.Second)
				for _, s := range workers {
					assert.False(t, s.Stats().Degraded)
					assert.NoError(t, s.Stats().Err)
					assert.Equal(t, rate.Limit(100), s.Limit())
				}
				times := sent()
				got := countIn(times, broken.Add(time.Second), 9*time.Second)
				assert.GreaterOrEqual(t, got, tt.fewest)
				assert.LessOrEqual(t, got, tt.most)
				if tt.fallback != FallbackOpen {
					for at := broken.Add(-2 * time.Second); at.Before(back.Add(15 * time.Second)); at = at.Add(100 * time.Millisecond) {
						assert.LessOrEqual(t, countIn(times, at, time.Second), 130, "calls in the second from %v after the store broke", at.Sub(broken))
					}
				}
				require.Len(t, events, 2)
				assert.Equal(t, StoreDegraded{errDown}, events[0])
				assert.InDelta(t, 12.5, events[1].(StoreRecovered).After.Seconds(), 3.3)
			})
		})
	}
}

// A call that waits for several slots of a slow limit keeps those that it has when a sync fails
// now and then, as one by a connection that has died.
func TestSharedSyncsThatFailNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFaultyStore()
		good, n := NewMemoryStore(), 0
		store.fails(func(ctx context.Context, q StoreRequest) (StoreReply, error) {
			if n++; n%10 == 0 {
				return StoreReply{}, errDown
			}
			return good.Sync(ctx, q)
		})
		told := 0
		watch := WithObserver(ObserverFunc(func(_ context.Context, e Event) {
			if _, away := e.(StoreDegraded); away {
				told++
			}
		}))
		s := fleet(t, store, 1, append(steady(rate.Every(25*time.Second)), watch)...)[0]
		start := time.Now()
		for range 10 {
			require.NoError(t, s.WaitN(t.Context(), 3))
			s.Learn(Feedback{Outcome: OutcomeSuccess, Sent: time.Now(), Cost: 3})
		}
		assert.LessOrEqual(t, time.Since(start), 30*25*time.Second)
		synctest.Wait()
		assert.Greater(t, n, 100)
		assert.Zero(t, told)
		time.Sleep(time.Minute)
	})
}

// Both tries of a sync have no longer than one: nobody waits longer for a store that fails late.
func TestSharedSecondTryIsWithinTheTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFaultyStore()
		first := true
		store.fails(func(ctx context.Context, q StoreRequest) (StoreReply, error) {
			if first {
				first = false
				time.Sleep(DefaultStoreTimeout * 9 / 10)
				return StoreReply{}, errDown
			}
			<-ctx.Done()
			return StoreReply{}, ctx.Err()
		})
		s := fleet(t, store, 1)[0]
		begun := time.Now()
		require.NoError(t, s.WaitN(t.Context(), 1))
		assert.Equal(t, DefaultStoreTimeout, time.Since(begun))
		assert.True(t, s.Stats().Degraded)
		time.Sleep(time.Minute)
	})
}

// slowContext is one that takes as long to tell its deadline as all else takes.
type slowContext struct{ context.Context }

func (c slowContext) Deadline() (time.Time, bool) {
	synctest.Wait()
	return c.Context.Deadline()
}

// The first try may fail before the call that it asks for is in line.
func TestSharedSecondTryAsksForTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFaultyStore()
		var asked []int
		store.fails(func(ctx context.Context, q StoreRequest) (StoreReply, error) {
			if asked = append(asked, q.Want); len(asked) == 1 {
				return StoreReply{}, errDown
			}
			return store.Store.Sync(ctx, q)
		})
		s := fleet(t, store, 1)[0]
		require.NoError(t, s.WaitN(slowContext{t.Context()}, 3))
		assert.Equal(t, []int{3, 3}, asked)
	})
}

// Who is slow to hear that the store is away does not hear that it is back before.
func TestSharedOutageIsToldInOrder(t *testing.T) {
	for _, tt := range []struct {
		name  string
		syncs int // that fail
		fault func(context.Context, StoreRequest) (StoreReply, error)
	}{
		{"errors", 2, down},
		{"no answer in time", 1, func(context.Context, StoreRequest) (StoreReply, error) {
			time.Sleep(DefaultStoreTimeout + time.Millisecond)
			return StoreReply{}, errDown
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newFaultyStore()
				var mu sync.Mutex
				var told []string
				watch := WithObserver(ObserverFunc(func(_ context.Context, e Event) {
					if _, away := e.(StoreDegraded); away {
						time.Sleep(time.Second)
					} else if _, back := e.(StoreRecovered); !back {
						return
					}
					mu.Lock()
					defer mu.Unlock()
					told = append(told, fmt.Sprintf("%T", e))
				}))
				workers := fleet(t, store, 1, append(steady(100), watch)...)
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				sent := drive(ctx, workers, 2)
				time.Sleep(time.Second)
				left := tt.syncs
				store.fails(func(ctx context.Context, q StoreRequest) (StoreReply, error) {
					if left--; left == 0 {
						store.fails(nil)
					}
					return tt.fault(ctx, q)
				})
				sent()
				assert.Equal(t, []string{"cruise.StoreDegraded", "cruise.StoreRecovered"}, told)
			})
		})
	}
}

// An observer that ends the goroutine in which it is told, as a failed assertion does,
// hears what comes after.
func TestSharedObserverThatEndsItsGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFaultyStore()
		var back atomic.Bool
		s := fleet(t, store, 1, append(steady(100), WithObserver(ObserverFunc(func(_ context.Context, e Event) {
			switch e.(type) {
			case StoreDegraded:
				runtime.Goexit()
			case StoreRecovered:
				back.Store(true)
			}
		})))...)[0]
		require.NoError(t, s.WaitN(t.Context(), 1))
		store.fails(down)
		s.Pause(time.Millisecond) // which it tells at once
		time.Sleep(time.Second)
		store.fails(nil)
		require.NoError(t, s.WaitN(t.Context(), 1))
		time.Sleep(10 * time.Second)
		require.NoError(t, s.WaitN(t.Context(), 1))
		time.Sleep(time.Second)
		assert.True(t, back.Load())
	})
}

// What a sync that failed had to tell is told by the next one, whether the store has
// heard it or not: it knows the same in the end as if none had failed.
func TestSharedToldAgain(t *testing.T) {
	learn := func(f Feedback) func(*SharedLimiter) {
		return func(s *SharedLimiter) {
			f.Sent, f.Cost = time.Now(), 1
			s.Learn(f)
		}
	}
	throttled := learn(Feedback{Outcome: OutcomeThrottled})
	stopped := learn(Feedback{Outcome: OutcomeThrottled, RetryAfter: time.Minute})
	for _, tt := range []struct {
		name     string
		pause    time.Duration          // of everyone, before
		do, then func(s *SharedLimiter) // then while the first sync is under way
		epoch    int64
		left     time.Duration // of the pause, half a minute later
	}{
		{"a throttle", 0, throttled, nil, 2, 0},
		{"a pause", 0, stopped, nil, 2, time.Minute / 2},
		{"the end of a pause", time.Hour, (*SharedLimiter).Resume, nil, 1, 0},
		{"a pause, and its end", 0, stopped, (*SharedLimiter).Resume, 2, 0},
		{"the end of a pause, and a shorter one", time.Hour, (*SharedLimiter).Resume, stopped, 2, time.Minute / 2},
	} {
		for _, lost := range []struct {
			name  string
			syncs int
			heard bool
		}{
			{"no sync fails", 0, false},
			{"one fails", 1, false},
			{"the answer to one is lost", 1, true},
			{"some fail", 5, false},
			{"the answers to some are lost", 5, true},
		} {
			t.Run(tt.name+", "+lost.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store := newFaultyStore()
					memory := store.Store.(*MemoryStore)
					s := fleet(t, store, 1, WithMaxRate(10))[0]
					for range 30 {
						require.NoError(t, s.WaitN(t.Context(), 1))
						learn(Feedback{Outcome: OutcomeSuccess})(s)
					}
					s.Pause(tt.pause)
					time.Sleep(time.Second)
					fails, told := lost.syncs, make(chan struct{})
					store.fails(func(ctx context.Context, q StoreRequest) (StoreReply, error) {
						<-told
						if fails--; fails >= 0 && !lost.heard {
							return StoreReply{}, errDown
						}
						r, err := memory.Sync(ctx, q)
						if fails >= 0 {
							err = errDown
						}
						return r, err
					})
					tt.do(s)
					if tt.then != nil {
						tt.then(s)
					}
					close(told)
					for range 300 {
						time.Sleep(100 * time.Millisecond)
						s.queue.Lock()
						s.begin(s.queue.Now(), 0)
						s.queue.Unlock()
					}
					synctest.Wait()
					assert.Equal(t, tt.left, s.Stats().PauseLeft)
					assert.EqualValues(t, lost.syncs, s.Stats().Failures)
					r, err := memory.Sync(t.Context(), StoreRequest{Law: s.sharedLaw})
					require.NoError(t, err)
					assert.Equal(t, tt.left, r.Pause)
					assert.Equal(t, tt.epoch, r.Epoch)
				})
			})
		}
	}
}

// While the store is down, the limit is what this worker keeps to. A throttle that was not
// told cuts its share.
func TestSharedLimitWithoutStore(t *testing.T) {
	const throttled, not = true, false
	for _, tt := range []struct {
		name      string
		throttled bool
		opts      []SharedOption
		want      rate.Limit
		pause     time.Duration
	}{
		{"share", not, nil, 5, 0},
		{"share, after a throttle", throttled, nil, 2.5, 1600 * ms},
		{"closed", not, []SharedOption{WithFallback(FallbackClosed)}, 0, 0},
		{"open", not, []SharedOption{WithFallback(FallbackOpen)}, rate.Inf, 0},
		{"pause only", not, []SharedOption{WithPauseOnly()}, 10, 0},
		{"pause only, closed", not, []SharedOption{WithPauseOnly(), WithFallback(FallbackClosed)}, 10, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				long := Must(NewBackoff(WithBase(time.Hour), WithMaxDelay(time.Hour), WithJitter(NoJitter())))
				store := newFaultyStore()
				workers := fleet(t, store, 2, append(tt.opts, WithInitialRate(10), WithMaxRate(10), WithPauseBackoff(long))...)
				assert.EqualValues(t, 10, workers[0].Limit(), "before the first call")
				for _, s := range append(workers, workers[0]) {
					require.NoError(t, s.WaitN(t.Context(), 2))
					time.Sleep(time.Second)
					s.Learn(Feedback{Outcome: OutcomeSuccess, Sent: time.Now(), Cost: 2})
				}
				synctest.Wait()
				assert.EqualValues(t, 10, workers[0].Limit())
				store.fails(down)
				s := workers[0]
				if tt.throttled {
					s.Learn(Feedback{Outcome: OutcomeThrottled, Sent: time.Now(), Cost: 2}) // which it tells at once
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

// A call that could not go before its deadline is refused at once, whether it has its slots
// or the store gives them out as fast as it can.
func TestSharedDeadline(t *testing.T) {
	for _, tt := range []struct {
		name  string
		slots int           // of ten a second in hand
		cost  int           // of the call
		after time.Duration // until it might go
	}{
		{"the slots are there", 5, 3, 300 * ms},
		{"some are missing", 5, 16, time.Second},
	} {
		for _, left := range []time.Duration{tt.after - ms, tt.after + ms} {
			t.Run(fmt.Sprintf("%s, %v left", tt.name, left), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store := &distantStore{Store: NewMemoryStore(), rtt: ms} // whose answer comes after the look at deadlines
					s := fleet(t, store, 1, steady(10)...)[0]
					require.NoError(t, s.WaitN(t.Context(), 1))
					synctest.Wait()
					now := clock.Now()
					s.slots.add(now, now.Add(100*ms), 100*ms, tt.slots)
					ctx, cancel := context.WithTimeout(t.Context(), left)
					defer cancel()
					err := s.WaitN(ctx, tt.cost)
					assert.Equal(t, left < tt.after, errors.Is(err, ErrDeadline) && clock.Now() == now, "%v", err)
					time.Sleep(time.Minute) // for the last syncs
				})
			})
		}
	}
}

// Where nobody goes without the store, whoever could not wait until it is asked again is
// told so at once.
func TestSharedDeadlineWithoutStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFaultyStore()
		store.fails(down)
		s := fleet(t, store, 1, WithFallback(FallbackClosed))[0]
		wait := func(left time.Duration) (time.Duration, error) {
			ctx, cancel := context.WithTimeout(t.Context(), left)
			defer cancel()
			start := time.Now()
			err := s.WaitN(ctx, 1)
			return time.Since(start), err
		}
		_, err := wait(20 * time.Second)
		require.ErrorIs(t, err, ErrDeadline)
		again := s.next.Sub(clock.Now())
		require.Greater(t, again, 2*ms)
		took, err := wait(again - ms)
		require.ErrorIs(t, err, ErrDeadline)
		assert.Zero(t, took)
		store.fails(nil)
		took, err = wait(again + ms)
		require.NoError(t, err)
		assert.Equal(t, again, took)
		time.Sleep(time.Minute) // for the last syncs
	})
}

// Before the first throttle the rate grows by e a second: whoever would go in time by that
// is not refused by what the rate is now.
func TestSharedDeadlineAtTheBeginning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := Must(NewSharedLimiter(NewMemoryStore()))
		call := func(ctx context.Context) error {
			if err := s.WaitN(ctx, 1); err != nil {
				return err
			}
			sent := time.Now()
			time.Sleep(50 * ms)
			s.Learn(Feedback{Outcome: OutcomeSuccess, Sent: sent, Cost: 1})
			return nil
		}
		var group sync.WaitGroup
		for range 100 {
			group.Go(func() { _ = call(t.Context()) })
		}
		time.Sleep(200 * ms)
		for deadline, want := range map[time.Duration]error{6 * time.Second: nil, time.Second: ErrDeadline} {
			group.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), deadline)
				defer cancel()
				assert.ErrorIs(t, call(ctx), want)
			})
		}
		group.Wait()
		time.Sleep(time.Minute) // for the last syncs
	})
}

// Before the first throttle others may have taken the rate far up since the last sync: whoever
// would go in time by that is not refused by what the rate was then.
func TestSharedDeadlineAtTheBeginningOfOthers(t *testing.T) {
	for idle, want := range map[time.Duration]error{9 * time.Second: nil, 100 * ms: ErrDeadline} {
		t.Run(idle.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				workers := fleet(t, nearStore(), 2)
				ctx, cancel := context.WithCancel(t.Context())
				var group sync.WaitGroup
				load(ctx, &group, workers[1], newTokenServer(1e6), 1000)
				time.Sleep(time.Second)
				require.NoError(t, workers[0].WaitN(t.Context(), 1))
				time.Sleep(idle)
				in, done := context.WithTimeout(ctx, time.Second)
				assert.ErrorIs(t, workers[0].WaitN(in, 100), want)
				done()
				cancel()
				group.Wait()
				time.Sleep(time.Minute) // for the last syncs
			})
		})
	}
}

// Whoever has not asked for long refuses nobody by the rate of that time, before the store
// has told that of today.
func TestSharedDeadlineAtARateOfLongAgo(t *testing.T) {
	for _, tt := range []struct {
		name    string
		now     rate.Limit // 1 call a second was the rate before
		refused int        // of ten calls that have 5.5 s
	}{
		{"it is higher", 100, 0},
		{"it is the same", 1, 3},
		{"it is lower", .5, 6},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &MemoryStore{begun: clock.Now()}
				s := fleet(t, &distantStore{Store: store, rtt: ms}, 1, WithInitialRate(1))[0]
				require.NoError(t, s.WaitN(t.Context(), 1))
				time.Sleep(time.Minute)
				store.state.Rate, store.state.Ceiling = microRate(tt.now), microRate(tt.now) // by what others told
				ctx, cancel := context.WithTimeout(t.Context(), 5500*ms)
				defer cancel()
				start := time.Now()
				var group sync.WaitGroup
				var refused atomic.Int64
				for range 10 {
					group.Go(func() {
						if errors.Is(s.WaitN(ctx, 1), ErrDeadline) && time.Since(start) <= ms {
							refused.Add(1)
						}
					})
				}
				group.Wait()
				assert.EqualValues(t, tt.refused, refused.Load())
				time.Sleep(time.Minute) // for the last syncs
			})
		})
	}
}

// A worker that shares pauses alone waits for news only if its last are older than two
// periods.
func TestSharedPauseOnlyWaitsForNews(t *testing.T) {
	for old, want := range map[time.Duration]time.Duration{syncPeriod - ms: 0, syncPeriod: 0, 2*syncPeriod - ms: 0, 2 * syncPeriod: 80 * ms} {
		synctest.Test(t, func(t *testing.T) {
			store := &distantStore{Store: NewMemoryStore(), rtt: 80 * ms}
			s := fleet(t, store, 1, append(steady(1000), WithPauseOnly())...)[0]
			require.NoError(t, s.WaitN(t.Context(), 1))
			synctest.Wait()
			syncs := store.syncs
			time.Sleep(old)
			start := time.Now()
			require.NoError(t, s.WaitN(t.Context(), 1))
			assert.Equal(t, want, time.Since(start), "news of %v ago", old)
			time.Sleep(time.Second)
			synctest.Wait()
			assert.Equal(t, old >= syncPeriod, store.syncs > syncs, "news of %v ago", old)
		})
	}
}

// A store that has lost its state gives no slots out that a worker has already.
func TestSharedSlotsOutliveTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFaultyStore()
		s := fleet(t, store, 1, steady(10)...)[0]
		require.NoError(t, s.WaitN(t.Context(), 1))
		synctest.Wait()
		now := clock.Now()
		s.slots.drop()
		s.slots.add(now, now.Add(300*ms), 100*ms, 5)
		store.mu.Lock()
		store.Store = NewMemoryStore()
		store.mu.Unlock()
		s.queue.Lock()
		s.next = now
		s.begin(now, 0)
		s.queue.Unlock()
		synctest.Wait()
		newcomer := fleet(t, store, 1, steady(10)...)[0]
		require.NoError(t, newcomer.WaitN(t.Context(), 1))
		assert.Equal(t, 800*ms, clock.Now().Sub(now))
	})
}

// Probes of a store that is down get rarer, and stop where nobody calls.
func TestSharedProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFaultyStore()
		store.fails(down)
		s := Must(NewSharedLimiter(store, WithFallback(FallbackClosed)))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		assert.ErrorIs(t, s.WaitN(ctx, 1), context.DeadlineExceeded)
		cancel()
		n := store.syncs
		assert.Greater(t, n, 12)
		assert.Less(t, n, 32)
		time.Sleep(time.Hour)
		assert.Equal(t, n, store.syncs)
		store.fails(nil)
		require.NoError(t, s.WaitN(t.Context(), 1))
	})
}

// A store that comes back empty is told rate, epoch and pause by those who know.
func TestSharedStoreLosesAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFaultyStore()
		workers := fleet(t, store, 3, WithInitialRate(100))
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		sent := drive(ctx, workers, 5)
		time.Sleep(2 * time.Second)
		workers[0].Learn(Feedback{Outcome: OutcomeThrottled, Sent: time.Now(), Cost: 1, RetryAfter: 10 * time.Second})
		until := time.Now().Add(10 * time.Second)
		time.Sleep(2 * time.Second)
		was := workers[0].Limit()
		store.mu.Lock()
		store.Store = NewMemoryStore()
		store.mu.Unlock()
		workers[1].Learn(Feedback{Outcome: OutcomeSuccess, Sent: time.Now(), Cost: 1}) // the first, so it is told

		newcomer := Must(NewSharedLimiter(store))
		synctest.Wait()
		require.NoError(t, newcomer.WaitN(ctx, 1))
		assert.InDelta(t, 0, time.Since(until).Seconds(), .2, "who knew nothing heeds the pause")
		assert.InDelta(t, float64(was), float64(newcomer.Limit()), float64(was)/4)
		sent()
	})
}

// Scopes with shared limiters stand within each other like others.
func TestSharedScopes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		stores := map[string]Store{}
		process := func() *Retrier {
			return Must(New(
				WithLimiter(Must(NewSharedLimiter(storeOf(&mu, stores, "DEVELOPER"), steady(100)...))),
				WithScopeLimiter(func(scope, key string) (Limiter, error) {
					return NewSharedLimiter(storeOf(&mu, stores, scope+key), steady(10)...)
				})))
		}
		one, other := process(), process()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		var wg sync.WaitGroup
		counts := make([]atomic.Int64, 3)
		for _, r := range []*Retrier{one, other} {
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

// What is saved for a call that costs much stays saved when others go first, also where the
// limiter is of this worker alone.
func TestSharedSavesForALargeCost(t *testing.T) {
	for name, opts := range map[string][]SharedOption{
		"pauses alone": {WithPauseOnly()},
		"store down":   {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newFaultyStore()
				store.fails(down)
				r := Must(New(WithLimiter(Must(NewSharedLimiter(store, append(opts, WithInitialRate(10), WithMaxRate(10))...)))))
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				go func() {
					for ctx.Err() == nil {
						time.Sleep(3 * time.Second)
						_ = r.Do(ctx, ok)
					}
				}()
				start := time.Now()
				assert.NoError(t, r.Do(ctx, ok, WithBackground(), WithCost(100)))
				assert.InDelta(t, 10.2, time.Since(start).Seconds(), .2)
				time.Sleep(time.Hour) // for the last syncs
			})
		})
	}
}

// A call that a limit around its own holds up for long keeps its slots, and its place: so
// each scope has its turn, whatever its calls cost and however many wait in it.
func TestSharedScopesHaveTheirTurnsBehindASlowLimit(t *testing.T) {
	shared := func(limit rate.Limit) (Limiter, error) { return NewSharedLimiter(NewMemoryStore(), steady(limit)...) }
	for name, around := range map[string]func() (Limiter, error){
		"shared": func() (Limiter, error) { return shared(3) },
		"bucket": func() (Limiter, error) { return NewTokenBucket(3, 10) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				developer := Must(New(WithLimiter(Must(around())),
					WithScopeLimiter(func(string, string) (Limiter, error) { return shared(40) })))
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
							}, WithCost(cost)) == nil {
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
func TestSharedPauseOnlyHasItsTurnsBehindASlowLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		developer := Must(New(WithLimiter(Must(NewTokenBucket(.5, 1))), WithScopeLimiter(func(_, account string) (Limiter, error) {
			if account == "shared" {
				return NewSharedLimiter(nearStore(), append(steady(100), WithPauseOnly())...)
			}
			return NewTokenBucket(100, 1)
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

// A hundred thousand callers are one sync, and leave nothing behind.
func TestSharedCrowdLeaves(t *testing.T) {
	crowd := 100_000
	if calm.Raced {
		crowd = 10_000 // a waiting goroutine takes more than 10 KB then
	}
	synctest.Test(t, func(t *testing.T) {
		store := newFaultyStore()
		store.fails(hangs)
		s := Must(NewSharedLimiter(store, WithFallback(FallbackClosed)))
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range crowd {
			wg.Go(func() { assert.ErrorIs(t, s.WaitN(ctx, 1), context.Canceled) })
		}
		synctest.Wait()
		assert.Equal(t, crowd, s.Stats().Waiting)
		assert.Equal(t, 1, store.syncs)
		time.Sleep(time.Minute)
		cancel()
		wg.Wait()
		assert.Zero(t, s.Stats().Waiting)
		assert.Equal(t, 1, store.syncs)
		time.Sleep(time.Hour)
	})
}

// A worker that was stopped for a while sends nothing by slots of before.
func TestSharedStaleSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFaultyStore()
		s := fleet(t, store, 1, steady(100)...)[0]
		for range 200 {
			require.NoError(t, s.WaitN(t.Context(), 1))
		}
		require.Positive(t, s.slots.n)
		time.Sleep(10 * time.Second)
		store.fails(hangs)
		start := time.Now()
		require.NoError(t, s.WaitN(t.Context(), 1))
		assert.GreaterOrEqual(t, time.Since(start), DefaultStoreTimeout)
		time.Sleep(2 * time.Hour)
	})
}

// A cost that no call can have had counts as the highest.
func TestSharedLearnsOfNoCostThatWasNeverLetGo(t *testing.T) {
	for _, outcome := range []Outcome{OutcomeSuccess, OutcomeTransient, OutcomeThrottled} {
		synctest.Test(t, func(t *testing.T) {
			store, good := newFaultyStore(), NewMemoryStore()
			told := int64(0)
			store.fails(func(ctx context.Context, q StoreRequest) (StoreReply, error) {
				told += q.Successes + q.Failed + q.Throttles
				return good.Sync(ctx, q)
			})
			s := fleet(t, store, 1)[0]
			for range 3 {
				s.Learn(Feedback{Outcome: outcome, Sent: time.Now(), Cost: math.MaxInt})
			}
			for range 20 {
				require.NoError(t, s.WaitN(t.Context(), 1))
				time.Sleep(time.Second)
			}
			assert.Equal(t, int64(3*sharedMostCost), told)
		})
	}
}

// Slots that were saved up are due together, and void together, however long ago.
func TestSharedSavedSlotsExpire(t *testing.T) {
	const second = clock.Instant(time.Second)
	for after, want := range map[clock.Instant]int{second: 100, 3 * second: 69, 7 * second / 2: 64, 8 * second: 19, 3600 * second: 0} {
		var l leases
		now := 3600 * second
		l.add(now, now-second, 100*time.Millisecond, 100)
		l.expire(now+after, 1, slotLife)
		assert.Equal(t, want, l.n, "%v later", time.Duration(after))
	}
}

// A worker whose store is back keeps to its share for as long as the others may need to come
// back, not for as long as the next call at that share would take.
func TestSharedGoesOnAfterAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFaultyStore()
		answers := func(_ context.Context, q StoreRequest) (StoreReply, error) {
			return StoreReply{Slots: q.Want, Span: time.Second, Epoch: 1, Rate: 10e6, Ceiling: 10e6, Workers: 1000, Count: 1}, nil
		}
		store.fails(answers)
		s := fleet(t, store, 1)[0]
		require.NoError(t, s.WaitN(t.Context(), 1))
		time.Sleep(2 * time.Second)

		store.fails(down)
		time.AfterFunc(time.Second, func() { store.fails(answers) })
		begun := time.Now()
		require.NoError(t, s.WaitN(t.Context(), 1))
		assert.Less(t, time.Since(begun), 8*time.Second, "a call at its share takes 100 s")
	})
}

// After a machine stood still, calls that waited do not all go at once by the slots
// that they have missed; calls that come later than their slots do. Of slots that are
// far apart one is left.
func TestSharedLateTimer(t *testing.T) {
	const ms = time.Millisecond
	for _, tt := range []struct {
		name    string
		gap     time.Duration // between slots
		waiting int           // calls in line while the slots came due
		late    time.Duration // after the time of the first one
		want    int           // slots of ten that are left
	}{
		{"a timer on time", 10 * ms, 1, 0, 10},
		{"late as timers are", 10 * ms, 1, 50 * ms, 10},
		{"later than that", 10 * ms, 1, 85 * ms, 6},
		{"much later", 10 * ms, 1, 500 * ms, 0},
		{"a call that comes after slots were due", 10 * ms, 0, 500 * ms, 10},
		{"a call that comes too late for some", 10 * ms, 0, 1035 * ms, 6},
		{"until the next slot is due", 3000 * ms, 1, 3000 * ms, 10},
		{"later than that, and slots are far apart", 3000 * ms, 1, 3001 * ms, 9},
		{"much later, and slots are far apart", 3000 * ms, 1, 14_000 * ms, 6},
		{"a call that comes until the next slot is due", 3000 * ms, 0, 3000 * ms, 10},
		{"a call that comes too late for some, and slots are far apart", 3000 * ms, 0, 14_000 * ms, 6},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := fleet(t, NewMemoryStore(), 1, steady(rate.Every(tt.gap))...)[0]
				now := clock.Now()
				s.syncedAt, s.next = now, now.Add(time.Hour) // asks for none
				s.slots.add(now, now.Add(10*ms), tt.gap, 10)
				if tt.waiting > 0 {
					require.Equal(t, 10*ms, s.slot(now, 1))
				}
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				if tt.waiting > 0 {
					s.queue.Pause(now, now.Add(time.Hour)) // so that it waits
					go func() { _ = s.WaitN(ctx, 1) }()
					synctest.Wait()
				}
				s.slot(now.Add(10*ms+tt.late), 1)
				assert.Equal(t, tt.want, s.slots.n)
			})
		})
	}
}

// Limiters within a slow one, whose own slots are void each time that of the slow one
// is due, come back for it in time, whoever is first and whatever the calls cost.
func TestSharedWithinASlowOne(t *testing.T) {
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
				limiter := func(every time.Duration) *SharedLimiter {
					return fleet(t, &distantStore{Store: NewMemoryStore(), rtt: tt.rtt}, 1, steady(rate.Every(every))...)[0]
				}
				r := Must(New(WithLimiter(limiter(tt.every)), WithScopeLimiter(func(_, key string) (Limiter, error) {
					if key == "background" {
						return limiter(37 * time.Millisecond), nil
					}
					return limiter(25 * time.Millisecond), nil
				})))
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				start := time.Now()
				var wg sync.WaitGroup
				run := func(key string, opts ...CallOption) {
					for range tt.calls {
						wg.Go(func() {
							assert.NoError(t, r.Scope("ACCOUNT", key).Do(ctx, func(context.Context) error { return nil }, opts...))
						})
					}
				}
				run("background", WithBackground(), WithCost(tt.costs[0]))
				run("other", WithCost(tt.costs[1]))
				wg.Wait()
				assert.LessOrEqual(t, time.Since(start), time.Duration(tt.most)*tt.every+time.Second)
				time.Sleep(time.Minute) // for the last syncs
			})
		})
	}
}

// A shared limit within another one gives its calls what both give, whatever they cost and
// however long each waits for the slots of the other.
func TestSharedWithinAnother(t *testing.T) {
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
			synctest.Test(t, func(t *testing.T) {
				outer, inner := NewMemoryStore(), make([]*MemoryStore, tt.accounts)
				for i := range inner {
					inner[i] = NewMemoryStore()
				}
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
				defer cancel()
				var mu sync.Mutex
				var went []time.Time // of each unit
				var wg sync.WaitGroup
				var around *SharedLimiter
				for range tt.workers {
					around = fleet(t, outer, 1, steady(tt.outer)...)[0]
					r := Must(New(WithLimiter(around), WithScopeLimiter(func(_, account string) (Limiter, error) {
						return NewSharedLimiter(inner[account[0]], steady(tt.inner)...)
					})))
					for i := range 3 * tt.accounts {
						scope := r.Scope("ACCOUNT", string(rune(i%tt.accounts)))
						wg.Go(func() {
							for err := error(nil); err == nil; {
								cost := cmp.Or(tt.cost, 1+rand.IntN(3))
								err = scope.Do(ctx, func(context.Context) error {
									mu.Lock()
									defer mu.Unlock()
									went = append(went, slices.Repeat([]time.Time{time.Now()}, cost)...)
									return nil
								}, WithCost(cost))
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

// Before the first throttle, a success of a worker that is short of slots is told at
// once, so that the rate which the server gives is known when that comes.
func TestSharedReportsAtOnce(t *testing.T) {
	for _, tt := range []struct {
		name    string
		ceiling int64
		rate    int64
		slots   int           // that are left
		next    time.Duration // when it asks for more
		want    int           // syncs
	}{
		{"short of slots", 0, 10e6, 0, time.Second, 1},
		{"the limit is found", 10e6, 10e6, 0, time.Second, 0},
		{"the rate is at its maximum", 0, 20e6, 0, time.Second, 0},
		{"slots are left, with the last of which it syncs", 0, 10e6, 1, time.Second, 0},
		{"it syncs with the next call", 0, 10e6, 0, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newFaultyStore()
				s := fleet(t, store, 1, WithInitialRate(10), WithMaxRate(20))[0]
				require.NoError(t, s.WaitN(t.Context(), 1))
				before := store.syncs
				now := clock.Now()
				s.unproved = false // else it is told in any case
				s.known.Ceiling, s.known.Rate, s.next = tt.ceiling, tt.rate, now.Add(tt.next)
				s.slots.add(now, now.Add(time.Second), time.Second, tt.slots)
				s.Learn(Feedback{Outcome: OutcomeSuccess, Sent: time.Now(), Cost: 1})
				synctest.Wait()
				assert.Equal(t, tt.want, store.syncs-before)
				if tt.want > 0 {
					assert.EqualValues(t, 1, store.last.Successes)
					assert.Zero(t, store.last.Want, "which would be out of turn")
					assert.Equal(t, now.Add(tt.next), s.next)
				}
			})
		})
	}
}

// What a success was told of a new window frees those who wait for slots of the old one
// within a period.
func TestSharedNewWindowIsToldSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fleet(t, NewMemoryStore(), 1, WithInitialRate(10))[0]
		call := func(left int, reset time.Duration) {
			require.NoError(t, s.WaitN(t.Context(), 1))
			s.Learn(Feedback{Outcome: OutcomeSuccess, Sent: time.Now(), Cost: 1, Quota: &Quota{Limit: 100, Remaining: left, Reset: reset}})
		}
		call(100, time.Hour)
		time.Sleep(time.Minute)
		call(1, 59*time.Minute)
		time.Sleep(time.Second)
		require.Less(t, float64(s.Limit()), .01, "what is left is for an hour")
		start := time.Now()
		call(99, time.Hour)
		first := time.Now()
		require.Greater(t, first.Sub(start), time.Minute)
		call(98, time.Hour)
		assert.Less(t, time.Since(first), time.Second)
	})
}

// Slots in hand are given up at once where an answer says that they were too many, and the
// store is asked how to go on.
func TestSharedSlotsAreGivenUp(t *testing.T) {
	told := func(left int) Feedback {
		return Feedback{Outcome: OutcomeSuccess, Quota: &Quota{Limit: 100, Remaining: left, Reset: time.Hour}}
	}
	for _, tt := range []struct {
		name  string
		left  int // before
		f     Feedback
		waits bool
	}{
		{"something is left", 11, told(10), false},
		{"enough for a call is left", 11, told(1), false},
		{"others have used up what was left", 11, told(0), true},
		{"nothing was left before", 0, told(0), false},
		{"a throttle", 11, Feedback{Outcome: OutcomeThrottled}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const slow = 20 * time.Millisecond
				store := newFaultyStore()
				s := fleet(t, store, 1, WithInitialRate(100))[0]
				learn := func(f Feedback) {
					f.Sent, f.Cost = time.Now(), 1
					s.Learn(f)
				}
				require.NoError(t, s.WaitN(t.Context(), 1))
				time.Sleep(time.Millisecond)
				learn(told(tt.left))
				synctest.Wait()
				store.fails(func(ctx context.Context, q StoreRequest) (StoreReply, error) {
					time.Sleep(slow)
					return store.Store.Sync(ctx, q)
				})
				now := clock.Now()
				s.slots.add(now, now, time.Millisecond, 100)
				before, start := store.syncs, time.Now()
				learn(tt.f)
				synctest.Wait()
				assert.Equal(t, tt.waits, store.syncs > before)
				require.NoError(t, s.WaitN(t.Context(), 1))
				assert.Equal(t, tt.waits, time.Since(start) >= slow)
				time.Sleep(slow) // of a sync under way
			})
		})
	}
}

// What a worker counts is what it says and what the store is told. A call that never went
// says nothing of the server.
func TestSharedCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFaultyStore()
		s := fleet(t, store, 1, steady(10)...)[0]
		for range 5 {
			require.NoError(t, s.WaitN(t.Context(), 2))
		}
		synctest.Wait()
		time.Sleep(time.Second)
		for _, f := range []Feedback{
			{Outcome: OutcomeTransient, Sent: time.Now()}, {Outcome: OutcomeDropped, Sent: time.Now()}, {Outcome: OutcomeDropped},
			{Outcome: OutcomePermanent, Sent: time.Now()}, {Outcome: OutcomeThrottled, Sent: time.Now()},
		} {
			f.Cost = 2
			s.queue.Lock()
			s.syncing = true // so that all is told at once, with the throttle
			s.queue.Unlock()
			s.Learn(f)
		}
		s.queue.Lock()
		s.syncing = false
		s.hurry(s.queue.Now())
		s.queue.Unlock()
		synctest.Wait()
		assert.EqualValues(t, 4, store.last.Failed)
		assert.EqualValues(t, 2, store.last.Successes)
		assert.EqualValues(t, 2, store.last.Throttles)
		st := s.Stats()
		assert.Equal(t, []uint64{5, 0, 1, uint64(store.syncs), 0}, []uint64{st.Admitted, st.Successes, st.Throttles, st.Syncs, st.Failures})
	})
}

// Slots that come when a worker has just heard a throttle are void: nobody goes before the
// store has said how to go on.
func TestSharedSlotsAreVoidAfterAThrottle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fleet(t, &distantStore{Store: NewMemoryStore(), rtt: 80 * ms}, 1, WithInitialRate(10))[0]
		calls(t, s, 20)
		under := letGo(t, s, 1)
		time.Sleep(time.Minute)
		start := time.Now()
		time.AfterFunc(40*ms, func() { under.ends(OutcomeThrottled, 0) })
		calls(t, s, 1)
		assert.GreaterOrEqual(t, time.Since(start), 160*ms)
		time.Sleep(time.Second) // for the last syncs
	})
}

// Whatever a server says of its quota, the store is told numbers that it can reckon with.
func TestSharedQuotaIsToldWithinBounds(t *testing.T) {
	for _, tt := range []struct {
		name       string
		told, want Quota
	}{
		{"nothing left", Quota{Limit: 1}, Quota{Limit: 1}},
		{"less than nothing", Quota{Limit: -1, Remaining: -5, Reset: -time.Second}, Quota{}},
		{"too much", Quota{Limit: math.MaxInt, Remaining: math.MaxInt, Reset: math.MaxInt64}, Quota{Limit: math.MaxInt32, Remaining: math.MaxInt32, Reset: clock.Year}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newFaultyStore()
				s := fleet(t, store, 1, steady(10)...)[0]
				require.NoError(t, s.WaitN(t.Context(), 1))
				time.Sleep(time.Second)
				s.Learn(Feedback{Outcome: OutcomeSuccess, Sent: time.Now(), Cost: 1, Quota: &tt.told})
				synctest.Wait()
				require.NotNil(t, store.last.Quota)
				assert.Equal(t, tt.want, *store.last.Quota)
			})
		})
	}
}

// Others hear from the store that a throttle came though enough was left of the quota, by
// what it said itself or a success before it.
func TestSharedThrottleTellsWhatWasLeft(t *testing.T) {
	left := func(n int) *Quota { return &Quota{Limit: 10, Remaining: n} }
	for _, tt := range []struct {
		name         string
		before, with *Quota
		want         bool
	}{
		{"nothing said", nil, nil, false},
		{"nothing left", left(9), left(0), false},
		{"some left", left(0), left(1), true},
		{"most left before", left(9), nil, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newFaultyStore()
				s := fleet(t, store, 1, steady(10)...)[0]
				for _, f := range []Feedback{
					{Outcome: OutcomeSuccess, Cost: 1, Quota: tt.before},
					{Outcome: OutcomeThrottled, Cost: 1, Quota: tt.with},
				} {
					require.NoError(t, s.WaitN(t.Context(), 1))
					f.Sent = time.Now()
					time.Sleep(time.Second)
					s.Learn(f)
					synctest.Wait()
				}
				assert.True(t, store.last.Throttled)
				assert.Equal(t, tt.want, store.last.Elsewhere)
				assert.Zero(t, store.last.Want, "nobody waits for slots")
			})
		})
	}
}

func TestAbandonedSharedLimiterIsCollected(t *testing.T) {
	gone := make(chan struct{})
	func() {
		s := Must(NewSharedLimiter(NewMemoryStore()))
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

func TestSharedStateSteps(t *testing.T) {
	law := SharedLaw{Min: 1000, Max: 1e12, Initial: 10e6, Decrease: 500_000, Increase: 100_000, Burst: 1, Forgive: 10, PauseBase: 300 * time.Millisecond}
	ask := func(n int) StoreRequest { return StoreRequest{Law: law, Want: n, Least: 1, Count: 1, Epoch: 1} }
	const second, ms = time.Second, time.Millisecond
	type step struct {
		name string
		at   time.Duration
		q    StoreRequest
		want StoreReply // Slots, Wait, Span, Epoch, Pause and Rate are compared
	}
	told := func(q StoreRequest, change func(*StoreRequest)) StoreRequest {
		change(&q)
		return q
	}
	first := func(n int) StoreRequest { return told(ask(n), func(q *StoreRequest) { q.Epoch, q.Count = 0, 0 }) }
	for _, tt := range []struct {
		name  string
		steps []step
	}{
		{"slots follow each other up to the horizon", []step{
			{"one", 0, first(1), StoreReply{Slots: 1, Span: 100 * ms, Epoch: 1, Rate: 10e6}},
			{"two more", 0, ask(2), StoreReply{Slots: 2, Wait: 100 * ms, Span: 200 * ms, Epoch: 1, Rate: 10e6}},
			{"half a second of them", 0, ask(100), StoreReply{Slots: 5, Wait: 300 * ms, Span: 500 * ms, Epoch: 1, Rate: 10e6}},
			{"as many as are free", 0, ask(100), StoreReply{Slots: 2, Wait: 800 * ms, Span: 200 * ms, Epoch: 1, Rate: 10e6}},
			{"none", 0, ask(1), StoreReply{Epoch: 1, Rate: 10e6}},
			{"one, later", 50 * ms, ask(1), StoreReply{Slots: 1, Wait: 950 * ms, Span: 100 * ms, Epoch: 1, Rate: 10e6}},
		}},
		{"where calls wait, workers get a share each", []step{
			{"one", 0, told(first(1), func(q *StoreRequest) { q.Law.Initial = 100e6 }), StoreReply{Slots: 1, Span: 10 * ms, Epoch: 1, Rate: 100e6}},
			{"as many as it wants, up to half", 0, told(first(100), func(q *StoreRequest) { q.Epoch = 1 }), StoreReply{Slots: 49, Wait: 10 * ms, Span: 490 * ms, Epoch: 1, Rate: 100e6}},
			{"its half of half a second", 100 * ms, ask(100), StoreReply{Slots: 25, Wait: 400 * ms, Span: 250 * ms, Epoch: 1, Rate: 100e6}},
			{"no more of the rest", 100 * ms, ask(100), StoreReply{Slots: 17, Wait: 650 * ms, Span: 170 * ms, Epoch: 1, Rate: 100e6}},
		}},
		{"after a cut the first slot follows the last one of before at the new distance", []step{
			{"some succeed", 0, told(first(0), func(q *StoreRequest) { q.Successes = 1 }), StoreReply{Epoch: 1, Rate: 10e6}},
			{"two", second, ask(2), StoreReply{Slots: 2, Span: 200 * ms, Epoch: 1, Rate: 10e6}},
			{"throttled", second, told(ask(0), func(q *StoreRequest) { q.Throttled, q.Count = true, 0 }), StoreReply{Epoch: 2, Rate: 5e6}},
			{"one", second, told(ask(1), func(q *StoreRequest) { q.Epoch = 2 }), StoreReply{Slots: 1, Wait: 300 * ms, Span: 200 * ms, Epoch: 2, Rate: 5e6}},
		}},
		{"after a cut a worker that is alone goes on at once", []step{
			{"some succeed", 0, told(first(0), func(q *StoreRequest) { q.Successes = 1 }), StoreReply{Epoch: 1, Rate: 10e6}},
			{"eight", second, ask(8), StoreReply{Slots: 8, Span: 800 * ms, Epoch: 1, Rate: 10e6}},
			{"throttled", second, told(ask(0), func(q *StoreRequest) { q.Throttled = true }), StoreReply{Epoch: 2, Rate: 5e6}},
			{"one", second, told(ask(1), func(q *StoreRequest) { q.Epoch = 2 }), StoreReply{Slots: 1, Wait: 200 * ms, Span: 200 * ms, Epoch: 2, Rate: 5e6}},
		}},
		{"after a cut a worker lets another one use its slots until that hears of it", []step{
			{"some succeed", 0, told(first(0), func(q *StoreRequest) { q.Successes = 1 }), StoreReply{Epoch: 1, Rate: 10e6}},
			{"eight", second, ask(8), StoreReply{Slots: 8, Span: 800 * ms, Epoch: 1, Rate: 10e6}},
			{"throttled", second, told(ask(0), func(q *StoreRequest) { q.Throttled, q.Count = true, 0 }), StoreReply{Epoch: 2, Rate: 5e6}},
			{"one", second, told(ask(1), func(q *StoreRequest) { q.Epoch = 2 }), StoreReply{Slots: 1, Wait: 450 * ms, Span: 200 * ms, Epoch: 2, Rate: 5e6}},
		}},
		{"before the first throttle the rate grows by half in half a second", []step{
			{"ten succeed", 0, told(first(0), func(q *StoreRequest) { q.Successes = 10 }), StoreReply{Epoch: 1, Rate: 10e6}},
			{"half a second later", 500 * ms, told(ask(0), func(q *StoreRequest) { q.Successes = 5 }), StoreReply{Epoch: 1, Rate: 15e6}},
			{"an hour later", time.Hour, told(ask(0), func(q *StoreRequest) { q.Successes = 54_000 }), StoreReply{Epoch: 1, Rate: 22.5e6}},
			{"a second later, with little demand", time.Hour + second, told(ask(0), func(q *StoreRequest) { q.Successes = 1 }), StoreReply{Epoch: 1, Rate: 22.5e6}},
		}},
		{"nothing is saved up", []step{
			{"one", 0, first(1), StoreReply{Slots: 1, Span: 100 * ms, Epoch: 1, Rate: 10e6}},
			{"a minute later", time.Minute, ask(3), StoreReply{Slots: 3, Span: 300 * ms, Epoch: 1, Rate: 10e6}},
		}},
		{"a burst is saved up", []step{
			{"one", 0, told(first(1), func(q *StoreRequest) { q.Law.Burst = 3 }), StoreReply{Slots: 1, Span: 100 * ms, Epoch: 1, Rate: 10e6}},
			{"later", time.Minute, told(ask(3), func(q *StoreRequest) { q.Law.Burst = 3 }), StoreReply{Slots: 3, Wait: -200 * ms, Span: 300 * ms, Epoch: 1, Rate: 10e6}},
		}},
		{"what a call needs is given whole", []step{
			{"fifty", 0, told(first(50), func(q *StoreRequest) { q.Least = 50 }), StoreReply{Slots: 50, Span: 5 * second, Epoch: 1, Rate: 10e6}},
			{"not before", second, ask(1), StoreReply{Wait: 3 * second, Epoch: 1, Rate: 10e6}},
		}},
		{"pauses only extend", []step{
			{"pause", 0, told(first(0), func(q *StoreRequest) { q.Pause, q.NewPause = 5*second, true }), StoreReply{Wait: 5 * second, Pause: 5 * second, Epoch: 1, Rate: 10e6}},
			{"a shorter one", second, told(ask(1), func(q *StoreRequest) { q.Pause, q.NewPause = second, true }), StoreReply{Wait: 4 * second, Pause: 4 * second, Epoch: 1, Rate: 10e6}},
			{"a longer one", second, told(ask(1), func(q *StoreRequest) { q.Pause, q.NewPause = 9*second, true }), StoreReply{Wait: 9 * second, Pause: 9 * second, Epoch: 1, Rate: 10e6}},
			{"lifted", 2 * second, told(ask(1), func(q *StoreRequest) { q.Resume = true }), StoreReply{Slots: 1, Span: 100 * ms, Epoch: 1, Rate: 10e6}},
			{"known from before", 2 * second, told(ask(0), func(q *StoreRequest) { q.Pause = 8 * second }), StoreReply{Epoch: 1, Rate: 10e6}},
			{"a century", 2 * second, told(ask(0), func(q *StoreRequest) { q.Pause, q.NewPause = 100*clock.Year, true }), StoreReply{Wait: MaxSharedPause, Pause: MaxSharedPause, Epoch: 1, Rate: 10e6}},
		}},
		{"one cut for one congestion", []step{
			{"some succeed", 0, told(first(0), func(q *StoreRequest) { q.Successes = 1 }), StoreReply{Epoch: 1, Rate: 10e6}},
			{"throttled", second, told(ask(0), func(q *StoreRequest) { q.Throttled, q.Backoff = true, second }), StoreReply{Wait: 400 * ms, Pause: 400 * ms, Epoch: 2, Rate: 5e6}},
			{"of before", 3 * second, told(ask(0), func(q *StoreRequest) { q.Throttled = true }), StoreReply{Epoch: 2, Rate: 5e6}},
			{"with nothing delivered", 3 * second, told(ask(0), func(q *StoreRequest) { q.Epoch, q.Throttled, q.Backoff = 2, true, second }), StoreReply{Wait: 800 * ms, Pause: 800 * ms, Epoch: 3, Rate: 5e6}},
			{"too soon", 3500 * ms, told(ask(0), func(q *StoreRequest) { q.Epoch, q.Throttled = 3, true }), StoreReply{Wait: 300 * ms, Pause: 300 * ms, Epoch: 3, Rate: 5e6}},
			{"single calls at a closed door", 5 * second, told(ask(9), func(q *StoreRequest) { q.Epoch = 3 }), StoreReply{Slots: 1, Span: second, Epoch: 3, Rate: 5e6}},
		}},
		{"a lost state is told anew", []step{
			{"claim", 0, told(ask(1), func(q *StoreRequest) { q.Epoch, q.Rate, q.Ceiling, q.Pause = 7, 40e6, 50e6, second }), StoreReply{Wait: second, Pause: second, Epoch: 7, Rate: 40e6}},
			{"an older one", 0, told(ask(0), func(q *StoreRequest) { q.Epoch, q.Rate = 6, 90e6 }), StoreReply{Wait: second, Pause: second, Epoch: 7, Rate: 40e6}},
			{"a newer one", 0, told(ask(0), func(q *StoreRequest) { q.Epoch, q.Rate = 8, 20e6 }), StoreReply{Wait: second, Pause: second, Epoch: 8, Rate: 20e6}},
			{"a new worker", second, first(1), StoreReply{Slots: 1, Span: 50 * ms, Epoch: 8, Rate: 20e6}},
		}},
		{"the clock goes back by an hour", []step{
			{"pause", time.Hour, told(first(0), func(q *StoreRequest) { q.Pause, q.NewPause = 5*second, true }), StoreReply{Wait: 5 * second, Pause: 5 * second, Epoch: 1, Rate: 10e6}},
			{"back", 0, ask(1), StoreReply{Wait: 5 * second, Pause: 5 * second, Epoch: 1, Rate: 10e6}},
			{"slots", 5 * second, ask(1), StoreReply{Slots: 1, Span: 100 * ms, Epoch: 1, Rate: 10e6}},
		}},
		{"a rate far below the ceiling grows, by whatever factor it is cut", []step{
			{"claim", 0, told(first(0), func(q *StoreRequest) { q.Epoch, q.Rate, q.Ceiling = 2, 10e6, 100e6 }), StoreReply{Epoch: 2, Rate: 10e6}},
			{"in use", second, told(ask(0), func(q *StoreRequest) { q.Epoch, q.Successes, q.Law.Decrease = 2, 30, 999_999 }), StoreReply{Epoch: 2, Rate: 11e6}},
		}},
		{"the lowest maximum holds", []step{
			{"one", 0, first(1), StoreReply{Slots: 1, Span: 100 * ms, Epoch: 1, Rate: 10e6}},
			{"lower", 0, told(ask(0), func(q *StoreRequest) { q.Law.Max = 5e6 }), StoreReply{Epoch: 2, Rate: 5e6}},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var s SharedState
			for _, st := range tt.steps {
				got := s.Sync(st.at, st.q)
				assert.Equal(t, st.want, StoreReply{Slots: got.Slots, Wait: got.Wait, Span: got.Span, Epoch: got.Epoch, Pause: got.Pause, Rate: got.Rate}, st.name)
			}
		})
	}
}

// Whatever workers do and tell, slots are never closer to each other than the
// rate allows, no pause gets shorter, and nothing leaves its bounds.
func FuzzSharedState(f *testing.F) {
	f.Add(uint64(1), uint64(2))
	f.Fuzz(func(t *testing.T, a, b uint64) {
		rng := rand.New(rand.NewPCG(a, b))
		law := SharedLaw{Min: 1000, Max: 1e12, Initial: 10e6, Decrease: 500_000, Increase: 100_000, Burst: 1, Forgive: 10, PauseBase: 300 * time.Millisecond}
		if a%2 == 0 {
			law.Decrease, law.Increase, law.Forgive = 1+rng.Int64N(999_999), 1+rng.Int64N(1e6), 1+rng.Int64N(20)
		}
		var s SharedState
		var now, until time.Duration
		last := time.Duration(math.MinInt64 / 2)
		for range 2000 {
			now += time.Duration(rng.Int64N(1 << (10 + rng.IntN(22))))
			q := randomRequest(rng, law, &s)
			epoch := s.Epoch
			r := s.Sync(now, q)
			require.NoError(t, r.check(q))
			require.LessOrEqual(t, s.Rate, law.Max)
			require.GreaterOrEqual(t, s.Rate, law.Min)
			if r.Epoch != epoch {
				last = math.MinInt64 / 2 // a cut voids slots
			}
			if q.Resume {
				until = 0
			}
			t0 := now.Truncate(time.Microsecond)
			require.GreaterOrEqual(t, r.Pause, until-t0)
			until = t0 + r.Pause
			if r.Slots > 0 {
				gap := 1e12 / float64(r.Rate)
				require.GreaterOrEqual(t, float64((t0+r.Wait-last)/time.Microsecond), gap-1)
				require.GreaterOrEqual(t, float64(r.Span/time.Microsecond), float64(r.Slots)*gap-1e-6)
				last = t0 + r.Wait + r.Span - r.Span/time.Duration(r.Slots)
			}
		}
	})
}

func randomRequest(rng *rand.Rand, law SharedLaw, s *SharedState) StoreRequest {
	q := StoreRequest{Law: law, Want: rng.IntN(100), Epoch: max(0, s.Epoch-int64(rng.IntN(2))), Resumes: s.Resumes, Count: s.Count - int64(rng.IntN(2))}
	q.Least = min(q.Want, 1+rng.IntN(3))
	q.Rate, q.Ceiling = 1+rng.Int64N(1e9), rng.Int64N(1e9)
	if rng.IntN(3) == 0 {
		q.Successes = rng.Int64N(50)
	}
	if rng.IntN(3) == 0 {
		q.Failed = rng.Int64N(50)
	}
	if rng.IntN(10) == 0 {
		q.Throttled, q.Backoff = true, time.Duration(rng.Int64N(int64(time.Second)))
	}
	if rng.IntN(20) == 0 {
		q.Pause, q.NewPause = time.Duration(rng.Int64N(int64(3*time.Second))), rng.IntN(2) == 0
	}
	q.Resume = rng.IntN(100) == 0
	return q
}

// A worker whose calls wait for a long pause of another one does not take it for
// slowness of the server, nor the time after its end for a part of it. A short one may be
// for a throttle, and counts.
func TestSharedPauseOfAnotherIsNoSlowness(t *testing.T) {
	for _, tt := range []struct {
		name  string
		stop  func(a *SharedLimiter)
		after time.Duration // until calls go again
		given float64       // calls a second
	}{
		{"paused", func(a *SharedLimiter) { a.Pause(time.Hour) }, time.Hour, 100},
		{"paused for as long as a throttle may", func(a *SharedLimiter) { a.Pause(time.Minute) }, time.Minute, 250 / 60. / longShare},
		{"paused and resumed", func(a *SharedLimiter) {
			a.Pause(10 * time.Hour)
			time.Sleep(time.Hour)
			a.Resume()
		}, time.Hour, 100},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := NewMemoryStore()
				a := Must(NewSharedLimiter(store, WithPauseOnly()))
				b := Must(NewSharedLimiter(store, WithPauseOnly(), WithMaxRate(100)))
				var over atomic.Bool
				var busy sync.WaitGroup
				for range 10 {
					busy.Go(func() {
						for !over.Load() {
							call := letGo(t, b, 1)
							time.Sleep(10 * ms)
							call.ends(OutcomeSuccess, 0)
						}
					})
				}
				time.Sleep(30 * time.Second)
				began := time.Now()
				go tt.stop(a)
				time.Sleep(30 * time.Second)
				require.Positive(t, b.PauseLeft())
				for b.PauseLeft() > 0 {
					time.Sleep(100 * ms)
				}
				assert.InDelta(t, tt.after.Seconds(), time.Since(began).Seconds(), 6)
				time.Sleep(300 * ms) // for few calls, so that the pause is among the last 250
				over.Store(true)
				busy.Wait()
				assert.InEpsilon(t, tt.given, lawOf(b).given(b.queue.Now()), .12)
			})
		})
	}
}

// A pause saves no burst, whatever happens to the rate meanwhile.
func TestSharedPauseSavesNothing(t *testing.T) {
	for _, tt := range []struct {
		name string
		opts []SharedOption
		then func(store *faultyStore, c call) // after the pause has begun
	}{
		{"a call succeeds", []SharedOption{WithPauseOnly(), WithInitialRate(10), WithMaxRate(20)},
			func(_ *faultyStore, c call) { c.ends(OutcomeSuccess, 0) }},
		{"the store fails", steady(10),
			func(store *faultyStore, c call) { store.fails(down); c.ends(OutcomeSuccess, 0) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newFaultyStore()
				s := Must(NewSharedLimiter(store, append(tt.opts, WithBurst(50))...))
				calls(t, s, 50)
				c := letGo(t, s, 1)
				var went atomic.Int32
				ctx, cancel := context.WithCancel(t.Context())
				for range 60 {
					go func() {
						if s.WaitN(ctx, 1) == nil {
							went.Add(1)
						}
					}()
				}
				synctest.Wait()
				s.Pause(30 * time.Second)
				tt.then(store, c)
				time.Sleep(30 * time.Second)
				synctest.Wait()
				assert.LessOrEqual(t, went.Load(), int32(1), "calls at the end of the pause")
				time.Sleep(time.Second)
				assert.InDelta(t, 10, went.Load(), 2, "calls a second later")
				cancel()
				synctest.Wait()
			})
		})
	}
}

// A worker that pauses since its store fails says so.
func TestSharedTellsThePauseOfAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFaultyStore()
		var mu sync.Mutex
		var told []Event
		s := Must(NewSharedLimiter(store, WithInitialRate(10), WithObserver(ObserverFunc(func(_ context.Context, e Event) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, e)
		}))))
		calls(t, s, 50)
		c := letGo(t, s, 1)
		store.fails(down)
		c.ends(OutcomeThrottled, 0)
		time.Sleep(time.Millisecond)
		mu.Lock()
		defer mu.Unlock()
		var kinds []string
		for _, e := range told {
			kinds = append(kinds, fmt.Sprintf("%T", e))
		}
		assert.Equal(t, []string{"cruise.ThrottleSeen", "cruise.Paused", "cruise.StoreDegraded"}, kinds[max(0, len(kinds)-3):])
		assert.Equal(t, s.PauseLeft(), time.Until(told[len(told)-2].(Paused).Until))
	})
}

func TestMemoryStoreLooksAtItsContext(t *testing.T) {
	store := NewMemoryStore()
	var none context.Context
	_, err := store.Sync(none, StoreRequest{})
	assert.EqualError(t, err, "cruise: nil context")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = store.Sync(ctx, StoreRequest{})
	assert.Equal(t, context.Canceled, err)
}

// An answer that comes too late is none, however good it is.
func TestSharedLateAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFaultyStore()
		store.fails(func(ctx context.Context, q StoreRequest) (StoreReply, error) {
			time.Sleep(2 * DefaultStoreTimeout)
			return store.Store.Sync(context.WithoutCancel(ctx), q)
		})
		s := Must(NewSharedLimiter(store))
		require.NoError(t, s.WaitN(t.Context(), 1))
		time.Sleep(3 * DefaultStoreTimeout)
		assert.True(t, s.Stats().Degraded)
		assert.Equal(t, errStoreTimeout, s.Stats().Err)
	})
}

// Whoever cannot wait for the end of a pause is told as it begins, not when the store has
// heard of it.
func TestSharedPauseRefusesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fleet(t, &distantStore{Store: NewMemoryStore(), rtt: 90 * ms}, 1, WithInitialRate(1))[0]
		require.NoError(t, s.WaitN(t.Context(), 1))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		var group sync.WaitGroup
		start := time.Now()
		group.Go(func() {
			assert.ErrorIs(t, s.WaitN(ctx, 1), ErrDeadline)
			assert.Equal(t, 500*ms, time.Since(start))
		})
		time.Sleep(500 * ms)
		s.Learn(Feedback{Outcome: OutcomeThrottled, Sent: time.Now(), Cost: 1, RetryAfter: time.Minute})
		group.Wait()
		time.Sleep(time.Minute) // for the last syncs
	})
}

// After two minutes in which every second attempt was throttled, however slowly they came, the
// shared rate is back at what the server gives within minutes.
func TestSharedBrownout(t *testing.T) {
	takesLong(t)
	const limit, well, brown = 100, 5 * time.Minute, 2 * time.Minute
	for name, throttles := range map[string]func(n int) bool{
		"every second": func(n int) bool { return n%2 == 0 },
		"at random":    func(int) bool { return rand.IntN(2) == 0 },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, srv := NewMemoryStore(), newTokenServer(limit)
				start := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), well+brown+5*time.Minute)
				defer cancel()
				var wg sync.WaitGroup
				var mu sync.Mutex // guards both
				sent := 0
				oks := make([]float64, (well+brown)/time.Minute+6)
				for _, s := range fleet(t, store, 5) {
					for range 4 {
						wg.Go(func() {
							for s.WaitN(ctx, 1) == nil {
								f := Feedback{Outcome: OutcomeThrottled, Sent: time.Now(), Cost: 1}
								time.Sleep(60 * ms)
								mu.Lock()
								sent++
								since := time.Since(start)
								in := since >= well && since < well+brown
								if !(in && throttles(sent)) && srv.admits() {
									f.Outcome = OutcomeSuccess
									oks[since/time.Minute]++
								}
								mu.Unlock()
								s.Learn(f)
							}
						})
					}
				}
				wg.Wait()
				time.Sleep(time.Second) // for the last syncs
				synctest.Wait()
				t.Logf("successes by minute: %v", oks)
				assert.Greater(t, oks[well/time.Minute-1], .85*limit*60, "before")
				assert.Greater(t, oks[(well+brown)/time.Minute+4], .3*limit*60, "after")
			})
		})
	}
}
