package queue

import (
	"time"

	"github.com/a7df5faa/cruise/internal/clock"
)

// A Class orders waiters. Each class goes before the classes after it, except that background
// work gets every [BackgroundTurn]-th turn.
type Class uint8

// The classes, in the order in which they go.
const (
	Retry Class = iota
	First
	BackgroundRetry
	Background
	classes
)

// BackgroundTurn is the number of turns of which background work gets one while other work
// waits too.
const BackgroundTurn = 8

func (c Class) background() bool { return c >= BackgroundRetry }

// A Waiter is a call that waits, or the placeholder of a child queue among the waiters of its
// parent.
type Waiter struct {
	Ticket
	prev, next *Waiter       // among the waiters of its class
	queued     bool          // false once let go or refused
	timer      *time.Timer   // for Until; nil without one
	sent       clock.Instant // when it was let go
	refused    *Refusal      // why it was refused, nil if it was not
	done       chan struct{} // closed when the call is let go or refused
	child      *Queue        // whose next call the placeholder stands for; nil for a call
}

// NewWaiter returns a waiter that no queue has yet.
func NewWaiter(t Ticket) *Waiter { return &Waiter{Ticket: t, done: make(chan struct{})} }

// refuse ends the wait of w, which has left the queue.
func (w *Waiter) refuse(why *Refusal) {
	w.refused = why
	close(w.done)
}

// waiters is a doubly linked list, so that any waiter leaves in constant time.
type waiters struct {
	head, tail *Waiter
	cost       int64 // of all; an int of 32 bits may be too small
	largest    int   // cost of late: see tree.go
}

// pushFirst puts w before all others.
func (l *waiters) pushFirst(w *Waiter) {
	if w.next = l.head; w.next == nil {
		l.push(w)
		return
	}
	w.next.prev, l.head = w, w
	l.cost += int64(w.Cost)
}

func (l *waiters) push(w *Waiter) {
	if w.prev = l.tail; w.prev != nil {
		w.prev.next = w
	} else {
		l.head = w
	}
	l.tail = w
	l.cost += int64(w.Cost)
	l.largest = max(w.Cost, l.largest-l.largest/64) // one that was large is forgotten
}

func (l *waiters) remove(w *Waiter) {
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
	if l.cost -= int64(w.Cost); l.head == nil {
		l.largest = 0
	}
}
