package cruise

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/a7df5faa/cruise/internal/clock"
)

// Defaults of a [Retrier], of its scopes, and of a [Budget].
const (
	DefaultMaxAttempts    = 5
	DefaultMaxServerDelay = 5 * time.Minute

	DefaultMaxScopes = 10_000           // limiters kept
	DefaultScopeIdle = 30 * time.Minute // without a call, after which one is forgotten

	DefaultBudgetCapacity = 100.0 // retries
	DefaultBudgetRatio    = 0.1   // retries per success
	DefaultBudgetRefill   = 0.1   // retries per second

	// Unlimited is what [WithMaxAttempts] takes for no limit.
	Unlimited = math.MaxInt
)

// A Retrier makes calls: each attempt passes the limiter, tells it how it ended,
// and is followed by another one where that is worth it.
//
// A Retrier is safe for concurrent use: make one for each API, and share it. It
// is made by [New] and must not be copied.
type Retrier struct {
	_ noCopy
	config
	path *path // of the limiters that a call passes
	bare bool  // no limiter, observer or limit of time: a first attempt needs no record and no clock
}

type noCopy struct{}

func (*noCopy) Lock()   {}
func (*noCopy) Unlock() {}

// New returns a Retrier. Without options
//
//   - it has an [AdaptiveLimiter] and a [Budget] of its own, and others for each key of a
//     scope;
//   - a call has 5 attempts, with a [Backoff] of 100 ms doubled to 20 s and full jitter
//     between them: 1.5 s in all at most, where none is throttled;
//   - waits that a server asks for are obeyed up to 5 minutes.
//
// To wait out an outage takes [WithMaxAttempts] of [Unlimited], [WithoutBudget], and
// [WithMaxElapsed] or a deadline to end it.
//
// A [LimiterOption] tunes the limiters that the Retrier makes: its own, and those
// of its scopes. The error names every option that is out of bounds or contradicts another.
func New(opts ...Option) (*Retrier, error) {
	r := &Retrier{config: config{maxServerDelay: DefaultMaxServerDelay, backoff: defaultBackoff, perCall: perCall{cost: 1}}}
	c := &r.config
	for i, opt := range opts {
		if c.Check(opt != nil, "option %d is nil", i+1) {
			opt.retrier(c)
		}
	}
	if !c.limiterSet {
		opts := slices.Clip(c.limiterOpts)
		if c.observer != nil {
			opts = append(opts, WithObserver(c.observer))
		}
		limiter, err := NewAdaptiveLimiter(opts...)
		if err != nil {
			c.Errors = append(c.Errors, err)
		}
		c.limiter = limiter
	} else {
		c.Check(len(c.limiterOpts) == 0 || c.limiter == nil, "WithLimiter(%T) beside an option such as WithMaxRate, which tunes limiters that New makes: want it left out, or given to NewAdaptiveLimiter or shared.New, or WithScopeLimiter for those of scopes", c.limiter)
		c.Check(len(c.limiterOpts) == 0 || c.limiter != nil || c.scopeLimiter == nil, "WithScopeLimiter makes all limiters, so that an option such as WithMaxRate tunes none: want it given to their constructor")
		if _, err := NewAdaptiveLimiter(c.limiterOpts...); err != nil {
			c.Errors = append(c.Errors, err)
		}
	}
	if !c.budgetSet {
		c.budget = newDefaultBudget()
	}
	if c.maxAttempts == 0 {
		c.maxAttempts = DefaultMaxAttempts
		if c.retries > 0 {
			c.maxAttempts = min(c.retries, Unlimited-1) + 1
		}
	}
	if len(c.Errors) > 0 {
		return nil, errors.Join(c.Errors...)
	}
	r.path = &path{scopes: newScopes(c)}
	r.bare = c.limiter == nil && c.observer == nil && c.attemptTimeout == 0 && c.maxElapsed == 0 && !c.background && !c.once
	return r, nil
}

// Do makes a call, again where that is worth it, and returns nil when it has
// succeeded. fn should use the context that it is given.
//
// When the call fails, Do returns an [*Error], which has a reason and wraps the last
// error of fn. But it returns what fn returned, untouched,
//
//   - if the first attempt failed for good, or was dropped though ctx goes on;
//   - if the error means [OutcomeSuccess];
//   - within a call of another Retrier, which decides on retries.
//
// It returns at once when the next wait cannot end before the context's deadline, or while a quota
// is used up. A loop that goes on whatever Do returns would then spin: end it, or let it wait as
// the example of a worker does. An [*Error] of 0 Attempts says that the call was refused, and its
// RetryAfter how long that will be so.
//
// A nil ctx or fn, a Retrier that was not made by [New] and an option out of bounds are
// mistakes: for them it calls nothing, and returns an error that is no [*Error].
//
// fn is called from the caller's goroutine. Its panics pass through, after the
// limiter has been told.
func (r *Retrier) Do(ctx context.Context, fn func(context.Context) error, opts ...CallOption) error {
	if fn == nil {
		return errNilFunc
	}
	var c calling
	if r != nil && r.bare && len(opts) == 0 && ctx != nil && ctx.Err() == nil {
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

// DoValue is [Retrier.Do] for a function that returns a value. It returns the
// value of the last attempt, with an error too; for the mistakes that Do names, the zero
// value and an error that is no [*Error].
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

// Refuse gives up on a call that is not made, for an adapter that knows it to be in vain,
// such as one that remembers a quota as used up. Observers are told, and it returns an
// [*Error] as Do does: with the reason, how long it will be until another try makes
// sense, 0 if that is unknown, and the server's last error, nil if there is none. If ctx
// has ended, that is the reason. A nil reason, a nil ctx or a Retrier that was not made by
// [New] is an error that is no [*Error].
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

// Limiter returns the limiter that attempts pass, nil if there is none. That of a
// scope is its innermost, which may be another one after a long time without a
// call. Limiters of this package know those of them around: a WaitN
// waits for these too, and a Learn tells them that the call has ended.
func (r *Retrier) Limiter() Limiter {
	if r == nil || r.path == nil {
		return nil // Do will say so
	}
	return r.path.limiter()
}

// Budget returns what retries are paid from, nil if nothing limits them. That of
// a scope, like its limiter, may be another one after a long time without a call.
func (r *Retrier) Budget() *Budget {
	if r == nil || r.path == nil {
		return nil // Do will say so
	}
	return r.path.budget()
}

var (
	errNilFunc     = errors.New("cruise: nil function to call")
	errNilReason   = errors.New("cruise: nil reason")
	errZeroRetrier = errors.New("cruise: Retrier not made by New")
	errLeft        = errors.New("cruise: left the loop")
	errPanicked    = errors.New("cruise: call panicked or exited its goroutine")
)
