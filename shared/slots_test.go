package shared

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/internal/calm"
	"github.com/a7df5faa/cruise/internal/clock"
)

// No call goes before a slow limit would admit it, but for the microseconds that a store
// counts, and a rate of few digits is what it was.
func TestMaximumIsNotRoundedUp(t *testing.T) {
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
func TestRate(t *testing.T) {
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
							s.Learn(cruise.Feedback{Outcome: cruise.OutcomeSuccess, Sent: time.Now(), Cost: 1})
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

func TestSlotsGoAtTheirTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fleet(t, NewMemoryStore(), 1, steady(10)...)[0]
		start := time.Now()
		for i, n := range []int{1, 1, 3, 1} {
			require.NoError(t, s.WaitN(t.Context(), n))
			assert.Equal(t, []time.Duration{0, 100, 400, 500}[i]*time.Millisecond, time.Since(start))
		}
	})
}

// A store that has lost its state gives no slots out that a worker has already.
func TestSlotsOutliveTheStore(t *testing.T) {
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

// What is saved for a call that costs much stays saved when others go first, also where the
// limiter is of this worker alone.
func TestSavesForALargeCost(t *testing.T) {
	for name, opts := range map[string][]Option{
		"pauses alone": {WithPauseOnly()},
		"store down":   {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newFaultyStore()
				store.fails(down)
				r := cruise.Must(cruise.New(cruise.WithLimiter(cruise.Must(New(store, append(opts, cruise.WithInitialRate(10), cruise.WithMaxRate(10))...)))))
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				go func() {
					for ctx.Err() == nil {
						time.Sleep(3 * time.Second)
						_ = r.Do(ctx, ok)
					}
				}()
				start := time.Now()
				assert.NoError(t, r.Do(ctx, ok, cruise.WithBackground(), cruise.WithCost(100)))
				assert.InDelta(t, 10.2, time.Since(start).Seconds(), .2)
				time.Sleep(time.Hour) // for the last syncs
			})
		})
	}
}

// A hundred thousand callers are one sync, and leave nothing behind.
func TestCrowdLeaves(t *testing.T) {
	crowd := 100_000
	if calm.Raced {
		crowd = 10_000 // a waiting goroutine takes more than 10 KB then
	}
	synctest.Test(t, func(t *testing.T) {
		store := newFaultyStore()
		store.fails(hangs)
		s := cruise.Must(New(store, WithFallback(FallbackClosed)))
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
func TestStaleSlots(t *testing.T) {
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
func TestLearnsOfNoCostThatWasNeverLetGo(t *testing.T) {
	for _, outcome := range []cruise.Outcome{cruise.OutcomeSuccess, cruise.OutcomeTransient} {
		synctest.Test(t, func(t *testing.T) {
			store, good := newFaultyStore(), NewMemoryStore()
			told := int64(0)
			store.fails(func(ctx context.Context, q Request) (Reply, error) {
				told += q.Successes + q.Failed
				return good.Sync(ctx, q)
			})
			s := fleet(t, store, 1)[0]
			for range 3 {
				s.Learn(cruise.Feedback{Outcome: outcome, Sent: time.Now(), Cost: math.MaxInt})
			}
			for range 20 {
				require.NoError(t, s.WaitN(t.Context(), 1))
				time.Sleep(time.Second)
			}
			assert.Equal(t, int64(3*mostCost), told)
		})
	}
}

// Slots that were saved up are due together, and void together, however long ago.
func TestSavedSlotsExpire(t *testing.T) {
	const second = clock.Instant(time.Second)
	for after, want := range map[clock.Instant]int{second: 100, 3 * second: 69, 7 * second / 2: 64, 8 * second: 19, 3600 * second: 0} {
		var l leases
		now := 3600 * second
		l.add(now, now-second, 100*time.Millisecond, 100)
		l.expire(now+after, 1, slotLife)
		assert.Equal(t, want, l.n, "%v later", time.Duration(after))
	}
}

// After a machine stood still, calls that waited do not all go at once by the slots
// that they have missed; calls that come later than their slots do. Of slots that are
// far apart one is left.
func TestLateTimer(t *testing.T) {
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

// Slots in hand are given up at once where an answer says that they were too many, and the
// store is asked how to go on.
func TestSlotsAreGivenUp(t *testing.T) {
	told := func(left int) cruise.Feedback {
		return cruise.Feedback{Outcome: cruise.OutcomeSuccess, Quota: &cruise.Quota{Limit: 100, Remaining: left, Reset: time.Hour}}
	}
	for _, tt := range []struct {
		name  string
		left  int // before
		f     cruise.Feedback
		waits bool
	}{
		{"something is left", 11, told(10), false},
		{"enough for a call is left", 11, told(1), false},
		{"others have used up what was left", 11, told(0), true},
		{"nothing was left before", 0, told(0), false},
		{"a throttle", 11, cruise.Feedback{Outcome: cruise.OutcomeThrottled}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const slow = 20 * time.Millisecond
				store := newFaultyStore()
				s := fleet(t, store, 1, cruise.WithInitialRate(100))[0]
				learn := func(f cruise.Feedback) {
					f.Sent, f.Cost = time.Now(), 1
					s.Learn(f)
				}
				require.NoError(t, s.WaitN(t.Context(), 1))
				time.Sleep(time.Millisecond)
				learn(told(tt.left))
				synctest.Wait()
				store.fails(func(ctx context.Context, q Request) (Reply, error) {
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

// Slots that come when a worker has just heard a throttle are void: nobody goes before the
// store has said how to go on.
func TestSlotsAreVoidAfterAThrottle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fleet(t, &distantStore{Store: NewMemoryStore(), rtt: 80 * ms}, 1, cruise.WithInitialRate(10))[0]
		calls(t, s, 20)
		under := letGo(t, s, 1)
		time.Sleep(time.Minute)
		start := time.Now()
		time.AfterFunc(40*ms, func() { under.ends(cruise.OutcomeThrottled, 0) })
		calls(t, s, 1)
		assert.GreaterOrEqual(t, time.Since(start), 160*ms)
		time.Sleep(time.Second) // for the last syncs
	})
}

// A worker that makes a call now and then, one after the other, takes no slot ahead of its next
// call: that would expire, and be lost to all.
func TestSlotsOfSparseCallsAreNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, srv := nearStore(), newTokenServer(12)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		var group sync.WaitGroup
		for _, l := range fleet(t, store, 10) {
			group.Go(func() {
				for l.WaitN(ctx, 1) == nil {
					f := cruise.Feedback{Outcome: cruise.OutcomeThrottled, Sent: time.Now(), Cost: 1}
					if srv.admits() {
						f.Outcome = cruise.OutcomeSuccess
					}
					time.Sleep(time.Second)
					l.Learn(f)
				}
			})
		}
		group.Wait()
		time.Sleep(time.Second)
		assert.Greater(t, float64(len(srv.sent))/300, 9.5, "a second, of 10")
	})
}

// A worker with a lower maximum is the brake of all, for as long as it works.
func TestLowestMaximumHolds(t *testing.T) {
	takesLong(t)
	synctest.Test(t, func(t *testing.T) {
		store, srv := nearStore(), newTokenServer(1000)
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
		defer cancel()
		var group sync.WaitGroup
		for _, l := range fleet(t, store, 10) {
			load(ctx, &group, l, srv, 30)
		}
		time.Sleep(time.Minute)
		braked, stop := context.WithTimeout(ctx, 2*time.Minute)
		defer stop()
		brake := time.Now()
		load(braked, &group, fleet(t, store, 1, cruise.WithMaxRate(50))[0], srv, 5)
		group.Wait()
		time.Sleep(time.Second)
		assert.InDelta(t, 50, countIn(srv.sent, brake.Add(30*time.Second), time.Minute)/60, 2)
		assert.Greater(t, countIn(srv.sent, brake.Add(150*time.Second), 30*time.Second)/30, 500, "afterwards")
	})
}

// The rate begins as those say who make calls, not as somebody before who did not; what was
// known before the store lost all is no beginning.
func TestBeginsWithTheFirstCall(t *testing.T) {
	const cost = 1000
	for _, tt := range []struct {
		name  string
		opts  []Option
		first func(t *testing.T, store *faultyStore, l *Limiter)
		want  rate.Limit
	}{
		{"nothing before", nil, func(*testing.T, *faultyStore, *Limiter) {}, 10 * cost},
		{"an end of pauses before", nil, func(_ *testing.T, _ *faultyStore, l *Limiter) { l.Resume() }, 10 * cost},
		{"a pause before", nil, func(_ *testing.T, _ *faultyStore, l *Limiter) { l.Pause(time.Second) }, 10 * cost},
		{"who shares pauses alone before", []Option{cruise.WithInitialRate(300)}, func(t *testing.T, store *faultyStore, _ *Limiter) {
			require.NoError(t, fleet(t, store, 1, WithPauseOnly())[0].WaitN(t.Context(), 1))
		}, 300},
		{"a call before", nil, func(t *testing.T, store *faultyStore, _ *Limiter) {
			require.NoError(t, fleet(t, store, 1)[0].WaitN(t.Context(), 1))
		}, 10},
		{"a rate that was lost", nil, func(t *testing.T, store *faultyStore, _ *Limiter) {
			l := fleet(t, store, 1, cruise.WithInitialRate(70))[0]
			require.NoError(t, l.WaitN(t.Context(), 1))
			time.Sleep(time.Minute)
			store.Store = NewMemoryStore()
			l.Pause(time.Second)
		}, 70},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newFaultyStore()
				l := fleet(t, store, 1, tt.opts...)[0]
				tt.first(t, store, l)
				time.Sleep(2 * time.Second)
				require.NoError(t, l.WaitN(t.Context(), cost))
				assert.Equal(t, tt.want, l.Limit())
				time.Sleep(5 * time.Minute) // for the last syncs
			})
		})
	}
}

// What has been saved goes at once, and asks the store for it once, not slot by slot.
func TestBurstGoesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := nearStore()
		l := fleet(t, store, 1, append(steady(10), cruise.WithTuning(cruise.Tuning{Burst: 1000}))...)[0]
		require.NoError(t, l.WaitN(t.Context(), 1))
		l.Learn(cruise.Feedback{Outcome: cruise.OutcomeSuccess, Cost: 1, Sent: time.Now()})
		for _, calls := range []int{100, 1} {
			time.Sleep(5 * time.Minute)
			synctest.Wait()
			start, before := time.Now(), store.syncs
			var group sync.WaitGroup
			for range calls {
				group.Go(func() { assert.NoError(t, l.WaitN(t.Context(), 1)) })
			}
			group.Wait()
			assert.Less(t, time.Since(start), 10*ms, "%d calls", calls)
			synctest.Wait()
			assert.Less(t, store.syncs-before, 10, "%d calls", calls)
		}
		time.Sleep(time.Second)
	})
}

// A worker that has been away for long knows less than those who learned anew when the
// store had forgotten.
func TestRateOfYesterday(t *testing.T) {
	takesLong(t)
	synctest.Test(t, func(t *testing.T) {
		store, srv := &faultyStore{Store: nearStore()}, newTokenServer(10)
		work := func(l *Limiter, callers int, d time.Duration) {
			ctx, cancel := context.WithTimeout(t.Context(), d)
			defer cancel()
			var group sync.WaitGroup
			load(ctx, &group, l, srv, callers)
			group.Wait()
		}
		old := fleet(t, store, 1)[0]
		work(old, 10, 10*time.Minute)
		time.Sleep(12 * time.Hour)
		store.mu.Lock()
		store.Store = nearStore()
		store.mu.Unlock()
		srv.change(1000)
		fresh := fleet(t, store, 1)[0]
		work(fresh, 100, 2*time.Minute)

		require.NoError(t, old.WaitN(t.Context(), 1))
		old.Learn(cruise.Feedback{Outcome: cruise.OutcomeSuccess, Cost: 1, Sent: time.Now()})
		start := time.Now()
		work(fresh, 100, time.Minute)
		time.Sleep(time.Second)
		assert.Greater(t, countIn(srv.sent, start, time.Minute)/60, 700)
	})
}
