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

// A throttle concerns its call alone once its run refused more retries than it has calls, and another call
// got through before the last. What the run taught before is taken back then.
func TestOwnThrottles(t *testing.T) {
	const (
		own   = "own"   // our call is throttled
		next  = "next"  // our call has given up, and the next one is throttled
		later = "later" // the same, more than a minute later
		other = "other" // another call is throttled
		quit  = "quit"  // the other call is given up
		third = "third" // a third call is throttled
		more  = "more"  // one more call is throttled
		slow  = "slow"  // our call is throttled, more than a minute later
		pass  = "pass"  // another call gets through
		late  = "late"  // the same, but it was sent before the last two throttles
		under = "under" // the same, but it was under way at the last throttle
		ours  = "ours"  // our call gets through
	)
	for _, tt := range []struct {
		name  string
		steps []string
		own   bool // the last step concerns its call alone, and
		undo  bool // the run is taken back
	}{
		{"the first one", []string{pass, own}, false, false},
		{"the second one", []string{own, pass, own}, false, false},
		{"the third one", []string{own, pass, own, own}, true, true},
		{"the fourth one teaches nothing", []string{own, pass, own, own, pass, own}, true, false},
		{"a minute later", []string{own, pass, slow, slow}, true, true},
		{"nobody got through", []string{own, own, own}, false, false},
		{"nobody got through but before", []string{own, own, late, own}, false, false},
		{"another gets through after them", []string{own, own, own, pass}, false, false},
		{"and then one more", []string{own, own, own, pass, own}, true, true},
		{"another gets through before the next call", []string{own, own, own, pass, next}, false, false},
		{"and then its retry", []string{own, own, own, pass, next, own}, true, true},
		{"another is throttled too", []string{own, pass, own, other, own}, false, false},
		{"another was throttled before", []string{other, own, pass, own, own}, false, false},
		{"two calls, and two retries", []string{own, other, own, pass, other}, false, false},
		{"two calls, and three retries", []string{own, other, own, pass, other, own}, true, true},
		{"three calls, and nobody got through but in the run before", []string{own, pass, ours, own, other, third, own, other, own, third}, false, false},
		{"two calls, of which one is of a run before", []string{own, other, ours, other, pass, other}, false, false},
		{"and its second retry", []string{own, other, ours, other, pass, other, other}, true, true},
		{"a call of a run before is given up", []string{own, other, ours, own, third, more, quit, own, own, pass, own}, false, false},
		{"four calls, and four retries", []string{other, more, more, own, other, own, other, pass, own}, false, false},
		{"four calls, and five retries", []string{other, more, more, own, other, own, other, pass, own, other}, true, true},
		{"two calls, of which one was given up", []string{other, quit, own, pass, own, own}, true, true},
		{"two calls, of which one gets through", []string{own, other, own, pass, other, ours, other}, false, false},
		{"nobody got through of late", []string{own, pass, own, other, own, own}, false, false},
		{"our call gets through", []string{own, own, own, ours, pass}, false, false},
		{"our call got through before", []string{own, pass, own, ours, own}, false, false},
		{"retries of the run before do not count", []string{own, own, own, ours, own, pass, own}, false, false},
		{"nor do others that got through in it", []string{own, pass, ours, own, own, own}, false, false},
		{"nor others under way as a run begins", []string{own, ours, own, under, own, own}, false, false},
		{"others under way later do", []string{own, own, under, own}, true, true},
		{"the next call", []string{own, pass, own, own, next}, true, false},
		{"the next call, after one retry", []string{own, pass, own, next}, false, false},
		{"one retry of each call", []string{own, pass, own, next, own}, true, true},
		{"a retry of the next call, much later", []string{own, own, own, pass, later, own}, false, false},
		{"first attempts of eight others", []string{own, pass, own, own, more, more, more, more, more, more, more, more}, true, false},
		{"of nine: everyone is refused", []string{own, pass, own, own, more, more, more, more, more, more, more, more, more}, false, false},
		{"of nine, but others get through", []string{own, pass, own, own, more, more, more, more, more, more, more, more, pass, more}, true, false},
		{"calls without a retry", []string{own, pass, own, own, next, next}, true, false},
		{"another call without a retry", []string{own, pass, own, own, next, other}, true, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			replay.Test(t, func(t *testing.T) {
				var p ownThrottles
				var mine, theirs, another throttleStreak
				var first clock.Instant
				var f Feedback
				var streak *throttleStreak
				for _, step := range tt.steps {
					time.Sleep(time.Second)
					sent := clock.Now()
					time.Sleep(time.Second)
					f = Feedback{Outcome: OutcomeThrottled, Sent: sent.Time(), RetryAfter: time.Minute}
					streak = &mine
					switch step {
					case next, later:
						p.observe(&Feedback{Outcome: OutcomeDropped}, &mine)
						if step == later {
							time.Sleep(time.Minute)
						}
					case other:
						streak = &theirs
					case third:
						streak = &another
					case slow:
						time.Sleep(time.Minute)
						f.Sent = time.Now()
					case more:
						streak = new(throttleStreak)
					case quit:
						f.Outcome, streak = OutcomeDropped, &theirs
					case pass:
						f.Outcome, streak = OutcomeSuccess, new(throttleStreak)
					case late:
						f.Outcome, f.Sent, streak = OutcomeSuccess, f.Sent.Add(-time.Minute), new(throttleStreak)
					case under:
						f.Outcome, f.Sent, streak = OutcomeSuccess, f.Sent.Add(-1500*time.Millisecond), new(throttleStreak)
					case ours:
						f.Outcome = OutcomeSuccess
					}
					if !p.running.Load() {
						first = clock.Now()
					}
					p.observe(&f, streak)
				}
				assert.Equal(t, tt.own, streak.own)
				if tt.own {
					assert.Equal(t, OutcomeDropped, f.Outcome)
					assert.Zero(t, f.RetryAfter)
					assert.Equal(t, law.Nothing, kindOf(clock.Of(f.Sent), f.Outcome), "the server has delivered nothing")
				} else {
					assert.NotEqual(t, OutcomeDropped, f.Outcome)
				}
				assert.Equal(t, tt.undo, f.own)
				if tt.undo {
					assert.Equal(t, first, f.run)
				}
			})
		})
	}
}

// However a throttled call ends, it is no call of the run any more.
func TestCallsLeaveTheirRun(t *testing.T) {
	throttled := Throttled(errors.New("too many"), RetryAfter(time.Second))
	fails := func(err error) func(*Retrier, context.Context) {
		return func(r *Retrier, ctx context.Context) {
			_ = r.Do(ctx, func(context.Context) error { return err })
		}
	}
	for name, call := range map[string]func(*Retrier, context.Context){
		"attempts are exhausted": fails(throttled),
		"no retry can help":      fails(errors.Join(throttled, Permanent(errors.New("gone")))),
		"the context ends in the queue": func(r *Retrier, ctx context.Context) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(time.Second/2, cancel)
			fails(throttled)(r, ctx)
		},
		"within another call": func(r *Retrier, ctx context.Context) {
			_ = Must(New(WithMaxAttempts(1), WithoutLimiter())).Do(ctx, func(ctx context.Context) error { fails(throttled)(r, ctx); return nil })
		},
		"a loop is left": func(r *Retrier, ctx context.Context) {
			for a := range r.Attempts(ctx) {
				a.Done(throttled)
				break
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			replay.Test(t, func(t *testing.T) {
				r := Must(New())
				call(r, t.Context())
				p := &r.path.scopes.root.passes
				assert.True(t, p.running.Load())
				assert.Zero(t, p.calls)
			})
		})
	}
}

// A limiter that the server did not blame was taught nothing, so it has nothing to take back.
func TestUnblamed(t *testing.T) {
	f := Feedback{Outcome: OutcomeThrottled, Cost: 3, RetryAfter: time.Second, Scope: "A", Quota: &Quota{Limit: 1}, run: 1, own: true}
	assert.Equal(t, Feedback{Outcome: OutcomeDropped, Cost: 3, Scope: "A"}, f.unblamed())
	f.Outcome = OutcomeSuccess
	assert.Equal(t, Feedback{Outcome: OutcomeSuccess, Cost: 3, Scope: "A"}, f.unblamed())
}

// After a told wait the retry of a refused call goes first. If the server refuses that too, or tells no
// wait, a first attempt goes before it: the server may refuse that call at any rate.
func TestFirstAfterAPause(t *testing.T) {
	limiters := map[string]func() Limiter{
		"adaptive":       func() Limiter { return Must(NewAdaptiveLimiter()) },
		"token bucket":   func() Limiter { return Must(NewTokenBucket(100, 10)) },
		"sliding window": func() Limiter { return Must(NewSlidingWindow(Window{Calls: 1000, Per: 10 * time.Second})) },
	}
	for _, tt := range []struct {
		name    string
		told    time.Duration
		refused int    // attempts of call A
		want    string // the order of attempts
	}{
		{"told", time.Second, 1, "AAB"},
		{"told twice", time.Second, 2, "AABA"},
		{"told three times", time.Second, 3, "AABAA"},
		{"not told", 0, 1, "ABA"},
	} {
		for name, limiter := range limiters {
			t.Run(tt.name+", "+name, func(t *testing.T) {
				replay.Test(t, func(t *testing.T) {
					r := Must(New(WithLimiter(limiter())))
					order, refused := "", 0
					a := func(context.Context) error {
						order += "A"
						if refused++; refused <= tt.refused {
							return Throttled(errors.New("too many"), RetryAfter(tt.told))
						}
						return nil
					}
					b := func(context.Context) error { order += "B"; return nil }
					var both sync.WaitGroup
					both.Go(func() { assert.NoError(t, r.Do(t.Context(), a)) })
					replay.Sleep(time.Microsecond)
					both.Go(func() { assert.NoError(t, r.Do(t.Context(), b)) })
					both.Wait()
					assert.Equal(t, tt.want, order)
				})
			})
		}
	}
}

// Callers whose calls are always refused hold up no others, whatever the limiter, whether or not their
// calls are given up.
func TestCallersRefusedAlways(t *testing.T) {
	limiters := map[string]func() Limiter{
		"adaptive":       func() Limiter { return Must(NewAdaptiveLimiter()) },
		"token bucket":   func() Limiter { return Must(NewTokenBucket(100, 10)) },
		"sliding window": func() Limiter { return Must(NewSlidingWindow(Window{Calls: 1000, Per: 10 * time.Second})) },
	}
	for name, limiter := range limiters {
		for _, after := range []time.Duration{0, time.Second} {
			for _, v := range []struct{ callers, attempts int }{{1, 2}, {1, 3}, {1, 5}, {1, math.MaxInt}, {2, 2}, {2, 3}, {2, math.MaxInt}, {4, 5}} {
				t.Run(fmt.Sprintf("%s, %v, %d, %d attempts", name, after, v.callers, v.attempts), func(t *testing.T) {
					replay.Test(t, func(t *testing.T) {
						ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
						defer cancel()
						r := Must(New(WithLimiter(limiter()), WithoutBudget(), WithMaxAttempts(v.attempts)))
						var odd sync.WaitGroup
						for range v.callers {
							odd.Go(func() {
								for ctx.Err() == nil {
									_ = r.Do(ctx, func(context.Context) error { return Throttled(errors.New("this record"), RetryAfter(after)) })
									replay.Sleep(10 * time.Second)
								}
							})
						}
						n, latest := 0, time.Duration(0)
						for ctx.Err() == nil {
							began := time.Now()
							if r.Do(ctx, func(context.Context) error { replay.Sleep(50 * time.Millisecond); return nil }) != nil {
								break // it would be too late
							}
							n++
							latest = max(latest, time.Since(began))
						}
						odd.Wait()
						least, most := 10800, 5*time.Second
						if v.callers > 2 { // pauses double at first, until the evidence is enough
							least, most = 10500, 30*time.Second
						}
						assert.Greater(t, n, least, "of 12,000")
						assert.Less(t, latest, most)
					})
				})
			}
		}
	}
}

// Where a limit falls to a fifth and less, the same call may be refused twice while others get through. That
// is a congestion: the rate stays low, and hardly a call uses its attempts up.
func TestLimitFalls(t *testing.T) {
	const jobs, callers, calls = 200, 20, 30
	for _, limits := range []struct{ from, to rate.Limit }{{10, 2}, {10, 1}, {20, 2}, {50, 5}, {5, .5}} {
		for _, v := range []struct {
			attempts int
			told     bool
		}{{3, true}, {5, true}, {5, false}} {
			t.Run(fmt.Sprintf("from %g to %g, %d attempts, told %v", limits.from, limits.to, v.attempts, v.told), func(t *testing.T) {
				lost := 0
				for range jobs {
					replay.Test(t, func(t *testing.T) {
						server := rate.NewLimiter(limits.from, 2*int(limits.from))
						call := func(context.Context) error {
							replay.Sleep(time.Duration(chance.N(3000)) * time.Microsecond)
							now := time.Now()
							if !server.AllowN(now, 1) {
								wait := time.Duration(0)
								if v.told {
									wait = time.Duration((1 - server.TokensAt(now)) / float64(server.Limit()) * float64(time.Second))
								}
								return Throttled(errors.New("too many"), RetryAfter(wait))
							}
							replay.Sleep(200 * time.Millisecond)
							return nil
						}
						r := Must(New(WithMaxAttempts(v.attempts)))
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
						work(int64(12 * limits.from))
						server.SetLimitAt(time.Now(), limits.to)
						server.SetBurstAt(time.Now(), 1)
						work(calls)
					})
				}
				t.Logf("%d of %d jobs lost a call", lost, jobs)
				assert.LessOrEqual(t, lost, jobs/50)
			})
		}
	}
}
