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
	"github.com/a7df5faa/cruise/internal/clock"
)

// With shared pauses alone, a worker says how its own rate changes.
func TestPauseOnlySaysItsRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var changes []cruise.RateChanged
		watch := cruise.WithObserver(cruise.ObserverFunc(func(_ context.Context, e cruise.Event) {
			if e, ok := e.(cruise.RateChanged); ok {
				changes = append(changes, e)
			}
		}))
		s := fleet(t, NewMemoryStore(), 1, WithPauseOnly(), cruise.WithInitialRate(10), watch)[0]
		calls(t, s, 20)
		time.Sleep(time.Second)
		was := s.Limit()
		letGo(t, s, 1).ends(cruise.OutcomeThrottled, 0)
		require.NotEmpty(t, changes)
		assert.Equal(t, cruise.RateChanged{From: was, To: s.Limit(), Why: cruise.CauseThrottle}, changes[len(changes)-1])
		synctest.Wait()
	})
}

// With shared pauses alone, a wait that the server names stops all, if it is for a throttle
// or a quota; a pause for a throttle that names none stays the worker's own.
func TestPauseOnlyStops(t *testing.T) {
	for _, tt := range []struct {
		name      string
		f         cruise.Feedback
		own, rest time.Duration // pauses of the worker, and of another one
	}{
		{"a throttle", cruise.Feedback{Outcome: cruise.OutcomeThrottled}, 150 * ms, 0}, // by chance
		{"a throttle that says how long", cruise.Feedback{Outcome: cruise.OutcomeThrottled, RetryAfter: time.Hour}, time.Hour, time.Hour},
		{"a quota that says how long", cruise.Feedback{Outcome: cruise.OutcomeQuotaExhausted, RetryAfter: time.Hour}, time.Hour, time.Hour},
		{"an error that says how long", cruise.Feedback{Outcome: cruise.OutcomeTransient, RetryAfter: time.Hour}, 0, 0},
		{"a success that says how long", cruise.Feedback{Outcome: cruise.OutcomeSuccess, RetryAfter: time.Hour}, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				workers := fleet(t, NewMemoryStore(), 2, append(steady(10), WithPauseOnly(), cruise.WithTuning(cruise.Tuning{PauseBackoff: steadyPause}))...)
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

// Workers that share pauses alone do so at whatever rate: no store is told one of 0.
func TestPauseOnlyIsForAnyRate(t *testing.T) {
	for _, most := range []rate.Limit{rate.Every(clock.Year), 1e-6, 1e9, rate.Inf} {
		synctest.Test(t, func(t *testing.T) {
			store := NewMemoryStore()
			a := cruise.Must(New(store, WithPauseOnly(), cruise.WithMaxRate(most)))
			b := cruise.Must(New(store, WithPauseOnly()))
			a.Pause(time.Minute)
			synctest.Wait()
			began := time.Now()
			letGo(t, b, 1).ends(cruise.OutcomeSuccess, 0)
			assert.Equal(t, time.Minute, time.Since(began), "%v", most)
			synctest.Wait()
			assert.NoError(t, a.Stats().Err, "%v", most)
			assert.NoError(t, b.Stats().Err, "%v", most)
		})
	}
}

// A worker that shares pauses alone waits for news only if its last are older than two
// periods.
func TestPauseOnlyWaitsForNews(t *testing.T) {
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

// A worker whose calls wait for a long pause of another one does not take it for
// slowness of the server, nor the time after its end for a part of it. A short one may be
// for a throttle, and counts.
func TestPauseOfAnotherIsNoSlowness(t *testing.T) {
	for _, tt := range []struct {
		name  string
		stop  func(a *Limiter)
		after time.Duration // until calls go again
		given float64       // calls a second
	}{
		{"paused", func(a *Limiter) { a.Pause(time.Hour) }, time.Hour, 100},
		{"paused for as long as a throttle may", func(a *Limiter) { a.Pause(time.Minute) }, time.Minute, 0},
		{"paused and resumed", func(a *Limiter) {
			a.Pause(10 * time.Hour)
			time.Sleep(time.Hour)
			a.Resume()
		}, time.Hour, 100},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := NewMemoryStore()
				a := cruise.Must(New(store, WithPauseOnly()))
				b := cruise.Must(New(store, WithPauseOnly(), cruise.WithMaxRate(100)))
				var over atomic.Bool
				var busy sync.WaitGroup
				for range 10 {
					busy.Go(func() {
						for !over.Load() {
							call := letGo(t, b, 1)
							time.Sleep(10 * ms)
							call.ends(cruise.OutcomeSuccess, 0)
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
				if tt.given > 0 {
					assert.InEpsilon(t, tt.given, b.local.Law().Delivered(b.queue.Now()), .12)
				}
			})
		})
	}
}

// A worker that shares pauses alone binds nobody to its own rates, whoever comes first.
func TestPauseOnlyBindsNoCall(t *testing.T) {
	for _, tt := range []struct {
		name  string
		alone []Option
	}{
		{"a low maximum", []Option{cruise.WithMaxRate(2)}},
		{"a high minimum", []Option{cruise.WithTuning(cruise.Tuning{MinRate: 500}), cruise.WithInitialRate(500)}},
		{"another beginning", []Option{cruise.WithInitialRate(70)}},
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

// Saved tokens are for nothing where others have used up a quota.
func TestPauseOnlyDropsSavedTokens(t *testing.T) {
	burst := cruise.WithTuning(cruise.Tuning{Burst: 50})
	for name, limiter := range map[string]func() cruise.Learner{
		"alone": func() cruise.Learner {
			return cruise.Must(cruise.NewAdaptiveLimiter(cruise.WithInitialRate(10), burst))
		},
		"pause only": func() cruise.Learner {
			return cruise.Must(New(NewMemoryStore(), cruise.WithInitialRate(10), burst, WithPauseOnly()))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := limiter()
				for _, left := range []int{1000, 900, 3} {
					time.Sleep(10 * time.Second)
					require.NoError(t, l.WaitN(t.Context(), 1))
					l.Learn(cruise.Feedback{Outcome: cruise.OutcomeSuccess, Sent: time.Now(), Cost: 1, Quota: &cruise.Quota{Limit: 1000, Remaining: left, Reset: time.Hour}})
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				assert.Error(t, l.WaitN(ctx, 3))
				time.Sleep(time.Minute) // for the last syncs
			})
		})
	}
}
