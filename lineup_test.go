package cruise

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"golang.org/x/time/rate"

	"github.com/a7df5faa/cruise/internal/queue"
)

// A turn is what became of a call in a line: when it left, since the line began,
// and why, if it did not go.
type turn struct {
	who string
	at  time.Duration
	err error
}

// A lineup makes calls wait before a token bucket, in the order of its methods' calls, and notes their turns. It lives in a bubble.
type lineup struct {
	*TokenBucket
	start time.Time
	wg    sync.WaitGroup

	mu    sync.Mutex // guards turns
	turns []turn
}

func newLineup(limit rate.Limit, burst int) *lineup {
	return &lineup{TokenBucket: Must(NewTokenBucket(limit, burst)), start: time.Now()}
}

func (q *lineup) join(who string, n int) { q.joinWith(context.Background(), who, n) }

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

// attemptContext is the context that a Retrier gives to its n-th attempt.
func attemptContext(ctx context.Context, n int64, maxPause time.Duration) context.Context {
	r := &record{Context: ctx, retrier: &Retrier{config: config{maxServerDelay: maxPause}}}
	r.retries.Store(n - 1)
	return r
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

// checkEmpty checks that nothing is left of those who waited.
func checkEmpty(t *testing.T, q *queue.Queue) {
	t.Helper()
	waiting, _ := q.Report()
	assert.Zero(t, waiting, "waiters")
	assert.NoError(t, q.Invariants())
}
