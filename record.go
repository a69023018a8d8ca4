package cruise

import (
	"context"
	"math"
	"sync/atomic"

	"github.com/a7df5faa/cruise/internal/clock"
	"github.com/a7df5faa/cruise/internal/limits"
)

// record is the context of a call's attempts. It marks what runs under a Retrier,
// carries reports up to it, and tells limiters which attempt comes.
type record struct {
	context.Context
	retries    atomic.Int64          // begun; a call may outlive its attempt
	retrier    *Retrier              // whose call it is
	background bool                  // yields to calls that are not
	quota      atomic.Pointer[Quota] // reported, for the limiter
	cost       int                   // of each attempt
	sent       atomic.Int64          // a clock.Instant: when the attempt was let go; 0 if none was
	charged    atomic.Int64          // to the attempt, beside its cost
	until      atomic.Int64          // a clock.Instant: no wait of the call for its limiter is longer; 0 outside such waits
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

// Nested reports whether ctx is that of an attempt of another Retrier. Given such a ctx,
// Do makes its call once and leaves retries to that one, unless [WithNestedRetries] says
// otherwise.
//
// It may be false in the first attempt of a Retrier that has no limiter, observer or limit
// of time, unless the call is [WithoutRetries]. Then the inner Retrier retries, and the outer
// one does not retry its [*Error], so that retries do not multiply either; but one that was to
// make a single attempt leaves retries to the outer one here, too.
func Nested(ctx context.Context) bool { return ctx != nil && callOf(ctx) != nil }

func callOf(ctx context.Context) *record {
	r, _ := ctx.Value(limits.CallKey{}).(*record)
	return r
}

// kind reports whether the call, or one that it is a part of, is background work,
// or a retry.
func (r *record) kind() (background, retry bool) {
	for ; r != nil; r = callOf(r.Context) {
		background = background || r.background
		retry = retry || r.retries.Load() > 0
	}
	return background, retry
}

// waitsUntil is the end of the longest wait of the call for its limiter, zero if there is none.
func (r *record) waitsUntil() clock.Instant {
	if r == nil {
		return 0
	}
	return clock.Instant(r.until.Load())
}

// Report tells the limiter of the [Retrier] that made ctx, or if that has none of the next
// one around it, what quota the server reported: call it from within the call, with the
// headers of any response. The last report of an attempt counts. That of a throttle makes
// nobody wait until the quota's reset: give the error [RetryAfter] too. Without a limiter,
// with a negative Remaining, or from a call that is free ([WithCost]), Report does nothing.
func Report(ctx context.Context, q Quota) {
	if ctx == nil || q.Remaining < 0 {
		return
	}
	for r := callOf(ctx); r != nil; r = callOf(r.Context) {
		if r.retrier.path.limits() {
			r.quota.Store(new(q))
			return
		}
	}
}

// Charge makes the attempt that ctx is of cost n more than [WithCost] said, or less if n is below
// 0, for APIs that count units known only afterwards, such as the tokens of a language model. It
// does not wait: what the limiter lacks then, later calls wait for; what it gets back, they may
// use at once. Like [Report] it concerns the limiter of the [Retrier] that made ctx, with all
// around a scope's, or if that has none the next one around it. Call it from within the call,
// once the answer is there, as often as need be.
//
// A call waits until all that it reserves is there, though it will use less: a [SlidingWindow] of
// 10,000 gives no more than 8,200 where each call reserves 2,000 and uses 200. Reserve what is
// likely there, and charge what is above.
//
// More than the attempt has cost so far is not given back, and no more than 2^31-1 is charged in
// all. Limiters of other packages know no charge, nor does an [AdaptiveLimiter] while it has no
// rate. Outside a call, or without a limiter, Charge does nothing.
func Charge(ctx context.Context, n int) {
	if ctx == nil || n == 0 {
		return
	}
	for r := callOf(ctx); r != nil; r = callOf(r.Context) {
		if r.retrier.path.limits() {
			r.charge(n)
			return
		}
	}
}

func (r *record) charge(n int) {
	sent := clock.Instant(r.sent.Load())
	if sent == 0 {
		return // nothing was let go
	}
	for {
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
