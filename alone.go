package cruise

import (
	"sync/atomic"

	"github.com/a7df5faa/cruise/internal/clock"
)

const (
	aloneAfter = 2 // throttles of a call that teach the limiter in any case: the first ones of a congestion look alike
	alonePart  = 4 // attempts of others that got through since, for each of others that was throttled, and for the call's own
)

// passes tells a throttle that concerns one call from one that concerns everybody. A call may
// be refused whatever the rate is: by a limit of its own, such as one for a record or a job. A
// limiter that took that for congestion would hold up all others for nothing. So a call that is
// throttled again and again, while most others get through in between, is on its own: its throttles
// teach the limiter nothing, and it waits by itself.
type passes struct {
	last      atomic.Int64 // clock.Instant of the last throttle
	throttled atomic.Int64 // attempts that were throttled
	passed    atomic.Int64 // attempts that got through, though they were sent after a throttle
}

// refusals are the throttles of one call in a row.
type refusals struct {
	n                 int
	throttled, passed int64 // of passes at the last one
	own               bool  // the last one concerned this call alone
}

// see notes how an attempt of a call ended, and decides whether a throttle concerns that call
// alone. If so, it makes of it an attempt that says nothing.
func (p *passes) see(e *ending, r *refusals) {
	r.own = false
	switch e.outcome {
	case OutcomeThrottled:
		throttled, passed := p.throttled.Add(1), p.passed.Load()
		r.own = r.n >= aloneAfter && throttled-r.throttled == 1 && passed > r.passed
		r.n, r.throttled, r.passed = r.n+1, throttled, passed
		p.last.Store(int64(clock.Now()))
		if r.own {
			e.outcome, e.retryAfter = OutcomeDropped, 0
		}
		return
	case OutcomeSuccess, OutcomePermanent, OutcomeTransient:
		if at := p.last.Load(); at != 0 && int64(e.sent) > at {
			p.passed.Add(1)
		}
	}
	r.n = 0
}
