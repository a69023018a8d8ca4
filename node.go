package cruise

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/a7df5faa/cruise/internal/clock"
	"github.com/a7df5faa/cruise/internal/keys"
	"github.com/a7df5faa/cruise/internal/limits"
	"github.com/a7df5faa/cruise/internal/queue"
)

// A node is a limiter on the path of a call: the limiter of a Retrier, or of a key in a scope.
type node struct {
	id      nodeID
	limiter Limiter      // nil for a Retrier without one
	queue   *queue.Queue // of limiter, if it is of this module, else nil
	// Of the path to this node, itself included:
	inner   *queue.Queue // last queue of a limiter of this package; nil if there is none
	foreign bool         // there is a limiter of another package

	budget atomic.Pointer[Budget] // nil until there is a retry
	passes ownThrottles

	// The lock of the scopes guards the fields below.
	uses        int // calls waiting or in flight, and nodes below
	used        clock.Instant
	pausedUntil clock.Instant // end of the longest wait that the server asked for
	next, prev  *node
}

type nodeID struct {
	parent     *node // nil for the limiter of a Retrier
	scope, key string
}

func newNode(id nodeID, l Limiter) *node {
	n := &node{id: id, limiter: l, queue: limits.QueueOf(l)}
	if id.parent != nil {
		n.foreign, n.inner = id.parent.foreign, id.parent.inner
	}
	switch {
	case n.queue != nil:
		n.inner = n.queue
	case l != nil:
		n.foreign = true
	}
	return n
}

// admit waits until a call of a cost above 0 may go, and returns the times at which it came and
// went. It takes nothing if the call does not go.
func (n *node) admit(ctx context.Context, cost int) (came, sent clock.Instant, err error) {
	if n.foreign {
		return n.admitForeign(ctx, cost)
	}
	return admit(n.inner, ctx, cost)
}

// admitForeign is admit for a path with limiters of other packages: see [Retrier.Scope]. If the
// call would wait for the queues in vain, it is refused before it takes anything.
func (n *node) admitForeign(ctx context.Context, cost int) (came, sent clock.Instant, err error) {
	came = clock.Now()
	ticket := limits.Ticket(ctx, cost)
	if n.inner != nil {
		if refused := n.inner.Check(ticket); refused != nil {
			return came, 0, refusalError(refused, cost)
		}
	}
	foreign := make([]*node, 0, 4) // the innermost first
	for x := n; x != nil; x = x.id.parent {
		if x.limiter != nil && x.queue == nil {
			foreign = append(foreign, x)
		}
	}
	asked := len(foreign) // all from here on have admitted the call
	defer func() {
		if sent == 0 {
			for _, x := range foreign[asked:] {
				defer x.report(Feedback{Outcome: OutcomeDropped, Cost: cost}) // even if another one panics
			}
		}
	}()
	for _, x := range slices.Backward(foreign) {
		if err := waitFor(ctx, x.limiter, cost, ticket.Until); err != nil {
			return came, 0, err
		}
		asked--
	}
	if n.inner == nil {
		return came, clock.Now(), nil
	}
	_, sent, err = admit(n.inner, ctx, cost)
	return came, sent, err
}

// reportAll tells the limiters of n and of all nodes above, even if one of them panics.
func (n *node) reportAll(f Feedback, blamed *node) {
	if n == nil {
		return
	}
	defer n.id.parent.reportAll(f, blamed)
	if n != blamed {
		f = f.unblamed()
	}
	n.report(f)
}

// report tells the limiter the result of an attempt.
func (n *node) report(f Feedback) {
	if n.queue != nil {
		limits.Apply(n.queue, f)
	} else if l, ok := n.limiter.(Learner); ok {
		f.run, f.own = 0, false // of no use to another package, whose tests may compare it
		l.Learn(f)
	}
}

// blamed returns the node on the path to n whose scope a server blames. If its limiter cannot
// learn, it is the next node above whose limiter can.
func (n *node) blamed(scope string) *node {
	for scope != "" && n.id.scope != scope && n.id.parent != nil && n.id.parent.limiter != nil {
		n = n.id.parent
	}
	for x := n; x != nil; x = x.id.parent {
		if _, learns := x.limiter.(Learner); learns {
			return x
		}
	}
	return n
}

// paused reports whether the limiter stops all calls. A limiter of another package counts as paused
// for as long as the server asked, since no code of other packages runs under the lock.
func (n *node) paused(now clock.Instant) bool {
	if n.queue != nil {
		_, pause := n.queue.Report()
		return pause > 0
	}
	return now < n.pausedUntil
}

// counts reports whether past calls still count against the limiter's limit.
func (n *node) counts() bool {
	if x, ok := n.limiter.(*rate.Limiter); ok {
		return x.Limit() != rate.Inf && x.Tokens() < float64(x.Burst())
	}
	return n.queue != nil && n.queue.Counts()
}

func pauseOf(l Limiter) time.Duration {
	if l, ok := l.(interface{ PauseLeft() time.Duration }); ok {
		return l.PauseLeft()
	}
	return 0
}

// stats returns the limiter's own account of its state.
func (n *node) stats() (s Stats) {
	switch l := n.limiter.(type) {
	case interface{ Stats() Stats }:
		s = l.Stats()
		s.Learns = true
	case interface{ Limit() rate.Limit }:
		s.Limit = l.Limit()
	}
	s.Limit = min(s.Limit, rate.Inf) // a limiter of another package may have a float's infinity
	if n.queue != nil {
		s.Waiting, s.PauseLeft = n.queue.Report()
		return s
	}
	if l, ok := n.limiter.(interface{ Waiting() int }); ok {
		s.Waiting = l.Waiting()
	}
	s.PauseLeft = max(s.PauseLeft, pauseOf(n.limiter))
	return s
}

// scopePath returns the scopes of a node, the outermost first.
func (n *node) scopePath() (path []ScopeKey) {
	for ; n.id.parent != nil; n = n.id.parent {
		path = append(path, ScopeKey{n.id.scope, keys.Text(n.id.key)})
	}
	slices.Reverse(path)
	return path
}
