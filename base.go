package cruise

import (
	"context"
	"time"

	"github.com/a7df5faa/cruise/internal/clock"
	"github.com/a7df5faa/cruise/internal/limits"
	"github.com/a7df5faa/cruise/internal/queue"
)

// base is the part that all limiters of this package share: a queue.
type base struct {
	member
	queue queue.Queue
}

type member = limits.Member

// WaitN waits until a call of cost n may go, and takes its cost. n of 0 does not wait. It returns
// the context's error and cause if that ends first. It returns at once with an [*Error] of
// [ErrDeadline] if the wait could not end in time, with [ErrCost] if n is above the burst of a
// [TokenBucket], the Burst given by a [Tuning], the smallest Calls of the windows, or 2^31-1, and
// with an error for a negative n. One Learn must follow if it returned nil and n is 1 or more.
func (b *base) WaitN(ctx context.Context, n int) error {
	_, _, err := admit(&b.queue, ctx, n)
	return err
}

// TryN admits a call of cost n now and returns true, or returns false without waiting or taking a
// token. It returns false while other calls wait, during a pause, for a negative n, and for a call
// that can never go. n of 0 is always admitted. To learn the wait too, use [WithMaxWait] of 0. One
// Learn must follow if it returned true and n is 1 or more.
func (b *base) TryN(n int) bool { return limits.Try(&b.queue, n) }

// admit is WaitN that returns when the call came and went.
func admit(q *queue.Queue, ctx context.Context, n int) (came, sent clock.Instant, err error) {
	came, sent, err = limits.Admit(ctx, q, n)
	return came, sent, refusalError(err, n)
}

// refusalError returns an error of a queue as the error of a call of cost n.
func refusalError(err error, n int) error {
	r, ok := err.(*queue.Refusal)
	switch {
	case !ok:
		return err
	case r.Why == queue.TooExpensive:
		return costError(n, r.MaxCost)
	}
	return &Error{Reason: refusalReasons[r.Why], RetryAfter: r.RetryAfter, Paused: r.Paused, Ahead: r.Ahead}
}

var refusalReasons = [...]error{
	queue.DeadlineTooSoon: ErrDeadline,
	queue.PauseTooLong:    ErrServerDelay,
	queue.QuotaTooLong:    ErrQuotaExhausted,
	queue.WaitTooLong:     ErrMaxWait,
}

// pauseBy pauses after an attempt, the last of so many consecutive throttles, and reports whether that
// extends the pause. It needs the lock.
func (b *base) pauseBy(now clock.Instant, f Feedback, row int, d time.Duration) bool {
	if f.Outcome == OutcomeQuotaExhausted {
		b.queue.QuotaUsedUp(now.Add(f.RetryAfter))
	}
	if f.Outcome == OutcomeThrottled && (row > 1 || f.RetryAfter <= 0) { // else its retry is sure to be in time
		b.queue.ProbeNext()
	}
	return b.queue.Pause(now, now.Add(d))
}

// change changes the policy, for waiting calls too.
func (b *base) change(policy func(now clock.Instant)) error {
	changed := b.queue.Locked(func(now clock.Instant) {
		policy(now)
		b.queue.KeepPause(now)
		b.queue.Slowed(now)
	})
	if !changed {
		return limits.ErrZero
	}
	return nil
}

// pauseFor pauses for d, and reports whether that extends the pause.
func (b *base) pauseFor(d time.Duration) (paused bool) {
	b.queue.Locked(func(now clock.Instant) {
		if paused = b.queue.Pause(now, now.Add(d)); paused {
			b.queue.Slowed(now)
		}
	})
	return paused
}

// resumeNow ends the pause, and returns the time that was left of it, 0 if there was none.
func (b *base) resumeNow() (left time.Duration) {
	b.queue.Locked(func(now clock.Instant) {
		if left = b.queue.PauseLeft(now); left > 0 {
			b.queue.CutPause(now, now)
			b.queue.Reschedule(now)
		}
	})
	return left
}

// PauseLeft returns the time left of the current pause, 0 if there is none.
func (b *base) PauseLeft() time.Duration {
	_, left := b.queue.Report()
	return left
}

// reportToParents reports a finished attempt to the limiters of the ancestors of a queue. A Retrier
// reports to the limiters of its own scopes itself.
func reportToParents(q *queue.Queue, f Feedback) {
	if q.Parent() != nil {
		limits.Report(q, f.unblamed())
	}
}
