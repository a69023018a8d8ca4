package queue

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"golang.org/x/time/rate"

	"github.com/a7df5faa/cruise/internal/clock"
	"github.com/a7df5faa/cruise/internal/pacer"
)

// A turn is the end of a call's wait: when it left, since the test began, and the reason if it did
// not go.
type turn struct {
	who string
	at  time.Duration
	err error
}

// A bucket is a queue before a token bucket.
type bucket struct {
	Queue
	tokens pacer.Bucket
}

// timerGrain is the lateness of timers that a bucket makes up for.
const timerGrain = 10 * time.Millisecond

const ms = time.Millisecond

func newBucket(limit rate.Limit, burst int) *bucket {
	b := &bucket{tokens: pacer.NewBucket(limit, burst)}
	b.Init(&b.tokens, Config{CatchUp: timerGrain})
	return b
}

// The reasons of a Refusal, as errors.
var (
	errDeadline = errors.New("deadline")
	errPause    = errors.New("pause")
	errQuota    = errors.New("quota")
	errWait     = errors.New("longest wait")
)

// admit waits as a limiter does, and returns when the call went.
func (b *bucket) admit(ctx context.Context, n int) (sent clock.Instant, err error) {
	if sent, ok := b.Pass(clock.Now(), n, true); ok {
		return sent, nil
	}
	t := Ticket{Class: First, MaxPause: clock.Never}
	if asked, ok := ctx.Value(ticketKey{}).(Ticket); ok {
		t = asked
	}
	t.Cost = n
	if d, ok := ctx.Deadline(); ok {
		t.Deadline = clock.Deadline(d)
	}
	w := NewWaiter(t)
	refused := b.Join(w)
	if refused == nil {
		sent, err = b.Await(ctx, w)
		refused, _ = err.(*Refusal)
	}
	if refused != nil {
		err = [...]error{DeadlineTooSoon: errDeadline, PauseTooLong: errPause, QuotaTooLong: errQuota, WaitTooLong: errWait}[refused.Why]
	}
	return sent, err
}

func (b *bucket) WaitN(ctx context.Context, n int) error {
	_, err := b.admit(ctx, n)
	return err
}

func (b *bucket) SetLimit(limit rate.Limit) error {
	b.Lock()
	defer b.Unlock()
	now := b.Now()
	b.tokens.SetLimit(now, limit)
	b.KeepPause(now)
	b.Slowed(now)
	return nil
}

func (b *bucket) pauseFor(d time.Duration) {
	b.Lock()
	defer b.Unlock()
	if now := b.Now(); b.Pause(now, now.Add(d)) {
		b.Slowed(now)
	}
}

func (b *bucket) resume() {
	b.Lock()
	defer b.Unlock()
	if now := b.Now(); b.PauseLeft(now) > 0 {
		b.CutPause(now, now)
		b.Reschedule(now)
	}
}

func (b *bucket) waitingNow() int {
	waiting, _ := b.Report()
	return waiting
}

// A lineup makes calls wait before a token bucket, in the order of its methods' calls, and
// notes their turns. It lives in a bubble.
type lineup struct {
	*bucket
	start time.Time
	wg    sync.WaitGroup

	mu    sync.Mutex // guards turns
	turns []turn
}

func newLineup(limit rate.Limit, burst int) *lineup {
	return &lineup{bucket: newBucket(limit, burst), start: time.Now()}
}

func (q *lineup) join(who string, n int) { q.joinWith(context.Background(), who, n) }

// retry joins as the second attempt of a call.
func (q *lineup) retry(who string, n int) {
	q.joinWith(attemptContext(context.Background(), 2, clock.Never), who, n)
}

func (q *lineup) joinWith(ctx context.Context, who string, n int) {
	q.wg.Go(func() {
		err := q.WaitN(ctx, n)
		q.mu.Lock()
		defer q.mu.Unlock()
		q.turns = append(q.turns, turn{who, time.Since(q.start), err})
	})
	synctest.Wait()
}

// gone returns the turns up to now, in the order of time and then of names.
func (q *lineup) gone() []turn {
	synctest.Wait()
	q.mu.Lock()
	defer q.mu.Unlock()
	slices.SortStableFunc(q.turns, func(a, b turn) int {
		return cmp.Or(cmp.Compare(a.at, b.at), strings.Compare(a.who, b.who))
	})
	return slices.Clone(q.turns)
}

type ticketKey struct{}

// attemptContext is the context of the n-th attempt of a call.
func attemptContext(ctx context.Context, n int, maxPause time.Duration) context.Context {
	t := Ticket{Class: First, MaxPause: maxPause}
	if n > 1 {
		t.Class = Retry
	}
	return context.WithValue(ctx, ticketKey{}, t)
}

// within is a context whose deadline is d away. It lives as long as its bubble.
func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func checkTurns(t *testing.T, want, got []turn) {
	t.Helper()
	for i := range min(len(want), len(got)) {
		assert.Equal(t, want[i].who, got[i].who, "turn %d", i+1)
		assert.Equal(t, want[i].at, got[i].at, "%s leaves", got[i].who)
		if want[i].err == nil {
			assert.NoError(t, got[i].err, "%s", got[i].who)
		} else {
			assert.ErrorIs(t, got[i].err, want[i].err, "%s", got[i].who)
		}
	}
	assert.Len(t, got, len(want))
}

// checkEmpty checks that the queue holds no trace of its waiters.
func checkEmpty(t *testing.T, q *Queue) {
	t.Helper()
	q.Lock()
	assert.Zero(t, q.waiting, "waiters")
	assert.Nil(t, q.timer, "timer")
	assert.Equal(t, [classes]waiters{}, q.waiters, "waiters")
	q.Unlock()
	assert.NoError(t, q.Invariants())
}
