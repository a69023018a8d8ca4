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
// throttled again and again, while others get through in between, is on its own: its throttles
// teach the limiter nothing, and it waits by itself.
type passes struct {
	throttled atomic.Int64 // clock.Instant of the last throttle
	passed    atomic.Int64 // when the first attempt after it was sent that got through
}

// refusals are the throttles of one call in a row.
type refusals struct {
	n    int
	last clock.Instant
	own  bool // the last one concerned this call alone
}

// see notes how an attempt of a call ended, and decides whether a throttle concerns that call
// alone. If so, it makes of it an attempt that says nothing.
func (p *passes) see(e *ending, r *refusals) {
	r.own = false
	switch e.outcome {
	case OutcomeThrottled:
		now := clock.Now()
		r.own = r.n >= aloneAfter && clock.Instant(p.passed.Load()) > r.last
		r.n, r.last = r.n+1, now
		p.throttled.Store(int64(now))
		if r.own {
			e.outcome, e.retryAfter = OutcomeDropped, 0
		}
		return
	case OutcomeSuccess, OutcomePermanent, OutcomeTransient:
		if at := p.throttled.Load(); at != 0 && p.passed.Load() <= at && int64(e.sent) > at {
			p.passed.Store(int64(e.sent))
		}
	}
	r.n = 0
}
