package cruise

import (
	"context"
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
	base   // whose lock guards the fields below too
	tokens pacer.Bucket
	brake  ownBrake
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
		tokens: pacer.NewBucket(limit, burst),
		brake:  ownBrake{brake: newBrake()},
	}
	b.member = limits.Join(b, &b.queue)
	b.queue.Init(&b.tokens, queue.Config{CatchUp: timerGrain})
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
	reportToParents(&b.queue, f.ending())
}

func (b *TokenBucket) learn(e ending) { b.brake.stop(&b.base, e) }

// Limit returns the limit in calls per second.
func (b *TokenBucket) Limit() rate.Limit {
	b.queue.Lock()
	defer b.queue.Unlock()
	return b.tokens.Limit()
}

// SetLimit changes the limit, also for those who wait. The error is that of
// [NewTokenBucket], with nothing changed.
func (b *TokenBucket) SetLimit(limit rate.Limit) error {
	if !check.IsLimit(limit) {
		return fmt.Errorf("cruise: limit %v: "+check.WantLimit, check.LimitText(limit))
	}
	return b.change(func(now clock.Instant) { b.tokens.SetLimit(now, limit) })
}

// Burst returns the most calls that go at once, which is the highest cost of a call.
func (b *TokenBucket) Burst() int {
	b.queue.Lock()
	defer b.queue.Unlock()
	return b.tokens.Burst()
}

// SetBurst changes the burst, also for those who wait: one who costs more than the new burst is
// refused with [ErrCost]. A larger burst has to be saved up first; what is above a smaller one is
// lost. The error is that of [NewTokenBucket], with nothing changed.
func (b *TokenBucket) SetBurst(burst int) error {
	if !check.IsBurst(burst) {
		return fmt.Errorf("cruise: burst %d: "+check.WantBurst, burst)
	}
	return b.change(func(now clock.Instant) { b.tokens.SetBurst(now, burst) })
}

// Pause lets nobody go for d, unless a longer pause is in force already. d of 0
// or less does nothing. Of what is saved by its end it leaves one token, so a call that
// costs more waits for the rest.
func (b *TokenBucket) Pause(d time.Duration) { b.pauseFor(d) }

// Resume ends a pause, as if it had been given for that long. Those who waited go at the
// pace of the limit.
func (b *TokenBucket) Resume() { b.resumeNow() }

// PauseLeft returns how long a pause still lasts, 0 unless there is one.
func (b *TokenBucket) PauseLeft() time.Duration { return b.pauseLeft() }

// Waiting returns how many calls wait.
func (b *TokenBucket) Waiting() int {
	b.queue.Lock()
	defer b.queue.Unlock()
	return b.queue.Waiting()
}

// timerGrain is how late timers may be without anyone to blame. Without the turns
// of that time a bucket of burst 1 would give less than its limit, and never more
// than a thousand calls a second.
const timerGrain = 10 * time.Millisecond
