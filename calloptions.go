package cruise

import (
	"fmt"
	"time"
)

// A CallOption tunes one call. It is an [Option] too: given to [New], it tunes every call that sets
// no other value. A value out of range is an error of New, or of the call, which is then not made.
type CallOption struct {
	kind optionKind
	n    int64 // a number, or nanoseconds
}

type optionKind uint8

const (
	costOption optionKind = iota
	backgroundOption
	onceOption
	attemptsOption
	elapsedOption
	timeoutOption
	maxWaitOption
)

// perCall holds the settings of one call.
type perCall struct {
	cost           int
	background     bool
	once           bool // no retries
	maxAttempts    int  // 0: not set
	maxElapsed     time.Duration
	attemptTimeout time.Duration
	timeoutCause   error // cause of its end; nil if there is none
	maxWait        time.Duration
	bounded        bool // by maxWait
}

func (o CallOption) retrier(c *config) {
	if err := c.apply(o); err != nil {
		c.Errors = append(c.Errors, err)
	}
}

// apply applies an option, or returns the error in it.
func (p *perCall) apply(o CallOption) error {
	d := time.Duration(o.n)
	switch o.kind {
	case costOption:
		p.cost = int(o.n)
		if o.n < 0 {
			return fmt.Errorf("cruise: WithCost(%d): want 0 or more", o.n)
		}
	case backgroundOption:
		p.background = true
	case onceOption:
		p.once = true
	case attemptsOption:
		p.maxAttempts = int(o.n)
		if o.n < 1 {
			return fmt.Errorf("cruise: WithMaxAttempts(%d): want 1 or more", o.n)
		}
	case elapsedOption:
		p.maxElapsed = d
		if d <= 0 {
			return fmt.Errorf("cruise: WithMaxElapsed(%v): want above 0", d)
		}
	case timeoutOption:
		p.attemptTimeout, p.timeoutCause = d, &timeout{fmt.Sprintf("cruise: attempt took longer than %v (WithAttemptTimeout)", d)}
		if d <= 0 {
			return fmt.Errorf("cruise: WithAttemptTimeout(%v): want above 0", d)
		}
	case maxWaitOption:
		p.maxWait, p.bounded = d, true
		if d < 0 {
			return fmt.Errorf("cruise: WithMaxWait(%v): want 0 or more", d)
		}
	}
	return nil
}

// WithCost sets the cost of a call in units of the limiter, for APIs that count units rather than
// calls. 0 makes it free: the limiter does not pace it, and ignores its throttles and [Report].
// Default: 1. A negative cost is an error.
func WithCost(n int) CallOption { return CallOption{costOption, int64(n)} }

// WithBackground makes a call yield, its retries too: behind a limiter of this package it waits
// until no other call waits there. To prevent starvation, at least one of every 8 calls that go
// while background calls wait is a background call. Calls of other Retriers within it yield too. A
// limiter of another package ignores the option.
func WithBackground() CallOption { return CallOption{kind: backgroundOption} }

// WithoutRetries makes a call once, for calls that must not be sent twice. The limiter learns from
// its outcome as usual, a throttle included, which [Permanent] would hide. The call ends as with
// [WithMaxAttempts] of 1. Other Retriers within it make their calls once too, unless
// [WithNestedRetries] says otherwise. A Retrier around it may repeat it with its own call.
func WithoutRetries() CallOption { return CallOption{kind: onceOption} }

// WithMaxAttempts caps the attempts of a call, the first included: 1 or more, or [math.MaxInt] for
// no limit. Default: 5. 0 or less is an error.
func WithMaxAttempts(n int) CallOption { return CallOption{attemptsOption, int64(n)} }

// WithMaxElapsed bounds a call to d since Do was called: no attempt starts later, and no wait that
// would end later begins. An attempt under way goes on. Default: no limit. 0 or less is an error.
func WithMaxElapsed(d time.Duration) CallOption { return CallOption{elapsedOption, int64(d)} }

// WithAttemptTimeout gives the context of each attempt a timeout. An attempt that exceeds it is
// retried. The context ends when the attempt returns, so read the body of a response before:
// WithAttemptTimeout of package cruisehttp lasts longer. Default: none. 0 or less is an error.
func WithAttemptTimeout(d time.Duration) CallOption { return CallOption{timeoutOption, int64(d)} }

// WithMaxWait caps the time that each attempt waits for the limiter. With 0 the call goes at once
// or not at all. A call that would wait longer is refused at once, with [ErrMaxWait] in an [*Error]
// whose RetryAfter is the wait; if the wait cannot be foreseen, the call is refused when the time
// is over. Only the wait for the limiter counts: the attempt keeps its context, and backoff its
// length. Default: no limit except the context's. A negative wait is an error.
//
// A limiter of another package with a method AllowN, such as x/time's, is asked by that method
// first. Any other gets a context that ends with the time, after a millisecond at least.
func WithMaxWait(d time.Duration) CallOption { return CallOption{maxWaitOption, int64(d)} }
