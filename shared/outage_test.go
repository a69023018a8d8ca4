package shared

import (
	"context"
	"fmt"
	"math"
	"net"
	"runtime"
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
	"github.com/a7df5faa/cruise/internal/clock"
	"github.com/a7df5faa/cruise/internal/replay"
)

// A worker keeps to its own maximum rate, however often it changes between the store and its own
// limit: neither counts the calls that the other let go.
func TestMaximumHoldsWhileTheStoreComesAndGoes(t *testing.T) {
	for _, limit := range []rate.Limit{.25, 1, 5} {
		for hang := 1; hang <= 8; hang++ { // syncs in a row
			t.Run(fmt.Sprintf("%v a second, %d of 11 syncs hang", limit, hang), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store := newFaultyStore()
					syncs := 0
					store.fails(func(ctx context.Context, q Request) (Reply, error) {
						if syncs++; syncs%11 < hang {
							<-ctx.Done()
							return Reply{}, ctx.Err()
						}
						return store.Store.Sync(ctx, q)
					})
					s := cruise.Must(New(store, cruise.WithMaxRate(limit)))
					ctx, cancel := context.WithTimeout(t.Context(), clock.CeilSeconds(500/float64(limit)))
					defer cancel()
					sent := drive(ctx, []*Limiter{s}, 2)()
					assert.Greater(t, len(sent), 250)
					// One call may go at once, and slots may be late by a second, or by one slot.
					assertPace(t, sent, float64(limit), 1+max(1, float64(limit)))
					time.Sleep(time.Minute) // the last sync ends
				})
			})
		}
	}
}

// assertPace checks that every span of time has at most burst calls more than its length allows.
func assertPace(t *testing.T, sent []time.Time, perSecond, burst float64) {
	t.Helper()
	level := 0.
	for i, at := range sent {
		if i > 0 {
			level = max(0, level-perSecond*at.Sub(sent[i-1]).Seconds())
		}
		if level++; level > burst+1e-6 {
			t.Errorf("call %d at %v is ahead by %.2f calls: want at most %v", i, at.Sub(sent[0]), level, burst)
			return
		}
	}
}

// However the store fails, a caller waits for it no longer than the timeout, is
// refused nothing, the server is not taken to have throttled, and the store is asked again.
func TestStoreFails(t *testing.T) {
	nonsense := func(change func(*Reply)) func(context.Context, Request) (Reply, error) {
		return func(_ context.Context, q Request) (Reply, error) {
			r := Reply{Slots: 1, Span: time.Second, Epoch: 1, Rate: 1, Workers: 1, Count: 1}
			change(&r)
			return r, nil
		}
	}
	for _, tt := range []struct {
		name  string
		fault func(context.Context, Request) (Reply, error)
		wait  time.Duration
		want  string
	}{
		{"down", down, 0, "store is down"},
		{"hangs", hangs, DefaultStoreTimeout, "cruise: store did not answer within the time of WithStoreTimeout"},
		{"slow", func(ctx context.Context, q Request) (Reply, error) {
			<-ctx.Done()
			return Reply{}, ctx.Err()
		}, DefaultStoreTimeout, ""},
		{"panics", func(context.Context, Request) (Reply, error) { panic("no memory") }, 0, "cruise: store panicked: no memory"},
		{"exits its goroutine", func(context.Context, Request) (Reply, error) { runtime.Goexit(); return Reply{}, nil }, 0, "cruise: store exited its goroutine"},
		{"nothing", nonsense(func(r *Reply) { *r = Reply{} }), 0, "cruise: store gave epoch 0, rate 0, ceiling 0: want 1 to 4503599627370496, 1 to 1000000000000, 0 or more"},
		{"too many slots", nonsense(func(r *Reply) { r.Slots = math.MaxInt }), 0, fmt.Sprintf("cruise: store gave %d slots: want 0 to 1", math.MaxInt)},
		{"negative slots", nonsense(func(r *Reply) { r.Slots = -1 }), 0, "cruise: store gave -1 slots: want 0 to 1"},
		{"no span", nonsense(func(r *Reply) { r.Span = 0 }), 0, "cruise: store gave slots for 0s: want more than 0, and at most 876000h0m0s"},
		{"slots next year", nonsense(func(r *Reply) { r.Wait = clock.Year }), 0, "cruise: store gave slots from 8760h0m0s on: want at most 1s"},
		{"endless pause", nonsense(func(r *Reply) { r.Pause = math.MaxInt64 }), 0, "cruise: store gave a pause of 2562047h47m16.854775807s: want 0 to 744h0m0s"},
		{"nobody there", nonsense(func(r *Reply) { r.Workers = 0 }), 0, "cruise: store gave 0 workers, level 0, 0 resumes: want 1 or more, 0 or more, 0 or more"},
		{"an epoch after which none could come", nonsense(func(r *Reply) { r.Epoch = math.MaxInt64 }), 0, "cruise: store gave epoch 9223372036854775807, rate 1, ceiling 0: want 1 to 4503599627370496, 1 to 1000000000000, 0 or more"},
		{"an error that is a nil pointer", func(context.Context, Request) (Reply, error) {
			var e *net.OpError
			return Reply{}, e
		}, 0, "cruise: store panicked: runtime error: invalid memory address or nil pointer dereference"},
		{"negative rate", nonsense(func(r *Reply) { r.Rate = -1 }), 0, "cruise: store gave epoch 1, rate -1, ceiling 0: want 1 to 4503599627370496, 1 to 1000000000000, 0 or more"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newFaultyStore()
				store.fails(tt.fault)
				var told []string
				s := cruise.Must(New(store, cruise.WithObserver(cruise.ObserverFunc(func(_ context.Context, e cruise.Event) { told = append(told, fmt.Sprintf("%T", e)) }))))
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
				store.fails(func(context.Context, Request) (Reply, error) { return Reply{}, errBusy })
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
func TestStoreGivesTooMuch(t *testing.T) {
	for _, tt := range []struct {
		name  string
		cost  int
		reply func(q Request) Reply
	}{
		{"at once", 1, func(q Request) Reply { return Reply{Slots: q.Want, Span: 1, Epoch: 1} }},
		{"at once, for calls that cost more", 7, func(q Request) Reply { return Reply{Slots: q.Want, Span: 1, Epoch: 1} }},
		{"saved for a year", 1, func(q Request) Reply {
			return Reply{Slots: q.Want, Wait: -clock.Year, Span: time.Hour, Epoch: 1}
		}},
		{"anew each time", 1, func(q Request) Reply {
			return Reply{Slots: q.Want, Span: time.Duration(q.Want) * time.Second / 10, Epoch: q.Epoch + 1}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newFaultyStore()
				store.fails(func(_ context.Context, q Request) (Reply, error) {
					r := tt.reply(q)
					r.Rate, r.Ceiling, r.Workers, r.Count = 1e12, 1, 1, 1
					return r, nil
				})
				s := cruise.Must(New(store, cruise.WithMaxRate(10)))
				const lasts = time.Minute
				ctx, cancel := context.WithTimeout(t.Context(), lasts)
				defer cancel()
				var sent atomic.Int64
				var all sync.WaitGroup
				for range 20 {
					all.Go(func() {
						for s.WaitN(ctx, tt.cost) == nil {
							sent.Add(int64(tt.cost))
							s.Learn(cruise.Feedback{Outcome: cruise.OutcomeSuccess, Cost: tt.cost, Sent: time.Now()})
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

// A limiter that loses its store keeps to its share, comes back by itself, and
// sends no burst at any time.
func TestOutage(t *testing.T) {
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
				var events []cruise.Event
				watch := cruise.WithObserver(cruise.ObserverFunc(func(_ context.Context, e cruise.Event) {
					mu.Lock()
					defer mu.Unlock()
					switch e.(type) {
					case cruise.StoreDegraded, cruise.StoreRecovered:
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
				assert.Equal(t, cruise.StoreDegraded{Err: errDown}, events[0])
				assert.InDelta(t, 12.5, events[1].(cruise.StoreRecovered).After.Seconds(), 4.5)
			})
		})
	}
}

// A call that waits for several slots of a slow limit keeps those that it has when a sync fails
// now and then, as one by a connection that has died.
func TestSyncsThatFailNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFaultyStore()
		good, n := NewMemoryStore(), 0
		store.fails(func(ctx context.Context, q Request) (Reply, error) {
			if n++; n%10 == 0 {
				return Reply{}, errDown
			}
			return good.Sync(ctx, q)
		})
		told := 0
		watch := cruise.WithObserver(cruise.ObserverFunc(func(_ context.Context, e cruise.Event) {
			if _, away := e.(cruise.StoreDegraded); away {
				told++
			}
		}))
		s := fleet(t, store, 1, append(steady(rate.Every(25*time.Second)), watch)...)[0]
		start := time.Now()
		for range 10 {
			require.NoError(t, s.WaitN(t.Context(), 3))
			s.Learn(cruise.Feedback{Outcome: cruise.OutcomeSuccess, Sent: time.Now(), Cost: 3})
		}
		assert.LessOrEqual(t, time.Since(start), 30*25*time.Second)
		synctest.Wait()
		assert.Greater(t, n, 100)
		assert.Zero(t, told)
		time.Sleep(time.Minute)
	})
}

// Both tries of a sync have no longer than one: nobody waits longer for a store that fails late.
func TestSecondTryIsWithinTheTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFaultyStore()
		first := true
		store.fails(func(ctx context.Context, q Request) (Reply, error) {
			if first {
				first = false
				time.Sleep(DefaultStoreTimeout * 9 / 10)
				return Reply{}, errDown
			}
			<-ctx.Done()
			return Reply{}, ctx.Err()
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
func TestSecondTryAsksForTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFaultyStore()
		var asked []int
		store.fails(func(ctx context.Context, q Request) (Reply, error) {
			if asked = append(asked, q.Want); len(asked) == 1 {
				return Reply{}, errDown
			}
			return store.Store.Sync(ctx, q)
		})
		s := fleet(t, store, 1)[0]
		require.NoError(t, s.WaitN(slowContext{t.Context()}, 3))
		assert.Equal(t, []int{3, 3}, asked)
	})
}

// Probes of a store that is down get rarer, and stop where nobody calls.
func TestProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFaultyStore()
		store.fails(down)
		s := cruise.Must(New(store, WithFallback(FallbackClosed)))
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
func TestStoreLosesAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFaultyStore()
		workers := fleet(t, store, 3, cruise.WithInitialRate(100))
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		sent := drive(ctx, workers, 5)
		time.Sleep(2 * time.Second)
		workers[0].Learn(cruise.Feedback{Outcome: cruise.OutcomeThrottled, Sent: time.Now(), Cost: 1, RetryAfter: 10 * time.Second})
		until := time.Now().Add(10 * time.Second)
		time.Sleep(2 * time.Second)
		was := workers[0].Limit()
		store.mu.Lock()
		store.Store = NewMemoryStore()
		store.mu.Unlock()
		workers[1].Learn(cruise.Feedback{Outcome: cruise.OutcomeSuccess, Sent: time.Now(), Cost: 1}) // the first, so it is told

		newcomer := cruise.Must(New(store))
		synctest.Wait()
		require.NoError(t, newcomer.WaitN(ctx, 1))
		assert.InDelta(t, 0, time.Since(until).Seconds(), .2, "who knew nothing heeds the pause")
		assert.InDelta(t, float64(was), float64(newcomer.Limit()), float64(was)/4)
		sent()
	})
}

// A worker whose store is back keeps to its share for as long as the others may need to come
// back, not for as long as the next call at that share would take.
func TestGoesOnAfterAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFaultyStore()
		answers := func(_ context.Context, q Request) (Reply, error) {
			return Reply{Slots: q.Want, Span: time.Second, Epoch: 1, Rate: 10e6, Ceiling: 10e6, Workers: 1000, Count: 1}, nil
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

// An answer that comes too late is none, however good it is.
func TestLateAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFaultyStore()
		store.fails(func(ctx context.Context, q Request) (Reply, error) {
			time.Sleep(2 * DefaultStoreTimeout)
			return store.Store.Sync(context.WithoutCancel(ctx), q)
		})
		s := cruise.Must(New(store))
		require.NoError(t, s.WaitN(t.Context(), 1))
		time.Sleep(3 * DefaultStoreTimeout)
		assert.True(t, s.Stats().Degraded)
		assert.Equal(t, errStoreTimeout, s.Stats().Err)
	})
}

// After two minutes in which every second attempt was throttled, however slowly they came, the
// shared rate is back at what the server gives within minutes.
func TestBrownout(t *testing.T) {
	takesLong(t)
	const limit, well, brown = 100, 5 * time.Minute, 2 * time.Minute
	for name, throttles := range map[string]func(n int) bool{
		"every second": func(n int) bool { return n%2 == 0 },
		"at random":    func(int) bool { return chance.N(2) == 0 },
	} {
		t.Run(name, func(t *testing.T) {
			replay.Test(t, func(t *testing.T) {
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
								f := cruise.Feedback{Outcome: cruise.OutcomeThrottled, Sent: time.Now(), Cost: 1}
								replay.Sleep(60 * ms)
								mu.Lock()
								sent++
								since := time.Since(start)
								in := since >= well && since < well+brown
								if !(in && throttles(sent)) && srv.admits() {
									f.Outcome = cruise.OutcomeSuccess
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

// A throttle of a call that went before the store was lost is of the shared rate where no
// call goes without the store: it is told when that is back. Else it is of the worker's own.
func TestThrottleWithoutStore(t *testing.T) {
	for _, tt := range []struct {
		name string
		opts []Option
		want rate.Limit // afterwards
	}{
		{"closed", []Option{WithFallback(FallbackClosed)}, 2.5},
		{"share", nil, 10},
		{"open", []Option{WithFallback(FallbackOpen)}, 10},
		{"pause only, closed", []Option{WithFallback(FallbackClosed), WithPauseOnly()}, 10},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newFaultyStore()
				l := fleet(t, store, 1, append(tt.opts, cruise.WithMaxRate(10))...)[0]
				letGo(t, l, 1).ends(cruise.OutcomeSuccess, 0)
				c := letGo(t, l, 1)
				store.fails(down)
				l.Resume() // which it tells at once
				time.Sleep(time.Second)
				require.True(t, l.Stats().Degraded)
				c.ends(cruise.OutcomeThrottled, 0)
				time.Sleep(10 * time.Second)
				store.fails(nil)
				require.NoError(t, l.WaitN(t.Context(), 1))
				time.Sleep(10 * time.Second)
				require.NoError(t, l.WaitN(t.Context(), 1))
				synctest.Wait()
				r, err := store.Sync(t.Context(), Request{Law: Law{Min: 1, Max: 1e12}})
				require.NoError(t, err)
				assert.InDelta(t, float64(tt.want), float64(limitOfMicro(r.Rate)), .2)
			})
		})
	}
}

// Where everyone goes without the store, throttles pause the worker all the same: retries
// would follow each other at once.
func TestOpenPausesForThrottles(t *testing.T) {
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
				letGo(t, l, 1).ends(cruise.OutcomeSuccess, 0)
				if !tt.store {
					store.fails(down)
					l.Resume() // which it tells at once
					synctest.Wait()
					require.True(t, l.Stats().Degraded)
				}
				first := letGo(t, l, 1)
				store.fails(down)
				start := time.Now()
				first.ends(cruise.OutcomeThrottled, 0)
				second := letGo(t, l, 1)
				assert.GreaterOrEqual(t, time.Since(start), 150*ms)
				for range 4 {
					second.ends(cruise.OutcomeThrottled, 0)
					second = letGo(t, l, 1)
				}
				assert.Greater(t, time.Since(start), 2*time.Second, "pauses double")
				start = time.Now()
				for range 100 {
					letGo(t, l, 1).ends(cruise.OutcomeSuccess, 0)
				}
				assert.Zero(t, time.Since(start), "else everyone goes")
				for n := range 100 {
					c := letGo(t, l, 1)
					time.Sleep(100 * ms)
					if n%5 == 0 {
						c.ends(cruise.OutcomeThrottled, 0)
					} else {
						c.ends(cruise.OutcomeSuccess, 0)
					}
				}
				assert.Less(t, time.Since(start), 30*time.Second, "a pause takes half of the time since the last throttle at most")
				time.Sleep(time.Minute) // for the last syncs
			})
		})
	}
}

// What a fleet may save up, it may without the store too, and no more; a call that costs
// more than a worker's share of it goes all the same.
func TestBurstWithoutStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFaultyStore()
		workers := fleet(t, store, 10, append(steady(10), cruise.WithTuning(cruise.Tuning{Burst: 50}))...)
		for range 2 {
			for _, l := range workers {
				letGo(t, l, 1).ends(cruise.OutcomeSuccess, 0)
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
		letGo(t, workers[0], 50).ends(cruise.OutcomeSuccess, 0)
		assert.InDelta(t, 50, time.Since(start).Seconds(), 1, "at a tenth of the rate")
		time.Sleep(time.Minute) // for the last syncs
	})
}
