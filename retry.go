package cruise

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/a7df5faa/cruise/internal/clock"
)

// A Retrier makes calls. Each attempt passes the limiter and reports its outcome to it. A failed
// attempt is followed by another if a retry can help.
//
// Make one for each API with [New]. It is safe for concurrent use and must not be copied.
type Retrier struct {
	_ noCopy
	config
	path    *path // limiters that a call passes
	unpaced bool  // no limiter, observer or limit of time: a first attempt needs no record and no clock
}

type noCopy struct{}

func (*noCopy) Lock()   {}
func (*noCopy) Unlock() {}

// New returns a Retrier. Without options
//
//   - the Retrier has an [AdaptiveLimiter] and a [Budget], and each key of a scope has others;
//   - a call has 5 attempts, with a [Backoff] of 100 ms doubled to 20 s and full jitter between
//     them: at most 1.5 s in all, unless the server throttles;
//   - a wait that the server asks for is obeyed up to 5 minutes.
//
// To wait out an outage, use [WithMaxAttempts] of [math.MaxInt], [WithoutBudget], and
// [WithMaxElapsed] or a deadline to end it.
//
// The error names every option that is out of range or contradicts another.
func New(opts ...Option) (*Retrier, error) {
	r := &Retrier{config: config{
		maxServerDelay: 5 * time.Minute, backoff: defaultBackoff, perCall: perCall{cost: 1}, maxScopes: 10_000, scopeIdle: 30 * time.Minute,
	}}
	c := &r.config
	for i, opt := range opts {
		if c.Check(opt != nil, "option %d is nil", i+1) {
			opt.retrier(c)
		}
	}
	if c.limiterSet {
		c.Check(len(c.limiterOpts) == 0 || c.limiter == nil, "WithLimiter(%T) beside an option such as WithMaxRate, which tunes limiters that New makes: want it left out, or given to NewAdaptiveLimiter or shared.New, or WithScopeLimiter for those of scopes", c.limiter)
		c.Check(len(c.limiterOpts) == 0 || c.limiter != nil || c.scopeLimiter == nil, "WithScopeLimiter makes all limiters, so that an option such as WithMaxRate tunes none: want it given to their constructor")
	}
	tuned := slices.Clip(c.limiterOpts)
	if c.observer != nil {
		tuned = append(tuned, WithObserver(c.observer))
	}
	limiter, err := NewAdaptiveLimiter(tuned...)
	if err != nil {
		c.Errors = append(c.Errors, err)
	}
	if !c.limiterSet {
		c.limiter = limiter
	}
	if !c.budgetSet {
		c.budget = newDefaultBudget()
	}
	if c.maxAttempts == 0 {
		c.maxAttempts = 5
		if c.retries > 0 {
			c.maxAttempts = min(c.retries, math.MaxInt-1) + 1
		}
	}
	if len(c.Errors) > 0 {
		return nil, errors.Join(c.Errors...)
	}
	r.path = &path{scopes: newScopes(c)}
	r.unpaced = c.limiter == nil && c.observer == nil && c.attemptTimeout == 0 && c.maxElapsed == 0 && !c.background && !c.once
	return r, nil
}

// Do calls fn, retries it while a retry can help, and returns nil once it succeeds. fn should use
// the context that it is given.
//
// When the call fails, Do returns an [*Error], which has a reason and wraps the last error of fn.
// Do returns the error of fn unchanged
//
//   - if the first attempt failed permanently, or was dropped while ctx goes on;
//   - if the error means [OutcomeSuccess];
//   - within a call of another Retrier, which decides on retries.
//
// Do returns at once when the next wait cannot end before the context's deadline, or while a quota
// is used up. A loop that repeats a failed Do without a wait would spin: see the example of a
// worker. An [*Error] of 0 Attempts says that the call was refused.
//
// A nil ctx or fn, a Retrier that was not made by [New] and an option out of range are mistakes: Do
// calls nothing, and returns an error other than an [*Error].
//
// fn runs in the caller's goroutine. Its panics pass through, after a report to the limiter.
func (r *Retrier) Do(ctx context.Context, fn func(context.Context) error, opts ...CallOption) error {
	if fn == nil {
		return errNilFunc
	}
	var c calling
	if r != nil && r.unpaced && len(opts) == 0 && ctx != nil && ctx.Err() == nil {
		err := fn(ctx)
		if err == nil {
			r.budget.success()
			return nil
		}
		c.started = clock.Now()
		c.r, c.ctx, c.perCall, c.attempts = r, ctx, r.perCall, 1
		if again, err := c.settle(err); !again {
			return err
		}
	} else if err := c.begin(r, ctx, opts); err != nil {
		return err
	}
	for {
		if err := c.admit(); err != nil {
			return err
		}
		if again, err := c.settle(c.attempt(fn)); !again {
			return err
		}
	}
}

// DoValue calls [Retrier.Do] with a function that returns a value. It returns the value of the last
// attempt, with an error too.
func DoValue[T any](ctx context.Context, r *Retrier, fn func(context.Context) (T, error), opts ...CallOption) (value T, err error) {
	if fn == nil {
		return value, errNilFunc
	}
	err = r.Do(ctx, func(ctx context.Context) (err error) {
		value, err = fn(ctx)
		return err
	}, opts...)
	return value, err
}

// Refuse gives up on a call without making it, for an adapter that knows the call to be in vain. It
// notifies observers and returns an [*Error] as Do does, with the reason, the time until another
// try makes sense, 0 if unknown, and the server's last error, nil if there is none. If ctx has
// ended, that is the reason. A nil reason, a nil ctx or a Retrier that was not made by [New] gives
// an error other than an [*Error].
func (r *Retrier) Refuse(ctx context.Context, reason error, retryAfter time.Duration, last error) error {
	if reason == nil {
		return errNilReason
	}
	c := calling{last: last}
	if err := c.begin(r, ctx, nil); err != nil {
		return err
	}
	c.started = clock.Now()
	return c.giveUp(reason, max(0, retryAfter))
}

// Limiter returns the limiter that attempts pass, nil if there is none. A scope's Retrier returns
// the innermost one, which may be replaced after a long time without a call. A limiter of this
// package waits for the limiters around it too, and reports to them.
func (r *Retrier) Limiter() Limiter {
	if r == nil || r.path == nil {
		return nil // Do will say so
	}
	return r.path.limiter()
}

// Budget returns the budget that pays for retries, nil if nothing limits them. A scope's budget may
// be replaced with its limiter.
func (r *Retrier) Budget() *Budget {
	if r == nil || r.path == nil {
		return nil // Do will say so
	}
	return r.path.budget()
}

var (
	errNilFunc   = errors.New("cruise: nil function to call")
	errNilReason = errors.New("cruise: nil reason")
)
