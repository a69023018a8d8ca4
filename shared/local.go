package shared

import (
	"math"
	"time"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/internal/clock"
	"github.com/a7df5faa/cruise/internal/law"
	"github.com/a7df5faa/cruise/internal/limits"
	"github.com/a7df5faa/cruise/internal/queue"
)

// local is the policy of a [cruise.AdaptiveLimiter], as a limit of this worker alone. part.go of
// the root package documents its methods.
type local interface {
	queue.Policy
	Options() limits.Options
	Backoff() cruise.Backoff
	Notify(cruise.Event)
	Part(now clock.Instant, q *queue.Queue, o limits.Options) queue.Policy
	Refused(r *queue.Refusal, n int) error
	Law() *law.Law
	Rate() float64
	Adapt(now clock.Instant, f cruise.Feedback) (pause time.Duration, late bool, why cruise.Cause)
	Brake(now clock.Instant, f cruise.Feedback) (pause time.Duration, late bool)
}

// newLocal returns the policy of a new limiter.
func newLocal(opts ...cruise.LimiterOption) (local, error) {
	l, err := cruise.NewAdaptiveLimiter(opts...)
	if err != nil {
		return nil, err
	}
	return limits.QueueOf(l).Policy().(local), nil
}

// free lets every call go: it is in force while workers share a rate. The policy in it is not
// used.
type free struct{ local }

func (free) Take(clock.Instant, int)                         {}
func (free) Peek(clock.Instant, int) time.Duration           { return 0 }
func (free) AtLeast(clock.Instant, int64, int) time.Duration { return 0 }
func (free) Rate() float64                                   { return math.Inf(1) }

func (free) Adapt(clock.Instant, cruise.Feedback) (pause time.Duration, late bool, why cruise.Cause) {
	return 0, false, ""
}

// open lets every call go, but pauses for throttles.
type open struct{ free }

func (o open) Adapt(now clock.Instant, f cruise.Feedback) (pause time.Duration, late bool, why cruise.Cause) {
	pause, late = o.Brake(now, f)
	return pause, late, ""
}

// closed lets no call go.
type closed struct {
	free
	limiter *Limiter
}

func (closed) Peek(clock.Instant, int) time.Duration { return clock.Never }
func (closed) Rate() float64                         { return 0 }

// AtLeast returns the time until the limiter asks whether the store is back.
func (c closed) AtLeast(now clock.Instant, _ int64, _ int) time.Duration {
	return max(0, c.limiter.next.Sub(now))
}
