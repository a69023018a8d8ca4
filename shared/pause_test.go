package shared

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/internal/chance"
	"github.com/a7df5faa/cruise/internal/replay"
)

// A server's wait that one worker is told stops all of them as soon as they have
// synced, and they resume at the pace of the rate.
func TestPause(t *testing.T) {
	for _, tt := range []struct {
		name  string
		opts  []Option
		after int // calls in the first 100 ms after the pause, at most
	}{
		{"with a shared rate", steady(100), 11},
		{"pause only", []Option{WithPauseOnly(), cruise.WithInitialRate(10), cruise.WithMaxRate(10), cruise.WithTuning(cruise.Tuning{MinRate: 10})}, 20},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				workers := fleet(t, NewMemoryStore(), 10, tt.opts...)
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				sent := drive(ctx, workers, 2)
				time.Sleep(2 * time.Second)
				require.NoError(t, workers[0].WaitN(ctx, 1))
				workers[0].Learn(cruise.Feedback{Outcome: cruise.OutcomeThrottled, Sent: time.Now(), Cost: 1, RetryAfter: 5 * time.Second})
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

// No worker sends a call inside a pause once it has synced, and each syncs before it
// has used up what it had when the pause began.
func TestPauseOneSyncLater(t *testing.T) {
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
			replay.Test(t, func(t *testing.T) {
				store := NewMemoryStore()
				ctx, cancel := context.WithTimeout(t.Context(), 2*long)
				defer cancel()
				var wg sync.WaitGroup
				var stores []*hearingStore
				var workers []*Limiter
				sent := make([][]time.Time, tt.workers)
				for i := range tt.workers {
					h := &hearingStore{distantStore: distantStore{Store: store, rtt: rtt, apart: true}}
					s := cruise.Must(New(h, steady(tt.limit)...))
					stores, workers = append(stores, h), append(workers, s)
					var mu sync.Mutex // guards sent[i]
					for range 3 {
						wg.Go(func() {
							for s.WaitN(ctx, 1) == nil {
								at := time.Now()
								mu.Lock()
								sent[i] = append(sent[i], at)
								mu.Unlock()
								replay.Sleep(chance.N(20 * time.Millisecond))
								s.Learn(cruise.Feedback{Outcome: cruise.OutcomeSuccess, Sent: at, Cost: 1})
							}
						})
					}
				}
				time.Sleep(5 * time.Second)
				workers[0].Learn(cruise.Feedback{Outcome: cruise.OutcomeThrottled, Sent: time.Now(), Cost: 1, RetryAfter: long})
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
func TestPauseDoesNotGrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &distantStore{Store: NewMemoryStore(), rtt: 80 * time.Millisecond}
		workers := fleet(t, store, 3, steady(10)...)
		workers[0].Pause(10 * time.Second)
		start := time.Now()
		for range 30 {
			time.Sleep(200 * time.Millisecond)
			for _, s := range workers {
				s.Learn(cruise.Feedback{Outcome: cruise.OutcomeThrottled, Sent: time.Now(), Cost: 1, RetryAfter: time.Nanosecond})
			}
		}
		require.NoError(t, workers[2].WaitN(t.Context(), 1))
		assert.InDelta(t, 10, time.Since(start).Seconds(), .3)
		time.Sleep(time.Second) // for the last syncs
	})
}

func TestPausesOnlyExtend(t *testing.T) {
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
func TestPauseWhileAsking(t *testing.T) {
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
func TestPauseWhileAnotherIsLifted(t *testing.T) {
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
		for _, s := range []*Limiter{workers[0], workers[2]} {
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

// In a pause too, a store that is down is asked less and less often, and the pause
// holds.
func TestPauseWithoutStore(t *testing.T) {
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

// A pause saves no burst, whatever happens to the rate meanwhile.
func TestPauseSavesNothing(t *testing.T) {
	for _, tt := range []struct {
		name string
		opts []Option
		then func(store *faultyStore, c call) // after the pause has begun
	}{
		{"a call succeeds", []Option{WithPauseOnly(), cruise.WithInitialRate(10), cruise.WithMaxRate(20)},
			func(_ *faultyStore, c call) { c.ends(cruise.OutcomeSuccess, 0) }},
		{"the store fails", steady(10),
			func(store *faultyStore, c call) { store.fails(down); c.ends(cruise.OutcomeSuccess, 0) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newFaultyStore()
				s := cruise.Must(New(store, append(tt.opts, cruise.WithTuning(cruise.Tuning{Burst: 50}))...))
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

// Whoever cannot wait for the end of a pause is told as it begins, not when the store has
// heard of it.
func TestPauseRefusesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fleet(t, &distantStore{Store: NewMemoryStore(), rtt: 90 * ms}, 1, cruise.WithInitialRate(1))[0]
		require.NoError(t, s.WaitN(t.Context(), 1))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		var group sync.WaitGroup
		start := time.Now()
		group.Go(func() {
			assert.ErrorIs(t, s.WaitN(ctx, 1), cruise.ErrDeadline)
			assert.Equal(t, 500*ms, time.Since(start))
		})
		time.Sleep(500 * ms)
		s.Learn(cruise.Feedback{Outcome: cruise.OutcomeThrottled, Sent: time.Now(), Cost: 1, RetryAfter: time.Minute})
		group.Wait()
		time.Sleep(time.Minute) // for the last syncs
	})
}

// A pause that is longer than the longest to be shared is told once, and only its worker
// sits out the rest.
func TestPauseOfMonths(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var paused atomic.Int32
		store := nearStore()
		told := fleet(t, store, 1)[0]
		hears := fleet(t, store, 1, cruise.WithObserver(cruise.ObserverFunc(func(_ context.Context, e cruise.Event) {
			if _, ok := e.(cruise.Paused); ok {
				paused.Add(1)
			}
		})))[0]
		const longer = 24 * time.Hour
		told.Learn(cruise.Feedback{Outcome: cruise.OutcomeThrottled, Cost: 1, RetryAfter: MaxPause + longer})
		time.Sleep(time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Minute, cancel)
		var group sync.WaitGroup
		for _, l := range []*Limiter{told, hears} {
			group.Go(func() { assert.ErrorIs(t, l.WaitN(ctx, 1), context.Canceled) })
		}
		group.Wait()
		time.Sleep(time.Second) // for the last syncs
		assert.EqualValues(t, 1, paused.Load())
		assert.Equal(t, MaxPause-62*time.Second, hears.PauseLeft().Round(time.Second))
		assert.Equal(t, MaxPause+longer-62*time.Second, told.PauseLeft().Round(time.Second))
	})
}

// A pause without a Retry-After may be shared too, however long a backoff makes it.
func TestBackoffOfMonths(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const base = 2 * MaxPause
		long := cruise.Must(cruise.NewBackoff(cruise.WithBase(base), cruise.WithMaxDelay(base), cruise.NoJitter()))
		l := fleet(t, nearStore(), 1, cruise.WithTuning(cruise.Tuning{PauseBackoff: long}))[0]
		letGo(t, l, 1).ends(cruise.OutcomeSuccess, 0)
		for range 2 {
			time.Sleep(2 * time.Second)
			letGo(t, l, 1).ends(cruise.OutcomeThrottled, 0)
		}
		time.Sleep(2 * time.Second)
		assert.NoError(t, l.Stats().Err)
		assert.Equal(t, MaxPause-2*time.Second, l.PauseLeft().Round(time.Second))
	})
}

// A pause that a worker makes for itself is told to nobody, only what the server asks for
// is, also in a longer one.
func TestOwnPauseStaysItsOwn(t *testing.T) {
	for _, tt := range []struct {
		name   string
		opts   []Option
		cutOff bool // from the store, when it learns of it
	}{
		{"pause only", []Option{WithPauseOnly()}, false},
		{"cut off from the store", []Option{cruise.WithInitialRate(10)}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newFaultyStore()
				a, b := fleet(t, store, 1, tt.opts...)[0], fleet(t, store.Store, 1, tt.opts...)[0]
				calls(t, a, 1)
				calls(t, b, 1)
				if tt.cutOff {
					store.fails(down)
				}
				for a.PauseLeft() < 30*time.Second {
					call := letGo(t, a, 1)
					time.Sleep(20 * ms)
					call.ends(cruise.OutcomeThrottled, 0)
				}
				store.fails(nil)
				var group sync.WaitGroup
				group.Go(func() { assert.NoError(t, a.WaitN(t.Context(), 1)) }) // it asks in the pause
				time.Sleep(2 * lastProbe)
				assert.False(t, a.Stats().Degraded)
				start := time.Now()
				calls(t, b, 1)
				assert.Less(t, time.Since(start), time.Second)

				start = time.Now()
				a.Learn(cruise.Feedback{Outcome: cruise.OutcomeThrottled, Sent: start, Cost: 1, RetryAfter: 5 * time.Second})
				time.Sleep(time.Second)
				assert.Greater(t, a.PauseLeft(), 10*time.Second)
				calls(t, b, 1)
				assert.InDelta(t, 5, time.Since(start).Seconds(), 1)
				group.Wait()
				time.Sleep(time.Second)
			})
		})
	}
}

// A call that waits long for its slots hears of the pauses of others meanwhile, also where the
// workers are so many that each asks for slots every few seconds only, and whatever else happens.
func TestDearCallHeedsPauses(t *testing.T) {
	for _, tt := range []struct {
		workers, cost int
		limit         rate.Limit
		told          time.Duration // when the pause is
	}{{2, 100, 10, time.Second}, {50, 80, 20, time.Second}, {50, 38, 20, 100 * ms}} {
		t.Run(fmt.Sprintf("%d workers, cost %d", tt.workers, tt.cost), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := nearStore()
				workers := fleet(t, store, tt.workers, steady(tt.limit)...)
				for _, l := range workers { // which are counted by that
					require.NoError(t, l.WaitN(t.Context(), 1))
					l.Learn(cruise.Feedback{Outcome: cruise.OutcomeSuccess, Cost: 1})
				}
				synctest.Wait()
				store.syncs = 0
				start := time.Now()
				var group sync.WaitGroup
				for range 2 { // so there are fewer slots than are wanted
					group.Go(func() {
						assert.NoError(t, workers[0].WaitN(t.Context(), tt.cost))
						assert.Greater(t, time.Since(start), time.Minute)
					})
				}
				group.Go(func() {
					time.Sleep(950 * ms)
					workers[0].Learn(cruise.Feedback{Outcome: cruise.OutcomeSuccess, Sent: start, Cost: 1})
				})
				time.Sleep(tt.told)
				workers[1].Learn(cruise.Feedback{Outcome: cruise.OutcomeThrottled, RetryAfter: time.Minute, Sent: time.Now(), Cost: 1})
				group.Wait()
				synctest.Wait()
				assert.Less(t, store.syncs, 200)
				time.Sleep(time.Second)
			})
		})
	}
}

// A call that a limit around its own holds up for long hears of the pauses of others meanwhile,
// and asks for them every few seconds only.
func TestCallHeldUpAboveHeedsPauses(t *testing.T) {
	for name, opts := range map[string][]Option{"slots": nil, "pauses alone": {WithPauseOnly()}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := nearStore()
				workers := fleet(t, store, 2, append(opts, steady(100)...)...)
				developer := cruise.Must(cruise.New(cruise.WithLimiter(cruise.Must(cruise.NewTokenBucket(rate.Every(20*time.Second), 1))),
					cruise.WithScopeLimiter(func(string, string) (cruise.Limiter, error) { return workers[0], nil })))
				start := time.Now()
				var group sync.WaitGroup
				for range 2 {
					group.Go(func() { assert.NoError(t, developer.Scope("ACCOUNT", "4711").Do(t.Context(), ok)) })
				}
				time.Sleep(10 * time.Second)
				workers[1].Learn(cruise.Feedback{Outcome: cruise.OutcomeThrottled, RetryAfter: time.Minute, Sent: time.Now(), Cost: 1})
				group.Wait()
				assert.InDelta(t, 70, time.Since(start).Seconds(), .1)
				synctest.Wait()
				assert.Less(t, store.syncs, 150, "every 5 s, then every half second for the end of the pause")
				time.Sleep(time.Minute) // for the last syncs
			})
		})
	}
}

// A pause that a worker knows of may have been ended by another: it asks before it
// refuses a call that has no time for it.
func TestRefusesNoCallForAPauseThatIsOver(t *testing.T) {
	for name, resume := range map[string]bool{"over": true, "not over": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				workers := fleet(t, nearStore(), 2, steady(10)...)
				for _, l := range workers {
					require.NoError(t, l.WaitN(t.Context(), 1))
				}
				workers[1].Pause(time.Hour)
				time.Sleep(time.Second)
				if resume {
					workers[0].Resume()
				}
				time.Sleep(time.Minute)
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				start := time.Now()
				err := workers[1].WaitN(ctx, 1)
				assert.Equal(t, resume, err == nil, err)
				if !resume {
					require.ErrorIs(t, err, cruise.ErrDeadline)
				}
				assert.Less(t, time.Since(start), 10*ms)
				time.Sleep(time.Second)
			})
		})
	}
}
