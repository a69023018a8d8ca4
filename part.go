package cruise

import (
	"time"

	"github.com/a7df5faa/cruise/internal/clock"
	"github.com/a7df5faa/cruise/internal/law"
	"github.com/a7df5faa/cruise/internal/limits"
	"github.com/a7df5faa/cruise/internal/queue"
)

// The methods below let a shared limiter use the policy of an AdaptiveLimiter as a part of its
// own, under the lock of its own queue. Package shared finds them by the queue of a limiter.

// Options returns the numeric options of the limiter.
func (a adaptivePolicy) Options() limits.Options {
	return limits.Options{
		Initial: a.initial, Min: a.min, Max: a.max, Burst: a.burst,
		Decrease: a.law.Decrease, Increase: a.law.Increase,
		Forgive: a.brake.forgive, PauseBase: a.brake.backoff.base,
	}
}

// Backoff returns the backoff of pauses.
func (a adaptivePolicy) Backoff() Backoff { return a.brake.backoff }

// Notify tells the observer of the limiter, if it has one.
func (a adaptivePolicy) Notify(e Event) { a.notify(e) }

// Part returns the policy of a new limiter with options like those of a, except the rates and the
// burst of o. The limiter is part of another one, whose calls wait in q.
func (a adaptivePolicy) Part(now clock.Instant, q *queue.Queue, o limits.Options) queue.Policy {
	part := newAdaptive(now, adaptiveConfig{
		settings: settings{initial: o.Initial, min: o.Min, max: o.Max, burst: o.Burst, brake: brake{backoff: a.brake.backoff, forgive: o.Forgive}},
		law:      law.Config{Decrease: o.Decrease, Increase: o.Increase},
	})
	part.waiters = q
	return adaptivePolicy{part}
}

// Law returns the law of the limiter.
func (a adaptivePolicy) Law() *law.Law { return a.law }

// Refused returns the refusal of a call of cost n as an error.
func (a adaptivePolicy) Refused(r *queue.Refusal, n int) error { return refusalError(r, n) }

// Rate returns the rate in calls per second, +Inf for none.
func (a adaptivePolicy) Rate() float64 { return a.law.Rate() }

// Adapt changes the rate after a finished attempt. It returns the pause for the attempt, whether
// the attempt says nothing new, and the cause of a change of the rate.
func (a adaptivePolicy) Adapt(now clock.Instant, f Feedback) (pause time.Duration, late bool, why Cause) {
	d := a.teachLaw(now, clock.Of(f.Sent), f)
	return d.pause, d.late, d.why
}

// Brake is Adapt without a change of the rate.
func (a adaptivePolicy) Brake(now clock.Instant, f Feedback) (pause time.Duration, late bool) {
	sent := clock.Of(f.Sent)
	late = a.brake.late(sent)
	return a.brake.pause(now, sent, f), late
}
