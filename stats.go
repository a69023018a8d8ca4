package cruise

import (
	"context"
	"fmt"
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
	Path       []ScopeKey    // the outermost scope first; empty for the Retrier's own limiter
	Limiter    Limiter       // the same one from all Retriers that share it
	Limit      rate.Limit    // calls per second; rate.Inf while no rate is known, 0 without a rate to tell
	Waiting    int           // waiting calls; the head of a queue counts at the limiter that delays it, here or further out
	PauseLeft  time.Duration // time left of the current pause, 0 if there is none
	Learns     bool          // the rate follows the server's answers
	BudgetLeft float64       // retries left in the budget that pays for them; +Inf if nothing limits them

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

// scopePathKey is the key under which a context has its scopes.
type scopePathKey struct{}

// ScopeOf returns the scopes of ctx, the outermost first, as in [Stats]. Within a call, and for its
// events, they are the scopes of the call's Retrier. For an event of a limiter, they are the scopes
// that it limits, unless [WithScopeLimiter] made it. ScopeOf returns nil if there are none.
func ScopeOf(ctx context.Context) []ScopeKey {
	if ctx == nil {
		return nil
	}
	switch p := ctx.Value(scopePathKey{}).(type) {
	case interface{ scopePath() []ScopeKey }: // a path
		return p.scopePath()
	case []ScopeKey:
		return slices.Clone(p)
	}
	return nil
}
