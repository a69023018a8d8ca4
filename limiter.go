package cruise

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/time/rate"

	"github.com/a7df5faa/cruise/internal/clock"
)

// A Limiter decides when calls may go. [*rate.Limiter] is one, and so is every limiter of this
// package.
//
// A [*rate.Limiter] has its price: a 429 pauses only the call that got it, and a call that is
// cancelled leaves its reservation behind. Prefer a [TokenBucket].
type Limiter interface {
	// WaitN returns nil when a call of cost n may go. It returns the context's error if that ends
	// first, and an error at once if it cannot return nil before the context's deadline.
	WaitN(ctx context.Context, n int) error
}

var _ Limiter = (*rate.Limiter)(nil)

// A Learner is a limiter that learns from the results of the calls that it admitted. After Learn of
// [OutcomeThrottled] or [OutcomeQuotaExhausted] with a positive RetryAfter, WaitN admits no call
// for that long.
//
// Behind a Learner a throttled call asks again at once, and waits out the pause there. If your own
// Learner does not pause for a throttle without a wait, give the [Retrier] [WithThrottleBackoff].
//
// Learn must be called once for every WaitN of 1 or more that returned nil. A [Retrier] does.
type Learner interface {
	Limiter
	Learn(Feedback)
}

// unblamed returns the feedback for limiters that the server did not blame.
func (f Feedback) unblamed() Feedback {
	f.Quota, f.RetryAfter, f.run, f.own = nil, 0, 0, false
	if f.Outcome.refused() {
		f.Outcome = OutcomeDropped
	}
	return f
}

// waitFor waits for a limiter of another package until a time, 0 for no end.
func waitFor(ctx context.Context, l Limiter, n int, until clock.Instant) error {
	if until == 0 {
		return explain(ctx, l, n, l.WaitN(ctx, n))
	}
	if l, ok := l.(interface{ AllowN(time.Time, int) bool }); ok && l.AllowN(clock.Now().Time(), n) {
		return nil
	}
	left := until.Sub(clock.Now())
	bounded, cancel := context.WithTimeout(ctx, max(left, time.Millisecond))
	defer cancel()
	if d, ok := ctx.Deadline(); ok && clock.Deadline(d) < until {
		return explain(ctx, l, n, l.WaitN(ctx, n))
	}
	err := explain(ctx, l, n, l.WaitN(bounded, n))
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		refused := &Error{Reason: ErrMaxWait}
		if e, ok := errors.AsType[*Error](err); ok && e != nil {
			refused.RetryAfter, refused.Paused, refused.Ahead = e.RetryAfter, e.Paused, e.Ahead
		}
		return refused
	}
	return err
}

// explain adds the reason and the wait to an error of x/time's limiter, which gives text alone.
func explain(ctx context.Context, l Limiter, n int, err error) error {
	x, ok := l.(*rate.Limiter)
	if !ok || err == nil {
		return err
	}
	if burst := x.Burst(); n > burst {
		return costError(n, burst)
	}
	e := &Error{Reason: ErrDeadline}
	if ctx.Err() == nil {
		e.RetryAfter = clock.CeilSeconds((float64(n) - x.Tokens()) / float64(x.Limit()))
	}
	return e
}

func costError(n, most int) error {
	return &Error{Reason: fmt.Errorf("%w: cost %d, at most %d", ErrCost, n, most)}
}
