package shared

import (
	"context"
	"errors"
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
	"github.com/a7df5faa/cruise/internal/clock"
)

// A call that could not go before its deadline is refused at once, whether it has its slots
// or the store gives them out as fast as it can.
func TestDeadline(t *testing.T) {
	for _, tt := range []struct {
		name  string
		slots int           // of ten a second in hand
		cost  int           // of the call
		after time.Duration // until it might go
	}{
		{"the slots are there", 5, 3, 300 * ms},
		{"some are missing", 5, 16, 1099 * ms},
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
					assert.Equal(t, left < tt.after, errors.Is(err, cruise.ErrDeadline) && clock.Now() == now, "%v", err)
					time.Sleep(time.Minute) // for the last syncs
				})
			})
		}
	}
}

// A call for which others gave back enough waits for no slot.
func TestDeadlineOfACallThatIsPaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fleet(t, NewMemoryStore(), 1, steady(1)...)[0]
		require.NoError(t, s.WaitN(t.Context(), 1))
		s.queue.Charge(clock.Now(), -1)
		now := clock.Now()
		s.slots.add(now, now.Add(2*time.Second), time.Second, 1)
		assert.Zero(t, s.policy().AtLeast(now, 0, 1))
		assert.Equal(t, 2*time.Second, s.policy().AtLeast(now, 0, 2))
		time.Sleep(time.Minute) // for the last syncs
	})
}

// Where nobody goes without the store, whoever could not wait until it is asked again is
// told so at once.
func TestDeadlineWithoutStore(t *testing.T) {
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
		require.ErrorIs(t, err, cruise.ErrDeadline)
		again := s.next.Sub(clock.Now())
		require.Greater(t, again, 2*ms)
		took, err := wait(again - ms)
		require.ErrorIs(t, err, cruise.ErrDeadline)
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
func TestDeadlineAtTheBeginning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := cruise.Must(New(NewMemoryStore()))
		call := func(ctx context.Context) error {
			if err := s.WaitN(ctx, 1); err != nil {
				return err
			}
			sent := time.Now()
			time.Sleep(50 * ms)
			s.Learn(cruise.Feedback{Outcome: cruise.OutcomeSuccess, Sent: sent, Cost: 1})
			return nil
		}
		var group sync.WaitGroup
		for range 100 {
			group.Go(func() { _ = call(t.Context()) })
		}
		time.Sleep(200 * ms)
		for deadline, want := range map[time.Duration]error{6 * time.Second: nil, time.Second: cruise.ErrDeadline} {
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
func TestDeadlineAtTheBeginningOfOthers(t *testing.T) {
	for idle, want := range map[time.Duration]error{9 * time.Second: nil, 100 * ms: cruise.ErrDeadline} {
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
func TestDeadlineAtARateOfLongAgo(t *testing.T) {
	for _, tt := range []struct {
		name    string
		now     rate.Limit // 1 call a second was the rate before
		refused int        // of ten calls that have 5.5 s
	}{
		{"it is higher", 100, 0},
		{"it is the same", 1, 4},
		{"it is lower", .5, 7},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &MemoryStore{begun: clock.Now()}
				s := fleet(t, &distantStore{Store: store, rtt: ms}, 1, cruise.WithInitialRate(1))[0]
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
						if errors.Is(s.WaitN(ctx, 1), cruise.ErrDeadline) && time.Since(start) <= ms {
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

// A call whose slot comes after its deadline is refused at once where the worker knows the next
// slot, and as soon as the store has answered where another worker has taken it.
func TestDeadlineBeforeTheNextSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &distantStore{Store: NewMemoryStore(), rtt: ms}
		workers := fleet(t, store, 2, steady(1./60)...)
		require.NoError(t, workers[0].WaitN(t.Context(), 1))
		for i, s := range workers {
			start := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			err := s.WaitN(ctx, 1)
			var e *cruise.Error
			require.ErrorAs(t, err, &e, "%v", err)
			assert.ErrorIs(t, err, cruise.ErrDeadline)
			assert.InDelta(t, 60, e.RetryAfter.Seconds(), .1)
			assert.Equal(t, time.Duration(i)*ms, time.Since(start))
		}
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 61*time.Second)
		defer cancel()
		require.NoError(t, workers[0].WaitN(ctx, 1))
		assert.InDelta(t, 60, time.Since(start).Seconds(), .1)
		time.Sleep(time.Minute) // for the last syncs
	})
}

// The rate may rise to the ceiling, and a new window may begin: a call that could go then is not
// refused for its deadline.
func TestDeadlineAfterTheRateRises(t *testing.T) {
	for _, tt := range []struct {
		name    string
		ceiling int64
		why     cruise.Cause
		refused bool
	}{
		{"the rate stays", 1e6, cruise.CauseThrottle, true},
		{"the rate may rise", 5e6, cruise.CauseThrottle, false},
		{"a window may end", 1e6, cruise.CauseQuota, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newFaultyStore()
				store.fails(func(_ context.Context, q Request) (Reply, error) {
					time.Sleep(ms)
					slots := min(q.Want, 1)
					return Reply{
						Slots: slots, Span: time.Duration(slots) * time.Second,
						Epoch: 1, Rate: 1e6, Ceiling: tt.ceiling, Why: tt.why, Workers: 1, Count: 1,
					}, nil
				})
				s := fleet(t, store, 1)[0]
				require.NoError(t, s.WaitN(t.Context(), 1))
				ctx, cancel := context.WithTimeout(t.Context(), 500*ms)
				defer cancel()
				start := time.Now()
				err := s.WaitN(ctx, 1)
				assert.Equal(t, tt.refused, errors.Is(err, cruise.ErrDeadline) && time.Since(start) == 0, "%v", err)
				time.Sleep(time.Minute) // for the last syncs
			})
		})
	}
}
