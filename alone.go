package cruise

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/a7df5faa/cruise/internal/clock"
)

// refusedRetries is the number of retries that a run refuses before its throttles concern their calls
// alone. A congestion refuses one as well.
const refusedRetries = 2

// ownThrottles tells a throttle of one call from a throttle of all. A server may refuse a call at
// any rate, by a limit for a record or a job. A limiter that took this for congestion would delay
// all other calls for nothing.
//
// After a congestion a throttled call gets through sooner or later. So ownThrottles looks at runs:
// throttles since the last time that a throttled call got through, of one call after another. In a run
// that refuses retries while other calls get through, throttles concern their calls alone. They teach
// the limiter nothing, and it takes back what the run taught it before.
type ownThrottles struct {
	running atomic.Bool // there is a run; else a success costs next to nothing

	mu           sync.Mutex
	throttled    int           // attempts that were throttled, of all runs
	last, before clock.Instant // of the last two throttles
	since        clock.Instant // when the run began
	retried      bool          // the last throttle was that of a retry
	refused      int           // retries that the run refused
	passed       bool          // another call got through in the run, sent after the last throttle but one, or the first
	taught       bool          // the run taught the limiter something that it has not taken back
}

// throttleStreak counts the consecutive throttles of one call.
type throttleStreak struct {
	n    int
	last int  // throttled at the last one
	own  bool // the last one concerned this call alone
}

// observe counts the result of an attempt, and decides whether a throttle concerns its call alone.
// If so, it turns the result into that of an attempt that never went. If the run taught the limiter
// before that was known, the result says in ownSince when the run began.
func (p *ownThrottles) observe(f *Feedback, r *throttleStreak) {
	switch f.Outcome {
	case OutcomeThrottled:
		p.mu.Lock()
		defer p.mu.Unlock()
		p.throttle(r)
		if r.own {
			f.Outcome, f.RetryAfter, f.Sent = OutcomeDropped, 0, time.Time{}
		}
		p.taught = p.taught || !r.own
		p.undo(f)
		return
	case OutcomeSuccess, OutcomePermanent, OutcomeTransient:
		if p.running.Load() {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.running.Store(r.n == 0)
			p.passed = p.passed || clock.Of(f.Sent) > p.before
			p.undo(f)
		}
	}
	r.n, r.own = 0, false
}

// throttle counts a throttle.
func (p *ownThrottles) throttle(r *throttleStreak) {
	now, retry := clock.Now(), r.n > 0
	continues := p.retried
	if retry {
		continues = r.last == p.throttled
	}
	if !continues || !p.running.Load() { // others are refused as well
		p.since, p.last, p.refused, p.passed, p.taught = now, now, 0, false, false
		p.running.Store(true)
	}
	if retry {
		p.refused++
	}
	p.before, p.last, p.retried = p.last, now, retry
	p.throttled++
	r.n, r.last, r.own = r.n+1, p.throttled, p.own()
}

// own reports whether the throttles of the run concern their calls alone.
func (p *ownThrottles) own() bool { return p.refused >= refusedRetries && p.passed }

// undo says in f since when the limiter was taught in vain.
func (p *ownThrottles) undo(f *Feedback) {
	if p.taught && p.own() && p.running.Load() {
		p.taught, f.ownSince = false, p.since
	}
}
