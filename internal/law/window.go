package law

import (
	"math"
	"time"

	"github.com/a7df5faa/cruise/internal/clock"
)

// quotaWindow is the law's knowledge of a quota that becomes whole at one moment.
type quotaWindow struct {
	resetAt   clock.Instant // its end
	resetLeft int           // Remaining when that was first told
	certain   bool          // it is that of a window, not of a bucket
	ours      part          // of it that is used here
	longest   time.Duration // to a reset that was ever told
	unspread  float64       // the rate before its rest was spread, 0 if it was not
}

// resetSlack is how far a reset in whole seconds may seem to move.
const resetSlack = 1500 * time.Millisecond

// windowed reports whether a quota is that of a window: its reset stays where it is while
// calls are used up. A bucket tells when it will be full, which moves with every call. A new
// window takes up the rate from before the rest of the last one was spread.
func (l *Law) windowed(now clock.Instant, q Quota) bool {
	l.longest = max(l.longest, q.Reset)
	if q.Reset <= 0 || l.quick() {
		return false
	}
	reset, slack := now.Add(q.Reset), resetSlack+q.Reset/100
	moved := reset.Sub(l.resetAt).Abs() > slack
	takes := max(2*l.took, clock.CeilSeconds(2*l.gap()))
	l.ours.learn(now, q.Remaining, l.delivered.n, l.inflight, l.cost, takes, l.longest, moved)
	if moved {
		l.resetAt, l.resetLeft, l.certain = reset, q.Remaining, false
		if l.unspread > l.rate {
			l.rate, l.credit = min(l.Max, l.unspread), now
		}
		l.unspread = 0
	}
	// A bucket would have moved its reset by as much as the calls used up take to come back. Shortly
	// before the reset that is too little to tell, so a window stays one.
	used := l.resetLeft - q.Remaining
	l.certain = l.certain || used > 0 &&
		float64(q.Reset)*float64(used) > float64(slack)*float64(max(used, q.Limit-q.Remaining))
	return l.certain
}

// ration makes the rest of a window last until its reset, once less than a tenth is left, or at once
// if others use it too, and reports whether that slows the rate down. Calls in flight will be
// taken from the rest.
func (l *Law) ration(now clock.Instant, q Quota) bool {
	part := l.ours.of(l.cost)
	left := float64(q.Remaining) - l.cost/part*float64(l.inflight)
	again := l.Lag > 0 && l.unspread > 0 // the calls in flight are a guess: correct it
	if q.Limit > 0 && left >= margin*float64(q.Limit) && part > 1-margin && !again {
		return false
	}
	// If nothing is left, one call goes after the reset.
	until := q.Reset.Seconds() + l.Lag/10 // the reset is known late, too
	pace := min(l.Max, max(l.Min, max(l.cost, l.ours.claim(l.cost)*left)/until))
	if pace >= l.rate && !again {
		return false
	}
	if l.unpaced() || math.IsInf(l.ceiling, 1) {
		l.ceiling = min(l.Max, max(pace, l.Delivered(now)))
	}
	l.unspread = max(l.unspread, min(l.rate, l.ceiling))
	l.rate, l.credit = min(pace, l.unspread), now
	return true
}

// part learns how much of a quota is used for each call of this process. That is more than the call
// costs if other processes use the quota too. They do not know of each other.
type part struct {
	each      float64       // 0 at first
	at        clock.Instant // when it was last learnt, or a window began
	n         int           // calls let through by then
	left, low int           // the lowest Remaining by then, and by now
}

// learn is told what is left after n calls were let through, while some are under way that may be
// used up or not, and how long a call takes at most while there is demand: the use by others in
// quiet times does not count.
func (p *part) learn(now clock.Instant, left, n, inflight int, cost float64, takes, window time.Duration, fresh bool) {
	if fresh || p.each == 0 || left > p.left {
		p.each = max(p.each, cost)
		p.at, p.n, p.left, p.low = now, n-inflight, left, left // answers may have overtaken this one
		return
	}
	p.low = min(p.low, left)
	own := n - p.n
	if own <= memoryLeast*inflight {
		return
	}
	calls := float64(own)
	took, busy := float64(now.Sub(p.at)), calls*float64(takes)
	others := max(0, float64(p.left-p.low)-cost*float64(own+inflight)) / calls
	if took > busy {
		others, took = others*busy/took, busy
	}
	others = min(others, outlier*max(cost, p.each))
	weight := max(calls/float64(n), took/(windowShare*float64(window)))
	p.each += (cost + others - p.each) * min(1, weight)
	p.at, p.n, p.left = now, n, p.low
}

// of returns the part that a call of that cost stands for.
func (p *part) of(cost float64) float64 { return cost / max(cost, p.each) }

// claim returns the part of the rest to take. If each process took its own part, all would be used,
// and no more, but a process with a small part would keep it. So a small part claims more than it
// is, and parts become equal. The claims are a bit more than the rest together, so all slow down
// towards the reset.
func (p *part) claim(cost float64) float64 { return math.Pow(p.of(cost), 1-margin) }
