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
// throttles since the last time that a throttled call got through. If a run refuses more retries than
// it has calls, and another call got through before the last of them, its throttles concern their
// calls alone. They teach the limiter nothing from then on, and it takes back what the run taught it
// before. That ends when first attempts are throttled one after another: the server refuses everyone.
type ownThrottles struct {
	running atomic.Bool // there is a run; else a success costs next to nothing

	mu      sync.Mutex
	since   clock.Instant // when the run began, which identifies it
	last    clock.Instant // when it last had a throttle
	passed  clock.Instant // when the last call was sent that got through at once
	calls   int           // that were throttled in the run, and were not given up
	refused int           // retries that the run refused: a congestion refuses some as well
	firsts  int           // first attempts that were throttled since a call got through
	alone   bool          // the run concerns its calls alone
}

const (
	runGap     = time.Minute // between the throttles of two calls of a run, at most
	mostFirsts = 8           // first attempts that are throttled in a row while a run concerns its calls alone
)

// throttleStreak counts the consecutive throttles of one call.
type throttleStreak struct {
	n            int
	run          clock.Instant // of the last one
	last, before clock.Instant // when the last two came
	own          bool          // the last one concerned this call alone
}

// observe counts the result of an attempt, and decides whether a throttle concerns its call alone.
// If so, it turns the result into that of an attempt that never went.
func (p *ownThrottles) observe(f *Feedback, r *throttleStreak) {
	if f.Outcome == OutcomeThrottled {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.throttle(f, r); r.own {
			f.Outcome, f.RetryAfter, f.Sent = OutcomeDropped, 0, time.Time{}
		}
		return
	}
	if p.running.Load() {
		p.mu.Lock()
		defer p.mu.Unlock()
		switch f.Outcome {
		case OutcomeSuccess, OutcomePermanent, OutcomeTransient:
			if r.n > 0 {
				p.running.Store(false)
			}
			p.passed, p.firsts = max(p.passed, clock.Of(f.Sent)), 0
		default: // given up
			if r.n > 0 && r.run == p.since {
				p.calls--
			}
		}
	}
	*r = throttleStreak{}
}

// throttle counts a throttle.
func (p *ownThrottles) throttle(f *Feedback, r *throttleStreak) {
	now := clock.Now()
	if r.n == 0 {
		p.firsts++
	}
	if !p.running.Load() || r.n == 0 && (now.Sub(p.last) > runGap || p.alone && p.firsts > mostFirsts) {
		p.since, p.calls, p.refused, p.alone = now, 0, 0, false
		p.running.Store(true)
	}
	if r.n == 0 || r.run != p.since {
		p.calls++
	} else if p.refused++; !p.alone && p.passed > max(p.since, r.before) && p.refused > p.calls {
		p.alone, f.own = true, true
	}
	p.last, f.run = now, p.since
	*r = throttleStreak{r.n + 1, p.since, now, r.last, p.alone}
}
