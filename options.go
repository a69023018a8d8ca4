package cruise

import (
	"time"

	"github.com/a7df5faa/cruise/internal/check"
	"github.com/a7df5faa/cruise/internal/limits"
	"github.com/a7df5faa/cruise/internal/nils"
)

// An Option tunes a [Retrier]. If an option is given twice, the last one counts, except for
// [WithObserver], [WithClassifier] and [WithPermanent].
type Option interface{ retrier(*config) }

type option func(*config)

func (o option) retrier(c *config) { o(c) }

var (
	defaultBackoff = Must(NewBackoff()).Delay
	// defaultThrottleBackoff delays the retry of a throttle if no limiter pauses.
	defaultThrottleBackoff = Must(NewBackoff(WithBase(time.Second), WithMaxDelay(20*time.Second))).Delay
)

type config struct {
	check.Errors
	limiterOpts        []LimiterOption
	limiter            Limiter
	limiterSet         bool
	perCall            // of calls without call options
	backoff            delays
	throttleBackoff    delays // nil: by the limiter if it learns
	retries            int    // of the Backoff of WithBackoff; 0: no limit
	maxServerDelay     time.Duration
	uncountedThrottles bool
	nested             bool
	budget             *Budget
	budgetSet          bool
	classifier         func(error) Verdict
	permanent          []error // see WithPermanent
	observer           Observer
	scopeLimiter       func(scope, key string) (Limiter, error)
	maxScopes          int
	scopeIdle          time.Duration
}

// WithLimiter sets the limiter that every attempt passes. Retriers may share it. Default: an
// [AdaptiveLimiter] for this Retrier. nil is an error. So is a [LimiterOption] such as
// [WithMaxRate] beside it, except [WithObserver]: pass that to the limiter's constructor.
func WithLimiter(l Limiter) Option {
	return option(func(c *config) {
		c.Check(l != nil, "WithLimiter(nil): want a Limiter, or WithoutLimiter")
		c.Check(l == nil || !nils.Is(l), "WithLimiter(nil %T): want what its constructor returns without an error", l)
		c.limiter, c.limiterSet = l, true
	})
}

// WithoutLimiter makes calls go at once: only their backoff delays them. Calls of a [Retrier.Scope]
// pass just the limiter of their scope, which a [LimiterOption] beside it tunes.
func WithoutLimiter() Option {
	return option(func(c *config) { c.limiter, c.limiterSet = nil, true })
}

// delays returns the wait before a retry: see [Backoff.Delay].
type delays = func(retry int, previous time.Duration) time.Duration

// delaysOf returns the delays of a [Backoff] or a function, and its retries, 0 for no limit.
func delaysOf(b any) (d delays, retries int) {
	if b, ok := b.(Backoff); ok {
		return b.Delay, b.retries
	}
	d, _ = b.(delays)
	return d, 0
}

// WithBackoff sets the wait before a retry, by a [Backoff] or by a function such as
//
//	func(retry int, previous time.Duration) time.Duration { return schedule[min(retry, len(schedule))-1] }
//
// The function gets the number of the retry, 1 for the first, and the last wait of the same call, 0
// before the first. Many goroutines may call it at once. A negative result counts as 0. A Backoff
// with [WithRetries] sets the number of attempts too, unless [WithMaxAttempts] does. Default: 100
// ms, doubled to 20 s, full jitter. A nil function is an error.
func WithBackoff[B Backoff | func(retry int, previous time.Duration) time.Duration](b B) Option {
	return option(func(c *config) {
		c.backoff, c.retries = delaysOf(b)
		c.Check(c.backoff != nil, "WithBackoff(nil): want a Backoff or a function")
	})
}

// WithThrottleBackoff sets the wait of one call before the retry of a throttled attempt, as
// [WithBackoff] does for other retries. Default: none if the limiter is a [Learner], which pauses
// for everyone; otherwise, and for a call that the server refuses alone, 1 s, doubled to 20 s, full
// jitter. Where the limiter pauses for a Retry-After that is no shorter, the call waits there
// instead. A nil function is an error.
func WithThrottleBackoff[B Backoff | func(retry int, previous time.Duration) time.Duration](b B) Option {
	return option(func(c *config) {
		c.throttleBackoff, _ = delaysOf(b)
		c.Check(c.throttleBackoff != nil, "WithThrottleBackoff(nil): want a Backoff or a function")
	})
}

// WithMaxServerDelay caps the wait that a server may ask for. If it asks for a longer one, or the
// limiter pauses for longer, Do returns at once, with [ErrServerDelay], or [ErrQuotaExhausted] if
// the pause is for a quota, and the wait. Default: 5 minutes. 0 or less is an error.
func WithMaxServerDelay(d time.Duration) Option {
	return option(func(c *config) {
		c.Check(d > 0, "WithMaxServerDelay(%v): want above 0", d)
		c.maxServerDelay = d
	})
}

// WithUncountedThrottles suits bulk work, which must get through however often it is throttled.
// Throttled attempts do not count towards [WithMaxAttempts], nor in the [WithBackoff] of other
// failures. The [Budget] does not pay for their retries if the limiter pauses for them. Bound
// such calls by a deadline or by [WithMaxElapsed].
func WithUncountedThrottles() Option {
	return option(func(c *config) { c.uncountedThrottles = true })
}

// WithNestedRetries lets Do retry within a call of another Retrier too. By default Do makes one
// attempt there and leaves retries to the outermost Retrier, so that retries do not multiply.
func WithNestedRetries() Option {
	return option(func(c *config) { c.nested = true })
}

// WithBudget sets the budget that pays for all retries, including retries in scopes. Retriers may
// share it. Default: a [NewBudget] of 100, 0.1 and 0.1 for the Retrier, and another one for
// each key of each scope, so that one failing host does not stop the retries of others: see
// [Retrier.Scope]. nil is an error.
func WithBudget(b *Budget) Option {
	return option(func(c *config) {
		c.Check(b != nil, "WithBudget(nil): want a Budget, or WithoutBudget")
		c.Check(b == nil || b.capacity != 0, "WithBudget(zero Budget): want one made by NewBudget")
		c.budget, c.budgetSet = b, true
	})
}

// WithoutBudget removes the budget: only the attempts of each call bound its retries.
func WithoutBudget() Option {
	return option(func(c *config) { c.budget, c.budgetSet = nil, true })
}

// WithClassifier asks f for the meaning of a call's error before [Classify]. An f that returns the
// zero [Verdict], or an Outcome that does not exist, declines. f is never asked about nil, the end
// of the caller's own context, or an [*Error], which has been retried already. If given more than
// once, the last f is asked first, and the one before it if that declines. nil is an error.
func WithClassifier(f func(error) Verdict) Option {
	return option(func(c *config) {
		if before := c.classifier; c.Check(f != nil, "WithClassifier(nil): want a function") && before != nil {
			last := f
			f = func(err error) Verdict {
				if v := last(err); v.valid() {
					return v
				}
				return before(err)
			}
		}
		c.classifier = f
	})
}

// WithPermanent names errors that a retry cannot help, such as [database/sql.ErrNoRows], redis.Nil
// or mongo.ErrNoDocuments. A call whose error matches one of them, by [errors.Is], is not retried.
// If that error also says that the server throttled, the limiter still learns it. Given more than
// once, all count. Default: none. No error, or a nil one, is an error.
func WithPermanent(errs ...error) Option {
	return option(func(c *config) {
		c.Check(len(errs) > 0, "WithPermanent without an error: want one or more")
		for i, err := range errs {
			c.Check(err != nil, "WithPermanent: error %d is nil", i+1)
		}
		c.permanent = append(c.permanent, errs...)
	})
}

// WithScopeLimiter sets the function that makes the limiter of each key of each scope: see
// [Retrier.Scope]. Many goroutines may call it at once. Default: an [AdaptiveLimiter] with the
// options of the Retrier's own. An error of the function fails the call, as the Reason of an
// [*Error] of 0 attempts. So does a limiter that is nil or not new. A nil function is an error.
func WithScopeLimiter(limiter func(scope, key string) (Limiter, error)) Option {
	return option(func(c *config) {
		c.Check(limiter != nil, "WithScopeLimiter(nil): want a function")
		c.scopeLimiter = limiter
	})
}

// WithMaxScopes caps the number of limiters that scopes keep, 1 or more. Above it the least
// recently used ones are forgotten, except those in use or paused. A forgotten limiter starts anew
// when its key is used again. Default: 10,000. 0 or less is an error.
func WithMaxScopes(n int) Option {
	return option(func(c *config) {
		c.Check(n >= 1, "WithMaxScopes(%d): want 1 or more", n)
		c.maxScopes = n
	})
}

// WithScopeIdle sets the time without a call until the limiter of a scope may be forgotten. The
// limiter stays while past calls still count: until a bucket is full, one of x/time too, or a
// window empty. Default: 30 minutes. 0 or less is an error.
func WithScopeIdle(d time.Duration) Option {
	return option(func(c *config) {
		c.Check(d > 0, "WithScopeIdle(%v): want above 0", d)
		c.scopeIdle = d
	})
}

type observerOption struct {
	limits.Tunes
	Observer
}

func (o observerOption) retrier(c *config)         { c.observer = o.add(c.observer, &c.Errors) }
func (o observerOption) limiter(c *adaptiveConfig) { c.observer = o.add(c.observer, &c.Errors) }

func (o observerOption) add(others Observer, f *check.Errors) Observer {
	switch {
	case !f.Check(!nils.Is(o.Observer), "WithObserver(nil): want an Observer"):
		return others
	case others == nil:
		return o.Observer
	}
	return observers{others, o.Observer}
}

// WithObserver sends events to o. Given to [New], o gets events of the Retrier and of the limiters
// that it makes. An [AdaptiveLimiter] or a shared.Limiter that you make yourself needs the option
// too, to send throttles, rates and pauses. Given more than once, each observer gets every event,
// in that order: logs, metrics and a live page go together. Default: none. nil is an error.
func WithObserver(o Observer) LimiterOption { return observerOption{Observer: o} }
