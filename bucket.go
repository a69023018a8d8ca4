package cruise

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/time/rate"

	"github.com/a7df5faa/cruise/internal/check"
	"github.com/a7df5faa/cruise/internal/clock"
	"github.com/a7df5faa/cruise/internal/limits"
	"github.com/a7df5faa/cruise/internal/pacer"
	"github.com/a7df5faa/cruise/internal/queue"
)

// TokenBucket limits calls to a known rate: tokens refill at the limit up to the burst, and a call
// takes as many as it costs. Its arithmetic is that of [rate.Limiter]. Unlike there, a waiting call
// holds no reservation, so a new limit, a pause or a cancellation takes effect at once. Waiting
// calls go in order, retries first.
//
// The server never changes the limit, but a throttle pauses the bucket: see
// [TokenBucket.Learn]. [AdaptiveLimiter] finds the limit by itself.
//
// Timers are late. A waiting call counts at the time at which it was due, up to 10 ms before it
// goes, so that the bucket gives its whole limit.
//
// A TokenBucket is safe for concurrent use and must not be copied. The zero value refuses every
// call with an error that says so.
type TokenBucket struct {
	fixedLimiter // its lock guards the tokens too
	tokens       pacer.Bucket
}

var _ Learner = (*TokenBucket)(nil)

// NewTokenBucket returns a full bucket that admits limit calls a second and, when it is full, burst
// calls at once. A limit of 0 or less, and a burst outside 1 to 2^31-1, is an error.
func NewTokenBucket(limit rate.Limit, burst int) (*TokenBucket, error) {
	var f check.Errors
	f.Check(check.IsLimit(limit), "limit %v: "+check.WantLimit, check.LimitText(limit))
	f.Check(check.IsBurst(burst), "burst %d: "+check.WantBurst, burst)
	if len(f) > 0 {
		return nil, errors.Join(f...)
	}
	b := &TokenBucket{tokens: pacer.NewBucket(limit, burst)}
	b.brake = newBrake()
	b.member = limits.Join(b, &b.queue)
	b.queue.Init(fixedPolicy{&b.tokens, &b.fixedLimiter}, queue.Config{CatchUp: timerGrain})
	return b, nil
}

// Limit returns the limit in calls per second, [rate.Inf] if there is none. That is a number of 309
// digits: compare with it before you print.
func (b *TokenBucket) Limit() (limit rate.Limit) {
	b.queue.Locked(func(clock.Instant) { limit = b.tokens.Limit() })
	return limit
}

// SetLimit changes the limit, for waiting calls too. A limit that [NewTokenBucket] refuses is an
// error and changes nothing.
func (b *TokenBucket) SetLimit(limit rate.Limit) error {
	if !check.IsLimit(limit) {
		return fmt.Errorf("cruise: limit %v: "+check.WantLimit, check.LimitText(limit))
	}
	return b.change(func(now clock.Instant) { b.tokens.SetLimit(now, limit) })
}

// Burst returns the number of calls that may go at once, which is also the highest cost of a call.
func (b *TokenBucket) Burst() (burst int) {
	b.queue.Locked(func(clock.Instant) { burst = b.tokens.Burst() })
	return burst
}

// SetBurst changes the burst, for waiting calls too: a call that costs more than the new burst is
// refused with [ErrCost]. A larger burst has to be saved up first; a smaller one drops the tokens
// above it. A burst that [NewTokenBucket] refuses is an error and changes nothing.
func (b *TokenBucket) SetBurst(burst int) error {
	if !check.IsBurst(burst) {
		return fmt.Errorf("cruise: burst %d: "+check.WantBurst, burst)
	}
	return b.change(func(now clock.Instant) { b.tokens.SetBurst(now, burst) })
}

// timerGrain is the usual lateness of timers, for which a bucket of burst 1 has to make up.
const timerGrain = 10 * time.Millisecond
