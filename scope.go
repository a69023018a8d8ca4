package cruise

import (
	"context"
	"iter"
	"slices"
	"time"

	"github.com/a7df5faa/cruise/internal/clock"
	"github.com/a7df5faa/cruise/internal/keys"
	"github.com/a7df5faa/cruise/internal/limits"
)

// Scope returns a Retrier like r whose calls also pass the limiter of a key in a scope, such as a
// customer's number in "ACCOUNT". The limiter is made at its first use. Any text is a key. Scopes
// may be nested, in any depth:
//
//	developer.Scope("ACCOUNT", id).Scope("TABLE", table).Do(ctx, call)
//
// A call goes when its own limiter and all those around it admit it. Until then it holds no token
// of any of them. Its result reaches the limiters as follows:
//
//   - a throttle that names a scope ([InScope]) pauses and cuts the limiter of that scope only; an
//     unknown name means the outermost limiter;
//   - a throttle without a name, the innermost [Learner]: if the limiter of the key is none, such
//     as x/time's, the one around it pauses;
//   - a success, all of them; a [Quota], the same one as a throttle.
//
// Keys that wait for the same limiter around them take turns by cost: of two keys that always have
// a call waiting there, neither gets ahead of the other by more than three times the largest cost.
//
// Options and observer are those of r. A [LimiterOption] tunes the limiter of r and those of all
// keys: [WithMaxRate] of 5 means 5 calls a second for each key, and for all keys together. For 5
// with each key and no common limit, give r [WithoutLimiter] too.
//
// Each key has a [Budget] for its retries too: if one host is down, retries of others go on. To
// bound the retries of all keys together, give r a budget by [WithBudget].
//
// A scope's Retrier is cheap: make one for each call, or keep it. [WithMaxScopes] and
// [WithScopeIdle] say how long its limiter is kept. It is never forgotten while a call waits or is
// in flight, or during a pause. A budget is forgotten with its limiter, and full when the key is
// used again.
//
// Limiters of other packages cannot be asked without taking, so a call waits for one after the
// other of them, the outermost first, and then for the limiters of this package together.
func (r *Retrier) Scope(scope, key string) *Retrier {
	if r == nil || r.path == nil {
		return r // Do will say so
	}
	return &Retrier{config: r.config, path: &path{scopes: r.path.scopes, parent: r.path, scope: scope, key: key}}
}

// Scopes yields the state of the limiters of r: first the Retrier's own, unless it has none, then
// those of the kept scopes, the most recently used first, each before the scopes within it. On a
// scope's Retrier it yields the same as on the Retrier of that scope.
//
// The list of scopes is fixed when the loop begins, and no lock is held in its body. A limiter of
// another package shows Path, Limiter and BudgetLeft, and the results of its methods Stats()
// [Stats], Limit() [rate.Limit], Waiting() int and PauseLeft() [time.Duration], if it has them.
// Scopes does not keep a scope from being forgotten.
func (r *Retrier) Scopes() iter.Seq[Stats] {
	return func(yield func(Stats) bool) {
		if r == nil || r.path == nil {
			return
		}
		s := r.path.scopes
		left := r.budget.Left()
		all := s.kept()
		if s.root.limiter != nil {
			all = slices.Insert(all, 0, s.root)
		}
		for _, e := range all {
			stats := e.stats()
			stats.Path, stats.Limiter, stats.BudgetLeft = e.scopePath(), e.limiter, left
			if s.budgets && e != s.root {
				stats.BudgetLeft = defaultCapacity
				if b := e.budget.Load(); b != nil {
					stats.BudgetLeft = b.Left()
				}
			}
			if !yield(stats) {
				return
			}
		}
	}
}

// A path lists the limiters of a call: first the Retrier's own, then the limiter of each scope
// within. Each call finds the limiter of a scope by its key, since it may have been forgotten.
type path struct {
	scopes     *scopes
	parent     *path // nil for the limiter of a Retrier alone
	scope, key string
}

// limits reports whether there is a limiter on the path.
func (p *path) limits() bool {
	return p != nil && (p.parent != nil || p.scopes.root.limiter != nil)
}

// with calls f with the last node of the path, unless that cannot be made.
func (p *path) with(f func(*node)) {
	n := p.scopes.root // never forgotten
	if p.parent != nil {
		var err error
		if n, err = p.scopes.use(p); err != nil {
			return
		}
		defer p.scopes.unuse(n)
	}
	f(n)
}

// admit waits until a call of a cost may go, and returns the times at which it came and went.
func (p *path) admit(ctx context.Context, cost int) (came, sent clock.Instant, err error) {
	switch {
	case cost <= 0:
		return limits.Free(ctx, cost)
	case p.parent == nil:
		return p.scopes.root.admit(ctx, cost)
	}
	came = clock.Now()
	n, err := p.scopes.use(p)
	if err != nil {
		return came, 0, err
	}
	defer func() {
		if sent == 0 {
			p.scopes.unuse(n)
		}
	}()
	_, sent, err = n.admit(ctx, cost)
	return came, sent, err
}

// report tells each limiter on the path the part of a result that concerns it. refused
// holds the call's throttles so far.
func (p *path) report(f Feedback, refused *throttleStreak) {
	n, blamed := p.scopes.root, (*node)(nil)
	if p.parent != nil {
		n, blamed = p.scopes.blame(p, f)
		defer p.scopes.unuse(n)
	}
	if n != nil {
		n.passes.observe(&f, refused)
	}
	if root := p.scopes.root; root.queue != nil {
		// It may belong to another Retrier's scope. First, as a limiter within may panic.
		reportToParents(root.queue, f)
	}
	if p.parent == nil {
		n.report(f)
		return
	}
	n.reportAll(f, blamed)
}

// charge adds n to the cost of a call that went at sent; n may be negative. Limiters of other
// packages have no way to take without waiting.
func (p *path) charge(sent clock.Instant, n int) {
	p.with(func(last *node) {
		if last.inner != nil {
			last.inner.Charge(sent, n)
		}
	})
}

// pausesFor reports whether a limiter pauses for a throttle that names a scope.
func (p *path) pausesFor(scope string) (learns bool) {
	p.with(func(n *node) { _, learns = n.blamed(scope).limiter.(Learner) })
	return learns
}

// pauseLeft returns the longest pause on the path.
func (p *path) pauseLeft() (left time.Duration) {
	p.with(func(n *node) {
		for ; n != nil; n = n.id.parent {
			left = max(left, pauseOf(n.limiter))
		}
	})
	return left
}

// limiter returns the last limiter of the path, nil if there is none or it cannot be made.
func (p *path) limiter() (l Limiter) {
	p.with(func(n *node) { l = n.limiter })
	return l
}

// budget returns the budget that pays for the retries of a call, nil if nothing limits them.
func (p *path) budget() *Budget {
	b := p.scopes.common
	p.with(func(n *node) { b = p.scopes.budget(n) })
	return b
}

// succeeded gives the worth of a success back to the budget.
func (p *path) succeeded() {
	s := p.scopes
	if p.parent == nil || !s.budgets {
		s.common.success()
		return
	}
	if !s.anyBudget.Load() {
		return // no token is missing
	}
	s.mu.Lock()
	n, missing := s.find(p, clock.Now())
	s.mu.Unlock()
	if missing == nil {
		n.budget.Load().success()
	}
}

// scopePath returns the scopes of the path, the outermost first.
func (p *path) scopePath() []ScopeKey {
	if p == nil || p.parent == nil {
		return nil
	}
	return append(p.parent.scopePath(), ScopeKey{p.scope, keys.Text(keys.Short(p.key))})
}
