package shared

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/a7df5faa/cruise"
)

// A worker says once that it pauses, not again as the store is told and asked, nor for
// shorter pauses within.
func TestSaysOnceThatItPauses(t *testing.T) {
	for _, tt := range []struct {
		name string
		stop func(s *Limiter)
	}{
		{"by hand", func(s *Limiter) { s.Pause(10 * time.Second) }},
		{"by a throttle", func(s *Limiter) {
			s.Learn(cruise.Feedback{Outcome: cruise.OutcomeThrottled, Sent: time.Now(), Cost: 1, RetryAfter: 10 * time.Second})
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var paused []cruise.Paused
				watch := cruise.WithObserver(cruise.ObserverFunc(func(_ context.Context, e cruise.Event) {
					mu.Lock()
					defer mu.Unlock()
					if e, ok := e.(cruise.Paused); ok {
						paused = append(paused, e)
					}
				}))
				s := fleet(t, &distantStore{Store: NewMemoryStore(), rtt: 80 * ms}, 1, append(steady(10), watch)...)[0]
				require.NoError(t, s.WaitN(t.Context(), 1))
				s.Pause(-time.Second)
				until := time.Now().Add(10 * time.Second)
				tt.stop(s)
				time.Sleep(time.Second)
				s.Learn(cruise.Feedback{Outcome: cruise.OutcomeThrottled, Sent: time.Now(), Cost: 1, RetryAfter: time.Second})
				s.Pause(time.Second)
				require.NoError(t, s.WaitN(t.Context(), 1))
				time.Sleep(time.Second) // for the last syncs
				synctest.Wait()
				assert.Equal(t, []cruise.Paused{{Until: until, For: 10 * time.Second}}, paused)
			})
		})
	}
}

// A worker that hears of another one's pause says so, and so it does of its end before its
// time, and of one that is shorter.
func TestSaysThatOthersPauseAndResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said []cruise.Event
		watch := cruise.WithObserver(cruise.ObserverFunc(func(_ context.Context, e cruise.Event) {
			switch e.(type) {
			case cruise.Paused, cruise.Resumed:
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
			if p, ok := e.(cruise.Paused); ok {
				p.Until = time.Time{}
				said[i] = p
			}
		}
		assert.Equal(t, []cruise.Event{
			cruise.Paused{For: 20 * s}, cruise.Resumed{Left: 10 * s}, cruise.Paused{For: 4750 * ms},
			cruise.Paused{For: 20 * s}, cruise.Resumed{Left: 10 * s}, cruise.Paused{For: 10 * s}, cruise.Resumed{Left: 10 * s},
		}, said)
	})
}

// Who is slow to hear that the store is away does not hear that it is back before.
func TestOutageIsToldInOrder(t *testing.T) {
	for _, tt := range []struct {
		name  string
		syncs int // that fail
		fault func(context.Context, Request) (Reply, error)
	}{
		{"errors", 2, down},
		{"no answer in time", 1, func(context.Context, Request) (Reply, error) {
			time.Sleep(DefaultStoreTimeout + time.Millisecond)
			return Reply{}, errDown
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newFaultyStore()
				var mu sync.Mutex
				var told []string
				watch := cruise.WithObserver(cruise.ObserverFunc(func(_ context.Context, e cruise.Event) {
					if _, away := e.(cruise.StoreDegraded); away {
						time.Sleep(time.Second)
					} else if _, back := e.(cruise.StoreRecovered); !back {
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
				store.fails(func(ctx context.Context, q Request) (Reply, error) {
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
func TestObserverThatEndsItsGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFaultyStore()
		var back atomic.Bool
		s := fleet(t, store, 1, append(steady(100), cruise.WithObserver(cruise.ObserverFunc(func(_ context.Context, e cruise.Event) {
			switch e.(type) {
			case cruise.StoreDegraded:
				runtime.Goexit()
			case cruise.StoreRecovered:
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

// A worker that pauses since its store fails says so.
func TestTellsThePauseOfAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFaultyStore()
		var mu sync.Mutex
		var told []cruise.Event
		s := cruise.Must(New(store, cruise.WithInitialRate(10), cruise.WithObserver(cruise.ObserverFunc(func(_ context.Context, e cruise.Event) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, e)
		}))))
		calls(t, s, 50)
		c := letGo(t, s, 1)
		store.fails(func(ctx context.Context, q Request) (Reply, error) {
			time.Sleep(time.Microsecond) // by then the throttle is told
			return down(ctx, q)
		})
		c.ends(cruise.OutcomeThrottled, 0)
		time.Sleep(time.Millisecond)
		mu.Lock()
		defer mu.Unlock()
		var kinds []string
		for _, e := range told {
			kinds = append(kinds, fmt.Sprintf("%T", e))
		}
		assert.Equal(t, []string{"cruise.ThrottleSeen", "cruise.Paused", "cruise.StoreDegraded"}, kinds[max(0, len(kinds)-3):])
		assert.Equal(t, s.PauseLeft(), time.Until(told[len(told)-2].(cruise.Paused).Until))
	})
}

// A worker hears why the shared rate has fallen.
func TestRateSaysWhy(t *testing.T) {
	for _, tt := range []struct {
		name string
		end  cruise.Feedback
		want cruise.Cause
	}{
		{"a throttle", cruise.Feedback{Outcome: cruise.OutcomeThrottled, Cost: 1}, cruise.CauseThrottle},
		{"a quota", cruise.Feedback{Outcome: cruise.OutcomeSuccess, Cost: 1, Quota: &cruise.Quota{Limit: 100}}, cruise.CauseQuota},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex // guards both
				var falls, rises []cruise.Cause
				s := cruise.Must(New(NewMemoryStore(), cruise.WithObserver(cruise.ObserverFunc(func(_ context.Context, e cruise.Event) {
					mu.Lock()
					defer mu.Unlock()
					if e, ok := e.(cruise.RateChanged); ok && e.To < e.From {
						falls = append(falls, e.Why)
					} else if ok && len(falls) > 0 {
						rises = append(rises, e.Why)
					}
				}))))
				for range 3 {
					assert.NoError(t, s.WaitN(t.Context(), 1))
					s.Learn(cruise.Feedback{Outcome: cruise.OutcomeSuccess, Sent: time.Now(), Cost: 1})
				}
				for range 2 { // the first quota has nothing to be compared with
					assert.NoError(t, s.WaitN(t.Context(), 1))
					time.Sleep(time.Second)
					tt.end.Sent = time.Now()
					s.Learn(tt.end)
				}
				assert.NoError(t, s.WaitN(t.Context(), 1))
				synctest.Wait()
				assert.Equal(t, tt.want, falls[0])
				calls(t, s, 60)
				synctest.Wait()
				assert.Contains(t, rises, cruise.CauseSuccess)
				assert.NotContains(t, rises, tt.want, "a rise is no fall")
			})
		})
	}
}
