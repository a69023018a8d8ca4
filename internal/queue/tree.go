package queue

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/a7df5faa/cruise/internal/clock"
)

// A call that enters a queue passes it and all its ancestors. It takes tokens from all of them at
// one moment, or from none. So a call that one queue holds up holds nothing of another.
//
// The next call of a queue, once only the ancestors hold it up, is represented by a placeholder
// among the waiters of the parent. A call that its own queue holds up has none there. As a queue
// has one placeholder, queues take turns in their parent, however many calls wait in each.
//
// Turns are fair by cost: this is deficit round robin (Shreedhar and Varghese, 1995). At each turn
// a queue is granted the largest cost that came to wait in the parent of late. It lets calls go
// until the next one costs more than the rest of the grant. So of two queues that always have a
// call waiting there, neither gets ahead of the other by more than three times that cost; where all
// calls cost the same, each turn is one call. A queue without a waiting call loses the rest of its
// grant.
//
// A tree has one lock, that of its root, so there is no order in which to take locks. Each queue
// has its own time, so queues tell each other readings of the clock.

// ListenAbove is how often the policy of a queue with Resumed is asked while an ancestor holds up
// the next call: another process may have paused.
const ListenAbove = 5 * time.Second

// branch is a queue's place under its parent.
type branch struct {
	parent      *Queue
	placeholder Waiter      // among the waiters of parent, queued or not
	granted     int64       // cost that the turn still grants
	inTurn      bool        // the turn goes on if the next call follows at once
	adopted     atomic.Bool // the place in the tree is settled for good
}

// adopting is held while a queue gets its place: it must be settled where the parent is before
// it is settled which lock a queue shares.
var adopting sync.Mutex

// Adopt makes q a child of a parent, or a root if that is nil, and reports whether it did: the
// place of a queue is settled only once. It takes the locks.
func (q *Queue) Adopt(parent *Queue) bool {
	adopting.Lock()
	defer adopting.Unlock()
	if q == parent || !q.adopted.CompareAndSwap(false, true) {
		return false
	}
	if parent == nil {
		return true
	}
	parent.adopted.Store(true) // its children share its lock for good
	parent.Lock()
	defer parent.Unlock()
	q.own.Lock() // no other code takes two locks
	defer q.own.Unlock()
	q.parent = parent
	q.placeholder.child = q
	for x := parent; x != nil; x = x.parent {
		x.calls += q.calls
	}
	q.of.Store(parent.root())
	return true
}

// Parent returns the parent of q, nil if it has none. It needs no lock: a parent stays once
// there is one.
func (q *Queue) Parent() *Queue {
	if q.of.Load() == nil {
		return nil
	}
	return q.parent
}

// Policy returns the policy of q. It needs no lock.
func (q *Queue) Policy() Policy { return q.policy }

// HeldUpAbove reports whether an ancestor holds up the next call. It wants the lock held.
func (q *Queue) HeldUpAbove() bool { return q.placeholder.queued }

// PathPausedUntil returns when the last pause of q and its ancestors ends, or has ended, in the
// time of q; zero if there was none. It wants the lock held.
func (q *Queue) PathPausedUntil() (until clock.Instant) {
	for x := q; x != nil; x = x.parent {
		if x.pausedUntil != 0 {
			until = max(until, x.Reading(x.pausedUntil)+q.Skew)
		}
	}
	return until
}

// passAll lets a call go through q and all its ancestors if no call waits there, and reports
// whether it did, and when.
func (q *Queue) passAll(now clock.Instant, n int) (sent clock.Instant, ok bool) {
	if !q.isFree(q.Reading(now), n) {
		return sent, false
	}
	for x := q; x != nil; x = x.parent {
		x.take(x.Last, n)
		sent = max(sent, x.Reading(x.Last))
	}
	return sent, true
}

// isFree reports whether a call need not wait in q and all its ancestors, at a reading of the
// clock.
func (q *Queue) isFree(reading clock.Instant, n int) bool {
	for x := q; x != nil; x = x.parent {
		if x.waiting > 0 || x.peek(x.Advance(reading), n) > 0 {
			return false
		}
	}
	return true
}

// updatePlaceholder puts a placeholder for the next call among the waiters of the parent, or
// takes it away if q itself holds the call up. It reports whether that changed anything in the
// parent.
func (q *Queue) updatePlaceholder(now clock.Instant) (changed bool) {
	for w := q.head(); w != nil; w = q.head() {
		if w.child != nil && !w.child.isOpen(q.Reading(now)) {
			continue
		}
		if wait := q.peek(now, w.Cost); wait > 0 {
			q.arm(now, wait)
			return q.representInParent(nil)
		}
		if w.child == nil && !q.placeholder.queued {
			// A change in an ancestor has not reached the call while q held it up.
			if why := q.refusal(now, w, 0); why != nil {
				q.dismiss(now, w)
				w.refuse(why)
				continue
			}
		}
		q.disarm()
		if q.resumed != nil {
			q.arm(now, ListenAbove)
		}
		return q.representInParent(w)
	}
	q.owedFrom = 0
	q.disarm()
	return q.representInParent(nil)
}

// classAbove returns the class of the placeholder for w: that of w, but First for background
// work that has its turn while other work waits behind it. Else the other work would yield in
// the parent too.
func (q *Queue) classAbove(w *Waiter) Class {
	if w.Class.background() && (q.waiters[Retry].head != nil || q.waiters[First].head != nil) {
		return First
	}
	return w.Class
}

// representInParent makes the placeholder stand for w, or for no call if w is nil. The placeholder
// keeps its place among the waiters whether w is cheap or expensive.
func (q *Queue) representInParent(w *Waiter) (changed bool) {
	p := &q.placeholder
	if p.queued {
		if w != nil && p.Class == q.classAbove(w) {
			changed = p.Cost != w.Cost
			q.parent.waiters[p.Class].cost += int64(w.Cost - p.Cost)
			p.Cost = w.Cost
			return changed
		}
		q.parent.leave(p)
		changed = true
	}
	if w == nil {
		q.granted = 0
		if changed {
			q.parent.abandoned(q.parent.Advance(q.Reading(q.Last)))
		}
		return changed
	}
	p.Cost, p.Class = w.Cost, q.classAbove(w)
	if q.inTurn && q.granted >= int64(p.Cost) {
		q.parent.enlist(p, (*waiters).pushFirst)
		return true
	}
	q.parent.enlist(p, (*waiters).push)
	largest := int64(q.parent.waiters[p.Class].largest)
	q.granted = min(q.granted+largest, 2*largest)
	return true
}

// isOpen reports whether q, whose placeholder goes next in the parent, does not hold its next
// call up. Otherwise the placeholder is taken away, so that another waiter is next there.
func (q *Queue) isOpen(reading clock.Instant) bool {
	q.updatePlaceholder(q.Advance(reading))
	return q.parent.head() == &q.placeholder
}

// passNext lets the next call go, whose placeholder the parent has just let go.
func (q *Queue) passNext(reading clock.Instant) {
	now := q.Advance(reading)
	w := q.head()
	q.placeholder.queued = true // as it was until now: the policy may keep a burst for it
	q.take(now, w.Cost)
	q.placeholder.queued = false
	q.granted -= int64(w.Cost)
	q.letGo(now, w)
	q.inTurn = true
	q.updatePlaceholder(now)
	q.inTurn = false
}
