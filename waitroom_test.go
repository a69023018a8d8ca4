package cruise

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/a7df5faa/cruise/internal/clock"
)

// A turn is what became of a call in a line: when it left, since the line began,
// and why, if it did not go.
type turn struct {
	who string
	at  time.Duration
	err error
}

// A queue makes calls stand in line before a token bucket, in the order of its
// methods' calls, and notes their turns. It lives in a bubble.
type queue struct {
	*TokenBucket
	start time.Time
	wg    sync.WaitGroup

	mu    sync.Mutex // guards turns
	turns []turn
}

func newQueue(limit rate.Limit, burst int) *queue {
	return &queue{TokenBucket: Must(NewTokenBucket(limit, burst)), start: time.Now()}
}

func (q *queue) join(who string, n int) { q.joinWith(context.Background(), who, n) }

// retry joins as the second attempt of a Retrier's call.
func (q *queue) retry(who string, n int) {
	q.joinWith(attemptContext(context.Background(), 2, clock.Never), who, n)
}

func (q *queue) joinWith(ctx context.Context, who string, n int) {
	q.wg.Go(func() {
		err := q.WaitN(ctx, n)
		q.mu.Lock()
		defer q.mu.Unlock()
		q.turns = append(q.turns, turn{who, time.Since(q.start), err})
	})
	synctest.Wait()
}

// gone returns the turns up to now, in the order of time and then of names.
func (q *queue) gone() []turn {
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

func TestRoom(t *testing.T) {
	const second = time.Second
	cause := errors.New("the user went away")
	for _, tt := range []struct {
		name   string
		limit  rate.Limit
		burst  int
		script func(t *testing.T, q *queue)
		want   []turn
	}{
		// Order.
		{"a burst goes at once, the rest in order", 10, 2, func(t *testing.T, q *queue) {
			for _, who := range []string{"a", "b", "c", "d"} {
				q.join(who, 1)
			}
		}, []turn{{"a", 0, nil}, {"b", 0, nil}, {"c", 100 * ms, nil}, {"d", 200 * ms, nil}}},
		{"retries go before first attempts, in order too", 10, 1, func(t *testing.T, q *queue) {
			q.join("a", 1)
			q.join("b", 1)
			q.join("c", 1)
			q.retry("retry 1", 1)
			q.retry("retry 2", 1)
		}, []turn{{"a", 0, nil}, {"retry 1", 100 * ms, nil}, {"retry 2", 200 * ms, nil}, {"b", 300 * ms, nil}, {"c", 400 * ms, nil}}},
		{"a retry with nobody waiting goes at once", 10, 1, func(t *testing.T, q *queue) {
			q.retry("retry", 1)
		}, []turn{{"retry", 0, nil}}},
		{"a first attempt under a Retrier is no retry", 10, 1, func(t *testing.T, q *queue) {
			q.join("a", 1)
			q.join("b", 1)
			q.joinWith(attemptContext(context.Background(), 1, clock.Never), "first", 1)
		}, []turn{{"a", 0, nil}, {"b", 100 * ms, nil}, {"first", 200 * ms, nil}}},
		{"small costs do not starve a large one", 10, 5, func(t *testing.T, q *queue) {
			q.join("drain", 5)
			q.join("large", 5)
			q.join("small", 1)
		}, []turn{{"drain", 0, nil}, {"large", 500 * ms, nil}, {"small", 600 * ms, nil}}},
		{"a retry of higher cost takes over the line's timer", 10, 5, func(t *testing.T, q *queue) {
			q.join("drain", 5)
			q.join("small", 1)
			q.retry("retry", 4)
		}, []turn{{"drain", 0, nil}, {"retry", 400 * ms, nil}, {"small", 500 * ms, nil}}},

		// Changes of the rate.
		{"a cut reaches those who wait", 10, 1, func(t *testing.T, q *queue) {
			q.join("a", 1)
			q.join("b", 1)
			q.join("c", 1)
			time.Sleep(50 * ms)
			require.NoError(t, q.SetLimit(1))
		}, []turn{{"a", 0, nil}, {"b", 550 * ms, nil}, {"c", 1550 * ms, nil}}},
		{"a raise wakes a sleeper", 1. / 3600, 1, func(t *testing.T, q *queue) {
			q.join("a", 1)
			q.join("b", 1)
			time.Sleep(second)
			require.NoError(t, q.SetLimit(rate.Inf))
		}, []turn{{"a", 0, nil}, {"b", second, nil}}},

		// Pauses.
		{"a pause stops those who wait", 10, 1, func(t *testing.T, q *queue) {
			q.join("a", 1)
			q.join("b", 1)
			q.join("c", 1)
			time.Sleep(50 * ms)
			q.Pause(second)
		}, []turn{{"a", 0, nil}, {"b", 1050 * ms, nil}, {"c", 1150 * ms, nil}}},
		{"a pause stops those who come", 10, 1, func(t *testing.T, q *queue) {
			q.Pause(second)
			time.Sleep(500 * ms)
			q.join("a", 1)
		}, []turn{{"a", second, nil}}},
		{"a pause saves no burst: resuming is no herd", 10, 5, func(t *testing.T, q *queue) {
			q.Pause(10 * second)
			for _, who := range []string{"a", "b", "c"} {
				q.join(who, 1)
			}
		}, []turn{{"a", 10 * second, nil}, {"b", 10100 * ms, nil}, {"c", 10200 * ms, nil}}},
		{"after a pause the bucket fills again", 10, 2, func(t *testing.T, q *queue) {
			q.Pause(second)
			time.Sleep(2 * second)
			q.join("a", 1)
			q.join("b", 1)
		}, []turn{{"a", 2 * second, nil}, {"b", 2 * second, nil}}},
		{"a pause is extended", 10, 1, func(t *testing.T, q *queue) {
			q.Pause(second)
			q.join("a", 1)
			time.Sleep(500 * ms)
			q.Pause(second)
		}, []turn{{"a", 1500 * ms, nil}}},
		{"a pause is never shortened", 10, 1, func(t *testing.T, q *queue) {
			q.Pause(second)
			q.join("a", 1)
			time.Sleep(500 * ms)
			q.Pause(100 * ms)
			q.Pause(0)
			q.Pause(-time.Hour)
		}, []turn{{"a", second, nil}}},
		{"a pause is lifted, into the pace", 10, 1, func(t *testing.T, q *queue) {
			q.Pause(time.Hour)
			q.join("a", 1)
			q.join("b", 1)
			time.Sleep(second)
			q.Resume()
		}, []turn{{"a", second, nil}, {"b", 1100 * ms, nil}}},
		{"lifting a pause that is all but over delays nobody", 1, 1, func(t *testing.T, q *queue) {
			q.Pause(10 * second)
			q.join("a", 1)
			time.Sleep(9900 * ms)
			q.Resume()
		}, []turn{{"a", 9900 * ms, nil}}},
		{"a lifted pause leaves what would be there without", 1, 2, func(t *testing.T, q *queue) {
			q.join("a", 2)
			time.Sleep(500 * ms)
			q.Pause(time.Hour)
			q.join("b", 1)
			time.Sleep(100 * ms)
			require.NoError(t, q.SetLimit(.5))
			q.Resume()
		}, []turn{{"a", 0, nil}, {"b", 1400 * ms, nil}}},
		{"a lifted pause saves no burst", 1, 3, func(t *testing.T, q *queue) {
			q.Pause(time.Hour)
			q.join("a", 1)
			q.join("b", 2)
			time.Sleep(10 * second)
			q.Resume()
		}, []turn{{"a", 10 * second, nil}, {"b", 12 * second, nil}}},
		{"a lifted pause is over for those who come", 10, 1, func(t *testing.T, q *queue) {
			q.Pause(time.Hour)
			q.Resume()
			time.Sleep(100 * ms)
			q.join("a", 1)
		}, []turn{{"a", 100 * ms, nil}}},
		{"Resume without a pause does nothing", 10, 1, func(t *testing.T, q *queue) {
			q.Resume()
			q.join("a", 1)
			q.join("b", 1)
			time.Sleep(50 * ms)
			q.Resume()
		}, []turn{{"a", 0, nil}, {"b", 100 * ms, nil}}},
		{"a raise during a pause ends no pause", 1, 1, func(t *testing.T, q *queue) {
			q.Pause(10 * second)
			q.join("a", 1)
			q.join("b", 1)
			time.Sleep(second)
			require.NoError(t, q.SetLimit(10))
		}, []turn{{"a", 10 * second, nil}, {"b", 10100 * ms, nil}}},
		{"a raise during a pause saves no burst", 1, 5, func(t *testing.T, q *queue) {
			q.Pause(10 * second)
			q.join("a", 1)
			q.join("b", 1)
			time.Sleep(second)
			require.NoError(t, q.SetLimit(10))
		}, []turn{{"a", 10 * second, nil}, {"b", 10100 * ms, nil}}},
		{"a cut during a pause applies after it", 10, 1, func(t *testing.T, q *queue) {
			q.Pause(10 * second)
			q.join("a", 1)
			q.join("b", 1)
			time.Sleep(second)
			require.NoError(t, q.SetLimit(1))
		}, []turn{{"a", 10 * second, nil}, {"b", 11 * second, nil}}},
		{"a pause of a slow bucket keeps the one token that it has", 0.1, 3, func(t *testing.T, q *queue) {
			q.Pause(second)
			q.join("a", 1)
			q.join("b", 1)
		}, []turn{{"a", second, nil}, {"b", 11 * second, nil}}},
		{"a pause of a slow bucket does not delay the token on its way", 0.1, 1, func(t *testing.T, q *queue) {
			q.join("a", 1)
			time.Sleep(4 * second)
			q.Pause(second)
			q.join("b", 1)
		}, []turn{{"a", 0, nil}, {"b", 10 * second, nil}}},
		{"a pause holds without a rate too", rate.Inf, 1, func(t *testing.T, q *queue) {
			q.Pause(second)
			q.join("a", 1)
			q.join("b", 1)
		}, []turn{{"a", second, nil}, {"b", second, nil}}},
		{"a pause holds to its last nanosecond", rate.Inf, 1, func(t *testing.T, q *queue) {
			q.Pause(second)
			time.Sleep(second - 1)
			q.join("a", 1)
		}, []turn{{"a", second, nil}}},
		{"a rate that comes during a pause paces its end", rate.Inf, 1, func(t *testing.T, q *queue) {
			q.Pause(second)
			q.join("a", 1)
			q.join("b", 1)
			require.NoError(t, q.SetLimit(10))
		}, []turn{{"a", second, nil}, {"b", 1100 * ms, nil}}},

		// Those who leave.
		{"who leaves costs nobody anything", 10, 1, func(t *testing.T, q *queue) {
			ctx, cancel := context.WithCancelCause(context.Background())
			q.join("a", 1)
			q.joinWith(ctx, "b", 1)
			q.join("c", 1)
			q.joinWith(ctx, "d", 1)
			q.join("e", 1)
			time.Sleep(50 * ms)
			cancel(cause)
		}, []turn{{"a", 0, nil}, {"b", 50 * ms, cause}, {"d", 50 * ms, cause}, {"c", 100 * ms, nil}, {"e", 200 * ms, nil}}},
		{"the next of lower cost need not wait for the one who left", 10, 5, func(t *testing.T, q *queue) {
			ctx, cancel := context.WithCancel(context.Background())
			q.join("drain", 5)
			q.joinWith(ctx, "large", 5)
			q.join("small", 1)
			time.Sleep(200 * ms)
			cancel()
		}, []turn{{"drain", 0, nil}, {"large", 200 * ms, context.Canceled}, {"small", 200 * ms, nil}}},
		{"who leaves during a pause does not end it", 10, 1, func(t *testing.T, q *queue) {
			ctx, cancel := context.WithCancel(context.Background())
			q.Pause(second)
			q.joinWith(ctx, "a", 1)
			q.join("b", 1)
			time.Sleep(500 * ms)
			cancel()
		}, []turn{{"a", 500 * ms, context.Canceled}, {"b", second, nil}}},

		// Deadlines.
		{"a deadline that the line cannot meet is refused at once", 10, 1, func(t *testing.T, q *queue) {
			q.join("a", 1)
			q.join("b", 1)
			q.joinWith(within(t, 199*ms), "c", 1)
			q.joinWith(within(t, 201*ms), "d", 1)
		}, []turn{{"a", 0, nil}, {"c", 0, ErrDeadline}, {"b", 100 * ms, nil}, {"d", 200 * ms, nil}}},
		{"a retry need only make it past other retries", 10, 1, func(t *testing.T, q *queue) {
			q.join("a", 1)
			q.join("b", 1)
			q.joinWith(attemptContext(within(t, 101*ms), 2, clock.Never), "retry", 1)
		}, []turn{{"a", 0, nil}, {"retry", 100 * ms, nil}, {"b", 200 * ms, nil}}},
		{"a deadline within a pause is refused at once", 10, 1, func(t *testing.T, q *queue) {
			q.Pause(second)
			q.joinWith(within(t, 999*ms), "a", 1)
			q.joinWith(within(t, 1001*ms), "b", 1)
		}, []turn{{"a", 0, ErrDeadline}, {"b", second, nil}}},
		{"a cut refuses who cannot make it any more, and frees their place", 10, 1, func(t *testing.T, q *queue) {
			q.join("a", 1)
			q.joinWith(within(t, second), "b", 1)
			q.join("c", 1)
			time.Sleep(50 * ms)
			require.NoError(t, q.SetLimit(0.1))
		}, []turn{{"a", 0, nil}, {"b", 50 * ms, ErrDeadline}, {"c", 5050 * ms, nil}}},
		{"a pause refuses who cannot make it any more, and frees their place", 10, 1, func(t *testing.T, q *queue) {
			q.join("a", 1)
			q.joinWith(within(t, second), "b", 1)
			q.joinWith(within(t, 3*second), "c", 1)
			time.Sleep(50 * ms)
			q.Pause(2 * second)
		}, []turn{{"a", 0, nil}, {"b", 50 * ms, ErrDeadline}, {"c", 2050 * ms, nil}}},
		{"a pause as long as a call allows holds it", 10, 1, func(t *testing.T, q *queue) {
			q.Pause(second)
			q.joinWith(attemptContext(context.Background(), 1, second), "a", 1)
		}, []turn{{"a", second, nil}}},
		{"a pause longer than a call allows refuses it", 10, 1, func(t *testing.T, q *queue) {
			ctx := attemptContext(context.Background(), 1, second)
			q.join("a", 1)
			q.joinWith(ctx, "b", 1)
			time.Sleep(50 * ms)
			q.Pause(time.Minute)
			q.joinWith(ctx, "c", 1)
			q.join("d", 1)
		}, []turn{{"a", 0, nil}, {"b", 50 * ms, ErrServerDelay}, {"c", 50 * ms, ErrServerDelay}, {"d", 60050 * ms, nil}}},

		// Waits are rounded up: a wait of 0 would spin, and never end here.
		{"10/13 a second", 10. / 13, 1, func(t *testing.T, q *queue) {
			q.join("a", 1)
			q.join("b", 1)
			q.join("c", 1)
		}, []turn{{"a", 0, nil}, {"b", 1300 * ms, nil}, {"c", 2600 * ms, nil}}},
		{"a third of a second", 3, 1, func(t *testing.T, q *queue) {
			q.join("a", 1)
			q.join("b", 1)
		}, []turn{{"a", 0, nil}, {"b", 333333334, nil}}},
		{"a billion a second", 1e9, 1, func(t *testing.T, q *queue) {
			q.join("a", 1)
			q.join("b", 1)
			q.join("c", 1)
		}, []turn{{"a", 0, nil}, {"b", 1, nil}, {"c", 2, nil}}},
		{"a pause may be longer than a step of the clock", rate.Inf, 1, func(t *testing.T, q *queue) {
			q.Pause(20 * clock.Year)
			q.join("a", 1)
		}, []turn{{"a", 20 * clock.Year, nil}}},
		{"once in 317 years is a wait without end", 1e-10, 1, func(t *testing.T, q *queue) {
			q.join("a", 1)
			q.join("b", 1)
			q.joinWith(within(t, 10*365*24*time.Hour), "c", 1)
			time.Sleep(time.Hour)
			require.NoError(t, q.SetLimit(rate.Inf))
		}, []turn{{"a", 0, nil}, {"c", 0, ErrDeadline}, {"b", time.Hour, nil}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newQueue(tt.limit, tt.burst)
				tt.script(t, q)
				q.wg.Wait()
				checkTurns(t, tt.want, q.gone())
				checkEmpty(t, &q.room)
			})
		})
	}
}

// checkEmpty checks that nothing is left of those who waited.
func checkEmpty(t *testing.T, r *room) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	assert.Zero(t, r.waiting, "waiters")
	assert.Nil(t, r.timer, "timer")
	assert.Equal(t, [classes]line{}, r.lines, "lines")
}

func TestPauseLeft(t *testing.T) {
	for name, l := range map[string]interface {
		Limiter
		Pause(time.Duration)
		Resume()
		PauseLeft() time.Duration
	}{
		"adaptive": Must(NewAdaptiveLimiter()),
		"bucket":   Must(NewTokenBucket(1, 1)),
		"window":   Must(NewSlidingWindow(Window{1, time.Second})),
		"shared":   Must(NewSharedLimiter(NewMemoryStore())),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				assert.Zero(t, l.PauseLeft())
				l.Pause(time.Minute)
				time.Sleep(20 * time.Second)
				assert.Equal(t, 40*time.Second, l.PauseLeft())
				l.Resume()
				assert.Zero(t, l.PauseLeft())
				l.Pause(2 * clock.Year)
				time.Sleep(2 * clock.Year)
				assert.Zero(t, l.PauseLeft(), "though nobody looked for so long")
			})
		})
	}
}

// The rate of 1000 who wait is that of now, not that of when they came.
func TestRoomCutReachesAThousand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(1000, 1)
		ctx, cancel := context.WithCancel(context.Background())
		for i := range 1000 {
			q.joinWith(ctx, fmt.Sprintf("%04d", i), 1)
		}
		time.Sleep(10*ms + 500*time.Microsecond)
		require.Len(t, q.gone(), 11)
		require.NoError(t, q.SetLimit(1))
		time.Sleep(5 * time.Second)
		assert.Len(t, q.gone(), 16)
		cancel()
		q.wg.Wait()
		checkEmpty(t, &q.room)
	})
}

// Whoever is first in line has the only timer, so a crowd costs none.
func TestRoomOneTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(10, 1)
		ctx, cancel := context.WithCancel(context.Background())
		q.join("a", 1)
		assert.Nil(t, q.room.timer)
		q.joinWith(ctx, "b", 1)
		timer := q.room.timer
		assert.NotNil(t, timer)
		q.joinWith(ctx, "c", 1)
		assert.Same(t, timer, q.room.timer)
		cancel()
		q.wg.Wait()
		assert.Nil(t, q.room.timer)
	})
}

// askingContext is a context of somebody else's make, which looks at the limiter.
type askingContext struct {
	context.Context
	ask func()
}

func (c askingContext) Value(key any) any {
	c.ask()
	return c.Context.Value(key)
}

func (c askingContext) Deadline() (time.Time, bool) {
	c.ask()
	return c.Context.Deadline()
}

func TestRoomAsksContextsWithoutItsLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := Must(NewTokenBucket(1, 1))
		ctx := askingContext{t.Context(), func() { b.Waiting() }}
		for range 2 { // at once, and in line
			assert.NoError(t, b.WaitN(ctx, 1))
		}
	})
}
