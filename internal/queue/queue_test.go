package queue

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/a7df5faa/cruise/internal/clock"
)

func TestQueue(t *testing.T) {
	const second = time.Second
	for _, tt := range []struct {
		name   string
		limit  rate.Limit
		burst  int
		script func(t *testing.T, q *lineup)
		want   []turn
	}{
		// Order.
		{"a burst goes at once, the rest in order", 10, 2, func(t *testing.T, q *lineup) {
			for _, who := range []string{"a", "b", "c", "d"} {
				q.join(who, 1)
			}
		}, []turn{{"a", 0, nil}, {"b", 0, nil}, {"c", 100 * ms, nil}, {"d", 200 * ms, nil}}},
		{"retries go before first attempts, in order too", 10, 1, func(t *testing.T, q *lineup) {
			q.join("a", 1)
			q.join("b", 1)
			q.join("c", 1)
			q.retry("retry 1", 1)
			q.retry("retry 2", 1)
		}, []turn{{"a", 0, nil}, {"retry 1", 100 * ms, nil}, {"retry 2", 200 * ms, nil}, {"b", 300 * ms, nil}, {"c", 400 * ms, nil}}},
		{"a retry goes at once if no call waits", 10, 1, func(t *testing.T, q *lineup) {
			q.retry("retry", 1)
		}, []turn{{"retry", 0, nil}}},
		{"a first attempt under a Retrier is no retry", 10, 1, func(t *testing.T, q *lineup) {
			q.join("a", 1)
			q.join("b", 1)
			q.joinWith(attemptContext(context.Background(), 1, clock.Never), "first", 1)
		}, []turn{{"a", 0, nil}, {"b", 100 * ms, nil}, {"first", 200 * ms, nil}}},
		{"small costs do not starve a large one", 10, 5, func(t *testing.T, q *lineup) {
			q.join("drain", 5)
			q.join("large", 5)
			q.join("small", 1)
		}, []turn{{"drain", 0, nil}, {"large", 500 * ms, nil}, {"small", 600 * ms, nil}}},
		{"a retry of higher cost takes over the line's timer", 10, 5, func(t *testing.T, q *lineup) {
			q.join("drain", 5)
			q.join("small", 1)
			q.retry("retry", 4)
		}, []turn{{"drain", 0, nil}, {"retry", 400 * ms, nil}, {"small", 500 * ms, nil}}},

		// Changes of the rate.
		{"a cut reaches the waiters", 10, 1, func(t *testing.T, q *lineup) {
			q.join("a", 1)
			q.join("b", 1)
			q.join("c", 1)
			time.Sleep(50 * ms)
			require.NoError(t, q.SetLimit(1))
		}, []turn{{"a", 0, nil}, {"b", 550 * ms, nil}, {"c", 1550 * ms, nil}}},
		{"a raise wakes a sleeper", 1. / 3600, 1, func(t *testing.T, q *lineup) {
			q.join("a", 1)
			q.join("b", 1)
			time.Sleep(second)
			require.NoError(t, q.SetLimit(rate.Inf))
		}, []turn{{"a", 0, nil}, {"b", second, nil}}},

		// Pauses.
		{"a pause stops the waiters", 10, 1, func(t *testing.T, q *lineup) {
			q.join("a", 1)
			q.join("b", 1)
			q.join("c", 1)
			time.Sleep(50 * ms)
			q.pauseFor(second)
		}, []turn{{"a", 0, nil}, {"b", 1050 * ms, nil}, {"c", 1150 * ms, nil}}},
		{"a pause stops new calls", 10, 1, func(t *testing.T, q *lineup) {
			q.pauseFor(second)
			time.Sleep(500 * ms)
			q.join("a", 1)
		}, []turn{{"a", second, nil}}},
		{"a pause saves no burst: resuming is no herd", 10, 5, func(t *testing.T, q *lineup) {
			q.pauseFor(10 * second)
			for _, who := range []string{"a", "b", "c"} {
				q.join(who, 1)
			}
		}, []turn{{"a", 10 * second, nil}, {"b", 10100 * ms, nil}, {"c", 10200 * ms, nil}}},
		{"after a pause the bucket fills again", 10, 2, func(t *testing.T, q *lineup) {
			q.pauseFor(second)
			time.Sleep(2 * second)
			q.join("a", 1)
			q.join("b", 1)
		}, []turn{{"a", 2 * second, nil}, {"b", 2 * second, nil}}},
		{"a pause is extended", 10, 1, func(t *testing.T, q *lineup) {
			q.pauseFor(second)
			q.join("a", 1)
			time.Sleep(500 * ms)
			q.pauseFor(second)
		}, []turn{{"a", 1500 * ms, nil}}},
		{"a pause is never shortened", 10, 1, func(t *testing.T, q *lineup) {
			q.pauseFor(second)
			q.join("a", 1)
			time.Sleep(500 * ms)
			q.pauseFor(100 * ms)
			q.pauseFor(0)
			q.pauseFor(-time.Hour)
		}, []turn{{"a", second, nil}}},
		{"a pause is lifted, into the pace", 10, 1, func(t *testing.T, q *lineup) {
			q.pauseFor(time.Hour)
			q.join("a", 1)
			q.join("b", 1)
			time.Sleep(second)
			q.resume()
		}, []turn{{"a", second, nil}, {"b", 1100 * ms, nil}}},
		{"lifting a pause just before its end delays no call", 1, 1, func(t *testing.T, q *lineup) {
			q.pauseFor(10 * second)
			q.join("a", 1)
			time.Sleep(9900 * ms)
			q.resume()
		}, []turn{{"a", 9900 * ms, nil}}},
		{"a lifted pause leaves the tokens as if there had been none", 1, 2, func(t *testing.T, q *lineup) {
			q.join("a", 2)
			time.Sleep(500 * ms)
			q.pauseFor(time.Hour)
			q.join("b", 1)
			time.Sleep(100 * ms)
			require.NoError(t, q.SetLimit(.5))
			q.resume()
		}, []turn{{"a", 0, nil}, {"b", 1400 * ms, nil}}},
		{"a lifted pause saves no burst", 1, 3, func(t *testing.T, q *lineup) {
			q.pauseFor(time.Hour)
			q.join("a", 1)
			q.join("b", 2)
			time.Sleep(10 * second)
			q.resume()
		}, []turn{{"a", 10 * second, nil}, {"b", 12 * second, nil}}},
		{"a lifted pause is over for new calls", 10, 1, func(t *testing.T, q *lineup) {
			q.pauseFor(time.Hour)
			q.resume()
			time.Sleep(100 * ms)
			q.join("a", 1)
		}, []turn{{"a", 100 * ms, nil}}},
		{"Resume without a pause does nothing", 10, 1, func(t *testing.T, q *lineup) {
			q.resume()
			q.join("a", 1)
			q.join("b", 1)
			time.Sleep(50 * ms)
			q.resume()
		}, []turn{{"a", 0, nil}, {"b", 100 * ms, nil}}},
		{"a raise during a pause ends no pause", 1, 1, func(t *testing.T, q *lineup) {
			q.pauseFor(10 * second)
			q.join("a", 1)
			q.join("b", 1)
			time.Sleep(second)
			require.NoError(t, q.SetLimit(10))
		}, []turn{{"a", 10 * second, nil}, {"b", 10100 * ms, nil}}},
		{"a raise during a pause saves no burst", 1, 5, func(t *testing.T, q *lineup) {
			q.pauseFor(10 * second)
			q.join("a", 1)
			q.join("b", 1)
			time.Sleep(second)
			require.NoError(t, q.SetLimit(10))
		}, []turn{{"a", 10 * second, nil}, {"b", 10100 * ms, nil}}},
		{"a cut during a pause applies after it", 10, 1, func(t *testing.T, q *lineup) {
			q.pauseFor(10 * second)
			q.join("a", 1)
			q.join("b", 1)
			time.Sleep(second)
			require.NoError(t, q.SetLimit(1))
		}, []turn{{"a", 10 * second, nil}, {"b", 11 * second, nil}}},
		{"a pause of a slow bucket keeps the one token that it has", 0.1, 3, func(t *testing.T, q *lineup) {
			q.pauseFor(second)
			q.join("a", 1)
			q.join("b", 1)
		}, []turn{{"a", second, nil}, {"b", 11 * second, nil}}},
		{"a pause of a slow bucket does not delay the token on its way", 0.1, 1, func(t *testing.T, q *lineup) {
			q.join("a", 1)
			time.Sleep(4 * second)
			q.pauseFor(second)
			q.join("b", 1)
		}, []turn{{"a", 0, nil}, {"b", 10 * second, nil}}},
		{"a pause holds without a rate too", rate.Inf, 1, func(t *testing.T, q *lineup) {
			q.pauseFor(second)
			q.join("a", 1)
			q.join("b", 1)
		}, []turn{{"a", second, nil}, {"b", second, nil}}},
		{"a pause holds to its last nanosecond", rate.Inf, 1, func(t *testing.T, q *lineup) {
			q.pauseFor(second)
			time.Sleep(second - 1)
			q.join("a", 1)
		}, []turn{{"a", second, nil}}},
		{"a rate that comes during a pause paces its end", rate.Inf, 1, func(t *testing.T, q *lineup) {
			q.pauseFor(second)
			q.join("a", 1)
			q.join("b", 1)
			require.NoError(t, q.SetLimit(10))
		}, []turn{{"a", second, nil}, {"b", 1100 * ms, nil}}},

		// Waiters that leave.
		{"a waiter that leaves delays no other", 10, 1, func(t *testing.T, q *lineup) {
			ctx, cancel := context.WithCancel(context.Background())
			q.join("a", 1)
			q.joinWith(ctx, "b", 1)
			q.join("c", 1)
			q.joinWith(ctx, "d", 1)
			q.join("e", 1)
			time.Sleep(50 * ms)
			cancel()
		}, []turn{{"a", 0, nil}, {"b", 50 * ms, context.Canceled}, {"d", 50 * ms, context.Canceled}, {"c", 100 * ms, nil}, {"e", 200 * ms, nil}}},
		{"a cheaper call need not wait as long as the waiter that left", 10, 5, func(t *testing.T, q *lineup) {
			ctx, cancel := context.WithCancel(context.Background())
			q.join("drain", 5)
			q.joinWith(ctx, "large", 5)
			q.join("small", 1)
			time.Sleep(200 * ms)
			cancel()
		}, []turn{{"drain", 0, nil}, {"large", 200 * ms, context.Canceled}, {"small", 200 * ms, nil}}},
		{"a waiter that leaves during a pause does not end it", 10, 1, func(t *testing.T, q *lineup) {
			ctx, cancel := context.WithCancel(context.Background())
			q.pauseFor(second)
			q.joinWith(ctx, "a", 1)
			q.join("b", 1)
			time.Sleep(500 * ms)
			cancel()
		}, []turn{{"a", 500 * ms, context.Canceled}, {"b", second, nil}}},

		// Deadlines.
		{"a deadline that the line cannot meet is refused at once", 10, 1, func(t *testing.T, q *lineup) {
			q.join("a", 1)
			q.join("b", 1)
			q.joinWith(within(t, 199*ms), "c", 1)
			q.joinWith(within(t, 201*ms), "d", 1)
		}, []turn{{"a", 0, nil}, {"c", 0, errDeadline}, {"b", 100 * ms, nil}, {"d", 200 * ms, nil}}},
		{"a retry need only make it past other retries", 10, 1, func(t *testing.T, q *lineup) {
			q.join("a", 1)
			q.join("b", 1)
			q.joinWith(attemptContext(within(t, 101*ms), 2, clock.Never), "retry", 1)
		}, []turn{{"a", 0, nil}, {"retry", 100 * ms, nil}, {"b", 200 * ms, nil}}},
		{"a deadline within a pause is refused at once", 10, 1, func(t *testing.T, q *lineup) {
			q.pauseFor(second)
			q.joinWith(within(t, 999*ms), "a", 1)
			q.joinWith(within(t, 1001*ms), "b", 1)
		}, []turn{{"a", 0, errDeadline}, {"b", second, nil}}},
		{"a cut refuses waiters that would miss their deadlines, and frees their places", 10, 1, func(t *testing.T, q *lineup) {
			q.join("a", 1)
			q.joinWith(within(t, second), "b", 1)
			q.join("c", 1)
			time.Sleep(50 * ms)
			require.NoError(t, q.SetLimit(0.1))
		}, []turn{{"a", 0, nil}, {"b", 50 * ms, errDeadline}, {"c", 5050 * ms, nil}}},
		{"a pause refuses waiters that would miss their deadlines, and frees their places", 10, 1, func(t *testing.T, q *lineup) {
			q.join("a", 1)
			q.joinWith(within(t, second), "b", 1)
			q.joinWith(within(t, 3*second), "c", 1)
			time.Sleep(50 * ms)
			q.pauseFor(2 * second)
		}, []turn{{"a", 0, nil}, {"b", 50 * ms, errDeadline}, {"c", 2050 * ms, nil}}},
		{"a pause as long as a call allows holds it", 10, 1, func(t *testing.T, q *lineup) {
			q.pauseFor(second)
			q.joinWith(attemptContext(context.Background(), 1, second), "a", 1)
		}, []turn{{"a", second, nil}}},
		{"a pause longer than a call allows refuses it", 10, 1, func(t *testing.T, q *lineup) {
			ctx := attemptContext(context.Background(), 1, second)
			q.join("a", 1)
			q.joinWith(ctx, "b", 1)
			time.Sleep(50 * ms)
			q.pauseFor(time.Minute)
			q.joinWith(ctx, "c", 1)
			q.join("d", 1)
		}, []turn{{"a", 0, nil}, {"b", 50 * ms, errPause}, {"c", 50 * ms, errPause}, {"d", 60050 * ms, nil}}},

		// Waits are rounded up: a wait of 0 would spin, and never end here.
		{"10/13 a second", 10. / 13, 1, func(t *testing.T, q *lineup) {
			q.join("a", 1)
			q.join("b", 1)
			q.join("c", 1)
		}, []turn{{"a", 0, nil}, {"b", 1300 * ms, nil}, {"c", 2600 * ms, nil}}},
		{"a third of a second", 3, 1, func(t *testing.T, q *lineup) {
			q.join("a", 1)
			q.join("b", 1)
		}, []turn{{"a", 0, nil}, {"b", 333333334, nil}}},
		{"a billion a second", 1e9, 1, func(t *testing.T, q *lineup) {
			q.join("a", 1)
			q.join("b", 1)
			q.join("c", 1)
		}, []turn{{"a", 0, nil}, {"b", 1, nil}, {"c", 2, nil}}},
		{"a pause may be longer than a step of the clock", rate.Inf, 1, func(t *testing.T, q *lineup) {
			q.pauseFor(20 * clock.Year)
			q.join("a", 1)
		}, []turn{{"a", 20 * clock.Year, nil}}},
		{"once in 317 years is a wait without end", 1e-10, 1, func(t *testing.T, q *lineup) {
			q.join("a", 1)
			q.join("b", 1)
			q.joinWith(within(t, 10*365*24*time.Hour), "c", 1)
			time.Sleep(time.Hour)
			require.NoError(t, q.SetLimit(rate.Inf))
		}, []turn{{"a", 0, nil}, {"c", 0, errDeadline}, {"b", time.Hour, nil}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newLineup(tt.limit, tt.burst)
				tt.script(t, q)
				q.wg.Wait()
				checkTurns(t, tt.want, q.gone())
				checkEmpty(t, &q.Queue)
			})
		})
	}
}

// A crowd of 1000 waiters goes at the present rate, not at the rate at which they came.
func TestQueueCutReachesAThousand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newLineup(1000, 1)
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
		checkEmpty(t, &q.Queue)
	})
}

// The first waiter has the only timer, so a crowd costs no more timers.
func TestQueueOneTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newLineup(10, 1)
		ctx, cancel := context.WithCancel(context.Background())
		q.join("a", 1)
		assert.Nil(t, q.timer)
		q.joinWith(ctx, "b", 1)
		timer := q.timer
		assert.NotNil(t, timer)
		q.joinWith(ctx, "c", 1)
		assert.Same(t, timer, q.timer)
		cancel()
		q.wg.Wait()
		assert.Nil(t, q.timer)
	})
}
