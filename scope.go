package cruise

import (
	"context"
	"time"

	"github.com/a7df5faa/cruise/internal/clock"
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
	if r == nil || r.scopes == nil {
		return r // Do will say so
	}
	parent, _ := r.gate.(*scopeLimiter)
	return &Retrier{config: r.config, gate: &scopeLimiter{scopes: r.scopes, parent: parent, scope: scope, key: key}}
}

// scopeLimiter is the limiter of a scope's Retrier: it finds the limiter of its
// key anew for each call, as that may have been forgotten.
type scopeLimiter struct {
	scopes     *scopes
	parent     *scopeLimiter // nil if in the outermost scope
	scope, key string
}

var _ gate = (*scopeLimiter)(nil)

// admit waits until a call of cost n may go.
func (l *scopeLimiter) admit(ctx context.Context, n int) (came, sent clock.Instant, err error) {
	came = clock.Now()
	if n == 0 {
		return came, came, nil
	}
	e, err := l.scopes.use(l)
	if err != nil {
		return came, sent, err
	}
	var before []Limiter // asked before the tree; the innermost first
	passed := 0          // of them, the outermost first
	defer func() {
		if sent == 0 {
			defer l.scopes.unuse(e)
			giveBack(before[len(before)-passed:], n)
		}
	}()
	for x := e; x != nil; x = x.id.parent {
		if x.queue == nil {
			before = append(before, x.limiter)
		}
	}
	inner := e.nearest()
	if most, is := inner.TooExpensive(n); is {
		return came, sent, costError(n, most)
	}
	if inner != nil && len(before) > 0 {
		if refused := inner.Check(ticket(ctx, n)); refused != nil { // it would have waited for those in vain
			return came, sent, refusalError(refused, n)
		}
	}
	for i := range before {
		if err := waitFor(ctx, before[len(before)-1-i], n); err != nil {
			return came, 0, err
		}
		passed++
	}
	if inner == nil {
		return came, clock.Now(), nil
	}
	_, sent, err = enter(inner, ctx, n)
	return came, sent, err
}

// giveBack tells limiters that a call of cost n, which they let go, was never made, even
// should one of them panic.
func giveBack(limiters []Limiter, n int) {
	for _, lim := range limiters {
		defer gateOf(lim).learn(ending{outcome: OutcomeDropped, cost: n})
	}
}

// learn tells each limiter what concerns it.
func (l *scopeLimiter) learn(f ending) {
	s := l.scopes
	e, blamed := s.blame(l, f)
	defer s.unuse(e)
	e.learn(f, blamed)
}

// learn tells the limiters of e and of all around it, even should one of them panic.
func (e *scopeEntry) learn(f ending, blamed *scopeEntry) {
	if e == nil {
		return
	}
	defer e.id.parent.learn(f, blamed)
	if e != blamed {
		f = f.elsewhere()
	}
	gateOf(e.limiter).learn(f)
}

// elsewhere is what an attempt tells limiters that what the server said is not about.
func (e ending) elsewhere() ending {
	e.quota, e.retryAfter = nil, 0
	if e.outcome.stops() {
		e.outcome = OutcomeDropped
	}
	return e
}

// charge charges the limiters of this package, which are one tree.
func (l *scopeLimiter) charge(sent clock.Instant, n int) {
	e, err := l.scopes.use(l)
	if err != nil {
		return
	}
	defer l.scopes.unuse(e)
	if q := e.nearest(); q != nil {
		q.Charge(sent, n)
	}
}

// pausesFor reports whether a limiter pauses for a throttle that names a scope.
func (l *scopeLimiter) pausesFor(scope string) bool {
	e, err := l.scopes.use(l)
	if err != nil {
		return false
	}
	defer l.scopes.unuse(e)
	_, learns := e.blamed(scope).limiter.(Learner)
	return learns
}

// pauseLeft is how long the pauses last that a call would meet, of its own limiter and of
// those around.
func (l *scopeLimiter) pauseLeft() (left time.Duration) {
	e, err := l.scopes.use(l)
	if err != nil {
		return 0
	}
	defer l.scopes.unuse(e)
	for x := e; x != nil; x = x.id.parent {
		left = max(left, pauseOf(x.limiter))
	}
	return left
}

// own is the limiter of the key.
func (l *scopeLimiter) own() Limiter {
	e, err := l.scopes.use(l)
	if err != nil {
		return nil
	}
	defer l.scopes.unuse(e)
	return e.limiter
}

// budget is that of the key, nil if there is no limiter to be had for it.
func (l *scopeLimiter) budget() *Budget {
	e, err := l.scopes.use(l)
	if err != nil {
		return nil
	}
	defer l.scopes.unuse(e)
	b := e.budget.Load()
	if b == nil {
		e.budget.CompareAndSwap(nil, newDefaultBudget())
		b = e.budget.Load()
		l.scopes.spent.Store(true)
	}
	return b
}

// succeeded gives back to the budget of the key, if anything was taken.
func (l *scopeLimiter) succeeded() {
	s := l.scopes
	if !s.spent.Load() {
		return
	}
	s.mu.Lock()
	e, missing := s.find(l, clock.Now())
	s.mu.Unlock()
	if missing == nil {
		e.budget.Load().success()
	}
}
