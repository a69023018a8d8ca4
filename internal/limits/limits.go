// Package limits holds the part that all limiters of this module share, in whichever package they
// are: a queue in the tree of queues of a Retrier, and the way in which a call enters it.
package limits

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/time/rate"

	"github.com/a7df5faa/cruise/internal/clock"
	"github.com/a7df5faa/cruise/internal/queue"
)

// A Member makes the limiter that embeds it a limiter of this module. To keep it out of the
// limiter's documentation, embed it under an unexported alias.
type Member struct {
	limiter any // that embeds the Member; nil in a zero value
	queue   *queue.Queue
}

// Join returns the Member that a limiter embeds, a pointer. The limiter's calls wait in q.
func Join(limiter any, q *queue.Queue) Member { return Member{limiter, q} }

func (m *Member) member() *Member { return m }

// QueueOf returns the queue of a limiter of this module that was made by its constructor, else
// nil. A limiter that embeds one of this module is another limiter: its own methods count.
func QueueOf(limiter any) *queue.Queue {
	if l, ok := limiter.(interface{ member() *Member }); ok {
		if m := l.member(); m.limiter == limiter {
			return m.queue
		}
	}
	return nil
}

// Report reports how an attempt ended to the limiters of the ancestors of q. Each of them let
// the attempt go, so each must lower its count of calls in flight.
func Report[F any](q *queue.Queue, f F) {
	for x := q.Parent(); x != nil; x = x.Parent() {
		Apply(x, f)
	}
}

// Apply reports how an attempt ended to the limiter of q alone.
func Apply[F any](q *queue.Queue, f F) { q.Policy().(interface{ Apply(F) }).Apply(f) }

// Tuning marks an option of an AdaptiveLimiter, which may be one of a shared limiter too.
type Tuning interface{ tunes() }

// Tunes is a [Tuning] to embed.
type Tunes struct{}

func (Tunes) tunes() {}

// Options are the numbers that the options of an AdaptiveLimiter set.
type Options struct {
	Initial, Min, Max  rate.Limit // rate.Inf if there is none
	Burst              int        // 0: by the rate
	Decrease, Increase float64
	Forgive            int
	PauseBase          time.Duration // of the backoff of pauses
}

// CallKey is the key under which the context of an attempt has its [Call].
type CallKey struct{}

// A Call is a call of a Retrier.
type Call interface {
	// Ticket returns the call's demand on a queue.
	Ticket(cost int) queue.Ticket
}

// Ticket returns a call's demand on a queue. It may run foreign code: the methods of ctx.
func Ticket(ctx context.Context, cost int) queue.Ticket {
	t := queue.Ticket{Cost: cost, Class: queue.First, MaxPause: clock.Never}
	if c, ok := ctx.Value(CallKey{}).(Call); ok {
		t = c.Ticket(cost)
	}
	if d, ok := ctx.Deadline(); ok {
		t.Deadline = clock.Deadline(d)
	}
	return t
}

// Errors of calls that are refused before they reach a queue.
var (
	ErrZero       = errors.New("cruise: limiter not made by its constructor")
	ErrNilContext = errors.New("cruise: nil context")
)

// Admit waits until a call of cost n may go, and returns when it came and when it went. The error may
// be a [*queue.Refusal].
func Admit(ctx context.Context, q *queue.Queue, n int) (came, sent clock.Instant, err error) {
	if !q.Ready() {
		return came, sent, ErrZero
	}
	if most, is := q.TooExpensive(n); is {
		return came, sent, &queue.Refusal{Why: queue.TooExpensive, MaxCost: most}
	}
	if came, sent, err = Free(ctx, n); err != nil || n == 0 {
		return came, sent, err
	}
	sent, ok := q.Pass(came, n, true)
	if !ok {
		sent, err = wait(ctx, q, n)
	}
	return came, sent, err
}

// Free admits a call that costs nothing.
func Free(ctx context.Context, n int) (came, sent clock.Instant, err error) {
	if n < 0 {
		return came, sent, fmt.Errorf("cruise: cost %d: want 0 or more", n)
	}
	if ctx == nil {
		return came, sent, ErrNilContext
	}
	if ctx.Err() != nil {
		return came, sent, ContextError(ctx)
	}
	now := clock.Now()
	return now, now, nil
}

// wait is Admit for a call that has to wait. Like its callers it has a small frame: with its stack of
// 2 KiB a goroutine that waits needs half of the memory.
func wait(ctx context.Context, q *queue.Queue, n int) (sent clock.Instant, err error) {
	w, refused := join(ctx, q, n)
	if refused != nil {
		return 0, refused
	}
	sent, err = q.Await(ctx, w)
	if _, refused := err.(*queue.Refusal); err != nil && !refused {
		err = ContextError(ctx)
	}
	return sent, err
}

// join is apart from wait, so that its frame is gone by the time that the call waits.
func join(ctx context.Context, q *queue.Queue, n int) (*queue.Waiter, *queue.Refusal) {
	w := queue.NewWaiter(Ticket(ctx, n))
	return w, q.Join(w)
}

// Try lets a call of cost n go now, or returns false.
func Try(q *queue.Queue, n int) bool {
	if n <= 0 || !q.Ready() {
		return n == 0 && q.Ready()
	}
	if _, never := q.TooExpensive(n); never {
		return false
	}
	_, ok := q.Pass(clock.Now(), n, false)
	return ok
}

// ContextError returns the error of a context that has ended, with its cause if there is one.
func ContextError(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == nil || cause == err {
		return err
	}
	return &causeError{err, cause}
}

// WithCause returns err with the cause of the end of ctx, unless err tells it already.
func WithCause(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		return &causeError{err, cause}
	}
	return err
}

type causeError struct{ err, cause error }

func (e *causeError) Error() string   { return e.err.Error() + ": " + e.cause.Error() }
func (e *causeError) Unwrap() []error { return []error{e.err, e.cause} }
