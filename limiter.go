package cruise

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"golang.org/x/time/rate"
)

// A Limiter decides when calls may go. [*rate.Limiter] is one, and every limiter
// of this package.
type Limiter interface {
	// WaitN returns nil when a call of cost n may go. It returns the context's
	// error if that ends first, and an error at once if the wait could not end
	// before the context's deadline or n can never be admitted.
	WaitN(ctx context.Context, n int) error
}

// A Learner is a limiter that learns from what became of the calls that it let
// go, and that pauses for everyone when the server asks for it: after Learn with
// a positive RetryAfter, WaitN lets nobody go for that long.
//
// Learn must be called once for every WaitN that returned nil. A [Retrier] does.
type Learner interface {
	Limiter
	Learn(Feedback)
}

// admitter is a limiter of this package, which knows when a call came and when
// it let it go, so that nobody has to read the clock again.
type admitter interface {
	admit(ctx context.Context, n int) (came, sent time.Time, err error)
}

var (
	_ Limiter = (*rate.Limiter)(nil)
	_ Learner = (*TokenBucket)(nil)
	_ Learner = (*AdaptiveLimiter)(nil)
)

// TokenBucket is a limiter of a known rate: tokens refill at the limit up to the
// burst, and a call takes as many as it costs. Its arithmetic is that of
// [rate.Limiter]; unlike there, whoever waits holds no reservation, so a new
// limit, a pause or a cancellation reaches everyone at once, and whoever waits
// goes in order, retries first.
//
// It keeps to its limit whatever the server says, but pauses when the server
// throttles: for its Retry-After, else for 0.3 s, doubled with each throttle in
// a row up to a minute. [AdaptiveLimiter] finds the limit by itself.
//
// A TokenBucket is safe for concurrent use and must not be copied. The zero
// value admits nothing, with an error that says so.
type TokenBucket struct {
	room   room // guards the fields below too
	tokens bucket
	brake  brake
}

// NewTokenBucket returns a bucket that admits limit calls a second and, when it
// is full, burst calls at once. It starts full. limit must be above 0, or
// [rate.Inf]; burst must be 1 or more.
func NewTokenBucket(limit rate.Limit, burst int) (*TokenBucket, error) {
	if err := errors.Join(checkLimit("limit", limit), checkBurst("burst", burst)); err != nil {
		return nil, err
	}
	b := &TokenBucket{
		tokens: bucket{lim: rate.NewLimiter(limit, burst)},
		brake:  newBrake(),
	}
	b.room.pacer = &b.tokens
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

func (b *TokenBucket) admit(ctx context.Context, n int) (came, sent time.Time, err error) {
	if b.room.pacer == nil {
		return came, sent, errZeroLimiter
	}
	if n <= 0 {
		return free(ctx, n)
	}
	if burst := b.tokens.lim.Burst(); n > burst {
		return came, sent, costError(n, burst)
	}
	return b.room.enter(ctx, n)
}

// Learn pauses the bucket if the attempt was throttled, or if a quota is
// exhausted for a known time.
func (b *TokenBucket) Learn(f Feedback) {
	if b.room.pacer == nil {
		return
	}
	b.room.mu.Lock()
	defer b.room.mu.Unlock()
	now := b.room.advance(clock())
	f.Sent = b.room.sentAt(f.Sent)
	if wait := b.brake.learn(now, f, never); wait > 0 && b.room.pause(now, satAdd(now, wait)) {
		b.room.changed(now)
	}
}

// Limit returns the limit in calls per second.
func (b *TokenBucket) Limit() rate.Limit {
	if b.room.pacer == nil {
		return 0
	}
	return b.tokens.lim.Limit()
}

// SetLimit changes the limit, also for those who wait. The error is that of
// [NewTokenBucket], with nothing changed.
func (b *TokenBucket) SetLimit(limit rate.Limit) error {
	if b.room.pacer == nil {
		return errZeroLimiter
	}
	if err := checkLimit("limit", limit); err != nil {
		return err
	}
	b.room.mu.Lock()
	defer b.room.mu.Unlock()
	now := b.room.advance(clock())
	b.tokens.lim.SetLimitAt(now, limit)
	b.room.rehold(now)
	b.room.changed(now)
	return nil
}

// Pause lets nobody go for d, unless a longer pause is in force already. d of 0
// or less does nothing.
func (b *TokenBucket) Pause(d time.Duration) { b.room.pauseFor(d) }

// Resume ends a pause. Those who waited go at the pace of the limit.
func (b *TokenBucket) Resume() { b.room.resumeNow() }

// Waiting returns how many calls wait.
func (b *TokenBucket) Waiting() int {
	b.room.mu.Lock()
	defer b.room.mu.Unlock()
	return b.room.waiting
}

// bucket is the pacer of a token bucket: the arithmetic of x/time at explicit
// times.
type bucket struct {
	lim   *rate.Limiter
	empty time.Time // when a pause last emptied it, or will
}

func (b *bucket) pass(now time.Time, n int) time.Duration {
	if b.lim.AllowN(now, n) {
		return 0
	}
	return max(1, b.atLeast(now, n))
}

// peek is pass for a call that does not go yet.
func (b *bucket) peek(now time.Time, n int) time.Duration {
	if b.lim.Limit() == rate.Inf || b.lim.TokensAt(now) >= float64(n) {
		return 0
	}
	return max(1, b.atLeast(now, n))
}

func (b *bucket) atLeast(now time.Time, n int) time.Duration {
	limit := b.lim.Limit()
	if limit == rate.Inf {
		return 0
	}
	return ceilSeconds((float64(n) - b.lim.TokensAt(now)) / float64(limit))
}

// hold empties the bucket so that the first call leaves at until, if its token
// can be there by then, and the others after it at the limit: a pause saves no
// burst.
func (b *bucket) hold(now, until time.Time) {
	limit := b.lim.Limit()
	if limit == rate.Inf {
		return
	}
	if !until.After(now) && !b.empty.After(now) {
		return // a pause is lifted whose first token is on its way
	}
	at := until.Add(-ceilSeconds(1 / float64(limit)))
	if at.Before(now) {
		at = now
	}
	b.empty = at
	burst := b.lim.Burst()
	b.lim.SetBurstAt(at, 0)
	b.lim.SetBurstAt(at, burst)
}

// A brake turns throttles into pauses: those that follow each other raise a
// level, and calls that are not throttled lower it again. The burst of throttles
// that one congestion sends counts once, because those of attempts sent before
// it was noticed are late.
type brake struct {
	backoff Backoff
	forgive int           // un-throttled calls that lower the level by one
	level   int           // 0 while all is well
	passed  int           // un-throttled calls since the level changed
	most    time.Duration // that the last pause could take, if the first one is bounded
	at      time.Time     // when the level last rose
}

const defaultForgive = 10

func newBrake() brake { return brake{backoff: defaultPause, forgive: defaultForgive} }

// defaultPause is the pause for a throttle that names no wait: the constants of
// the control law.
var defaultPause = Must(NewBackoff(WithBase(300*time.Millisecond), WithMaxDelay(time.Minute), WithJitter(EqualJitter())))

// late reports whether an attempt sent then says nothing new.
func (b *brake) late(sent time.Time) bool {
	return !b.at.IsZero() && !sent.IsZero() && !sent.After(b.at)
}

// learn returns the pause that an attempt asks for, 0 if none. If the server names
// none, the first of a series is at most atMost long, and those after it at most
// twice the one before.
func (b *brake) learn(now time.Time, f Feedback, atMost time.Duration) time.Duration {
	switch f.Outcome {
	case OutcomeThrottled:
		if b.late(f.Sent) {
			return f.RetryAfter
		}
		b.at, b.passed = now, 0
		b.level++
		if f.RetryAfter > 0 {
			return f.RetryAfter
		}
		wait := b.backoff.Delay(b.level, 0)
		if atMost == never {
			return wait
		}
		b.most = max(atMost, min(2*b.most, year))
		if wait > b.most {
			wait = b.most - time.Duration(rand.Int64N(int64(b.most/2)+1))
		}
		return wait
	case OutcomeQuotaExhausted:
		return f.RetryAfter
	case OutcomeDropped:
		return 0
	}
	if b.level > 0 {
		if b.passed++; b.passed >= b.forgive {
			b.level, b.passed, b.most = b.level-1, 0, b.most/2
		}
	}
	return 0
}

// ceilSeconds is s seconds as a Duration, rounded up and saturated. What is
// negative or no number is 0.
func ceilSeconds(s float64) time.Duration {
	ns := math.Ceil(s * 1e9)
	switch {
	case !(ns > 0):
		return 0
	case ns >= math.MaxInt64:
		return never
	}
	return time.Duration(ns)
}

// farthest is as far as a pause may reach, about 100 years.
const farthest = 100 * year

const year = 365 * 24 * time.Hour

// satAdd is t+d without overflow.
func satAdd(t time.Time, d time.Duration) time.Time { return t.Add(min(d, farthest)) }

func checkLimit(name string, limit rate.Limit) error {
	if !(limit > 0 && limit <= rate.Inf) {
		return fmt.Errorf("cruise: %s %v: want calls per second above 0, or rate.Inf", name, float64(limit))
	}
	return nil
}

func checkBurst(name string, burst int) error {
	if burst < 1 || burst > math.MaxInt32 {
		return fmt.Errorf("cruise: %s %d: want 1 to %d", name, burst, math.MaxInt32)
	}
	return nil
}

// free admits a call that costs nothing.
func free(ctx context.Context, n int) (came, sent time.Time, err error) {
	if err := checkCost(n); err != nil {
		return came, sent, err
	}
	if ctx == nil {
		return came, sent, errNilContext
	}
	if ctx.Err() != nil {
		return came, sent, contextError(ctx)
	}
	now := clock()
	return now, now, nil
}

func checkCost(n int) error {
	if n < 0 {
		return fmt.Errorf("cruise: cost %d: want 0 or more", n)
	}
	return nil
}

func costError(n, burst int) error {
	return &Error{Reason: fmt.Errorf("%w: cost %d, burst %d", ErrCost, n, burst)}
}
