package cruise

import (
	"sync/atomic"

	"github.com/a7df5faa/cruise/internal/clock"
)

// aloneAfter is how many throttles of a call teach the limiter, before it asks whether they
// concern the call alone. The first ones of a congestion look alike.
const aloneAfter = 2

// passes tells a throttle that concerns one call from one that concerns everybody. A call may
// be refused whatever the rate is: by a limit of its own, such as one for a record or a job. A
// limiter that took that for congestion would hold up all others for nothing. So a call that is
// throttled again and again, while most others get through in between, is on its own: its throttles
// teach the limiter nothing, and it waits by itself.
type passes struct {
	last, before atomic.Int64 // clock.Instants of the last two throttles
	throttled    atomic.Int64 // attempts that were throttled
	passed       atomic.Int64 // attempts that got through, though they were sent after the one before the last
}

// refusals are the throttles of one call in a row.
type refusals struct {
	n                 int
	since             clock.Instant // when the first of them was known
	others            int64         // throttles of passes before the first
	throttled, passed int64         // of passes at the last one
	own               bool          // the last one concerned this call alone
}

// see notes how an attempt of a call ended, and decides whether a throttle concerns that call
// alone. If so, it makes of it an attempt that says nothing, and tells whether all throttles since
// the call's first one were its own.
func (p *passes) see(e *ending, r *refusals) {
	switch e.outcome {
	case OutcomeThrottled:
		now := clock.Now()
		throttled, passed := p.throttled.Add(1), p.passed.Load()
		if r.n == 0 {
			r.since, r.others = now, throttled-1
		}
		// Others got through since the last one, and none of them was throttled.
		r.own = r.n >= aloneAfter && throttled-r.throttled == 1 && passed > r.passed
		if r.own {
			e.outcome, e.retryAfter = OutcomeDropped, 0
			if throttled-r.others == int64(r.n+1) {
				e.ownSince = r.since
			}
		}
		r.n, r.throttled, r.passed = r.n+1, throttled, passed
		p.before.Store(p.last.Swap(int64(now)))
		return
	case OutcomeSuccess, OutcomePermanent, OutcomeTransient:
		if p.last.Load() != 0 && int64(e.sent) > p.before.Load() {
			p.passed.Add(1)
		}
	}
	r.n, r.own = 0, false
}
