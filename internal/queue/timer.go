package queue

import (
	"time"

	"github.com/a7df5faa/cruise/internal/clock"
)

// arm sets the timer for the waiter that goes next.
func (q *Queue) arm(now clock.Instant, wait time.Duration) {
	if wait != clock.Never {
		wait = min(wait, clock.Year) // Advance would take a step of many years for another clock
	}
	q.owedFrom, q.firesAt = 0, now.Add(wait)
	switch {
	case q.timer == nil && wait == clock.Never:
	case q.timer == nil:
		q.timer = time.AfterFunc(wait, q.tick)
	case wait == clock.Never:
		q.timer.Stop()
	default:
		q.timer.Reset(wait)
	}
}

func (q *Queue) disarm() {
	if q.timer != nil {
		q.timer.Stop()
		q.timer = nil
	}
}

// tick runs when the timer goes off.
func (q *Queue) tick() {
	q.Lock()
	defer q.Unlock()
	now := q.Now()
	if q.catchUp > 0 && now > q.firesAt {
		q.owedFrom = max(q.firesAt, now-clock.Instant(q.catchUp))
	}
	q.Reschedule(now)
}

// isLate reports whether there is a late timer to make up for. A call that an ancestor held up
// for longer than CatchUp was not held up by a timer.
func (q *Queue) isLate(now clock.Instant) bool {
	return q.owedFrom != 0 && now.Sub(q.owedFrom) <= q.catchUp
}

// makeUp asks the policy as if the timer had not been late: at the time at which it should have
// gone off, then whenever the policy says that a turn is due, up to now.
func (q *Queue) makeUp(now clock.Instant, n int) time.Duration {
	for {
		wait := q.policy.Peek(q.owedFrom, n)
		if late := now.Sub(q.owedFrom); wait == 0 || wait > late {
			return max(0, wait-late)
		}
		q.owedFrom = q.owedFrom.Add(wait)
	}
}
