package cruise

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/time/rate"

	"github.com/a7df5faa/cruise/internal/check"
	"github.com/a7df5faa/cruise/internal/clock"
)

// TokenBucket is a limiter of a known rate: tokens refill at the limit up to the
// burst, and a call takes as many as it costs. Its arithmetic is that of
// [rate.Limiter]; unlike there, whoever waits holds no reservation, so a new
// limit, a pause or a cancellation reaches everyone at once, and whoever waits
// goes in order, retries first.
//
// It keeps to its limit whatever the server says, but pauses when the server
// throttles: for its Retry-After, longer where one of less than a second was not enough;
// else for 0.15 to 0.3 s, doubled with each throttle up to a minute and halved with every ten
// calls that are not throttled, but no longer than half of the time since the last throttle if
// calls got through since. [AdaptiveLimiter] finds the limit by itself.
//
// Timers are late. A call that was kept waiting counts at the time at which it was
// due, up to 10 ms before it goes, so that the bucket gives its whole limit.
//
// A TokenBucket is safe for concurrent use and must not be copied. The zero
// value admits nothing, with an error that says so.
type TokenBucket struct {
	housing        // whose lock guards the fields below too
	tokens  bucket // its burst never changes
	brake   roomBrake
}

var _ Learner = (*TokenBucket)(nil)

// NewTokenBucket returns a bucket that admits limit calls a second and, when it
// is full, burst calls at once. It starts full. limit must be above 0, or
// [rate.Inf]; burst must be 1 to 2^31-1.
func NewTokenBucket(limit rate.Limit, burst int) (*TokenBucket, error) {
	var f check.Errors
	f.Check(check.IsLimit(limit), "limit %v: "+check.WantLimit, check.LimitText(limit))
	f.Check(check.IsBurst(burst), "burst %d: "+check.WantBurst, burst)
	if len(f) > 0 {
		return nil, errors.Join(f...)
	}
	b := &TokenBucket{
		tokens: newBucket(limit, burst),
		brake:  roomBrake{brake: newBrake()},
	}
	b.room.pacer, b.room.catchUp = &b.tokens, timerGrain
	return b, nil
}

// WaitN waits until a call of cost n may go, and takes n tokens. n above the
// burst is refused at once with [ErrCost], a negative n with an error; n of 0
// does not wait. It returns the context's error and cause if that ends first,
// and an [*Error] with [ErrDeadline] at once if the wait could not end in time.
func (b *TokenBucket) WaitN(ctx context.Context, n int) error {
	_, _, err := b.admit(ctx, n)
	return err
}

// Learn pauses the bucket if the attempt was throttled, or if a quota is
// exhausted for a known time. A Feedback of Cost 0 or less is of an attempt that was
// never admitted, and is ignored.
func (b *TokenBucket) Learn(f Feedback) {
	b.learn(f.ending())
	b.room.teachAbove(f.ending())
}

func (b *TokenBucket) learn(e ending) { b.brake.stop(&b.room, e) }

// Limit returns the limit in calls per second.
func (b *TokenBucket) Limit() rate.Limit {
	b.room.mu.Lock()
	defer b.room.mu.Unlock()
	return b.tokens.limit
}

// SetLimit changes the limit, also for those who wait. The error is that of
// [NewTokenBucket], with nothing changed.
func (b *TokenBucket) SetLimit(limit rate.Limit) error {
	if b.room.pacer == nil {
		return errZeroLimiter
	}
	if !check.IsLimit(limit) {
		return fmt.Errorf("cruise: limit %v: "+check.WantLimit, check.LimitText(limit))
	}
	b.room.mu.Lock()
	defer b.room.mu.Unlock()
	now := b.room.advance(clock.Now())
	b.tokens.setLimit(now, limit)
	b.room.rehold(now)
	b.room.changed(now)
	return nil
}

// Pause lets nobody go for d, unless a longer pause is in force already. d of 0
// or less does nothing. Of what is saved by its end it leaves one token, so a call that
// costs more waits for the rest.
func (b *TokenBucket) Pause(d time.Duration) { b.room.pauseFor(d) }

// Resume ends a pause, as if it had been given for that long. Those who waited go at the
// pace of the limit.
func (b *TokenBucket) Resume() { b.room.resumeNow() }

// PauseLeft returns how long a pause still lasts, 0 unless there is one.
func (b *TokenBucket) PauseLeft() time.Duration { return b.room.pauseLeft() }

// Waiting returns how many calls wait.
func (b *TokenBucket) Waiting() int {
	b.room.mu.Lock()
	defer b.room.mu.Unlock()
	return b.room.waiting
}

// timerGrain is how late timers may be without anyone to blame. Without the turns
// of that time a bucket of burst 1 would give less than its limit, and never more
// than a thousand calls a second.
const timerGrain = 10 * time.Millisecond

// bucket is the pacer of a token bucket: the arithmetic of x/time at explicit
// times, without the lock and the conversions of times that are most of the price
// there.
type bucket struct {
	limit  rate.Limit
	burst  int
	tokens float64 // at the time of last
	last   clock.Instant
	held   clock.Instant // when the last pause ends, or ended
}

func newBucket(limit rate.Limit, burst int) bucket {
	return bucket{limit: limit, burst: burst, tokens: float64(burst)}
}

// at is how many tokens there are. A pause leaves one at its end, if there would be one by
// then, so that the first call leaves at that time, and the others after it at the limit: a
// pause saves no burst. Before its end that one is lacking as far as it is away.
func (b *bucket) at(now clock.Instant) float64 {
	if b.held <= b.last || b.limit == rate.Inf {
		return b.saved(now)
	}
	return min(min(1, b.saved(b.held))+now.Sub(b.held).Seconds()*float64(b.limit), float64(b.burst))
}

// saved is how many tokens there would be without a pause since last.
func (b *bucket) saved(now clock.Instant) float64 {
	tokens := b.tokens
	if now > b.last {
		tokens += now.Sub(b.last).Seconds() * float64(b.limit)
	}
	return min(tokens, float64(b.burst))
}

// settle must come before a change: what came until now stays. During a pause that is what
// there would be without, as the pause may be lifted.
func (b *bucket) settle(now clock.Instant) {
	if b.held > now {
		b.tokens = b.saved(now)
	} else {
		b.tokens = b.at(now)
	}
	b.last = max(b.last, now)
}

func (b *bucket) pass(now clock.Instant, n int) time.Duration {
	if b.limit == rate.Inf {
		return 0
	}
	left := b.at(now) - float64(n)
	// Whoever lacks less than a nanosecond's worth goes.
	if left < 0 && -left/float64(b.limit)*1e9 >= 1 {
		return b.atLeast(now, 0, n)
	}
	b.tokens, b.last = left, max(b.last, now) // a late timer is made up for at an earlier time
	return 0
}

// peek is pass for a call that does not go yet.
func (b *bucket) peek(now clock.Instant, n int) time.Duration { return b.atLeast(now, 0, n) }

func (b *bucket) atLeast(now clock.Instant, ahead int64, n int) time.Duration {
	if b.limit == rate.Inf {
		return 0
	}
	return clock.CeilSeconds((float64(ahead) + float64(n) - b.at(now)) / float64(b.limit))
}

func (b *bucket) maxCost() int { return b.burst }

func (b *bucket) counts(now clock.Instant) bool {
	return b.limit != rate.Inf && b.at(now) < float64(b.burst)
}

func (b *bucket) hold(now, until clock.Instant) {
	if b.held <= now {
		if until <= now {
			return // there is no pause to lift
		}
		b.settle(now)
	}
	b.held = until
}

// spend takes away what was saved up by the time of the last change.
func (b *bucket) spend() { b.tokens = min(0, b.tokens) }

func (b *bucket) setLimit(now clock.Instant, limit rate.Limit) {
	b.settle(now)
	// Who goes for less than a nanosecond's worth leaves that lacking. It is many tokens at a
	// limit far above one a nanosecond, and hours of a lower one.
	b.tokens, b.limit = max(-1, b.tokens), limit
}

func (b *bucket) setBurst(now clock.Instant, burst int) {
	b.settle(now)
	b.burst = burst
}
