package cruise

import (
	"context"
	"time"

	"github.com/a7df5faa/cruise/internal/clock"
	"github.com/a7df5faa/cruise/internal/limits"
)

// Scope returns a Retrier like r, whose calls obey a limiter of their own too:
// that of the key in the scope, such as a customer's number in "ACCOUNT", made
// when first used. Any text is a key. Scopes may be nested, in any depth:
//
//	developer.Scope("ACCOUNT", id).Scope("TABLE", table).Do(ctx, call)
//
// A call goes when its own limiter and all those around it let it; until then
// it holds nothing of any of them. What it teaches:
//
//   - a throttle that names a scope ([InScope]) pauses and cuts the limiter of
//     that scope only; a name that is not a scope of the call is that of the
//     outermost limiter;
//   - a throttle that names none, the innermost that is a [Learner]: where that of the key
//     is not, such as x/time's, the one around it pauses;
//   - a success, all of them; a [Quota], the same one as a throttle.
//
// Keys that wait for the same limiter around them take turns by cost: of two that always have a
// call waiting there, neither gets ahead of the other by more than three times the largest cost.
//
// So the limit of one customer never slows the others, and that of the
// developer slows all.
//
// Options and observer are those of r. A [LimiterOption] tunes the limiter of r and those
// of all keys: [WithMaxRate] of 5 is 5 calls a second for each key, and for all keys
// together. For 5 with each key and no common limit, give r [WithoutLimiter] too.
//
// Each key has a [Budget] of its own too, from which its retries are paid: where one
// host is down, those of others go on. To bound the retries of all keys together, give
// r a budget by [WithBudget]: then that pays for all.
//
// A scope's Retrier is cheap: make one for each call, or keep it. Limiters are
// kept as [WithMaxScopes] and [WithScopeIdle] say, never forgotten while a call
// waits, is in flight, or a pause is in force; of a limiter of another package, a pause
// that the server asked for. A budget is forgotten with its limiter, and whole when the
// key is used again.
//
// Limiters of other packages cannot be asked without taking, so a call waits for one
// after the other of them, the outermost first; the limiters
// of this package come last, all at one moment. A call that those would keep for too long
// is refused before it takes anything.
func (r *Retrier) Scope(scope, key string) *Retrier {
	if r == nil || r.path == nil {
		return r // Do will say so
	}
	return &Retrier{config: r.config, path: &path{scopes: r.path.scopes, parent: r.path, scope: scope, key: key}}
}

// A path is the limiters that a call passes: that of a Retrier first, then that of each scope
// within. The limiter of a scope is found by its key for each call, as it may have been
// forgotten.
type path struct {
	scopes     *scopes
	parent     *path // nil for the limiter of a Retrier alone
	scope, key string
}

// limits reports whether there is a limiter on the path.
func (p *path) limits() bool {
	return p != nil && (p.parent != nil || p.scopes.root.limiter != nil)
}

// use returns the last node of the path, made if need be, and keeps it from being forgotten until
// unuse.
func (p *path) use() (*node, error) {
	if p.parent == nil {
		return p.scopes.root, nil // which is never forgotten
	}
	return p.scopes.use(p)
}

func (p *path) unuse(n *node) {
	if p.parent != nil {
		p.scopes.unuse(n)
	}
}

// admit waits until a call of a cost may go, and returns when it came and when it went.
func (p *path) admit(ctx context.Context, cost int) (came, sent clock.Instant, err error) {
	switch {
	case cost <= 0:
		return limits.Free(ctx, cost)
	case p.parent == nil:
		return p.scopes.root.pass(ctx, cost)
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
	_, sent, err = n.pass(ctx, cost)
	return came, sent, err
}

// learn tells each limiter on the path what concerns it. refused is what the call has met before.
func (p *path) learn(e ending, refused *refusals) {
	n, blamed := p.scopes.root, (*node)(nil)
	if p.parent != nil {
		n, blamed = p.scopes.blame(p, e)
		defer p.scopes.unuse(n)
	}
	if n != nil {
		n.passes.see(&e, refused)
	}
	if root := p.scopes.root; root.queue != nil {
		// It may be that of another Retrier's scope. First, as a limiter within may panic.
		reportToParents(root.queue, e)
	}
	if p.parent == nil {
		n.tell(e)
		return
	}
	n.learn(e, blamed)
}

// charge makes a call that went at sent cost n more, or less if n is below 0. Limiters of other
// packages have no way to take without waiting.
func (p *path) charge(sent clock.Instant, n int) {
	last, err := p.use()
	if err != nil {
		return
	}
	defer p.unuse(last)
	if last.inner != nil {
		last.inner.Charge(sent, n)
	}
}

// pausesFor reports whether a limiter pauses for a throttle that names a scope.
func (p *path) pausesFor(scope string) bool {
	n, err := p.use()
	if err != nil {
		return false
	}
	defer p.unuse(n)
	_, learns := n.blamed(scope).limiter.(Learner)
	return learns
}

// pauseLeft returns how long the pauses last that a call would meet.
func (p *path) pauseLeft() (left time.Duration) {
	n, err := p.use()
	if err != nil {
		return 0
	}
	defer p.unuse(n)
	for ; n != nil; n = n.id.parent {
		left = max(left, pauseOf(n.limiter))
	}
	return left
}

// limiter returns the last limiter of the path, nil if there is none to be had.
func (p *path) limiter() Limiter {
	n, err := p.use()
	if err != nil {
		return nil
	}
	defer p.unuse(n)
	return n.limiter
}

// budget returns what the retries of a call are paid from, nil if nothing limits them.
func (p *path) budget() *Budget {
	n, err := p.use()
	if err != nil {
		return p.scopes.common
	}
	defer p.unuse(n)
	return p.scopes.budget(n)
}

// succeeded gives back to the budget what a success is worth.
func (p *path) succeeded() {
	s := p.scopes
	if p.parent == nil || !s.budgets {
		s.common.success()
		return
	}
	if !s.spent.Load() {
		return // there is nothing to give back
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
	return append(p.parent.scopePath(), scopeKeyOf(p.scope, shortKey(p.key)))
}
