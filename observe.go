package cruise

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/time/rate"

	"github.com/a7df5faa/cruise/internal/check"
)

// An Observer is told what a [Retrier], an [AdaptiveLimiter] or a limiter of package shared
// does, as it happens: give one to its constructor with [WithObserver]. The
// other limiters tell nothing. It is called without any lock held, from the
// goroutine in which the thing happened, so it may call back, and it should be
// quick. Its panics are recovered and forgotten, since a broken observer must not
// break calls; but it must return, and not end its goroutine, as [testing.T.FailNow]
// does: the call would leave its place in line behind.
//
// What happens at the same time in several goroutines may be told in another order than it
// happened, rates and pauses of one limiter too: for what holds now, ask the limiter's
// Limit or Stats, or [Retrier.Scopes].
//
// The context is that of the call; for events of a limiter, which belong to no
// single call, it has neither end nor values. [ScopeOf] tells whose it is.
type Observer interface {
	Observe(ctx context.Context, event Event)
}

// ObserverFunc makes an [Observer] of a function.
type ObserverFunc func(ctx context.Context, event Event)

// Observe calls f.
func (f ObserverFunc) Observe(ctx context.Context, event Event) { f(ctx, event) }

// An Event is one of [Waiting], [AttemptStarted], [AttemptEnded],
// [RetryScheduled] and [GaveUp], which a [Retrier] tells, and [ThrottleSeen],
// [RateChanged], [Paused], [Resumed], [StoreDegraded] and [StoreRecovered], which a
// limiter tells.
type Event interface{ event() }

// Waiting: a limiter of this package does not let an attempt go at once. It is told
// when the attempt begins to stand in line; the AttemptStarted that follows says
// how long it was.
type Waiting struct {
	AtLeast time.Duration // from now, as things are
	Paused  time.Duration // of it, for a pause of everyone
	Ahead   int           // cost of the calls that go first
}

// AttemptStarted: the limiter let an attempt go and the call begins.
type AttemptStarted struct {
	Attempt int           // 1 for the first
	Waited  time.Duration // in the limiter, for this attempt
}

// AttemptEnded: the call returned.
type AttemptEnded struct {
	Attempt int
	Outcome Outcome
	Err     error         // what the call returned
	Took    time.Duration // how long the call took
}

// RetryScheduled: the attempt failed and another one will follow.
type RetryScheduled struct {
	Attempt int           // the one to come, 2 or more
	Delay   time.Duration // of backing off, before the limiter is asked again
	Reason  Outcome       // of the attempt that failed
	Err     error         // of the attempt that failed
}

// GaveUp: Do returns an [*Error]. A call whose first attempt failed for good ends
// without it.
type GaveUp struct {
	Err *Error
}

// ThrottleSeen: a limiter learned that the server throttled an attempt.
type ThrottleSeen struct {
	RetryAfter time.Duration // as the server asked; 0 if it did not
	Scope      string        // as the server named it; "" if it did not
	Late       bool          // the attempt was sent before an earlier throttle was known, so it says nothing new
}

// RateChanged: a limiter has another rate.
type RateChanged struct {
	From, To rate.Limit // calls per second; rate.Inf while there is no rate
	Why      Cause
}

// String returns the change in words; no rate is unlimited.
func (r RateChanged) String() string {
	return fmt.Sprintf("%s, was %s: %s", check.RateText(r.To), check.RateText(r.From), r.Why)
}

// Paused: a limiter lets nobody through until a moment. Told when a pause
// begins and whenever it is extended.
type Paused struct {
	Until time.Time
	For   time.Duration // from now
}

// Resumed: a pause ended before the moment that Paused told, since Resume was called, on
// this worker or on another one. If a Paused follows, another pause is in force instead.
// The end of a pause at its time is not told.
type Resumed struct {
	Left time.Duration // what was left of the pause
}

// StoreDegraded: a limiter of package shared cannot reach its store, and goes on by itself
// as its fallback says. It tries again in the background.
type StoreDegraded struct {
	Err error // what the store said
}

// StoreRecovered: a limiter of package shared shares its limit again.
type StoreRecovered struct {
	After time.Duration // since StoreDegraded
}

// Cause says why a rate has changed.
type Cause string

const (
	CauseThrottle Cause = "throttle" // multiplicative decrease, also once calls go again after several
	CauseSuccess  Cause = "success"  // additive increase
	CauseQuota    Cause = "quota"    // a reported Quota
	CauseLatency  Cause = "latency"  // calls take so long that they must stand in a queue
	CauseSet      Cause = "set"      // SetLimit was called
)

func (Waiting) event()        {}
func (AttemptStarted) event() {}
func (AttemptEnded) event()   {}
func (RetryScheduled) event() {}
func (GaveUp) event()         {}
func (ThrottleSeen) event()   {}
func (RateChanged) event()    {}
func (Paused) event()         {}
func (Resumed) event()        {}
func (StoreDegraded) event()  {}
func (StoreRecovered) event() {}

// notify delivers one event. Callers test for a nil observer before they make
// the event, so that nothing is allocated when nobody listens.
func notify(ctx context.Context, o Observer, e Event) {
	defer func() { _ = recover() }()
	o.Observe(ctx, e)
}

// observers are told one after the other, each whatever the others do.
type observers [2]Observer

func (o observers) Observe(ctx context.Context, e Event) {
	notify(ctx, o[0], e)
	notify(ctx, o[1], e)
}

func both(first, second Observer) Observer {
	if first == nil {
		return second
	}
	return observers{first, second}
}
