package cruiseotel

import (
	"strings"
	"sync"
	"time"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/internal/observing"
)

// outcomeNames are the values of cruise.outcome, by [cruise.Outcome].
var outcomeNames = [...]string{"unknown", "success", "throttled", "quota_exhausted", "transient", "permanent", "dropped", "other"}

// causeName returns the value of cruise.cause.
func causeName(c cruise.Cause) string {
	switch c {
	case cruise.CauseThrottle, cruise.CauseQuota, cruise.CauseLatency, cruise.CauseSet:
		return string(c)
	}
	return other
}

// reasonNames are the values of cruise.reason of calls given up.
var reasonNames = [...]string{
	"attempts_exhausted", "budget_exhausted", "max_elapsed", "max_wait", "server_delay",
	"quota_exhausted", "permanent", "deadline", "cost",
	"context_deadline", "canceled", "other",
}

// Each reason has a name, and so have others.
var _ [len(observing.Reasons) + 1]string = reasonNames

func nameOf(names []string, i int) string { return names[min(i, len(names)-1)] }

// everything is the name of a Retrier's own limiter, which is around the limiters of its scopes.
const everything = "all"

// pathName returns the value of cruise.scope for a limiter.
func (o *Observer) pathName(path []cruise.ScopeKey) string {
	if len(path) == 0 {
		return everything
	}
	parts := make([]string, 0, len(path))
	for _, p := range path {
		part := p.Scope
		if o.keys != nil {
			part += ":" + o.keys(p.Scope, p.Key)
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, "/")
}

// other is the name of all limiters without a place.
const other = "other"

// hold is how long a name keeps its place without trouble, if another one needs it.
const hold = 10 * time.Minute

// names keeps the values of an attribute few. The first names get a place, and lose it only to a
// name in trouble, after a long time without trouble of their own. So values change seldom, however
// many names there are. Names in counters never lose a place, since each leaves its series behind.
// The name everything always keeps its place.
type names struct {
	most int
	stay bool // no name loses a place

	mu    sync.Mutex           // guards the field below
	place map[string]time.Time // when there was trouble last, or it came
}

// of returns the name, or other. Servers and customers choose names, so bytes that are no valid
// text are replaced: exporters would drop all data because of one such name.
func (n *names) of(name string, trouble bool, now time.Time) string {
	name = strings.ToValidUTF8(name, "\uFFFD")
	n.mu.Lock()
	defer n.mu.Unlock()
	last, ok := n.place[name]
	switch {
	case ok && !trouble:
		return name
	case ok:
	case len(n.place) < n.most:
	case !trouble || n.stay || !n.makeRoom(now):
		return other
	}
	if n.place == nil {
		n.place = make(map[string]time.Time)
	}
	if now.After(last) {
		n.place[name] = now
	}
	return name
}

func (n *names) makeRoom(now time.Time) bool {
	oldest := ""
	for name, last := range n.place {
		if name == everything {
			continue
		}
		if before := last.Compare(n.place[oldest]); now.Sub(last) >= hold && (oldest == "" || before < 0 || before == 0 && name < oldest) {
			oldest = name
		}
	}
	if oldest != "" {
		delete(n.place, oldest)
	}
	return oldest != ""
}
