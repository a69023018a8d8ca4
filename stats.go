package cruise

import (
	"context"
	"encoding/hex"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/a7df5faa/cruise/internal/check"
)

// A ScopeKey is a key in a scope, as given to [Retrier.Scope]. A key of more than 64 bytes appears
// as a digest, which differs between processes.
type ScopeKey struct{ Scope, Key string }

// Stats describes a limiter at one moment, and counts its calls. A field that does not apply is
// zero. Path, Limiter, Learns and BudgetLeft come from [Retrier.Scopes] alone.
type Stats struct {
	Path      []ScopeKey    // the outermost scope first; empty for the Retrier's own limiter
	Limiter   Limiter       // the same one from all Retriers that share it
	Limit     rate.Limit    // calls per second; rate.Inf while no rate is known, 0 without a rate to tell
	Waiting   int           // waiting calls; the head of a queue counts at the limiter that delays it, here or further out
	PauseLeft time.Duration // time left of the current pause, 0 if there is none
	Learns    bool          // the rate follows the server's answers
	// BudgetLeft is the number of retries left in the budget that pays for them; +Inf if nothing
	// limits them.
	BudgetLeft float64

	// The fields below are those of a limiter that learns.

	Admitted  uint64 // attempts admitted
	Successes uint64 // attempts that succeeded
	Throttles uint64 // attempts that were throttled
	Quota     *Quota // as last reported, nil if never

	// The fields below are those of a shared.Limiter.

	Workers  int    // workers that synced in the last 5 to 10 s, as last known; 0 before the first sync
	Degraded bool   // the store cannot be reached
	Err      error  // why it is Degraded
	Syncs    uint64 // round trips to the store, failed ones too
	Failures uint64 // failed round trips
}

// String returns the stats on one line. [rate.Inf] is unlimited there, and 0 no rate, unless the
// limiter is Degraded and lets no call go.
func (s Stats) String() string {
	var text strings.Builder
	for _, k := range s.Path {
		fmt.Fprintf(&text, "%s %s: ", k.Scope, k.Key)
	}
	limit := check.RateText(s.Limit)
	if s.Limit == 0 && !s.Degraded {
		limit = "no rate"
	}
	fmt.Fprintf(&text, "%s, %d waiting", limit, s.Waiting)
	if s.PauseLeft > 0 {
		fmt.Fprintf(&text, ", paused for %v", fourDigits(s.PauseLeft))
	}
	if s.Degraded {
		text.WriteString(", degraded")
	}
	return text.String()
}

// Scopes yields the state of the limiters of r: first the Retrier's own, unless it has none, then
// those of the kept scopes, the most recently used first, each before the scopes within it. On a
// scope's Retrier it yields the same as on the Retrier of that scope.
//
// The list of scopes is fixed when the loop begins. Each limiter is asked in its turn, and no lock
// is held in the loop's body. A limiter of another package shows Path, Limiter and BudgetLeft, and
// the results of its methods Stats() [Stats], Limit() [rate.Limit], Waiting() int and PauseLeft()
// [time.Duration], if it has them. Scopes does not keep a scope from being forgotten.
func (r *Retrier) Scopes() iter.Seq[Stats] {
	return func(yield func(Stats) bool) {
		if r == nil || r.path == nil {
			return
		}
		s := r.path.scopes
		left := math.Inf(1)
		if r.budget != nil {
			left = r.budget.Left()
		}
		all := s.kept()
		if s.root.limiter != nil {
			all = slices.Insert(all, 0, s.root)
		}
		for _, e := range all {
			stats := e.stats()
			stats.Path, stats.Limiter, stats.BudgetLeft = e.scopePath(), e.limiter, left
			if s.budgets && e != s.root {
				stats.BudgetLeft = e.retries()
			}
			if !yield(stats) {
				return
			}
		}
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

// retries returns the retries left in the budget of the key.
func (e *node) retries() float64 {
	if b := e.budget.Load(); b != nil {
		return b.Left()
	}
	return DefaultBudgetCapacity
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
	for e := n; e.id.parent != nil; e = e.id.parent {
		path = append(path, scopeKeyOf(e.id.scope, e.id.key))
	}
	slices.Reverse(path)
	return path
}

// scopeKeyOf shows a key as it is kept: a digest is no text.
func scopeKeyOf(scope, kept string) ScopeKey {
	if len(kept) > longKey {
		kept = hex.EncodeToString([]byte(kept[:digestLen]))
	}
	return ScopeKey{scope, kept}
}

// ScopeOf returns the scopes of ctx, the outermost first, as in [Stats]. Within a call, and for its
// events, they are the scopes of the call's Retrier. For an event of a limiter, they are the scopes
// that it limits, unless [WithScopeLimiter] made it. ScopeOf returns nil if there are none.
func ScopeOf(ctx context.Context) []ScopeKey {
	if ctx == nil {
		return nil
	}
	if p, ok := ctx.Value(scopePathKey{}).(interface{ scopePath() []ScopeKey }); ok {
		return p.scopePath()
	}
	return nil
}

type scopePathKey struct{}

// eventContext is the context of a call's events: it knows the scope, and no work under it counts
// as part of the call.
type eventContext record

func (c *eventContext) Value(key any) any {
	if key == (scopePathKey{}) {
		return c.retrier.path
	}
	return c.Context.Value(key)
}

// scopeObserver passes events of a scope's limiter to an observer.
type scopeObserver struct {
	Observer
	path []ScopeKey
	context.Context
}

func newScopeObserver(o Observer, p *path) *scopeObserver {
	return &scopeObserver{Observer: o, path: p.scopePath(), Context: context.Background()}
}

// Observe replaces the limiter's context, which is empty.
func (o *scopeObserver) Observe(_ context.Context, e Event) { o.Observer.Observe(o, e) }

func (o *scopeObserver) Value(key any) any {
	if key == (scopePathKey{}) {
		return o
	}
	return nil
}

func (o *scopeObserver) scopePath() []ScopeKey { return slices.Clone(o.path) }
