package shared

import (
	"time"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/internal/clock"
	"github.com/a7df5faa/cruise/internal/limits"
	"github.com/a7df5faa/cruise/internal/queue"
)

// local is the policy of a [cruise.AdaptiveLimiter], by which a worker goes alone. The methods
// are documented in the root package.
type local interface {
	queue.Policy
	Options() limits.Options
	Backoff() cruise.Backoff
	Notify(cruise.Event)
	Part(now clock.Instant, q *queue.Queue, o limits.Options) queue.Policy
	Settle()
	Rate() float64
	Stop(now, until clock.Instant)
	Adapt(now clock.Instant, f cruise.Feedback, idle bool) (pause time.Duration, late bool, why cruise.Cause)
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
