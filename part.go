package cruise

import (
	"context"
	"time"

	"github.com/a7df5faa/cruise/internal/clock"
	"github.com/a7df5faa/cruise/internal/limits"
	"github.com/a7df5faa/cruise/internal/queue"
)

// The methods below let a shared limiter use the policy of an AdaptiveLimiter as a part of its
// own, under the lock of its own queue. Package shared finds them by the queue of a limiter.

// Options returns the numbers that the options of the limiter have set.
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
func (a adaptivePolicy) Notify(e Event) {
	if a.observer != nil {
		notify(context.Background(), a.observer, e)
	}
}

// Part returns the policy of a new limiter with options like those of a, but the rates and the
// burst of o. The limiter is part of another one, whose calls wait in q.
func (a adaptivePolicy) Part(now clock.Instant, q *queue.Queue, o limits.Options) queue.Policy {
	part := newAdaptive(now, adaptiveConfig{
		initial: o.Initial, min: o.Min, max: o.Max, burst: o.Burst, decrease: o.Decrease, increase: o.Increase,
		pause: a.brake.backoff, forgive: o.Forgive,
	})
	part.waiters = q
	return part.policy()
}

// Settle makes the law probe rarely: the rate has been found before.
func (a adaptivePolicy) Settle() { a.law.Settle() }

// Rate returns the rate in calls per second, +Inf for none.
func (a adaptivePolicy) Rate() float64 { return a.law.Rate() }

// Delivered returns the rate that the server has given of late.
func (a adaptivePolicy) Delivered(now clock.Instant) float64 { return a.law.Delivered(now) }

// Stop tells the law that nobody goes before until, whatever the server would give.
func (a adaptivePolicy) Stop(now, until clock.Instant) { a.law.Stop(now, until) }

// Adapt changes the rate for a finished attempt. It returns the pause that the attempt asks for,
// whether the attempt says nothing new, and why the rate has changed.
func (a adaptivePolicy) Adapt(now clock.Instant, f Feedback, idle bool) (pause time.Duration, late bool, why Cause) {
	was := a.law.Rate()
	d := a.decide(now, f.ending(), idle)
	if a.law.Rate() != was {
		a.apply(now)
	}
	return d.pause, d.late, d.why
}

// Brake is Adapt without a change of the rate.
func (a adaptivePolicy) Brake(now clock.Instant, f Feedback) (pause time.Duration, late bool) {
	e := f.ending()
	late = a.brake.late(e.sent)
	return a.brake.learn(now, e, 0, clock.Never), late
}

// Apply is Learn without the ancestors.
func (a adaptivePolicy) Apply(f Feedback) { a.learn(f.ending()) }
