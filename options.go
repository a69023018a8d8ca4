package cruise

import (
	"time"

	"github.com/a7df5faa/cruise/internal/check"
	"github.com/a7df5faa/cruise/internal/limits"
	"github.com/a7df5faa/cruise/internal/nils"
)

// An Option tunes a [Retrier]. Given twice, the last counts, except for [WithObserver],
// [WithClassifier] and [WithPermanent].
type Option interface{ retrier(*config) }

type option func(*config)

func (o option) retrier(c *config) { o(c) }

var (
	defaultBackoff = Must(NewBackoff()).Delay
	// defaultThrottleBackoff is for throttles where no limiter pauses.
	defaultThrottleBackoff = Must(NewBackoff(WithBase(time.Second), WithMaxDelay(20*time.Second))).Delay
)

type config struct {
	check.Errors
	limiterOpts     []LimiterOption
	limiter         Limiter
	limiterSet      bool
	perCall         // of calls without options of their own
	backoff         delays
	throttleBackoff delays // nil: by the limiter if it learns
	retries         int    // of the Backoff of WithBackoff; 0: no limit
	maxServerDelay  time.Duration
	freeThrottles   bool
	nested          bool
	budget          *Budget
	budgetSet       bool
	classifier      Classifier
	permanent       []error // see WithPermanent
	observer        Observer
	scopeLimiter    func(scope, key string) (Limiter, error)
	maxScopes       int           // 0: not set
	scopeIdle       time.Duration // 0: not set
}

// WithLimiter is the limiter that every attempt passes, first or retry; it may be
// shared by Retriers. Beside it no [LimiterOption] but [WithObserver] may be given: those
// are for the limiter's own constructor. Default: an [AdaptiveLimiter] of the Retrier's own.
func WithLimiter(l Limiter) Option {
	return option(func(c *config) {
		c.Check(l != nil, "WithLimiter(nil): want a Limiter, or WithoutLimiter")
		c.Check(l == nil || !nils.Is(l), "WithLimiter(nil %T): want what its constructor returns without an error", l)
		c.limiter, c.limiterSet = l, true
	})
}

// WithoutLimiter makes calls go at once, paced by nothing but their backoff. Those
// of a [Retrier.Scope] pass the limiter of their scope alone. A [LimiterOption] beside
// it tunes the limiters of scopes, and has no effect on calls outside a scope.
func WithoutLimiter() Option {
	return option(func(c *config) { c.limiter, c.limiterSet = nil, true })
}

// delays says how long to wait before a retry: see [Backoff.Delay].
type delays = func(retry int, previous time.Duration) time.Duration

// delaysOf is what a [Backoff], or a function in its place, says, and after how many retries it
// gives up; 0 for no limit.
func delaysOf(b any) (d delays, retries int) {
	if b, ok := b.(Backoff); ok {
		return b.Delay, b.retries
	}
	d, _ = b.(delays)
	return d, 0
}

// WithBackoff sets the wait before a retry: a [Backoff], or a function of your own such as
//
//	func(retry int, previous time.Duration) time.Duration { return schedule[min(retry, len(schedule))-1] }
//
// which is given the number of the retry, 1 for the first, and the last wait of the same call, 0
// before the first. It may be called from many goroutines at once. What it returns below 0 counts
// as 0; a wait that would pass a deadline ends the call. Default 100 ms, doubled to 20 s, full
// jitter. Unless [WithMaxAttempts] is given too, a Backoff with [WithRetries] sets the number of
// attempts.
func WithBackoff[B Backoff | func(retry int, previous time.Duration) time.Duration](b B) Option {
	return option(func(c *config) {
		c.backoff, c.retries = delaysOf(b)
		c.Check(c.backoff != nil, "WithBackoff(nil): want a Backoff or a function")
	})
}

// WithThrottleBackoff sets the wait of one call before the retry of a throttled
// attempt, as [WithBackoff] does for others. Default: none where the limiter is a [Learner], whose
// pauses hold for everyone; elsewhere 1 s, doubled to 20 s, full jitter.
func WithThrottleBackoff[B Backoff | func(retry int, previous time.Duration) time.Duration](b B) Option {
	return option(func(c *config) {
		c.throttleBackoff, _ = delaysOf(b)
		c.Check(c.throttleBackoff != nil, "WithThrottleBackoff(nil): want a Backoff or a function")
	})
}

// WithMaxServerDelay is the longest wait that a server may ask for, above 0. For
// a longer one, or behind a limiter that pauses for longer, Do returns at once,
// with [ErrServerDelay], or [ErrQuotaExhausted] if the pause is for a quota, and the wait.
// Default 5 minutes.
func WithMaxServerDelay(d time.Duration) Option {
	return option(func(c *config) {
		c.Check(d > 0, "WithMaxServerDelay(%v): want above 0", d)
		c.maxServerDelay = d
	})
}

// WithUncountedThrottles is for bulk work, which is to get through however often it is
// throttled: throttled attempts do not count towards [WithMaxAttempts], nor in the
// [WithBackoff] of other failures, nor are their retries paid from the [Budget] where the
// limiter pauses for them. Bound it by a deadline or by [WithMaxElapsed].
func WithUncountedThrottles() Option {
	return option(func(c *config) { c.freeThrottles = true })
}

// WithNestedRetries lets Do retry even within the call of another Retrier. By
// default it makes its call once there and leaves retries to the outermost, so
// that they do not multiply.
func WithNestedRetries() Option {
	return option(func(c *config) { c.nested = true })
}

// WithBudget is what all retries are paid from, those of all scopes too; it may be
// shared by Retriers. Default: a [NewBudget] with the default values for the
// Retrier itself, and another one for each key of each scope, so that where one
// host is down, retries of others go on: see [Retrier.Scope].
func WithBudget(b *Budget) Option {
	return option(func(c *config) {
		c.Check(b != nil, "WithBudget(nil): want a Budget, or WithoutBudget")
		c.Check(b == nil || b.capacity != 0, "WithBudget(zero Budget): want one made by NewBudget")
		c.budget, c.budgetSet = b, true
	})
}

// WithoutBudget lets retries be as many as the attempts of each call allow.
func WithoutBudget() Option {
	return option(func(c *config) { c.budget, c.budgetSet = nil, true })
}

// WithClassifier asks f what an error means before [Classify] is asked. Given more than
// once, the last is asked first, and the one before it where that declines.
func WithClassifier(f Classifier) Option {
	return option(func(c *config) {
		if before := c.classifier; c.Check(f != nil, "WithClassifier(nil): want a Classifier") && before != nil {
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

// WithPermanent names errors that no retry can help, such as [database/sql.ErrNoRows], redis.Nil or
// mongo.ErrNoDocuments: a call whose error matches one of them, by [errors.Is], is not retried. Where
// that error also says that the server throttled, the limiter learns it all the same. It wants
// one or more errors, none nil; given more than once, all count. Default: none.
func WithPermanent(errs ...error) Option {
	return option(func(c *config) {
		c.Check(len(errs) > 0, "WithPermanent without an error: want one or more")
		for i, err := range errs {
			c.Check(err != nil, "WithPermanent: error %d is nil", i+1)
		}
		c.permanent = append(c.permanent, errs...)
	})
}

// WithScopeLimiter makes the limiter of each key of each scope: see
// [Retrier.Scope]. It must make a new one each time, and may be called from many
// goroutines at once. Default: an [AdaptiveLimiter] with the same options as the
// one that the Retrier makes for itself. An error of the function fails the call, as
// the Reason of an [*Error] of 0 attempts; so does a nil limiter, and one that has a scope
// already.
func WithScopeLimiter(limiter func(scope, key string) (Limiter, error)) Option {
	return option(func(c *config) {
		c.Check(limiter != nil, "WithScopeLimiter(nil): want a function")
		c.scopeLimiter = limiter
	})
}

// WithMaxScopes is how many limiters of scopes are kept, 1 or more. When there
// are more, the least recently used are forgotten, with what they have learned,
// except those in use or paused. The limit of one that is forgotten is whole when its
// key is used again. Default 10,000.
func WithMaxScopes(n int) Option {
	return option(func(c *config) {
		c.Check(n >= 1, "WithMaxScopes(%d): want 1 or more", n)
		c.maxScopes = n
	})
}

// WithScopeIdle is after how long without a call the limiter of a scope may be
// forgotten, above 0. It is kept for longer while calls that went still count: while a
// bucket is not full, that of x/time too, or a window not empty. Default 30 minutes.
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

func (o observerOption) retrier(c *config)         { c.observer = o.beside(c.observer, &c.Errors) }
func (o observerOption) limiter(c *adaptiveConfig) { c.observer = o.beside(c.observer, &c.Errors) }

func (o observerOption) beside(others Observer, f *check.Errors) Observer {
	if !f.Check(!nils.Is(o.Observer), "WithObserver(nil): want an Observer") {
		return others
	}
	return both(others, o.Observer)
}

// WithObserver tells o what happens. Given to [New] it is told of the Retrier and
// of the limiters that the Retrier makes; an [AdaptiveLimiter] or a shared.Limiter that
// you make needs it too, to tell of throttles, rates and pauses. Given more than once,
// all are told, in that order: logs, metrics and a page to watch go together.
func WithObserver(o Observer) LimiterOption { return observerOption{Observer: o} }
