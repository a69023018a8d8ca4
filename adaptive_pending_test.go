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
	"golang.org/x/time/rate"

	"github.com/a7df5faa/cruise/internal/clock"
)

// Whoever ends while others begin to wait is heard: nobody waits for the patience
// of the law, and no success is lost or counted twice.
func TestAdaptiveHearsOfEverySuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := Must(NewAdaptiveLimiter())
		const callers, each = 50, 200
		start := time.Now()
		var all sync.WaitGroup
		for range callers {
			all.Go(func() {
				for range each {
					letGo(t, a, 1).ends(OutcomeSuccess, 0)
				}
			})
		}
		all.Wait()
		assert.Zero(t, time.Since(start))
		s := a.Stats()
		assert.EqualValues(t, callers*each, s.Admitted)
		assert.EqualValues(t, callers*each, s.Successes)
		assert.Zero(t, a.law.InFlight())
	})
}

// Of several successes that the law is told of late, the last came when it did.
func TestAdaptiveKnowsWhenTheLastSuccessCame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := Must(NewAdaptiveLimiter(WithInitialRate(1000), WithTuning(Tuning{Burst: 3})))
		time.Sleep(time.Second)
		var underWay []call
		for range 3 {
			underWay = append(underWay, letGo(t, a, 1))
		}
		for _, c := range underWay {
			time.Sleep(10 * ms)
			c.ends(OutcomeSuccess, 0)
		}
		last := clock.Now()
		time.Sleep(time.Second)
		assert.EqualValues(t, 3, a.Stats().Successes)
		assert.Equal(t, last, a.lawTime)
	})
}

// A limiter that is watched hears of each success when it comes, any other one of many
// at once. Both learn the same from them.
func TestAdaptiveLearnsTheSameUnwatched(t *testing.T) {
	at1000 := []LimiterOption{WithInitialRate(1000)}
	same := func(took time.Duration) func(int, int) time.Duration {
		return func(int, int) time.Duration { return took }
	}
	for _, tt := range []struct {
		name  string
		begin []LimiterOption
		took  func(batch, call int) time.Duration
		cost  func(call int) int
		end   Outcome // of one call more
	}{
		{"one after the other, until a throttle", nil, func(_, call int) time.Duration { return time.Duration(call+1) * 25 * ms }, nil, OutcomeThrottled},
		{"a straggler", at1000, func(batch, call int) time.Duration {
			if batch == 39 && call == 39 {
				return time.Second
			}
			return 100 * ms
		}, nil, OutcomeSuccess},
		{"slower calls", at1000, func(batch, _ int) time.Duration { return 100*ms + time.Duration(max(0, min(1, batch-36)))*300*ms }, nil, OutcomeSuccess},
		{"of two costs", at1000, same(100 * ms), func(call int) int { return 1 + call%2 }, OutcomeThrottled},
	} {
		t.Run(tt.name, func(t *testing.T) {
			limit := func(opts ...LimiterOption) (limit rate.Limit) {
				synctest.Test(t, func(t *testing.T) {
					a := Must(NewAdaptiveLimiter(append(append(opts, WithInitialRate(1000)), tt.begin...)...))
					for batch := range 40 {
						var all sync.WaitGroup
						for i := range batch + 1 {
							all.Go(func() {
								cost := 1
								if tt.cost != nil {
									cost = tt.cost(i)
								}
								call := letGo(t, a, cost)
								time.Sleep(tt.took(batch, i))
								call.ends(OutcomeSuccess, 0)
							})
						}
						all.Wait()
					}
					letGo(t, a, 1).ends(tt.end, 0)
					limit = a.Limit()
				})
				return limit
			}
			watched, unwatched := limit(WithObserver(ObserverFunc(func(context.Context, Event) {}))), limit()
			assert.InEpsilon(t, float64(watched), float64(unwatched), .2)
		})
	}
}

// A server of so many units a second is used as fully by calls of many units.
func TestAdaptiveLearnsTheCostOfCalls(t *testing.T) {
	for _, cost := range []int{1, 10, 100} {
		t.Run(fmt.Sprint(cost), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := rate.NewLimiter(rate.Limit(100*cost), 10*cost)
				a := Must(NewAdaptiveLimiter())
				end := time.Now().Add(5 * time.Minute)
				var done atomic.Int64
				var all sync.WaitGroup
				for range 20 {
					all.Go(func() {
						for time.Now().Before(end) {
							call := letGo(t, a, cost)
							time.Sleep(50 * ms)
							if server.AllowN(time.Now(), cost) {
								done.Add(1)
								call.ends(OutcomeSuccess, 0)
							} else {
								call.ends(OutcomeThrottled, 0)
							}
						}
					})
				}
				all.Wait()
				assert.Greater(t, done.Load(), int64(.95*100*300))
				assert.InEpsilon(t, 100*cost, a.law.Soon(), .2) // the rate itself may have been cut just now
			})
		})
	}
}
