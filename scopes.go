package cruise

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/a7df5faa/cruise/internal/clock"
	"github.com/a7df5faa/cruise/internal/keys"
	"github.com/a7df5faa/cruise/internal/nils"
)

// scopes keeps the limiters of all scopes below one limiter. Its lock may be held while the lock of a
// queue is taken, never the other way round. No code of other packages runs under it.
type scopes struct {
	make    func(*path) (Limiter, error)
	max     int
	idle    time.Duration
	common  *Budget // of calls outside a scope, nil if nothing limits their retries
	budgets bool    // each key has a budget; else all share the common one
	root    *node   // above all nodes; it is never forgotten

	mu     sync.Mutex // guards the fields below and the nodes
	nodes  map[nodeID]*node
	recent node // ring of nodes, the most recently used next

	anyBudget atomic.Bool // there is a key with a budget; else success costs nothing
}

func newScopes(c *config) *scopes {
	s := &scopes{max: c.maxScopes, idle: c.scopeIdle, common: c.budget, budgets: !c.budgetSet, root: newNode(nodeID{}, c.limiter)}
	custom, observer, opts := c.scopeLimiter, c.observer, slices.Clip(c.limiterOpts)
	s.make = func(p *path) (Limiter, error) {
		switch {
		case custom != nil:
			return custom(p.scope, p.key)
		case observer != nil:
			return NewAdaptiveLimiter(append(opts, WithObserver(scopeObserver{observer, context.WithValue(context.Background(), scopePathKey{}, p.scopePath())}))...)
		}
		return NewAdaptiveLimiter(opts...)
	}
	s.recent.next, s.recent.prev = &s.recent, &s.recent
	return s
}

var (
	errNilScopeLimiter  = errors.New("cruise: WithScopeLimiter's function returned a nil Limiter")
	errUsedScopeLimiter = errors.New("cruise: WithScopeLimiter's function returned a limiter that has a scope already")
)

// use returns the node of p, made if need be, and keeps it until unuse.
func (s *scopes) use(p *path) (*node, error) {
	for {
		e, missing := s.enter(p)
		if missing == nil {
			return e, nil
		}
		limiter, err := s.make(missing)
		if err != nil {
			return nil, err
		}
		if nils.Is(limiter) {
			return nil, errNilScopeLimiter
		}
		if err := s.insert(e, missing, limiter); err != nil {
			return nil, err
		}
	}
}

// enter is find that counts a use of the node.
func (s *scopes) enter(p *path) (e *node, missing *path) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := clock.Now()
	if e, missing = s.find(p, now); missing != nil {
		return e, missing
	}
	e.uses++
	few := 0
	for x := p; x.parent != nil; x = x.parent {
		few += 4
	}
	s.forget(now, few)
	return e, nil
}

func (s *scopes) unuse(e *node) {
	s.mu.Lock()
	e.uses--
	s.mu.Unlock()
}

// find is lookUp that makes the node of p the most recently used, with the nodes above it.
func (s *scopes) find(p *path, now clock.Instant) (e *node, missing *path) {
	if e, missing = s.lookUp(p); missing != nil {
		return e, missing
	}
	for x := e; x != s.root; x = x.id.parent {
		x.used = now
		s.touch(x) // after the nodes within it
	}
	return e, nil
}

// lookUp returns the node of p. If p or a path that it begins with has no node yet, lookUp returns
// the shortest such path, and the node above.
func (s *scopes) lookUp(p *path) (e *node, missing *path) {
	if p.parent == nil {
		return s.root, nil
	}
	parent, missing := s.lookUp(p.parent)
	if missing != nil {
		return parent, missing
	}
	key := p.key
	if len(key) > keys.Longest {
		key = keys.Short(key)
	}
	if e = s.nodes[nodeID{parent, p.scope, key}]; e == nil {
		return parent, p
	}
	return e, nil
}

// insert makes a node, unless there is one by now, or the parent has gone.
func (s *scopes) insert(parent *node, p *path, limiter Limiter) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := clock.Now()
	if parent != s.root && s.nodes[parent.id] != parent {
		return nil
	}
	id := nodeID{parent, strings.Clone(p.scope), keys.Short(p.key)}
	if s.nodes[id] != nil {
		return nil
	}
	e := newNode(id, limiter)
	e.used = now
	if e.queue != nil && !e.queue.Adopt(parent.inner) {
		return errUsedScopeLimiter
	}
	if s.nodes == nil {
		s.nodes = make(map[nodeID]*node)
	}
	s.nodes[id] = e
	parent.uses++
	e.next, e.prev = e, e
	s.touch(e)
	return nil
}

// blame returns the node of p, which is in use, and the node whose scope a server blames.
func (s *scopes) blame(p *path, f Feedback) (e, blamed *node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := clock.Now()
	e, _ = s.find(p, now)
	blamed = e.blamed(f.Scope)
	if f.Outcome.refused() {
		blamed.pausedUntil = max(blamed.pausedUntil, now.Add(f.RetryAfter))
	}
	return e, blamed
}

// budget returns the budget of calls by way of n, nil if nothing limits their retries.
func (s *scopes) budget(n *node) *Budget {
	if n == s.root || !s.budgets {
		return s.common
	}
	b := n.budget.Load()
	if b == nil {
		n.budget.CompareAndSwap(nil, newDefaultBudget())
		b = n.budget.Load()
		s.anyBudget.Store(true)
	}
	return b
}

// touch makes e the most recently used.
func (s *scopes) touch(e *node) {
	e.prev.next, e.next.prev = e.next, e.prev
	e.prev, e.next = &s.recent, s.recent.next
	e.prev.next, e.next.prev = e, e
}

// forget drops nodes that are too old or too many, a few at a time, but more than a call can add. A
// node comes here before the nodes above it, which are in use as long as it is kept.
func (s *scopes) forget(now clock.Instant, few int) {
	for range few {
		e := s.recent.prev
		if len(s.nodes) <= s.max && now.Sub(e.used) <= s.idle {
			return
		}
		tooMany := len(s.nodes) > s.max
		if e.uses > 0 || e.paused(now) || !tooMany && e.counts() {
			s.touch(e) // asked again in its turn
			continue
		}
		delete(s.nodes, e.id)
		e.prev.next, e.next.prev = e.next, e.prev
		e.id.parent.uses--
	}
}

// kept returns all nodes but the root, the most recently used first.
func (s *scopes) kept() []*node {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*node, 0, len(s.nodes)+1) // the caller may add the root
	for e := s.recent.next; e != &s.recent; e = e.next {
		all = append(all, e)
	}
	return all
}

// scopeObserver passes events of a scope's limiter to an observer, with a context that knows the
// scopes, in place of the limiter's empty one.
type scopeObserver struct {
	Observer
	scopes context.Context
}

func (o scopeObserver) Observe(_ context.Context, e Event) { o.Observer.Observe(o.scopes, e) }
