package cruise

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/time/rate"

	"github.com/a7df5faa/cruise/internal/check"
)

// An Observer gets the events of a [Retrier], an [AdaptiveLimiter] or a limiter of package shared
// as they happen: give it to the constructor with [WithObserver]. The other limiters have no
// events. Observe is called without any lock held, from the goroutine of the event, so it may call
// back, and should be quick. Its panics are recovered and dropped. It must return: if it ends its
// goroutine, as [testing.T.FailNow] does, the call leaves its place in the queue behind.
//
// Events of several goroutines at the same time may arrive in another order, rates and pauses of
// one limiter too. For the current state, ask the limiter's Limit or Stats, or [Retrier.Scopes].
//
// The context is the call's. Events of a limiter belong to no single call: their context has
// neither end nor values. [ScopeOf] returns the scope of either.
type Observer interface {
	Observe(ctx context.Context, event Event)
}

// ObserverFunc makes a function an [Observer].
type ObserverFunc func(ctx context.Context, event Event)

// Observe calls f.
func (f ObserverFunc) Observe(ctx context.Context, event Event) { f(ctx, event) }

// An Event of a [Retrier] is one of [Waiting], [AttemptStarted], [AttemptEnded], [RetryScheduled]
// and [GaveUp]. An Event of a limiter is one of [ThrottleSeen], [RateChanged], [Paused], [Resumed],
// [StoreDegraded] and [StoreRecovered].
type Event interface{ event() }

// Waiting: a limiter of this package does not admit an attempt at once. The event comes when the
// attempt joins the queue; the AttemptStarted that follows has the length of the wait.
type Waiting struct {
	AtLeast time.Duration // from now, in the present state
	Paused  time.Duration // part of it that is a pause of everyone
	Ahead   int           // cost of the calls that go first
}

// AttemptStarted: the limiter admitted an attempt and the call begins.
type AttemptStarted struct {
	Attempt int           // 1 for the first
	Waited  time.Duration // in the limiter, for this attempt
}

// AttemptEnded: the call returned.
type AttemptEnded struct {
	Attempt int
	Outcome Outcome
	Err     error         // of the call
	Took    time.Duration // duration of the call
}

// RetryScheduled: the attempt failed and another one will follow.
type RetryScheduled struct {
	Attempt int           // number of the next attempt, 2 or more
	Delay   time.Duration // of backing off, before the limiter is asked again
	Reason  Outcome       // of the attempt that failed
	Err     error         // of the attempt that failed
}

// GaveUp: Do returns an [*Error], or a loop over [Retrier.Attempts] ends with [Attempt.GiveUp]. A
// call whose first attempt failed permanently ends without this event.
type GaveUp struct {
	Err *Error
}

// ThrottleSeen: the server throttled an attempt of a limiter.
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

// Paused: a limiter stops all calls until a moment. The event comes when a pause begins or grows.
type Paused struct {
	Until time.Time
	For   time.Duration // from now
}

// Resumed: Resume ended a pause before its time, on this worker or on another one. If a Paused
// follows, another pause is in force instead. A pause that ends at its time has no event.
type Resumed struct {
	Left time.Duration // time that was left of the pause
}

// StoreDegraded: a limiter of package shared cannot reach its store, and goes on alone as its
// fallback says. It tries again in the background.
type StoreDegraded struct {
	Err error // of the store
}

// StoreRecovered: a limiter of package shared shares its limit again.
type StoreRecovered struct {
	After time.Duration // since StoreDegraded
}

// Cause is the reason for a change of a rate.
type Cause string

const (
	CauseThrottle Cause = "throttle" // multiplicative decrease, also when calls go again after several throttles
	CauseSuccess  Cause = "success"  // additive increase
	CauseQuota    Cause = "quota"    // a reported Quota
	CauseLatency  Cause = "latency"  // calls take so long that the server must be queueing them
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

// notify delivers one event. Callers test for a nil observer before they make the event, so that
// without an observer nothing is allocated.
func notify(ctx context.Context, o Observer, e Event) {
	defer func() { _ = recover() }()
	o.Observe(ctx, e)
}

// observers get each event one after the other, even if one of them panics.
type observers [2]Observer

func (o observers) Observe(ctx context.Context, e Event) {
	notify(ctx, o[0], e)
	notify(ctx, o[1], e)
}
