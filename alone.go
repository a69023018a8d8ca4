package cruise

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/a7df5faa/cruise/internal/clock"
)

// ownThrottles tells a throttle of one call from a throttle of all. A server may refuse a call at
// any rate, by a limit for a record or a job. A limiter that took this for congestion would delay
// all other calls for nothing.
//
// After a congestion a throttled call gets through sooner or later. So ownThrottles looks at runs:
// throttles since the last time that a throttled call got through, of one call after another. If a
// run refuses two retries, the last one after another call got through in the run, its throttles
// concern their calls alone. They teach the limiter nothing from then on, and it takes back what the
// run taught it before.
type ownThrottles struct {
	running atomic.Bool // there is a run; else a success costs next to nothing

	mu           sync.Mutex
	throttled    int           // attempts that were throttled, of all runs
	last, before clock.Instant // of the last two throttles of the run
	since        clock.Instant // when the run began
	retried      bool          // the last throttle was that of a retry
	refused      int           // retries that the run refused
	passed       bool          // another call got through in the run, sent after the last throttle but one
	alone        bool          // the run concerns its calls alone
}

const (
	refusedRetries = 2           // that a run has before it concerns its calls alone: a congestion refuses one as well
	runGap         = time.Minute // between the throttles of two calls of a run, at most
)

// throttleStreak counts the consecutive throttles of one call.
type throttleStreak struct {
	n    int
	last int  // throttled at the last one
	own  bool // the last one concerned this call alone
}

// observe counts the result of an attempt, and decides whether a throttle concerns its call alone.
// If so, it turns the result into that of an attempt that never went. The first such result of a run
// says in ownSince when the run began.
func (p *ownThrottles) observe(f *Feedback, r *throttleStreak) {
	switch f.Outcome {
	case OutcomeThrottled:
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.throttle(f, r); r.own {
			f.Outcome, f.RetryAfter, f.Sent = OutcomeDropped, 0, time.Time{}
		}
		return
	case OutcomeSuccess, OutcomePermanent, OutcomeTransient:
		if p.running.Load() {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.running.Store(r.n == 0)
			p.passed = p.passed || clock.Of(f.Sent) > p.before
		}
	}
	r.n, r.own = 0, false
}

// throttle counts a throttle.
func (p *ownThrottles) throttle(f *Feedback, r *throttleStreak) {
	now, retry := clock.Now(), r.n > 0
	if !p.running.Load() || retry && r.last != p.throttled || !retry && (!p.retried || now.Sub(p.last) > runGap) { // others are refused as well, or much later
		p.since, p.last, p.refused, p.passed, p.alone = now, now, 0, false, false
		p.running.Store(true)
	}
	if retry {
		p.refused++
		if !p.alone && p.passed && p.refused >= refusedRetries {
			p.alone, f.ownSince = true, p.since
		}
	}
	p.before, p.last, p.retried = p.last, now, retry
	p.throttled++
	r.n, r.last, r.own = r.n+1, p.throttled, p.alone
}
