package cruise

import (
	"fmt"
	"time"
)

// A CallOption tunes one call. It is an [Option] too: given to [New], it tunes every call that
// does not say otherwise. A value out of bounds is an error of New, or of the call, which is not
// made then.
type CallOption struct {
	what choice
	n    int64 // a number, or nanoseconds
}

type choice uint8

const (
	theCost choice = iota
	yielding
	onlyOnce
	theAttempts
	theElapsed
	theTimeout
	theWait
)

var choiceNames = [...]string{"WithCost", "WithBackground", "WithoutRetries", "WithMaxAttempts", "WithMaxElapsed", "WithAttemptTimeout", "WithMaxWait"}

// perCall is what may be chosen for each call.
type perCall struct {
	cost           int
	background     bool
	once           bool // no retries
	maxAttempts    int  // 0: not set
	maxElapsed     time.Duration
	attemptTimeout time.Duration
	tookLong       error // the cause of its end; nil if there is none
	maxWait        time.Duration
	bounded        bool // by maxWait
}

func (o CallOption) retrier(c *config) {
	if err := c.choose(o); err != nil {
		c.Errors = append(c.Errors, err)
	}
}

// choose applies an option, or says what is wrong with it.
func (p *perCall) choose(o CallOption) error {
	d := time.Duration(o.n)
	switch o.what {
	case theCost:
		p.cost = int(o.n)
		if o.n < 0 {
			return fmt.Errorf("cruise: WithCost(%d): want 0 or more", o.n)
		}
	case yielding:
		p.background = true
	case onlyOnce:
		p.once = true
	case theAttempts:
		p.maxAttempts = int(o.n)
		if o.n < 1 {
			return fmt.Errorf("cruise: WithMaxAttempts(%d): want 1 or more, or Unlimited", o.n)
		}
	case theElapsed:
		p.maxElapsed = d
	case theTimeout:
		p.attemptTimeout, p.tookLong = d, &attemptTimeoutError{d}
	case theWait:
		p.maxWait, p.bounded = d, true
		if d < 0 {
			return fmt.Errorf("cruise: WithMaxWait(%v): want 0 or more", d)
		}
	}
	if (o.what == theElapsed || o.what == theTimeout) && d <= 0 {
		return fmt.Errorf("cruise: %s(%v): want above 0", choiceNames[o.what], d)
	}
	return nil
}

// WithCost sets what a call costs at the limiter, for APIs that count units rather
// than calls: 0 or more, 0 being free. Of a free call the limiter learns nothing, neither
// of a throttle nor by [Report]. Default 1.
func WithCost(n int) CallOption { return CallOption{theCost, int64(n)} }

// WithBackground makes a call yield: behind a limiter of this package it waits
// until no other call waits there, its retries too. So that it never starves, of
// every 8 calls that go while background calls wait, one is a background call.
// Calls of other Retriers within it yield too.
//
// A limiter of another package knows no background; there it changes nothing.
func WithBackground() CallOption { return CallOption{what: yielding} }

// WithoutRetries makes a call once, for what must not be sent twice. It is paced like
// others, and what it meets teaches the limiter: a throttle too, which [Permanent] would
// hide. It ends as with [WithMaxAttempts] of 1. Other Retriers within it make their calls
// once too, unless [WithNestedRetries] says otherwise; one around it makes it again with
// its own call, unless that is WithoutRetries too.
func WithoutRetries() CallOption { return CallOption{what: onlyOnce} }

// WithMaxAttempts sets how often a call is made at most, 1 or more, or
// [Unlimited]. Default 5.
func WithMaxAttempts(n int) CallOption { return CallOption{theAttempts, int64(n)} }

// WithMaxElapsed starts no attempt when d has gone by since Do was called, nor a
// wait that would end after that. d must be above 0. Default: no limit but
// the context's.
func WithMaxElapsed(d time.Duration) CallOption { return CallOption{theElapsed, int64(d)} }

// WithAttemptTimeout gives the context of each attempt a timeout, above 0. An
// attempt that runs into it is retried; the context's cause says which timeout it was.
// The context ends when the attempt returns, and cuts off what is read later: read the
// body of a response within the attempt, or use WithAttemptTimeout of package cruisehttp,
// which lasts until the body is closed. Default: none.
func WithAttemptTimeout(d time.Duration) CallOption { return CallOption{theTimeout, int64(d)} }

// WithMaxWait bounds how long each attempt waits for the limiter, 0 or more: with 0 the call
// goes at once or not at all. A call that would have to wait for longer is refused at once, with
// [ErrMaxWait] in an [*Error] whose RetryAfter is how long it would be; where that cannot be
// foreseen, when the time is over. It bounds that wait alone: the attempt keeps its context, and
// backoff its length. Default: no limit but the context's.
//
// Of limiters of another package those with a method AllowN, such as x/time's, are asked by it
// first; others are given a context that ends with the time, of a millisecond at least.
func WithMaxWait(d time.Duration) CallOption { return CallOption{theWait, int64(d)} }
