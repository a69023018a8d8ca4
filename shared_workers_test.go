package cruise

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
)

// What one worker does to all others, and does not.

func nearStore() *distantStore { return &distantStore{Store: NewMemoryStore(), rtt: ms} }

// load has callers make one call after the other until ctx ends, 60 ms each.
func load(ctx context.Context, group *sync.WaitGroup, l *SharedLimiter, srv *tokenServer, callers int) {
	for range callers {
		group.Go(func() {
			for l.WaitN(ctx, 1) == nil {
				f := Feedback{Outcome: OutcomeThrottled, Sent: time.Now(), Cost: 1}
				time.Sleep(30 * ms)
				if srv.admits() {
					f.Outcome = OutcomeSuccess
				}
				time.Sleep(30 * ms)
				l.Learn(f)
			}
		})
	}
}

// A worker that makes a call now and then, one after the other, takes no slot ahead of its next
// call: that would expire, and be lost to all.
func TestSharedSlotsOfSparseCallsAreNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, srv := nearStore(), newTokenServer(12)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		var group sync.WaitGroup
		for _, l := range fleet(t, store, 10) {
			group.Go(func() {
				for l.WaitN(ctx, 1) == nil {
					f := Feedback{Outcome: OutcomeThrottled, Sent: time.Now(), Cost: 1}
					if srv.admits() {
						f.Outcome = OutcomeSuccess
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
func TestSharedLowestMaximumHolds(t *testing.T) {
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
		load(braked, &group, fleet(t, store, 1, WithMaxRate(50))[0], srv, 5)
		group.Wait()
		time.Sleep(time.Second)
		assert.InDelta(t, 50, countIn(srv.sent, brake.Add(30*time.Second), time.Minute)/60, 2)
		assert.Greater(t, countIn(srv.sent, brake.Add(150*time.Second), 30*time.Second)/30, 500, "afterwards")
	})
}

// A worker that shares pauses alone binds nobody to its own rates, whoever comes first.
func TestSharedPauseOnlyBindsNobody(t *testing.T) {
	for _, tt := range []struct {
		name  string
		alone []SharedOption
	}{
		{"a low maximum", []SharedOption{WithMaxRate(2)}},
		{"a high minimum", []SharedOption{WithMinRate(500), WithInitialRate(500)}},
		{"another beginning", []SharedOption{WithInitialRate(70)}},
	} {
		for _, first := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, first %v", tt.name, first), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store := nearStore()
					shares := fleet(t, store, 1)[0]
					alone := fleet(t, store, 1, append(tt.alone, WithPauseOnly())...)[0]
					if !first {
						require.NoError(t, shares.WaitN(t.Context(), 1))
					}
					require.NoError(t, alone.WaitN(t.Context(), 1))
					time.Sleep(time.Second)
					require.NoError(t, shares.WaitN(t.Context(), 1))
					time.Sleep(time.Second)
					assert.EqualValues(t, 10, shares.Limit())
				})
			})
		}
	}
}

// The rate begins as those say who make calls, not as somebody before who did not; what was
// known before the store lost all is no beginning.
func TestSharedBeginsWithTheFirstCall(t *testing.T) {
	const cost = 1000
	for _, tt := range []struct {
		name  string
		opts  []SharedOption
		first func(t *testing.T, store *faultyStore, l *SharedLimiter)
		want  rate.Limit
	}{
		{"nothing before", nil, func(*testing.T, *faultyStore, *SharedLimiter) {}, 10 * cost},
		{"an end of pauses before", nil, func(_ *testing.T, _ *faultyStore, l *SharedLimiter) { l.Resume() }, 10 * cost},
		{"a pause before", nil, func(_ *testing.T, _ *faultyStore, l *SharedLimiter) { l.Pause(time.Second) }, 10 * cost},
		{"who shares pauses alone before", []SharedOption{WithInitialRate(300)}, func(t *testing.T, store *faultyStore, _ *SharedLimiter) {
			require.NoError(t, fleet(t, store, 1, WithPauseOnly())[0].WaitN(t.Context(), 1))
		}, 300},
		{"a call before", nil, func(t *testing.T, store *faultyStore, _ *SharedLimiter) {
			require.NoError(t, fleet(t, store, 1)[0].WaitN(t.Context(), 1))
		}, 10},
		{"a rate that was lost", nil, func(t *testing.T, store *faultyStore, _ *SharedLimiter) {
			l := fleet(t, store, 1, WithInitialRate(70))[0]
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

// A throttle of a call that went before the store was lost is of the shared rate where no
// call goes without the store: it is told when that is back. Else it is of the worker's own.
func TestSharedThrottleWithoutStore(t *testing.T) {
	for _, tt := range []struct {
		name string
		opts []SharedOption
		want rate.Limit // afterwards
	}{
		{"closed", []SharedOption{WithFallback(FallbackClosed)}, 5},
		{"share", nil, 10},
		{"open", []SharedOption{WithFallback(FallbackOpen)}, 10},
		{"pause only, closed", []SharedOption{WithFallback(FallbackClosed), WithPauseOnly()}, 10},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newFaultyStore()
				l := fleet(t, store, 1, append(tt.opts, WithMaxRate(10))...)[0]
				letGo(t, l, 1).ends(OutcomeSuccess, 0)
				c := letGo(t, l, 1)
				store.fails(down)
				l.Resume() // which it tells at once
				time.Sleep(time.Second)
				require.True(t, l.Stats().Degraded)
				c.ends(OutcomeThrottled, 0)
				time.Sleep(10 * time.Second)
				store.fails(nil)
				require.NoError(t, l.WaitN(t.Context(), 1))
				time.Sleep(10 * time.Second)
				require.NoError(t, l.WaitN(t.Context(), 1))
				synctest.Wait()
				r, err := store.Sync(t.Context(), StoreRequest{Law: SharedLaw{Min: 1, Max: 1e12}})
				require.NoError(t, err)
				assert.Equal(t, tt.want, limitOfMicro(r.Rate))
			})
		})
	}
}

// Where everyone goes without the store, throttles pause the worker all the same: retries
// would follow each other at once.
func TestSharedOpenPausesForThrottles(t *testing.T) {
	for _, tt := range []struct {
		name  string
		store bool // until the first throttle is told
	}{
		{"the store is away", false},
		{"the store goes away at the throttle", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newFaultyStore()
				l := fleet(t, store, 1, WithFallback(FallbackOpen))[0]
				letGo(t, l, 1).ends(OutcomeSuccess, 0)
				if !tt.store {
					store.fails(down)
					l.Resume() // which it tells at once
					synctest.Wait()
					require.True(t, l.Stats().Degraded)
				}
				first := letGo(t, l, 1)
				store.fails(down)
				start := time.Now()
				first.ends(OutcomeThrottled, 0)
				second := letGo(t, l, 1)
				assert.GreaterOrEqual(t, time.Since(start), 150*ms)
				for range 4 {
					second.ends(OutcomeThrottled, 0)
					second = letGo(t, l, 1)
				}
				assert.Greater(t, time.Since(start), 2*time.Second, "pauses double")
				start = time.Now()
				for range 100 {
					letGo(t, l, 1).ends(OutcomeSuccess, 0)
				}
				assert.Zero(t, time.Since(start), "else everyone goes")
				time.Sleep(time.Minute) // for the last syncs
			})
		})
	}
}

// What a fleet may save up, it may without the store too, and no more; a call that costs
// more than a worker's share of it goes all the same.
func TestSharedBurstWithoutStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFaultyStore()
		workers := fleet(t, store, 10, append(steady(10), WithBurst(50))...)
		for range 2 {
			for _, l := range workers {
				letGo(t, l, 1).ends(OutcomeSuccess, 0)
			}
			time.Sleep(time.Second)
		}
		store.fails(down)
		for _, l := range workers {
			l.Resume() // which it tells at once
		}
		time.Sleep(5 * time.Minute)
		ctx, cancel := context.WithTimeout(t.Context(), 500*ms)
		defer cancel()
		var group sync.WaitGroup
		var went atomic.Int64
		for range 50 {
			for _, l := range workers {
				group.Go(func() {
					if l.WaitN(ctx, 1) == nil {
						went.Add(1)
					}
				})
			}
		}
		group.Wait()
		assert.EqualValues(t, 50, went.Load(), "at once, of all workers")
		start := time.Now()
		letGo(t, workers[0], 50).ends(OutcomeSuccess, 0)
		assert.InDelta(t, 50, time.Since(start).Seconds(), 1, "at a tenth of the rate")
		time.Sleep(time.Minute) // for the last syncs
	})
}

// A pause that is longer than the longest to be shared is told once, and only its worker
// sits out the rest.
func TestSharedPauseOfMonths(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var paused atomic.Int32
		store := nearStore()
		told := fleet(t, store, 1)[0]
		hears := fleet(t, store, 1, WithObserver(ObserverFunc(func(_ context.Context, e Event) {
			if _, ok := e.(Paused); ok {
				paused.Add(1)
			}
		})))[0]
		const longer = 24 * time.Hour
		told.Learn(Feedback{Outcome: OutcomeThrottled, Cost: 1, RetryAfter: MaxSharedPause + longer})
		time.Sleep(time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Minute, cancel)
		var group sync.WaitGroup
		for _, l := range []*SharedLimiter{told, hears} {
			group.Go(func() { assert.ErrorIs(t, l.WaitN(ctx, 1), context.Canceled) })
		}
		group.Wait()
		time.Sleep(time.Second) // for the last syncs
		assert.EqualValues(t, 1, paused.Load())
		assert.Equal(t, MaxSharedPause-62*time.Second, hears.PauseLeft().Round(time.Second))
		assert.Equal(t, MaxSharedPause+longer-62*time.Second, told.PauseLeft().Round(time.Second))
	})
}

// A pause without a Retry-After may be shared too, however long a backoff makes it.
func TestSharedBackoffOfMonths(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const base = 2 * MaxSharedPause
		long := Must(NewBackoff(WithBase(base), WithMaxDelay(base), WithJitter(NoJitter())))
		l := fleet(t, nearStore(), 1, WithPauseBackoff(long))[0]
		letGo(t, l, 1).ends(OutcomeSuccess, 0)
		for range 2 {
			time.Sleep(2 * time.Second)
			letGo(t, l, 1).ends(OutcomeThrottled, 0)
		}
		time.Sleep(2 * time.Second)
		assert.NoError(t, l.Stats().Err)
		assert.Equal(t, MaxSharedPause-2*time.Second, l.PauseLeft().Round(time.Second))
	})
}

// What has been saved goes at once, and asks the store for it once, not slot by slot.
func TestSharedBurstGoesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := nearStore()
		l := fleet(t, store, 1, append(steady(10), WithBurst(1000))...)[0]
		require.NoError(t, l.WaitN(t.Context(), 1))
		l.Learn(Feedback{Outcome: OutcomeSuccess, Cost: 1, Sent: time.Now()})
		for _, calls := range []int{100, 1} {
			time.Sleep(5 * time.Minute)
			start, before := time.Now(), store.syncs
			var group sync.WaitGroup
			for range calls {
				group.Go(func() { assert.NoError(t, l.WaitN(t.Context(), 1)) })
			}
			group.Wait()
			assert.Less(t, time.Since(start), 10*ms, "%d calls", calls)
			assert.Less(t, store.syncs-before, 10, "%d calls", calls)
		}
		time.Sleep(time.Second)
	})
}

// A worker that has been away for long knows less than those who learned anew when the
// store had forgotten.
func TestSharedRateOfYesterday(t *testing.T) {
	takesLong(t)
	synctest.Test(t, func(t *testing.T) {
		store, srv := &faultyStore{Store: nearStore()}, newTokenServer(10)
		work := func(l *SharedLimiter, callers int, d time.Duration) {
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
		old.Learn(Feedback{Outcome: OutcomeSuccess, Cost: 1, Sent: time.Now()})
		start := time.Now()
		work(fresh, 100, time.Minute)
		time.Sleep(time.Second)
		assert.Greater(t, countIn(srv.sent, start, time.Minute)/60, 700)
	})
}

// A pause that a worker makes for itself is told to nobody, only what the server asks for
// is, also in a longer one.
func TestSharedOwnPauseStaysItsOwn(t *testing.T) {
	for _, tt := range []struct {
		name   string
		opts   []SharedOption
		cutOff bool // from the store, when it learns of it
	}{
		{"pause only", []SharedOption{WithPauseOnly()}, false},
		{"cut off from the store", []SharedOption{WithInitialRate(10)}, true},
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
					call.ends(OutcomeThrottled, 0)
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
				a.Learn(Feedback{Outcome: OutcomeThrottled, Sent: start, Cost: 1, RetryAfter: 5 * time.Second})
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

// A Resume that could not be told ends the pause for all some seconds later. After that it
// is forgotten: there may be another pause, which it was not for.
func TestSharedResumeIsToldSoonOrNever(t *testing.T) {
	for _, tt := range []struct {
		after time.Duration // the store is back
		waits time.Duration
	}{
		{2 * time.Second, time.Second},
		{time.Hour, time.Minute},
	} {
		synctest.Test(t, func(t *testing.T) {
			store := newFaultyStore()
			a, b := fleet(t, store, 1, steady(10)...)[0], fleet(t, store.Store, 1, steady(10)...)[0]
			calls(t, a, 1)
			calls(t, b, 1)
			time.Sleep(time.Second)
			store.fails(down)
			a.Resume()
			time.Sleep(tt.after)
			start := time.Now()
			b.Pause(time.Minute)
			synctest.Wait()
			store.fails(nil)
			calls(t, a, 1)
			calls(t, b, 1)
			assert.InDelta(t, tt.waits.Seconds(), time.Since(start).Seconds(), 1, "%v later", tt.after)
			time.Sleep(time.Second)
		})
	}
}

// A call that waits long for its slots hears of the pauses of others meanwhile, also where the
// workers are so many that each asks for slots every few seconds only, and whatever else happens.
func TestSharedDearCallHeedsPauses(t *testing.T) {
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
					l.Learn(Feedback{Outcome: OutcomeSuccess, Cost: 1})
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
					workers[0].Learn(Feedback{Outcome: OutcomeSuccess, Sent: start, Cost: 1})
				})
				time.Sleep(tt.told)
				workers[1].Learn(Feedback{Outcome: OutcomeThrottled, RetryAfter: time.Minute, Sent: time.Now(), Cost: 1})
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
func TestSharedCallHeldUpAboveHeedsPauses(t *testing.T) {
	for name, opts := range map[string][]SharedOption{"slots": nil, "pauses alone": {WithPauseOnly()}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := nearStore()
				workers := fleet(t, store, 2, append(opts, steady(100)...)...)
				developer := Must(New(WithLimiter(Must(NewTokenBucket(rate.Every(20*time.Second), 1))),
					WithScopeLimiter(func(string, string) (Limiter, error) { return workers[0], nil })))
				start := time.Now()
				var group sync.WaitGroup
				for range 2 {
					group.Go(func() { assert.NoError(t, developer.Scope("ACCOUNT", "4711").Do(t.Context(), ok)) })
				}
				time.Sleep(10 * time.Second)
				workers[1].Learn(Feedback{Outcome: OutcomeThrottled, RetryAfter: time.Minute, Sent: time.Now(), Cost: 1})
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
func TestSharedRefusesNobodyForAPauseThatIsOver(t *testing.T) {
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
					require.ErrorIs(t, err, ErrDeadline)
				}
				assert.Less(t, time.Since(start), 10*ms)
				time.Sleep(time.Second)
			})
		})
	}
}

// A pause that was ended stays so for as long as a worker may know of it.
func TestSharedStateRemembersALiftedPause(t *testing.T) {
	var s SharedState
	s.Sync(0, StoreRequest{Law: SharedLaw{Min: 1, Max: 1e6, Initial: 1e6}, Pause: time.Hour, NewPause: true})
	s.Sync(time.Second, StoreRequest{Law: SharedLaw{Min: 1, Max: 1e6, Initial: 1e6}, Resume: true})
	assert.Equal(t, time.Hour.Microseconds(), s.Lifted)
	assert.LessOrEqual(t, s.Until, time.Second.Microseconds())
}
