package cruise

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/time/rate"

	"github.com/a7df5faa/cruise/internal/clock"
	"github.com/a7df5faa/cruise/internal/queue"
)

// A Limiter decides when calls may go. [*rate.Limiter] is one, and every limiter
// of this package.
type Limiter interface {
	// WaitN returns nil when a call of cost n may go. It returns the context's
	// error if that ends first, and an error at once if the wait could not end
	// before the context's deadline or n can never be admitted.
	WaitN(ctx context.Context, n int) error
}

var _ Limiter = (*rate.Limiter)(nil)

// A Learner is a limiter that learns from what became of the calls that it let go.
// After Learn of [OutcomeThrottled] or [OutcomeQuotaExhausted] with a positive
// RetryAfter, WaitN lets nobody go for that long.
//
// Behind a Learner a throttled call asks again at once, as that is where everyone pauses.
// If a Learner of your own pauses nobody for a throttle that names no wait, as one that only
// counts, give the [Retrier] [WithThrottleBackoff].
//
// Learn must be called once for every WaitN of 1 or more that returned nil. A [Retrier]
// does.
type Learner interface {
	Limiter
	Learn(Feedback)
}

// gate is a limiter as a [Retrier] sees it: one that knows when a call came and
// when it let it go, so that nobody has to read the clock again.
type gate interface {
	admit(ctx context.Context, n int) (came, sent clock.Instant, err error)
	learn(ending)
	// charge makes an attempt that it let go cost n more, or less if n is below 0.
	charge(sent clock.Instant, n int)
}

// gateOf is the gate of a limiter of whatever make, nil for nil.
func gateOf(l Limiter) gate {
	if l == nil {
		return nil
	}
	if own, ok := ownOf(l); ok {
		return own
	}
	return foreign{l}
}

// housed is a limiter of this package.
type housed interface {
	gate
	house() *queue.Queue
}

var (
	_ housed = (*AdaptiveLimiter)(nil)
	_ housed = (*TokenBucket)(nil)
	_ housed = (*SlidingWindow)(nil)
	_ housed = (*SharedLimiter)(nil)
)

// ownOf is l if it is a limiter of this package. One that embeds such a limiter is
// another one: its own methods count, not those that it got with it.
func ownOf(l Limiter) (own housed, ok bool) {
	switch l.(type) {
	case *AdaptiveLimiter, *TokenBucket, *SlidingWindow, *SharedLimiter:
		own, ok = l.(housed)
	}
	return own, ok
}

// base is the queue of a limiter of this package, with what all of them do alike.
type base struct{ queue queue.Queue }

func (b *base) house() *queue.Queue { return &b.queue }

// errZeroLimiter is the error of the zero value of a limiter, whose queue has no policy.
var errZeroLimiter = errors.New("cruise: limiter not made by its constructor")

// errNilContext is the error for a nil context, which would panic deep inside.
var errNilContext = errors.New("cruise: nil context")

// admit waits until a call of cost n may go, and returns when it came and when it went.
func (b *base) admit(ctx context.Context, n int) (came, sent clock.Instant, err error) {
	switch {
	case !b.queue.Ready():
		return came, sent, errZeroLimiter
	case n <= 0:
		return free(ctx, n)
	}
	if most, is := b.queue.TooExpensive(n); is {
		return came, sent, costError(n, most)
	}
	return enter(&b.queue, ctx, n)
}

// TryN lets a call of cost n go now, or returns false: it does not wait, and takes nothing then.
// It allocates nothing. It is false while others wait, during a pause, for a negative n, and for
// one that can never go; n of 0 always may. To be told how long it would be, make the call by
// [Retrier.Do] with [WithMaxWait] of 0.
//
// Every TryN of 1 or more that returned true must be followed by one Learn.
func (b *base) TryN(n int) bool {
	if n <= 0 || !b.queue.Ready() {
		return n == 0 && b.queue.Ready()
	}
	if _, never := b.queue.TooExpensive(n); never {
		return false
	}
	return b.queue.Try(clock.Now(), n)
}

// enter is admit for a call that costs something, but not too much.
func enter(q *queue.Queue, ctx context.Context, n int) (came, sent clock.Instant, err error) {
	if ctx == nil {
		return came, sent, errNilContext
	}
	came = clock.Now()
	if ctx.Err() != nil {
		return came, sent, contextError(ctx)
	}
	sent, ok := q.Pass(came, n)
	if !ok {
		sent, err = wait(q, ctx, n)
	}
	return came, sent, err
}

// wait is enter for a call that has to wait.
func wait(q *queue.Queue, ctx context.Context, n int) (sent clock.Instant, err error) {
	sent, err = q.Wait(ctx, ticket(ctx, n))
	if refused, ok := err.(*queue.Refusal); ok {
		return 0, refusalError(refused, n)
	}
	if err != nil {
		return 0, contextError(ctx)
	}
	return sent, nil
}

// ticket returns what the call of ctx asks of a queue. It runs code of others, which ctx may
// be.
func ticket(ctx context.Context, n int) queue.Ticket {
	t := queue.Ticket{Cost: n, Class: queue.First, MaxPause: clock.Never}
	if c := callOf(ctx); c != nil {
		t.MaxPause, t.Until = c.retrier.maxServerDelay, c.waitsUntil()
		background, retry := c.kind()
		if background {
			t.Class = queue.Background
		}
		if retry {
			t.Class-- // to the retries of its kind
		}
		if o := c.retrier.observer; o != nil {
			t.OnWait = func(outlook queue.Outlook) { notify((*eventContext)(c), o, Waiting(outlook)) }
		}
	}
	if d, ok := ctx.Deadline(); ok {
		t.Deadline = clock.Deadline(d)
	}
	return t
}

// refusalError returns a refusal of a call of cost n as callers get it.
func refusalError(r *queue.Refusal, n int) error {
	if r.Why == queue.TooExpensive {
		return costError(n, r.MaxCost)
	}
	reasons := [...]error{
		queue.DeadlineTooSoon: ErrDeadline,
		queue.PauseTooLong:    ErrServerDelay,
		queue.QuotaTooLong:    ErrQuotaExhausted,
		queue.WaitTooLong:     ErrMaxWait,
	}
	return &Error{Reason: reasons[r.Why], RetryAfter: r.RetryAfter, Paused: r.Paused, Ahead: r.Ahead}
}

// pauseBy pauses for what an attempt taught, and reports whether that extends the pause. It
// wants the lock held.
func (b *base) pauseBy(now clock.Instant, e ending, d time.Duration) bool {
	if e.outcome == OutcomeQuotaExhausted {
		b.queue.QuotaUsedUp(now.Add(e.retryAfter))
	}
	return b.queue.Pause(now, now.Add(d))
}

func (b *base) charge(sent clock.Instant, n int) {
	if b.queue.Ready() {
		b.queue.Charge(sent, n)
	}
}

// change changes the policy, also for those who wait.
func (b *base) change(policy func(now clock.Instant)) error {
	if !b.queue.Ready() {
		return errZeroLimiter
	}
	b.queue.Lock()
	defer b.queue.Unlock()
	now := b.queue.Now()
	policy(now)
	b.queue.KeepPause(now)
	b.queue.Slowed(now)
	return nil
}

// pauseFor pauses for d, and reports whether that extends the pause.
func (b *base) pauseFor(d time.Duration) bool {
	if !b.queue.Ready() {
		return false
	}
	b.queue.Lock()
	defer b.queue.Unlock()
	now := b.queue.Now()
	if !b.queue.Pause(now, now.Add(d)) {
		return false
	}
	b.queue.Slowed(now)
	return true
}

// resumeNow ends the pause, and returns what was left of it, 0 if there was none.
func (b *base) resumeNow() (left time.Duration) {
	if !b.queue.Ready() {
		return 0
	}
	b.queue.Lock()
	defer b.queue.Unlock()
	now := b.queue.Now()
	left = b.queue.PauseLeft(now)
	if left > 0 {
		b.queue.CutPause(now, now)
		b.queue.Reschedule(now)
	}
	return left
}

func (b *base) pauseLeft() time.Duration {
	b.queue.Lock()
	defer b.queue.Unlock()
	return b.queue.PauseLeft(b.queue.Now())
}

// reportToParents reports a finished attempt to the limiters of the ancestors of a queue. Each
// of them let it go, so each must lower its count of calls in flight. A Retrier does so by
// itself for the limiters of its own scopes.
func reportToParents(q *queue.Queue, e ending) {
	for x := q.Parent(); x != nil; x = x.Parent() {
		if l, ok := x.Policy().(gate); ok {
			l.learn(e.elsewhere())
		}
	}
}

// ending is a [Feedback] inside the package: it fits in registers.
type ending struct {
	outcome    Outcome
	sent       clock.Instant
	cost       int
	retryAfter time.Duration
	scope      string
	quota      *Quota
}

func (f *Feedback) ending() ending {
	return ending{f.Outcome, clock.Of(f.Sent), f.Cost, f.RetryAfter, f.Scope, f.Quota}
}

func (e ending) feedback() Feedback {
	return Feedback{e.outcome, e.sent.Time(), e.cost, e.retryAfter, e.scope, e.quota}
}

// foreign is the gate of a limiter that is not of this package.
type foreign struct{ Limiter }

func (l foreign) admit(ctx context.Context, n int) (came, sent clock.Instant, err error) {
	if n <= 0 { // x/time's would make it wait for what others have reserved
		return free(ctx, n)
	}
	came = clock.Now()
	err = waitFor(ctx, l.Limiter, n)
	return came, clock.Now(), err
}

func (l foreign) learn(e ending) {
	if l, ok := l.Limiter.(Learner); ok {
		l.Learn(e.feedback())
	}
}

// charge does nothing: there is no common way to take without waiting.
func (l foreign) charge(clock.Instant, int) {}

// waitFor waits for a limiter of whatever make.
func waitFor(ctx context.Context, l Limiter, n int) error {
	until := callOf(ctx).waitsUntil()
	if until == 0 {
		return explained(ctx, l, n, l.WaitN(ctx, n))
	}
	if l, ok := l.(interface{ AllowN(time.Time, int) bool }); ok && l.AllowN(clock.Now().Time(), n) {
		return nil
	}
	left := until.Sub(clock.Now())
	bounded, cancel := context.WithTimeout(ctx, max(left, time.Millisecond))
	defer cancel()
	if d, ok := ctx.Deadline(); ok && clock.Deadline(d) < until {
		return explained(ctx, l, n, l.WaitN(ctx, n))
	}
	err := explained(ctx, l, n, l.WaitN(bounded, n))
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		refused := &Error{Reason: ErrMaxWait}
		if e, ok := errors.AsType[*Error](err); ok && e != nil {
			refused.RetryAfter, refused.Paused, refused.Ahead = e.RetryAfter, e.Paused, e.Ahead
		}
		return refused
	}
	return err
}

// explained is an error of a limiter. x/time's says why it refuses in text alone, and not for
// how long.
func explained(ctx context.Context, l Limiter, n int, err error) error {
	x, ok := l.(*rate.Limiter)
	if !ok || err == nil {
		return err
	}
	if burst := x.Burst(); n > burst {
		return costError(n, burst)
	}
	e := &Error{Reason: ErrDeadline}
	if ctx.Err() == nil {
		e.RetryAfter = clock.CeilSeconds((float64(n) - x.Tokens()) / float64(x.Limit()))
	}
	return e
}

// free admits a call that costs nothing.
func free(ctx context.Context, n int) (came, sent clock.Instant, err error) {
	if err := checkCost(n); err != nil {
		return came, sent, err
	}
	if ctx == nil {
		return came, sent, errNilContext
	}
	if ctx.Err() != nil {
		return came, sent, contextError(ctx)
	}
	now := clock.Now()
	return now, now, nil
}

func checkCost(n int) error {
	if n < 0 {
		return fmt.Errorf("cruise: cost %d: want 0 or more", n)
	}
	return nil
}

func costError(n, most int) error {
	return &Error{Reason: fmt.Errorf("%w: cost %d, at most %d", ErrCost, n, most)}
}
