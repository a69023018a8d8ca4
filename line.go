package cruise

import (
	"time"

	"github.com/a7df5faa/cruise/internal/clock"
)

// A class of waiters goes before the classes after it, but for the turns that
// background work gets.
type class uint8

const (
	retryClass class = iota
	firstClass
	backgroundRetryClass
	backgroundClass
	classes
)

// backgroundTurn is how often background work that waits gets a turn although
// other work waits too: every so many.
const backgroundTurn = 8

func (c class) background() bool { return c >= backgroundRetryClass }

// A waiter is a call that stands in line, or the seat of a whole room in the line
// of the one above.
type waiter struct {
	prev, next *waiter // in its line
	class      class
	n          int
	deadline   clock.Instant // zero if none
	maxPause   time.Duration // refuses longer pauses
	observer   Observer      // of the Retrier, nil if none
	queued     bool          // false once let go or refused
	sent       clock.Instant // when let go
	err        error         // when refused
	done       chan struct{} // closed when no longer queued
	below      *room         // whose head this stands for; nil for a call
}

// line is a doubly linked list of waiters, so that anyone can leave in O(1).
type line struct {
	head, tail *waiter
	cost       int64 // of many, more than an int holds where that has 32 bits
}

func (l *line) push(w *waiter) {
	if w.prev = l.tail; w.prev != nil {
		w.prev.next = w
	} else {
		l.head = w
	}
	l.tail = w
	l.cost += int64(w.n)
}

func (l *line) remove(w *waiter) {
	if w.prev != nil {
		w.prev.next = w.next
	} else {
		l.head = w.next
	}
	if w.next != nil {
		w.next.prev = w.prev
	} else {
		l.tail = w.prev
	}
	w.prev, w.next = nil, nil
	l.cost -= int64(w.n)
}
