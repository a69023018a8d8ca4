package cruise

import (
	"context"
	"errors"
	"time"

	"github.com/a7df5faa/cruise/internal/clock"
	"github.com/a7df5faa/cruise/internal/queue"
)

// base is what all limiters of this package have alike: a queue.
type base struct {
	queue   queue.Queue
	limiter Learner // that the base is a part of; nil in a zero value
}

func (b *base) itself() Learner        { return b.limiter }
func (b *base) ownQueue() *queue.Queue { return &b.queue }

// own is a limiter of this package.
type own interface {
	itself() Learner
	ownQueue() *queue.Queue
	learn(ending)
}

// ownOf returns l if it is a limiter of this package that was made by its constructor, else nil.
// A limiter that embeds one is another limiter: its own methods count, not those that it got
// with it.
func ownOf(l Limiter) own {
	if o, ok := l.(own); ok && o.itself() != nil && Limiter(o.itself()) == l {
		return o
	}
	return nil
}

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

// wait is enter for a call that has to wait. Like its callers it has a small frame, so a goroutine
// that waits needs little memory for its stack.
func wait(q *queue.Queue, ctx context.Context, n int) (sent clock.Instant, err error) {
	w := newWaiter(ctx, n)
	if refused := q.Join(w); refused != nil {
		return 0, refusalError(refused, n)
	}
	if sent, err = q.Await(ctx, w); err != nil {
		err = waitError(ctx, err, n)
	}
	return sent, err
}

func newWaiter(ctx context.Context, n int) *queue.Waiter { return queue.NewWaiter(ticket(ctx, n)) }

// waitError returns an error of a queue as callers of cost n get it.
func waitError(ctx context.Context, err error, n int) error {
	if refused, ok := err.(*queue.Refusal); ok {
		return refusalError(refused, n)
	}
	return contextError(ctx)
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
	return &Error{Reason: refusalReasons[r.Why], RetryAfter: r.RetryAfter, Paused: r.Paused, Ahead: r.Ahead}
}

var refusalReasons = [...]error{
	queue.DeadlineTooSoon: ErrDeadline,
	queue.PauseTooLong:    ErrServerDelay,
	queue.QuotaTooLong:    ErrQuotaExhausted,
	queue.WaitTooLong:     ErrMaxWait,
}

// pauseBy pauses for what an attempt taught, and reports whether that extends the pause. It
// wants the lock held.
func (b *base) pauseBy(now clock.Instant, e ending, d time.Duration) bool {
	if e.outcome == OutcomeQuotaExhausted {
		b.queue.QuotaUsedUp(now.Add(e.retryAfter))
	}
	if e.outcome == OutcomeThrottled {
		b.queue.ProbeNext()
	}
	return b.queue.Pause(now, now.Add(d))
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
		if l, ok := x.Policy().(interface{ learn(ending) }); ok {
			l.learn(e.elsewhere())
		}
	}
}
