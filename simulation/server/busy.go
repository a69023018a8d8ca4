package server

import (
	"math"
	"time"
)

// concurrency counts the requests that are being worked on. All take equally
// long, so that they end in the order in which they began.
type concurrency struct {
	slots int
	work  time.Duration
	ends  []time.Duration
}

func (c *concurrency) expire(now time.Duration) {
	i := 0
	for i < len(c.ends) && c.ends[i] <= now {
		i++
	}
	c.ends = c.ends[:copy(c.ends, c.ends[i:])]
}

func (c *concurrency) take(now time.Duration) bool {
	c.expire(now)
	if len(c.ends) >= c.slots {
		return false
	}
	c.ends = append(c.ends, now+c.work)
	return true
}

func (c *concurrency) wait(now time.Duration) time.Duration {
	c.expire(now)
	if len(c.ends) < c.slots {
		return 0
	}
	return c.ends[0] - now
}

func (c *concurrency) quota(now time.Duration) (limit, left float64, reset time.Duration) {
	c.expire(now)
	if len(c.ends) > 0 {
		reset = c.ends[len(c.ends)-1] - now
	}
	return float64(c.slots), float64(c.slots - len(c.ends)), reset
}

// queue serves all requests in order of arrival, also requests whose callers have stopped waiting:
// so it does not recover.
type queue struct {
	rate  Schedule
	stall []Span
	done  time.Duration // when the last request in line is answered
}

func (q *queue) take(now time.Duration) bool {
	at := max(q.done, now)
	for _, s := range q.stall {
		if s.Has(at) {
			at = s.To
		}
	}
	q.done = at + q.rate.After(at, 1)
	return true
}

func (q *queue) wait(time.Duration) time.Duration { return 0 }

func (q *queue) quota(now time.Duration) (limit, left float64, reset time.Duration) {
	return math.MaxInt32, math.MaxInt32, max(0, q.done-now)
}
