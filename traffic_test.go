package cruise

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"golang.org/x/time/rate"

	"github.com/a7df5faa/cruise/internal/calm"
	"github.com/a7df5faa/cruise/internal/chance"
	"github.com/a7df5faa/cruise/internal/replay"
)

// Traffic as services have it: quiet hours, jobs that take long, outages, and answers
// that are no successes. None of it says that the server gives less.

// takesLong is for tests of what comes of many calls in long times of a bubble. Under the race
// detector each takes many times as long, and hundreds of megabytes that it never gives back.
func takesLong(t *testing.T) {
	if calm.Raced || testing.Short() {
		t.Skip("it takes long, and others race as much")
	}
}

// An api gives so many calls a second, after some at once, and answers after 50 ms.
type api struct {
	limit              *rate.Limiter
	admitted, refusals atomic.Int64
}

func newAPI(limit rate.Limit) *api { return &api{limit: rate.NewLimiter(limit, 20)} }

func (s *api) call(context.Context) error {
	replay.Sleep(50 * ms)
	if !s.limit.Allow() {
		s.refusals.Add(1)
		return Throttled(errors.New("429"))
	}
	s.admitted.Add(1)
	return nil
}

// byChance are calls of which a share is throttled whatever the rate.
func (s *api) byChance(share float64) func(context.Context) error {
	return func(ctx context.Context) error {
		if chance.Float64() < share {
			replay.Sleep(50 * ms)
			return Throttled(errors.New("429"))
		}
		return s.call(ctx)
	}
}

// share is how much of its limit a crowd gets of the server in a minute.
func (s *api) share(t *testing.T, r *Retrier, f func(context.Context) error) float64 {
	share := float64(s.work(r, 20, time.Minute, f)) / float64(60*s.limit.Limit())
	t.Logf("%.0f %% of what the server gives in the next minute", 100*share)
	return share
}

// work has callers make one call after the other for d, and returns how many were
// admitted.
func (s *api) work(r *Retrier, callers int, d time.Duration, f func(context.Context) error) int64 {
	end, before := time.Now().Add(d), s.admitted.Load()
	var group sync.WaitGroup
	for range callers {
		group.Go(func() {
			for time.Now().Before(end) {
				if errors.Is(r.Do(context.Background(), f), ErrMaxElapsed) {
					time.Sleep(time.Second) // refused at once, as the line is hours long
				}
			}
		})
	}
	group.Wait()
	return s.admitted.Load() - before
}

// bulk is a Retrier that gives up nothing within an hour.
func bulk(opts ...Option) *Retrier {
	return Must(New(append(opts, WithUncountedThrottles(), WithMaxElapsed(time.Hour))...))
}

func limitOfRetrier(r *Retrier) rate.Limit {
	return r.Limiter().(interface{ Limit() rate.Limit }).Limit()
}

// A learner makes a limiter that finds the limit of a server by itself.
type learner struct {
	name string
	make func() Limiter
}

// learners have a test run in virtual time for each case, with the limiters that find the
// limit of a server by themselves, and others too.
func learners[T any](t *testing.T, cases []T, f func(t *testing.T, r *Retrier, c T), others ...learner) {
	t.Helper()
	for _, l := range append([]learner{
		{"adaptive", func() Limiter { return Must(NewAdaptiveLimiter()) }},
		{"shared", func() Limiter { return NewShared(false) }},
	}, others...) {
		for _, c := range cases {
			t.Run(fmt.Sprint(l.name, " ", c), func(t *testing.T) {
				replay.Test(t, func(t *testing.T) { f(t, bulk(WithLimiter(l.make())), c) })
			})
		}
	}
}

// A limit that is told a little too much is used as far as a pause after each throttle lets
// it, not less and less.
func TestALimitAboveTheServers(t *testing.T) {
	for name, limiter := range map[string]func() Limiter{
		"token bucket":   func() Limiter { return Must(NewTokenBucket(10, 1)) },
		"sliding window": func() Limiter { return Must(NewSlidingWindow(Window{10, time.Second})) },
	} {
		for _, gives := range []rate.Limit{9.5, 8, 5} {
			t.Run(fmt.Sprintf("%s, %v of 10 a second", name, gives), func(t *testing.T) {
				replay.Test(t, func(t *testing.T) {
					s := &api{limit: rate.NewLimiter(gives, 1)}
					r := bulk(WithLimiter(limiter()))
					s.work(r, 5, 10*time.Minute, s.call)
					assert.Greater(t, s.share(t, r, s.call), .15)
				})
			})
		}
	}
}

// A limit that falls for good is kept to, though the rate looks for what there was before.
func TestLimitThatFell(t *testing.T) {
	takesLong(t)
	for _, tt := range []struct {
		to              rate.Limit
		use, mostRefuse float64
	}{{50, .85, .01}, {10, .85, .01}, {1, .3, .05}, {.1, .15, .3}} {
		t.Run(fmt.Sprintf("100 to %v a second", tt.to), func(t *testing.T) {
			replay.Test(t, func(t *testing.T) {
				s, r := newAPI(100), bulk()
				s.work(r, 20, 10*time.Minute, s.call)
				s.limit.SetLimit(tt.to)
				s.limit.SetBurst(1)
				s.work(r, 20, 10*time.Minute, s.call)
				refusals := s.refusals.Load()
				n := float64(s.work(r, 20, 30*time.Minute, s.call))
				refused := float64(s.refusals.Load()-refusals) / (n + float64(s.refusals.Load()-refusals))
				t.Logf("use %.2f, %.2f %% throttled in 10 to 40 minutes after it fell", n/float64(1800*tt.to), 100*refused)
				assert.Greater(t, n/float64(1800*tt.to), tt.use)
				assert.Less(t, refused, tt.mostRefuse)
			})
		})
	}
}

// An API that has throttled nobody, and becomes slow, is sent as many calls as before, though
// more of them are in flight: else those that wait would run into their deadlines.
func TestAServerThatBecomesSlow(t *testing.T) {
	takesLong(t)
	for _, perSecond := range []int{5, 20, 100} {
		for _, quick := range []time.Duration{5 * ms, 100 * ms} {
			for _, slow := range []time.Duration{time.Second, 3 * time.Second} {
				t.Run(fmt.Sprintf("%d a second, %v to %v", perSecond, quick, slow), func(t *testing.T) {
					replay.Test(t, func(t *testing.T) {
						r, begun := Must(New()), time.Now()
						call := func(ctx context.Context) error {
							if at := time.Since(begun); at > 2*time.Minute && at < 3*time.Minute {
								replay.Sleep(slow)
							} else {
								replay.Sleep(quick)
							}
							return ctx.Err()
						}
						var group sync.WaitGroup
						var lost atomic.Int64
						for range 4 * 60 * perSecond {
							time.Sleep(time.Second / time.Duration(perSecond))
							group.Go(func() {
								ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
								defer cancel()
								if r.Do(ctx, call) != nil {
									lost.Add(1)
								}
							})
						}
						group.Wait()
						assert.Zero(t, lost.Load())
					})
				})
			}
		}
	}
}

// Answers that were under way when a quota cut the rate say nothing of the cut, as late throttles
// do not: hundreds of them would take the rate to nothing.
func TestAQuotaHeededByManyAtOnce(t *testing.T) {
	takesLong(t)
	for _, told := range []bool{false, true} {
		t.Run(fmt.Sprint("told ", told), func(t *testing.T) {
			replay.Test(t, func(t *testing.T) {
				s, r := &api{limit: rate.NewLimiter(1000, 1000)}, bulk()
				call := func(ctx context.Context) error {
					replay.Sleep(130*ms + chance.N(40*ms))
					err := s.call(ctx)
					if err == nil && told {
						Report(ctx, Quota{Limit: 1000, Remaining: int(s.limit.Tokens())})
					}
					return err
				}
				s.work(r, 500, 2*time.Minute, call)
				assert.Greater(t, float64(s.work(r, 500, 2*time.Minute, call))/120_000, .7)
			})
		})
	}
}

// Where all answers of a burst come at one moment, the last of them tell of no rate.
func TestAnswersThatComeAtOneMoment(t *testing.T) {
	takesLong(t)
	replay.Test(t, func(t *testing.T) {
		s, r := &api{limit: rate.NewLimiter(1000, 100)}, bulk()
		s.work(r, 100, 2*time.Minute, s.call)
		assert.Less(t, limitOfRetrier(r), rate.Limit(1500))
		assert.Greater(t, float64(s.work(r, 100, 2*time.Minute, s.call))/120_000, .9)
	})
}

// Throttles that no rate causes, such as those of one key among many, teach a rate all the
// same: the more of them, the lower. So few must do next to nothing.
func TestThrottlesByChance(t *testing.T) {
	takesLong(t)
	for _, tt := range []struct {
		limit        rate.Limit
		share, least float64
	}{
		{10, .001, .8}, {10, .005, .2}, {10, .01, .005}, {10, .02, .005},
		{100, .001, .5}, {100, .005, .12}, {100, .01, .003}, {100, .02, .0005},
	} {
		t.Run(fmt.Sprintf("%v %% of %v a second", 100*tt.share, tt.limit), func(t *testing.T) {
			replay.Test(t, func(t *testing.T) {
				s, r := newAPI(tt.limit), bulk()
				call := s.byChance(tt.share)
				s.work(r, 20, 40*time.Minute, call)
				got := float64(s.work(r, 20, 20*time.Minute, call)) / float64(1200*tt.limit)
				t.Logf("%.1f %% of what the server gives after 40 minutes", 100*got)
				assert.Greater(t, got, tt.least)
			})
		})
	}
}

// The first throttle comes when a burst that went ten times as fast as the limit is used up.
// That speed is no ceiling to come back to: each time the burst would be all that gets through.
func TestFirstBurstIsNoCeiling(t *testing.T) {
	replay.Test(t, func(t *testing.T) {
		s := &api{limit: rate.NewLimiter(200, 10)}
		used := float64(s.work(bulk(), 8, time.Minute, func(context.Context) error {
			replay.Sleep(ms)
			if !s.limit.Allow() {
				return Throttled(errors.New("429"), RetryAfter(time.Second))
			}
			s.admitted.Add(1)
			return nil
		})) / 12_000
		t.Logf("%.0f %% of what the server gives in the first minute", 100*used)
		assert.Greater(t, used, .45)
	})
}

// A brownout is a time in which some calls are throttled by chance, whatever the rate.
type brownout struct {
	share float64
	lasts time.Duration
}

func (b brownout) String() string { return fmt.Sprintf("%v %% for %v", 100*b.share, b.lasts) }

func TestBrownout(t *testing.T) {
	takesLong(t)
	for _, b := range []brownout{
		{.1, 2 * time.Minute}, {.3, 2 * time.Minute}, {.5, 2 * time.Minute},
		{.1, 10 * time.Minute}, {.5, 10 * time.Minute}, {.8, 10 * time.Minute},
	} {
		t.Run(b.String(), func(t *testing.T) {
			replay.Test(t, func(t *testing.T) {
				s, r := newAPI(100), bulk()
				s.work(r, 20, 5*time.Minute, s.call)
				s.work(r, 20, b.lasts, s.byChance(b.share))
				minutes := 1
				for s.share(t, r, s.call) < .9 && minutes < 60 {
					minutes++
				}
				t.Logf("90 %% of what the server gives in minute %d", minutes)
				assert.Less(t, minutes, 40)
			})
		})
	}
}

// A closing is a time of throttles, after one in which nobody called.
type closing struct{ quiet, closed time.Duration }

func (c closing) String() string { return fmt.Sprint(c.quiet, " quiet, ", c.closed, " closed") }

func TestQuietHoursBeforeAClosing(t *testing.T) {
	takesLong(t)
	learners(t, []closing{
		{0, 100 * ms}, {time.Hour, 100 * ms}, {8 * time.Hour, 100 * ms}, {8 * time.Hour, 5 * time.Second},
	}, func(t *testing.T, r *Retrier, c closing) {
		s := newAPI(100)
		s.work(r, 20, time.Minute, s.call)
		time.Sleep(c.quiet)
		opens := time.Now().Add(c.closed)
		_ = r.Do(t.Context(), func(context.Context) error {
			replay.Sleep(50 * ms)
			if time.Now().After(opens) {
				return nil
			}
			return Throttled(errors.New("429"))
		})
		assert.Greater(t, s.share(t, r, s.call), .6)
	})
}

// Jobs of five seconds, one after the other: they wait for nobody, so they stand in no
// queue, and whoever comes after them need not wait either.
func TestSlowJobsAreNoQueue(t *testing.T) {
	takesLong(t)
	learners(t, []int{0, 40, 200}, func(t *testing.T, r *Retrier, jobs int) {
		s := newAPI(100)
		s.work(r, 20, time.Minute, s.call)
		for range jobs {
			_ = r.Do(t.Context(), func(context.Context) error { replay.Sleep(5 * time.Second); return nil })
		}
		assert.Greater(t, limitOfRetrier(r), rate.Limit(20), "a half or a quarter of it where it was cut just now")
		var highest atomic.Int64
		got := s.share(t, r, func(ctx context.Context) error {
			highest.Store(max(highest.Load(), int64(limitOfRetrier(r))))
			return s.call(ctx)
		})
		assert.Greater(t, got, .9)
		assert.Less(t, highest.Load(), int64(200), "a second")
	})
}

// quietly makes a call a second for half an hour, which is all that anybody wants.
func (s *api) quietly(ctx context.Context, r *Retrier) {
	for range 1800 {
		time.Sleep(time.Second)
		_ = r.Do(ctx, s.call)
	}
}

// A throttle in quiet traffic, though there may be calls beside it that wait at the server
// for something to happen.
func TestThrottledInQuietTraffic(t *testing.T) {
	takesLong(t)
	const none, long = "no polls", "long polls"
	learners(t, []string{none, long}, func(t *testing.T, r *Retrier, polls string) {
		s := newAPI(100)
		s.work(r, 20, time.Minute, s.call)
		if polls == long {
			defer polling(t.Context(), r, 30*time.Second)()
		}
		s.quietly(t.Context(), r)
		throttleOnce(t.Context(), r)
		assert.Greater(t, s.share(t, r, s.call), .6, "or more, where the rate was not cut just before")
	})
}

// The same beside polls, in a process that has never been throttled.
func TestFirstThrottleInQuietTraffic(t *testing.T) {
	takesLong(t)
	learners(t, []time.Duration{time.Second, 30 * time.Second}, func(t *testing.T, r *Retrier, poll time.Duration) {
		s := newAPI(100)
		defer polling(t.Context(), r, poll)()
		s.quietly(t.Context(), r)
		throttleOnce(t.Context(), r)
		s.share(t, r, s.call)
		s.share(t, r, s.call)
		assert.Greater(t, s.share(t, r, s.call), .5, "in the third minute")
	})
}

// polling makes calls that take long, one after the other, until stop returns.
func polling(ctx context.Context, r *Retrier, poll time.Duration) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	group.Go(func() {
		for ctx.Err() == nil {
			_ = r.Do(ctx, func(context.Context) error { replay.Sleep(poll); return nil })
		}
	})
	return func() { cancel(); group.Wait() }
}

// Nobody knows of a limit that fell while nobody used it. It is found with few throttles.
func TestLimitFallsInQuietTraffic(t *testing.T) {
	takesLong(t)
	learners(t, []rate.Limit{50, 10}, func(t *testing.T, r *Retrier, limit rate.Limit) {
		s := newAPI(100)
		s.work(r, 20, time.Minute, s.call)
		s.quietly(t.Context(), r)
		s.limit.SetLimit(limit)
		before := s.refusals.Load()
		assert.Greater(t, s.share(t, r, s.call), .9)
		refused := s.refusals.Load() - before
		t.Logf("%d throttled", refused)
		assert.Less(t, refused, int64(60))
	})
}

// After an outage that throttled nobody a server gives a little less than before.
func TestOutageOfErrors(t *testing.T) {
	takesLong(t)
	learners(t, []time.Duration{0, time.Minute, 10 * time.Minute}, func(t *testing.T, r *Retrier, outage time.Duration) {
		s := newAPI(100)
		s.work(r, 20, time.Minute, s.call)
		s.work(r, 20, outage, func(context.Context) error { replay.Sleep(500 * ms); return errors.New("502") })
		s.limit.SetLimit(80)
		assert.Greater(t, s.share(t, r, s.call), .9)
	})
}

// A blackout is a time in which a server throttles everybody, some time after the start.
type blackout struct {
	limit        rate.Limit
	served, dark time.Duration
	third        float64 // least of its limit that is used in the third minute after
}

func (b blackout) String() string {
	return fmt.Sprint(b.limit, " a second for ", b.served, ", none for ", b.dark)
}

// What went through in all that time is what is kept to, as it may be a window whose calls
// are used up. It is doubted, as it may have been an outage, so that all is well again soon.
func TestBlackout(t *testing.T) {
	takesLong(t)
	learners(t, []blackout{
		{100, 10 * time.Minute, 10 * time.Minute, .9},
		{100, time.Minute, 10 * time.Minute, .9},
		{100, time.Minute, 30 * time.Minute, .7},
		{10, 20 * time.Second, 12 * time.Hour, .1},
		{2, 10 * time.Minute, 10 * time.Minute, .6},
		{2, time.Minute, 2 * time.Minute, .4},
		{2, time.Minute, 10 * time.Minute, .35},
	}, func(t *testing.T, r *Retrier, b blackout) {
		s := newAPI(b.limit)
		s.work(r, 20, b.served, s.call)
		opens := time.Now().Add(b.dark)
		s.work(r, 20, b.dark, func(ctx context.Context) error {
			if time.Now().After(opens) {
				return s.call(ctx)
			}
			replay.Sleep(50 * ms)
			return Throttled(errors.New("429"))
		})
		for minute := 1; minute <= 10; minute++ {
			switch share := s.share(t, r, s.call); minute {
			case 3:
				assert.Greater(t, share, b.third, "in the third minute")
			case 10:
				assert.Greater(t, share, .8, "in the tenth minute")
			}
		}
	})
}

// A lookup that finds nothing is an answer, and takes a token of the server like others.
func TestAnswersThatFailForGood(t *testing.T) {
	takesLong(t)
	learners(t, []int64{0, 50, 90, 100}, func(t *testing.T, r *Retrier, percent int64) {
		s := newAPI(100)
		var n atomic.Int64
		got := s.work(r, 20, 2*time.Minute, func(ctx context.Context) error {
			if err := s.call(ctx); err != nil || n.Add(1)%100 >= percent {
				return err
			}
			return Permanent(errors.New("404"))
		})
		t.Logf("%d of 12000, %d throttled", got, s.refusals.Load())
		assert.Greater(t, got, int64(10_000))
		assert.InDelta(t, got*(100-percent)/100, r.path.scopes.root.stats().Successes, 100, "no other is a success")
		assert.Less(t, s.refusals.Load(), int64(240))
	})
}

// The lower the rate falls, the longer the way back, which ends below the ceiling.
func TestAdaptiveDeepCuts(t *testing.T) {
	takesLong(t)
	for _, factor := range []float64{.5, .3, .1, .02} {
		t.Run(fmt.Sprint(factor), func(t *testing.T) {
			replay.Test(t, func(t *testing.T) {
				s, r := newAPI(100), bulk(WithTuning(Tuning{DecreaseFactor: factor}))
				s.work(r, 20, 5*time.Minute, s.call)
				got, refused := float64(s.admitted.Load()), float64(s.refusals.Load())
				t.Logf("%.0f of 30000, %.1f %% throttled", got, 100*refused/(got+refused))
				assert.Less(t, refused/(got+refused), .02, "throttled")
				assert.Greater(t, got, 25_000.)
			})
		})
	}
}

// A cut is made up for within a few calls, so it is no reason to refuse those who have
// time enough at the rate of before.
func TestAdaptiveCutRefusesNobodyInTime(t *testing.T) {
	replay.Test(t, func(t *testing.T) {
		s, r := newAPI(100), bulk()
		s.work(r, 20, time.Minute, s.call)
		replay.Sleep(5 * time.Second)
		var group sync.WaitGroup
		var once sync.Once
		begin := time.Now()
		for range 400 {
			group.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				assert.NoError(t, r.Do(ctx, func(ctx context.Context) (err error) {
					if time.Since(begin) > 500*ms {
						once.Do(func() { err = Throttled(errors.New("429")) })
					}
					if err == nil {
						err = s.call(ctx)
					}
					return err
				}))
			})
		}
		group.Wait()
	})
}

// throttleOnce makes a call whose first attempt is throttled.
func throttleOnce(ctx context.Context, r *Retrier) {
	var once sync.Once
	_ = r.Do(ctx, func(context.Context) (err error) {
		once.Do(func() { err = Throttled(errors.New("429")) })
		return err
	})
}

// Whoever waits and goes away wants nothing any more.
func TestWaitersLeaveBeforeQuietTraffic(t *testing.T) {
	takesLong(t)
	const cancelled, refused, batch = "cancelled", "refused", "cancelled batch"
	learners(t, []string{cancelled, refused, batch}, func(t *testing.T, r *Retrier, how string) {
		s := newAPI(100)
		s.work(r, 20, time.Minute, s.call)
		time.Sleep(10 * time.Second)
		done := func(context.Context) error { return nil }
		switch how {
		case cancelled:
			ctx, cancel := context.WithCancel(t.Context())
			_ = r.Do(ctx, done)
			time.AfterFunc(ms, cancel)
			_ = r.Do(ctx, done)
		case refused:
			ctx, cancel := context.WithTimeout(t.Context(), ms)
			defer cancel()
			_ = r.Do(ctx, done)
			_ = r.Do(ctx, done)
		case batch:
			ctx, cancel := context.WithCancel(t.Context())
			var group sync.WaitGroup
			for range 500 {
				group.Go(func() {
					_ = r.Do(ctx, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
				})
			}
			time.Sleep(time.Second)
			cancel()
			group.Wait()
		}
		time.Sleep(time.Hour)
		throttleOnce(t.Context(), r)
		assert.Greater(t, s.share(t, r, s.call), .6)
	}, learner{"pause only", func() Limiter { return NewShared(true) }})
}

// The same where limiters are within each other: those who leave one leave them all.
func TestWaitersLeaveNestedLimiters(t *testing.T) {
	replay.Test(t, func(t *testing.T) {
		s, app := newAPI(100), bulk()
		account := app.Scope("ACCOUNT", "1")
		for range 2 { // so that both have a rate
			s.work(account, 20, time.Minute, s.call)
			throttleOnce(t.Context(), app)
		}
		s.work(account, 20, time.Minute, s.call)
		time.Sleep(10 * time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		var group sync.WaitGroup
		for range 500 {
			group.Go(func() {
				_ = account.Do(ctx, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
			})
		}
		time.Sleep(time.Second)
		cancel()
		group.Wait()
		time.Sleep(time.Hour)
		throttleOnce(t.Context(), app)
		throttleOnce(t.Context(), account)
		assert.Greater(t, s.share(t, account, s.call), .6)
	})
}

// A process may begin while the server is down.
func TestBeginsInAnOutage(t *testing.T) {
	learners(t, []time.Duration{0, 10 * time.Minute}, func(t *testing.T, r *Retrier, outage time.Duration) {
		s := newAPI(20)
		s.work(r, 20, outage, func(context.Context) error { replay.Sleep(5 * time.Second); return errors.New("timeout") })
		assert.Greater(t, s.work(r, 20, 5*time.Minute, s.call), int64(4800), "of 6000")
	})
}

// Callers may give up on calls under way, as those do that hedge, or search as one types.
func TestCallersGiveUpOnCalls(t *testing.T) {
	takesLong(t)
	learners(t, []int64{50, 90}, func(t *testing.T, r *Retrier, percent int64) {
		s := newAPI(100)
		var n atomic.Int64
		got := s.work(r, 20, 2*time.Minute, func(ctx context.Context) error {
			leaves := n.Add(1)%100 < percent
			inner, cancel := context.WithCancel(ctx)
			defer cancel()
			err := s.call(inner)
			if err == nil && leaves {
				cancel()
				err = inner.Err()
			}
			return err
		})
		assert.Greater(t, got, int64(10_000), "of 12,000")
	})
}

// A pause by hand says nothing of the server, though a call that was under way is throttled.
func TestPausedBeforeAThrottle(t *testing.T) {
	replay.Test(t, func(t *testing.T) {
		s, r := newAPI(100), bulk()
		s.work(r, 20, time.Minute, s.call)
		time.Sleep(10 * time.Second)
		time.AfterFunc(time.Second, func() { r.Limiter().(*AdaptiveLimiter).Pause(time.Hour) })
		var once sync.Once
		_ = r.Do(t.Context(), func(context.Context) (err error) {
			once.Do(func() {
				time.Sleep(2 * time.Second)
				err = Throttled(errors.New("429"))
			})
			return err
		})
		time.Sleep(time.Hour + time.Minute)
		for range 30 {
			replay.Sleep(100 * ms)
			_ = r.Do(t.Context(), s.call)
		}
		throttleOnce(t.Context(), r)
		assert.Greater(t, s.share(t, r, s.call), .15, "two throttles quarter the rate; a pause that counts stops it")
	})
}

// Whatever unit calls are counted in, such as the tokens of a language model, the limit is
// found after as many calls.
func TestCostsOfCalls(t *testing.T) {
	learners(t, []int{1, 10, 1000}, func(t *testing.T, r *Retrier, cost int) {
		limit := rate.NewLimiter(rate.Limit(20*cost), 5*cost)
		var mu sync.Mutex
		got, refused := 0, 0
		end := time.Now().Add(2 * time.Minute)
		var group sync.WaitGroup
		for range 10 {
			group.Go(func() {
				for time.Now().Before(end) {
					_ = r.Do(context.Background(), func(context.Context) error {
						replay.Sleep(50 * ms)
						mu.Lock()
						defer mu.Unlock()
						if !limit.AllowN(time.Now(), cost) {
							refused++
							return Throttled(errors.New("429"))
						}
						got++
						return nil
					}, WithCost(cost))
				}
			})
		}
		group.Wait()
		assert.Greater(t, got, 20*120*9/10)
		assert.Less(t, refused, got/50)
	})
}

// Whoever tells a limiter by hand how calls ended may not know when they went.
func TestFailuresOfUnknownTimes(t *testing.T) {
	replay.Test(t, func(t *testing.T) {
		l := Must(NewAdaptiveLimiter(WithInitialRate(10)))
		end := func(o Outcome) {
			assert.NoError(t, l.WaitN(t.Context(), 1))
			l.Learn(Feedback{Outcome: o, Cost: 1})
		}
		for range 10 {
			end(OutcomeSuccess)
		}
		for range 20 {
			for range 9 {
				end(OutcomeTransient)
			}
			end(OutcomeSuccess)
		}
		end(OutcomeThrottled)
		assert.Greater(t, l.Limit(), rate.Limit(4), "half of what went, not of what succeeded")
	})
}
