package cruise

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"golang.org/x/time/rate"

	"github.com/a7df5faa/cruise/internal/chance"
	"github.com/a7df5faa/cruise/internal/clock"
	"github.com/a7df5faa/cruise/internal/law"
	"github.com/a7df5faa/cruise/internal/replay"
)

// A throttle concerns its call alone if the call was throttled twice before, and since the last
// time others got through and none was throttled. What its first throttles taught is taken back once
// its throttles times the others that got through are 12.
func TestPasses(t *testing.T) {
	const (
		own   = "own"   // our call is throttled
		other = "other" // another call is throttled
		pass  = "pass"  // another call gets through
		late  = "late"  // the same, but it was sent before the last two throttles
		ours  = "ours"  // our call gets through
	)
	for _, tt := range []struct {
		name  string
		steps []string
		alone bool // the last step, and
		all   bool // all throttles since our first, which are taken back
	}{
		{"the first one", []string{pass, own}, false, false},
		{"the second one", []string{own, pass, own}, false, false},
		{"the third one", []string{own, pass, own, pass, own}, true, false},
		{"the fifth one", []string{own, pass, own, pass, own, pass, own, pass, own}, true, true},
		{"the third one, and three got through", []string{own, pass, pass, own, pass, own}, true, false},
		{"the third one, and four got through", []string{own, pass, pass, own, pass, pass, own}, true, true},
		{"the fourth one, and three got through", []string{own, pass, own, pass, own, pass, own}, true, true},
		{"nobody got through", []string{own, pass, own, own}, false, false},
		{"nobody got through but before", []string{own, pass, own, late, own}, false, false},
		{"another is throttled, too", []string{own, pass, own, pass, other, own}, false, false},
		{"another was throttled before", []string{own, pass, pass, other, own, pass, pass, own}, true, false},
		{"another was throttled before ours", []string{other, own, pass, pass, own, pass, pass, own}, true, true},
		{"a success between", []string{own, pass, own, ours, pass, own}, false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			replay.Test(t, func(t *testing.T) {
				var p ownThrottles
				var mine, theirs throttleStreak
				var first clock.Instant
				var f Feedback
				for _, step := range tt.steps {
					time.Sleep(time.Second)
					sent := clock.Now()
					time.Sleep(time.Second)
					switch step {
					case own:
						if mine.n == 0 {
							first = clock.Now()
						}
						f = Feedback{Outcome: OutcomeThrottled, Sent: sent.Time(), RetryAfter: time.Minute}
						p.observe(&f, &mine)
					case other:
						p.observe(&Feedback{Outcome: OutcomeThrottled, Sent: sent.Time()}, &theirs)
					case pass, late:
						if step == late {
							sent = sent.Add(-time.Minute)
						}
						p.observe(&Feedback{Outcome: OutcomeSuccess, Sent: sent.Time()}, &theirs)
					case ours:
						p.observe(&Feedback{Outcome: OutcomeSuccess, Sent: sent.Time()}, &mine)
					}
				}
				assert.Equal(t, tt.alone, mine.own)
				if tt.alone {
					assert.Equal(t, OutcomeDropped, f.Outcome)
					assert.Zero(t, f.RetryAfter)
					assert.Equal(t, law.Nothing, kindOf(clock.Of(f.Sent), f.Outcome), "the server has delivered nothing")
				} else {
					assert.Equal(t, OutcomeThrottled, f.Outcome)
				}
				if tt.all {
					assert.Equal(t, first, f.ownSince)
				} else {
					assert.Zero(t, f.ownSince)
				}
			})
		})
	}
}

// One caller whose calls are always refused holds up no others, whatever the limiter, and is
// forgotten once it is gone.
func TestOneCallerIsRefusedAlways(t *testing.T) {
	limiters := map[string]func() Limiter{
		"adaptive":       func() Limiter { return Must(NewAdaptiveLimiter()) },
		"token bucket":   func() Limiter { return Must(NewTokenBucket(100, 10)) },
		"sliding window": func() Limiter { return Must(NewSlidingWindow(Window{Calls: 1000, Per: 10 * time.Second})) },
	}
	for name, limiter := range limiters {
		for _, after := range []time.Duration{0, time.Second} {
			t.Run(fmt.Sprintf("%s, %v", name, after), func(t *testing.T) {
				replay.Test(t, func(t *testing.T) {
					ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
					defer cancel()
					r := Must(New(WithLimiter(limiter()), WithoutBudget(), WithMaxAttempts(math.MaxInt)))
					go func() {
						_ = r.Do(ctx, func(context.Context) error { return Throttled(errors.New("this record"), RetryAfter(after)) })
					}()
					n, latest := 0, time.Duration(0)
					for ctx.Err() == nil {
						began := time.Now()
						if r.Do(ctx, func(context.Context) error { replay.Sleep(50 * time.Millisecond); return nil }) != nil {
							break // it would be too late
						}
						n++
						latest = max(latest, time.Since(began))
					}
					assert.Greater(t, n, 10800, "of 12,000")
					assert.Less(t, latest, 5*time.Second)
				})
			})
		}
	}
}

// Where a limit falls to a fifth, the same call is often throttled twice, and one other call gets through
// in between. That is a congestion: the rate stays low, and hardly a call uses its five attempts up.
func TestLimitFallsToAFifth(t *testing.T) {
	const jobs, callers, calls = 1000, 20, 30
	lost := 0
	for range jobs {
		replay.Test(t, func(t *testing.T) {
			server := rate.NewLimiter(10, 20)
			call := func(context.Context) error {
				replay.Sleep(time.Duration(chance.N(3000)) * time.Microsecond)
				now := time.Now()
				if !server.AllowN(now, 1) {
					wait := (1 - server.TokensAt(now)) / float64(server.Limit())
					return Throttled(errors.New("too many"), RetryAfter(time.Duration(wait*float64(time.Second))))
				}
				replay.Sleep(200 * time.Millisecond)
				return nil
			}
			r := Must(New())
			work := func(calls int64) {
				var left, failed atomic.Int64
				left.Store(calls)
				var all sync.WaitGroup
				for range callers {
					all.Go(func() {
						for left.Add(-1) >= 0 {
							if r.Do(t.Context(), call) != nil {
								failed.Add(1)
							}
						}
					})
				}
				all.Wait()
				if failed.Load() > 0 {
					lost++
				}
			}
			work(120)
			server.SetLimitAt(time.Now(), 2)
			server.SetBurstAt(time.Now(), 1)
			work(calls)
		})
	}
	t.Logf("%d of %d jobs lost a call", lost, jobs)
	assert.LessOrEqual(t, lost, 9*jobs/100)
}
