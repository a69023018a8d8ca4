package cruise

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
	"golang.org/x/time/rate"
)

// Traffic as services have it: quiet hours, jobs that take long, outages, and answers
// that are no successes. None of it says that the server gives less.

// An api gives so many calls a second, after some at once, and answers after 50 ms.
type api struct {
	limit              *rate.Limiter
	admitted, refusals atomic.Int64
}

func newAPI(limit rate.Limit) *api { return &api{limit: rate.NewLimiter(limit, 20)} }

func (s *api) call(context.Context) error {
	time.Sleep(50 * ms)
	if !s.limit.Allow() {
		s.refusals.Add(1)
		return Throttled(errors.New("429"))
	}
	s.admitted.Add(1)
	return nil
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
				_ = r.Do(context.Background(), f)
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

func adaptiveLimiter() Limiter { return Must(NewAdaptiveLimiter()) }

func sharedLimiter() Limiter { return Must(NewSharedLimiter(NewMemoryStore())) }

func limitOfRetrier(r *Retrier) rate.Limit { return r.Limiter().(*AdaptiveLimiter).Limit() }

// bubbles runs a test for each case in virtual time.
func bubbles[T any](t *testing.T, cases []T, f func(t *testing.T, c T)) {
	t.Helper()
	for _, c := range cases {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { f(t, c) })
		})
	}
}

// Two throttles in a row and a success, after hours in which nobody called. What the
// store of a SharedLimiter measures are hours, whether anybody called in them or not.
func TestQuietHoursBeforeAClosing(t *testing.T) {
	for _, c := range []struct {
		name    string
		limiter func() Limiter
		least   float64
	}{
		{"adaptive", adaptiveLimiter, .6},
		{"shared", sharedLimiter, .4},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubbles(t, []time.Duration{0, time.Hour, 8 * time.Hour}, func(t *testing.T, quiet time.Duration) {
				s, r := newAPI(100), bulk(WithLimiter(c.limiter()))
				s.work(r, 20, time.Minute, s.call)
				time.Sleep(quiet)
				n := 0
				_ = r.Do(t.Context(), func(context.Context) error {
					time.Sleep(50 * ms)
					if n++; n <= 2 {
						return Throttled(errors.New("429"))
					}
					return nil
				})
				assert.Greater(t, s.share(t, r, s.call), c.least)
			})
		})
	}
}

// Jobs of five seconds, one after the other: they wait for nobody, so they stand in no
// queue, and whoever comes after them need not wait either.
func TestAdaptiveSlowJobsAreNoQueue(t *testing.T) {
	bubbles(t, []int{0, 40, 200}, func(t *testing.T, jobs int) {
		s, r := newAPI(100), bulk()
		s.work(r, 20, time.Minute, s.call)
		for range jobs {
			_ = r.Do(t.Context(), func(context.Context) error { time.Sleep(5 * time.Second); return nil })
		}
		assert.Greater(t, limitOfRetrier(r), rate.Limit(50))
		var highest atomic.Int64
		got := s.share(t, r, func(ctx context.Context) error {
			highest.Store(max(highest.Load(), int64(limitOfRetrier(r))))
			return s.call(ctx)
		})
		assert.Greater(t, got, .9)
		assert.Less(t, highest.Load(), int64(200), "a second")
	})
}

// After an outage that throttled nobody a server gives a little less than before.
func TestOutageOfErrors(t *testing.T) {
	for _, c := range []struct {
		name    string
		limiter func() Limiter
		least   float64
	}{
		{"adaptive", adaptiveLimiter, .9},
		{"shared", sharedLimiter, .5},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubbles(t, []time.Duration{0, time.Minute, 10 * time.Minute}, func(t *testing.T, outage time.Duration) {
				s, r := newAPI(100), bulk(WithLimiter(c.limiter()))
				s.work(r, 20, time.Minute, s.call)
				s.work(r, 20, outage, func(context.Context) error { time.Sleep(50 * ms); return errors.New("502") })
				s.limit.SetLimit(80)
				assert.Greater(t, s.share(t, r, s.call), c.least)
			})
		})
	}
}

// A lookup that finds nothing is an answer, and takes a token of the server like others.
func TestAnswersThatFailForGood(t *testing.T) {
	for name, limiter := range map[string]func() Limiter{"adaptive": adaptiveLimiter, "shared": sharedLimiter} {
		t.Run(name, func(t *testing.T) {
			bubbles(t, []int64{0, 50, 90, 100}, func(t *testing.T, percent int64) {
				s, r := newAPI(100), bulk(WithLimiter(limiter()))
				var n atomic.Int64
				got := s.work(r, 20, 5*time.Minute, func(ctx context.Context) error {
					if err := s.call(ctx); err != nil || n.Add(1)%100 >= percent {
						return err
					}
					return Permanent(errors.New("404"))
				})
				t.Logf("%d of 30000, %d throttled", got, s.refusals.Load())
				assert.Greater(t, got, int64(25_000))
				assert.Less(t, s.refusals.Load(), int64(600))
			})
		})
	}
}

// The lower the rate falls, the longer the way back, which ends below the ceiling.
func TestAdaptiveDeepCuts(t *testing.T) {
	bubbles(t, []float64{.5, .3, .1, .02}, func(t *testing.T, factor float64) {
		s, r := newAPI(100), bulk(WithDecreaseFactor(factor))
		s.work(r, 20, 5*time.Minute, s.call)
		got, refused := float64(s.admitted.Load()), float64(s.refusals.Load())
		t.Logf("%.0f of 30000, %.1f %% throttled", got, 100*refused/(got+refused))
		assert.Less(t, refused/(got+refused), .02, "throttled")
		assert.Greater(t, got, 25_000.)
	})
}

// A cut is made up for within a few calls, so it is no reason to refuse those who have
// time enough at the rate of before.
func TestAdaptiveCutRefusesNobodyInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := newAPI(100), bulk()
		s.work(r, 20, time.Minute, s.call)
		time.Sleep(5 * time.Second)
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
