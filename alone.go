package cruise

import (
	"sync/atomic"
	"time"

	"github.com/a7df5faa/cruise/internal/clock"
)

// ownAfter is the number of throttles of a call that teach the limiter, before it asks whether
// they concern the call alone. The first ones of a congestion look alike.
const ownAfter = 2

// evidence is the number of a call's throttles times that of the others' attempts that get through
// since the first of them, before the limiter takes back what that throttle and the next taught it.
// In a congestion others get through as well, one after each pause. If chance decided which attempt
// is throttled, one call of a hundred would fare so.
const evidence = 12

// ownThrottles tells a throttle of one call from a throttle of all. A server may refuse a call at
// any rate, by a limit for a record or a job. A limiter that took this for congestion would delay
// all other calls for nothing. So if a call is throttled again and again, while most others get
// through in between, its throttles teach the limiter nothing, and it waits alone.
type ownThrottles struct {
	last, before atomic.Int64 // clock.Instants of the last two throttles
	throttled    atomic.Int64 // attempts that were throttled
	gotThrough   atomic.Int64 // attempts that got through and were sent after the last throttle but one
}

// throttleStreak counts the consecutive throttles of one call.
type throttleStreak struct {
	n                     int
	since                 clock.Instant // when the first of them was known
	others, passed        int64         // throttled and gotThrough of all calls before the first
	throttled, gotThrough int64         // the same at the last one
	own                   bool          // the last one concerned this call alone
}

// observe counts the result of an attempt, and decides whether a throttle concerns its call alone.
// If so, it turns the result into that of an attempt that never went. If all throttles since the
// call's first one were its own, and enough others got through since then, it says so in ownSince.
func (p *ownThrottles) observe(f *Feedback, r *throttleStreak) {
	switch f.Outcome {
	case OutcomeThrottled:
		now := clock.Now()
		throttled, passed := p.throttled.Add(1), p.gotThrough.Load()
		if r.n == 0 {
			r.since, r.others, r.passed = now, throttled-1, passed
		}
		// Others got through since the last one, and none of them was throttled.
		r.own = r.n >= ownAfter && throttled-r.throttled == 1 && passed > r.gotThrough
		if r.own {
			f.Outcome, f.RetryAfter, f.Sent = OutcomeDropped, 0, time.Time{}
			if throttled-r.others == int64(r.n+1) && int64(r.n+1)*(passed-r.passed) >= evidence {
				f.ownSince = r.since
			}
		}
		r.n, r.throttled, r.gotThrough = r.n+1, throttled, passed
		p.before.Store(p.last.Swap(int64(now)))
		return
	case OutcomeSuccess, OutcomePermanent, OutcomeTransient:
		if p.last.Load() != 0 && int64(clock.Of(f.Sent)) > p.before.Load() {
			p.gotThrough.Add(1)
		}
	}
	r.n, r.own = 0, false
}
