package queue

import (
	"errors"
	"fmt"
	"time"

	"github.com/a7df5faa/cruise/internal/clock"
)

// Invariants returns the broken invariants of q while nothing happens, nil if there is none.
// The costs of its waiters must add up, and the waiter that goes next must have a timer, or a
// placeholder in the parent if only an ancestor holds it up. Invariants is for tests. It takes the
// lock.
func (q *Queue) Invariants() error {
	q.Lock()
	defer q.Unlock()
	now := q.Now()
	return errors.Join(append(q.faultsOfWaiters(now), q.faultOfNext(now))...)
}

func (q *Queue) faultsOfWaiters(now clock.Instant) (faults []error) {
	waiting := 0
	for c := range q.waiters {
		cost := int64(0)
		for w := q.waiters[c].head; w != nil; w = w.next {
			waiting++
			cost += int64(w.Cost)
			if w.Deadline != 0 && w.Deadline < q.Reading(now) {
				faults = append(faults, errors.New("a call waits past its deadline"))
			}
			if w.child != nil && (w.child.parent != q || &w.child.placeholder != w) {
				faults = append(faults, errors.New("the placeholder is not that of a child"))
			}
		}
		if cost != q.waiters[c].cost {
			faults = append(faults, fmt.Errorf("waiters of class %d cost %d, counted as %d", c, cost, q.waiters[c].cost))
		}
	}
	if waiting != q.waiting {
		faults = append(faults, fmt.Errorf("%d wait, counted as %d", waiting, q.waiting))
	}
	return faults
}

func (q *Queue) faultOfNext(now clock.Instant) error {
	p, w := &q.placeholder, q.head()
	if w == nil {
		if q.timer != nil || p.queued {
			return errors.New("a timer or a placeholder for nobody")
		}
		return nil
	}
	wait := q.peek(now, w.Cost)
	switch {
	case wait > 0 && p.queued:
		return fmt.Errorf("a placeholder although the call is held up for %v", wait)
	case wait <= 0 && q.parent == nil:
		return errors.New("the next call may go")
	case wait <= 0 && !p.queued && (w.child == nil || w.child.placeholder.queued):
		return errors.New("no placeholder for the next call")
	case wait > 0 && wait != clock.Never && (q.timer == nil || q.firesAt.Sub(now) > wait+time.Microsecond):
		return fmt.Errorf("no timer in %v", wait)
	case p.queued && q.timer != nil:
		return errors.New("a timer beside the placeholder")
	case p.queued && (p.Cost != w.Cost || p.Class != q.classAbove(w)):
		return errors.New("the placeholder is not that of the next call")
	}
	return nil
}
