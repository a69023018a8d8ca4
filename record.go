package cruise

import (
	"context"
	"math"
	"sync/atomic"

	"github.com/a7df5faa/cruise/internal/clock"
	"github.com/a7df5faa/cruise/internal/limits"
	"github.com/a7df5faa/cruise/internal/queue"
)

// record is the context of a call's attempts. It marks work under a Retrier, carries reports up to
// it, and describes the attempt to limiters.
type record struct {
	context.Context
	retries      atomic.Int64          // begun; a call may outlive its attempt
	retrier      *Retrier              // of the call
	background   bool                  // yields to other calls
	quota        atomic.Pointer[Quota] // reported, for the limiter
	cost         int                   // of each attempt
	sent         atomic.Int64          // a clock.Instant: when the attempt was admitted; 0 if none was
	charged      atomic.Int64          // to the attempt, beside its cost
	maxWaitUntil atomic.Int64          // a clock.Instant: end of the longest wait for the limiter; 0 for no end
}

// Value returns the record itself under its key, and the scopes of its call.
func (r *record) Value(key any) any {
	switch key {
	case limits.CallKey{}:
		return r
	case scopePathKey{}:
		return r.retrier.path
	}
	return r.Context.Value(key)
}

// eventContext is the context of a call's events. No work under it counts as part of the call.
type eventContext record

func (c *eventContext) Value(key any) any {
	if key == (scopePathKey{}) {
		return c.retrier.path
	}
	return c.Context.Value(key)
}

// Ticket returns the call's demand on a queue.
func (r *record) Ticket(cost int) queue.Ticket {
	t := queue.Ticket{Cost: cost, Class: queue.First, MaxPause: r.retrier.maxServerDelay, Until: clock.Instant(r.maxWaitUntil.Load())}
	background, retry := r.kind()
	if background {
		t.Class = queue.Background
	}
	if retry {
		t.Class-- // to the retries of its kind
	}
	if o := r.retrier.observer; o != nil {
		t.OnWait = func(outlook queue.Outlook) { notify((*eventContext)(r), o, Waiting(outlook)) }
	}
	return t
}

// Nested reports whether ctx is the context of another Retrier's attempt. Given such a ctx, Do
// makes its call once and leaves retries to that Retrier, unless [WithNestedRetries] says
// otherwise.
//
// Nested may return false in the first attempt of a Retrier without limiter, observer and limit of
// time, unless the call is [WithoutRetries]. Then the inner Retrier retries, and the outer one does
// not retry its [*Error], so that retries do not multiply either.
func Nested(ctx context.Context) bool { return callOf(ctx) != nil }

// callOf returns the record of the innermost call around ctx, nil if there is none.
func callOf(ctx context.Context) *record {
	if ctx == nil {
		return nil
	}
	r, _ := ctx.Value(limits.CallKey{}).(*record)
	return r
}

// limitedCallOf is callOf for calls that pass a limiter.
func limitedCallOf(ctx context.Context) *record {
	r := callOf(ctx)
	for r != nil && !r.retrier.path.limits() {
		r = callOf(r.Context)
	}
	return r
}

// kind reports whether the call, or a call around it, is background work, or a retry.
func (r *record) kind() (background, retry bool) {
	for ; r != nil; r = callOf(r.Context) {
		background = background || r.background
		retry = retry || r.retries.Load() > 0
	}
	return background, retry
}

// Report tells the limiter the quota that the server reported. Call it from within the call, with
// the headers of any response. It reaches the limiter of the innermost [Retrier] around ctx that has
// one. The last report of an attempt counts. A throttle with a report does not wait until the
// quota's reset: give the error [RetryAfter] too. Without a limiter, with a negative Remaining, or
// from a free call ([WithCost]), Report does nothing.
func Report(ctx context.Context, q Quota) {
	if r := limitedCallOf(ctx); r != nil && q.Remaining >= 0 {
		r.quota.Store(new(q))
	}
}

// Charge adds n to the cost of the attempt of ctx; n may be negative. It suits APIs that count
// units known only afterwards, such as the tokens of a language model. It does not wait: later
// calls wait for the missing tokens, or use the returned ones at once. It reaches the same limiter
// as [Report], with all limiters around a scope's. Call it from within the call, as often as need
// be.
//
// A call waits until its whole reservation is there, even if it will use less. So reserve the
// likely cost, and charge the rest.
//
// An attempt gets back at most its cost so far, and is charged at most 2^31-1 in all. Limiters of
// other packages ignore a charge, and so does an [AdaptiveLimiter] while it has no rate. Outside a
// call, or without a limiter, Charge does nothing.
func Charge(ctx context.Context, n int) {
	r := limitedCallOf(ctx)
	if r == nil {
		return
	}
	sent := clock.Instant(r.sent.Load())
	for sent != 0 { // an attempt was admitted
		was := r.charged.Load()
		is := min(max(was+int64(min(max(n, -math.MaxInt32), math.MaxInt32)), int64(-r.cost)), math.MaxInt32)
		if is == was {
			return
		}
		if r.charged.CompareAndSwap(was, is) {
			r.retrier.path.charge(sent, int(is-was))
			return
		}
	}
}
