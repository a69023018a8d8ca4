package cruise

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"
)

// The level of pauses belongs to the limiter, so all calls of a Retrier share it:
// a new call's first retry starts where the service is, not at the first step,
// and after a quiet time it starts at none again.
func TestBackoffRemembers(t *testing.T) {
	limiters := map[string]func(Backoff) (Learner, *brake){
		"token bucket": func(b Backoff) (Learner, *brake) {
			l := Must(NewTokenBucket(rate.Inf, 1))
			l.brake.backoff = b
			return l, &l.brake
		},
		"sliding window": func(b Backoff) (Learner, *brake) {
			l := Must(NewSlidingWindow(Window{1000, time.Nanosecond}))
			l.brake.backoff = b
			return l, &l.brake
		},
		"adaptive": func(b Backoff) (Learner, *brake) {
			l := Must(NewAdaptiveLimiter(WithTuning(Tuning{PauseBackoff: b})))
			return l, &l.brake
		},
	}
	for name, makeLimiter := range limiters {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pauses := Must(NewBackoff(WithBase(time.Second), WithMaxDelay(time.Minute), NoJitter()))
				l, brake := makeLimiter(pauses)
				r := Must(New(WithLimiter(l), WithoutBudget()))
				call := func(throttles int) (took time.Duration) {
					start := time.Now()
					if err := r.Do(t.Context(), func(context.Context) error {
						time.Sleep(time.Nanosecond)
						if throttles--; throttles >= 0 {
							return Throttled(errBusy)
						}
						return nil
					}); err != nil {
						t.Fatal(err)
					}
					return time.Since(start).Round(time.Second)
				}
				if got := call(3); got != 7*time.Second { // 1 + 2 + 4
					t.Errorf("first call took %v", got)
				}
				if brake.level != 3 {
					t.Errorf("level %d", brake.level)
				}
				// Calls got through for as long as the last pause: a quarter of that at least.
				if got := call(1); got < time.Second && name != "adaptive" || brake.level != 4 {
					t.Errorf("another call's retry took %v, level %d", got, brake.level)
				}
				for level := 4; level > 0; level-- {
					for range newBrake().forgive {
						if brake.level > level || brake.level < level-1 {
							t.Errorf("level %d, want %d", brake.level, level)
						}
						call(0)
					}
				}
				if brake.level != 0 {
					t.Errorf("level %d after quiet", brake.level)
				}
				if got := call(1); got > time.Second && name != "adaptive" || brake.level != 1 {
					t.Errorf("a retry after quiet took %v, level %d", got, brake.level)
				}
			})
		})
	}
}
