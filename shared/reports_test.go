package shared

import (
	"context"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/internal/clock"
)

// hearingStore is a worker's way to a store. It notes when the worker was first
// told of a pause.
type hearingStore struct {
	distantStore
	heard time.Time
}

func (h *hearingStore) Sync(ctx context.Context, q Request) (Reply, error) {
	r, err := h.distantStore.Sync(ctx, q)
	if r.Pause > 0 && h.heard.IsZero() {
		h.heard = time.Now()
	}
	return r, err
}

// One congestion, of which every worker hears many times, cuts the rate once.
func TestCutOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := NewMemoryStore()
		workers := fleet(t, store, 10, cruise.WithInitialRate(100))
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		sent := drive(ctx, workers, 2)
		time.Sleep(2 * time.Second)
		was := workers[0].Limit()
		at := time.Now()
		for range 5 {
			for _, s := range workers {
				s.Learn(cruise.Feedback{Outcome: cruise.OutcomeThrottled, Sent: at, Cost: 1})
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
func TestCutOnceWhileAsking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := NewMemoryStore()
		epoch := func() int64 {
			memory.mu.Lock()
			defer memory.mu.Unlock()
			return memory.state.Epoch
		}
		workers := fleet(t, &distantStore{Store: memory, rtt: 40 * ms}, 2, cruise.WithInitialRate(10))
		var under []call
		for _, s := range workers {
			calls(t, s, 20)
			under = append(under, letGo(t, s, 1))
		}
		time.Sleep(time.Second)
		under[1].ends(cruise.OutcomeThrottled, 0)
		time.Sleep(2 * time.Second)
		require.EqualValues(t, 2, epoch())
		var group sync.WaitGroup
		group.Go(func() { calls(t, workers[0], 1) })
		time.Sleep(10 * ms)
		under[0].ends(cruise.OutcomeThrottled, 0)
		group.Wait()
		time.Sleep(time.Second)
		assert.EqualValues(t, 2, epoch())
		workers[0].queue.Lock()
		defer workers[0].queue.Unlock()
		assert.EqualValues(t, 2, workers[0].known.Epoch)
		memory.mu.Lock()
		defer memory.mu.Unlock()
		assert.EqualValues(t, 1, memory.state.Late, "that throttle is told as a late one")
	})
}

// What a sync that failed had to tell is told by the next one, whether the store has
// heard it or not: it knows the same in the end as if none had failed.
func TestToldAgain(t *testing.T) {
	learn := func(f cruise.Feedback) func(*Limiter) {
		return func(s *Limiter) {
			f.Sent, f.Cost = time.Now(), 1
			s.Learn(f)
		}
	}
	throttled := learn(cruise.Feedback{Outcome: cruise.OutcomeThrottled})
	stopped := learn(cruise.Feedback{Outcome: cruise.OutcomeThrottled, RetryAfter: time.Minute})
	quota := learn(cruise.Feedback{Outcome: cruise.OutcomeSuccess, Quota: &cruise.Quota{Limit: 1000, Remaining: 900, Reset: time.Hour}})
	for _, tt := range []struct {
		name     string
		pause    time.Duration    // of everyone, before
		do, then func(s *Limiter) // then while the first sync is under way
		epoch    int64
		left     time.Duration // of the pause, half a minute later
	}{
		{"a quota", 0, quota, nil, 1, 0},
		{"a throttle", 0, throttled, nil, 2, 0},
		{"a pause", 0, stopped, nil, 2, time.Minute / 2},
		{"the end of a pause", time.Hour, (*Limiter).Resume, nil, 1, 0},
		{"a pause, and its end", 0, stopped, (*Limiter).Resume, 2, 0},
		{"the end of a pause, and a shorter one", time.Hour, (*Limiter).Resume, stopped, 2, time.Minute / 2},
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
					s := fleet(t, store, 1, cruise.WithMaxRate(10))[0]
					for range 30 {
						require.NoError(t, s.WaitN(t.Context(), 1))
						learn(cruise.Feedback{Outcome: cruise.OutcomeSuccess})(s)
					}
					s.Pause(tt.pause)
					time.Sleep(time.Second)
					fails, told := lost.syncs, make(chan struct{})
					store.fails(func(ctx context.Context, q Request) (Reply, error) {
						<-told
						if fails--; fails >= 0 && !lost.heard {
							return Reply{}, errDown
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
					r, err := memory.Sync(t.Context(), Request{Law: s.law})
					require.NoError(t, err)
					assert.Equal(t, tt.left, r.Pause)
					assert.Equal(t, tt.epoch, r.Epoch)
					assert.Equal(t, tt.name == "a quota", memory.state.QuotaLimit == 1000)
				})
			})
		}
	}
}

// Before the first throttle, a success of a worker that is short of slots is told at
// once, so that the rate which the server gives is known when that comes.
func TestReportsAtOnce(t *testing.T) {
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
				s := fleet(t, store, 1, cruise.WithInitialRate(10), cruise.WithMaxRate(20))[0]
				require.NoError(t, s.WaitN(t.Context(), 1))
				before := store.syncs
				now := clock.Now()
				s.unproved = false // else it is told in any case
				s.known.Ceiling, s.known.Rate, s.next = tt.ceiling, tt.rate, now.Add(tt.next)
				s.slots.add(now, now.Add(time.Second), time.Second, tt.slots)
				s.Learn(cruise.Feedback{Outcome: cruise.OutcomeSuccess, Sent: time.Now(), Cost: 1})
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
func TestNewWindowIsToldSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fleet(t, NewMemoryStore(), 1, cruise.WithInitialRate(10))[0]
		call := func(left int, reset time.Duration) {
			require.NoError(t, s.WaitN(t.Context(), 1))
			s.Learn(cruise.Feedback{Outcome: cruise.OutcomeSuccess, Sent: time.Now(), Cost: 1, Quota: &cruise.Quota{Limit: 100, Remaining: left, Reset: reset}})
		}
		call(100, time.Hour)
		time.Sleep(time.Minute)
		call(1, 59*time.Minute) // what is left is for an hour
		time.Sleep(time.Second)
		start := time.Now()
		call(99, time.Hour)
		first := time.Now()
		require.Greater(t, first.Sub(start), time.Minute)
		call(98, time.Hour)
		assert.Less(t, time.Since(first), time.Second)
	})
}

// What a worker counts is what it says and what the store is told. A call that never went
// says nothing of the server.
func TestCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFaultyStore()
		s := fleet(t, store, 1, steady(10)...)[0]
		for range 5 {
			require.NoError(t, s.WaitN(t.Context(), 2))
		}
		synctest.Wait()
		time.Sleep(time.Second)
		for _, f := range []cruise.Feedback{
			{Outcome: cruise.OutcomeTransient, Sent: time.Now()}, {Outcome: cruise.OutcomeDropped, Sent: time.Now()}, {Outcome: cruise.OutcomeDropped},
			{Outcome: cruise.OutcomePermanent, Sent: time.Now()}, {Outcome: cruise.OutcomeThrottled, Sent: time.Now()},
			{Outcome: cruise.OutcomeThrottled, Sent: time.Now()}, {Outcome: cruise.OutcomeThrottled, Sent: time.Now()},
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
		assert.True(t, store.last.Throttled)
		assert.EqualValues(t, 2, store.last.Late, "beside the first")
		st := s.Stats()
		assert.Equal(t, []uint64{5, 0, 3, uint64(store.syncs), 0}, []uint64{st.Admitted, st.Successes, st.Throttles, st.Syncs, st.Failures})
	})
}

// Whatever a server says of its quota, the store is told numbers that it can reckon with.
func TestQuotaIsToldWithinBounds(t *testing.T) {
	for _, tt := range []struct {
		name       string
		told, want cruise.Quota
	}{
		{"nothing left", cruise.Quota{Limit: 1}, cruise.Quota{Limit: 1}},
		{"less than nothing", cruise.Quota{Limit: -1, Remaining: -5, Reset: -time.Second}, cruise.Quota{}},
		{"too much", cruise.Quota{Limit: math.MaxInt, Remaining: math.MaxInt, Reset: math.MaxInt64}, cruise.Quota{Limit: math.MaxInt32, Remaining: math.MaxInt32, Reset: clock.Year}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newFaultyStore()
				s := fleet(t, store, 1, steady(10)...)[0]
				require.NoError(t, s.WaitN(t.Context(), 1))
				time.Sleep(time.Second)
				s.Learn(cruise.Feedback{Outcome: cruise.OutcomeSuccess, Sent: time.Now(), Cost: 1, Quota: &tt.told})
				synctest.Wait()
				require.NotNil(t, store.last.Quota)
				assert.Equal(t, tt.want, *store.last.Quota)
			})
		})
	}
}
