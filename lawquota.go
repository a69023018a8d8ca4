package cruise

import (
	"math"
	"time"

	"github.com/a7df5faa/cruise/internal/clock"
)

// quotas is what the law remembers of the [Quota]s that it was told.
type quotas struct {
	told      Quota         // the last that a success was told
	elsewhere bool          // the last throttle came though enough was left: something else limits calls
	hintAt    clock.Instant // when a quota was last heeded
	hintLeft  int           // its Remaining
	hintCutAt clock.Instant // when one last cut the rate: what was sent before says nothing of that
	flatCuts  int           // cuts that did not make enough Remaining, flatAfter at most
	flatLeft  int           // the most that was, meanwhile
	refillOks int           // calls let through when what comes back was last looked at
	refillLow int           // Remaining at that time
	resetAt   clock.Instant // of the window that a quota belongs to
	resetLeft int           // its Remaining when that was first told
	resetMost time.Duration // the longest time to a reset that was ever told
	part      part          // of its quota that is used here
	unspread  float64       // the rate before the rest of that window was spread, 0 if it was not
}

// The constants of quotas and of their windows.
const (
	hintLeast    = 10  // calls that must be left, or a quarter of the limit
	hintCut      = .75 // factor of the rate when fewer are left
	hintGaps     = 2   // call intervals between two such cuts
	hintGrow     = .01 // growth when more are left, per square root of the rate and second
	hintGrowMost = .25 // most growth for one success, as a share of the rate
	hintMost     = 100 // most times that a large rest multiplies hintGrow
	refillTo     = .5  // of the limit, which may be used at once where what was used comes back
	flatAfter    = 5   // cuts after which a quota that is still low means nothing

	quickReset  = 5 * time.Second         // to a reset, by which a quota is too short to pace by
	spreadFrom  = 10                      // parts of a limit, the last of which is spread over the time until the reset
	resetSlack  = 1500 * time.Millisecond // by which a reset in whole seconds may seem to move
	rationAfter = 3                       // calls used up at least, by which a reset that stays is a window's
	partOver    = 100                     // calls over which the part of a quota that is used here is learnt
	partMost    = 4                       // times that part, which one answer counts for at most: some speak of another quota
	partAlone   = .75                     // of a quota, from which it is as good as one of its own
	usedUpMost  = 10 * time.Second        // longest pause until the reset of a window that is used up
)

// surplus is what a quota leaves for growth.
type surplus struct {
	spare  float64 // how far Remaining is above what must be left, relative to that
	refill float64 // growth, relative to the rate, as what was used has come back
}

// hint follows a reported quota, and reports what it leaves for growth, and whether
// nothing more is to be done for the success. A quota that is nearly used up is a
// throttle that cost nothing.
func (l *aimd) hint(now, sent clock.Instant, q Quota) (more surplus, settled bool) {
	if l.quick() {
		return surplus{}, false // it is whole again before a slower rate shows
	}
	flying := float64(l.inflight + 1)
	reserve := l.cost * max(hintLeast, 2*flying)
	if limit := float64(q.Limit); limit > 0 {
		if limit < reserve {
			return surplus{}, false // it is used up and whole again while an answer is under way
		}
		reserve = min(reserve, max(1, limit/4))
	}
	if l.flat(q, min(reserve, l.cost*hintLeast)) {
		return surplus{}, false
	}
	if left := float64(q.Remaining); left >= reserve {
		// What is left is no reason to hurry while it grows less: it may be all
		// that there is for a long time.
		if !l.elsewhere {
			if q.Reset > 0 || q.Remaining >= l.hintLeft {
				more.spare = min(hintMost, left/reserve-1)
			}
			more.refill = l.refilled(q)
		}
		l.hintAt, l.hintLeft = now, q.Remaining
		return more, false
	}
	if math.IsInf(l.rate, 1) {
		given := l.given(now)
		if math.IsInf(given, 1) {
			return surplus{}, false
		}
		l.ceiling, l.credit = given, now
		l.rate = min(l.max, max(l.min, hintCut*given))
		l.hintCutAt = now
		l.hintAt, l.hintLeft = now, q.Remaining
		return surplus{}, true
	}
	if l.hintAt == 0 {
		l.hintAt, l.hintLeft = now, q.Remaining
	}
	since := now.Sub(l.hintAt).Seconds()
	if since < hintGaps*l.gap() || sent != 0 && sent <= l.hintCutAt {
		return surplus{}, true // the last decision has not shown yet
	}
	switch {
	case q.Remaining <= l.hintLeft:
		if q.Remaining < l.hintLeft {
			l.ceiling, l.trusted = l.rate, 0
		}
		l.rate = max(l.min, hintCut*l.rate)
		l.hintCutAt = now
		l.flatCuts++
	case q.Remaining > l.hintLeft+1:
		l.rate = min(l.max, l.rate+min(hintGrowMost*l.rate, hintGrow*math.Sqrt(l.rate)*since))
	}
	l.hintAt, l.hintLeft, l.credit = now, q.Remaining, now
	return surplus{}, true
}

// refilled returns by what share of itself the rate may grow since a part of the limit
// has been used and is back already: so far that refillTo of the limit would be used
// at once, and no further than to twice the rate. In a window nothing comes back before
// its end, when everything does in one step.
func (l *aimd) refilled(q Quota) (more float64) {
	if q.Limit <= 0 {
		return 0
	}
	part := max(rationAfter, float64(q.Limit/4), 2*l.cost*float64(l.inflight)) // answers overtake each other
	step := float64(q.Remaining-l.hintLeft) >= part
	if !step && l.cost*float64(l.delivered.n-l.refillOks) < max(l.cost*hintLeast, part) {
		return 0
	}
	if !step && q.Remaining >= l.refillLow {
		used := max(0, 1-float64(q.Remaining)/float64(q.Limit))
		more = min(1, max(0, refillTo/used-1))
	}
	l.refillOks, l.refillLow = l.delivered.n, q.Remaining
	return more
}

// elsewhere reports whether a throttle came though enough was left, by what it says itself
// or else by what a success was told last: then something else limits calls.
func elsewhere(throttle *Quota, last Quota) bool {
	if throttle != nil {
		return throttle.Remaining > 0
	}
	enough := hintLeast
	if last.Limit > 0 {
		enough = last.Limit / 2
	}
	return last.Remaining > enough
}

// flat reports whether less than enough is left however slowly calls come: of a small bucket
// that is full, or that others empty, or by a number that means nothing.
func (l *aimd) flat(q Quota, enough float64) bool {
	flat := l.flatCuts >= flatAfter
	if flat && q.Remaining <= l.flatLeft {
		return true
	}
	if flat || float64(q.Remaining) >= enough {
		l.flatCuts = 0
	}
	if l.flatCuts == 0 || q.Remaining > l.flatLeft {
		l.flatLeft = q.Remaining
	}
	return false
}

// windowed reports whether a quota is that of a window: its reset stays where it
// is while calls are used up. That of a bucket, which tells when it will be full,
// moves on with every call. With a new window the rate is back to what it was before
// the rest of the last one was spread.
func (l *aimd) windowed(now clock.Instant, q Quota) bool {
	l.resetMost = max(l.resetMost, q.Reset)
	if q.Reset <= 0 || l.quick() {
		return false
	}
	reset, slack := now.Add(q.Reset), resetSlack+q.Reset/100
	moved := reset.Sub(l.resetAt).Abs() > slack
	takes := max(2*l.latency, clock.CeilSeconds(2*l.gap()))
	l.part.learn(now, l.told.Remaining-q.Remaining, l.delivered.n, l.cost, takes, moved)
	if moved {
		l.resetAt, l.resetLeft = reset, q.Remaining
		if l.unspread > l.rate {
			l.rate, l.credit = min(l.max, l.unspread), now
		}
		l.unspread = 0
	}
	// Where a quarter of the limit was not left to begin with, a quarter of what was is enough,
	// if a bucket would have moved its reset by as much.
	used := l.resetLeft - q.Remaining
	return used >= max(rationAfter, min(q.Limit, l.resetLeft)/4) &&
		(used >= q.Limit/4 || float64(q.Reset)*float64(used) > float64(slack)*float64(q.Limit-q.Remaining))
}

// quick reports whether every reset told was near: of a window of some seconds, or of a bucket
// that tells when it is full.
func (l *aimd) quick() bool { return l.resetMost > 0 && l.resetMost <= quickReset }

// ration makes what is left of a window last until its reset, once a tenth is left, or at once
// if others use the window too. It reports whether that slows the rate down. The law cannot
// know how large a job is, and a job that needs less than is left must not be slowed down.
func (l *aimd) ration(now clock.Instant, q Quota) bool {
	part := l.part.of(l.cost)
	if q.Limit > 0 && q.Remaining > q.Limit/spreadFrom && part > partAlone {
		return false
	}
	// If nothing is left, one call goes after the reset.
	pace := max(l.min, max(l.cost, part*float64(q.Remaining))/q.Reset.Seconds())
	if pace >= l.rate {
		return false
	}
	if math.IsInf(l.rate, 1) {
		l.ceiling = min(l.max, max(pace, l.given(now)))
	}
	l.unspread = max(l.unspread, min(l.rate, l.ceiling))
	l.rate, l.credit = pace, now
	return true
}

// A part is how much of a quota is used for each call of here: more than the call itself
// costs if others use it, too, who do not know of each other. Where each of them takes of
// what is left the part that it had of what was used, all is used, and no more.
type part struct {
	each float64       // over about the last partOver calls, 0 at first
	at   clock.Instant // when it was last learnt
	n    int           // calls let through by then
}

// learn is told by how much a quota fell since it was last asked, unless it is a new one,
// how many calls were let through by now, and how long one takes at most while somebody
// wants more: what others use meanwhile counts, and not what they use in quiet times.
func (p *part) learn(now clock.Instant, fell, n int, cost float64, takes time.Duration, fresh bool) {
	switch {
	case p.each == 0:
		p.each = cost
	case !fresh && n > p.n:
		others := float64(fell)/float64(n-p.n) - cost
		if took := now.Sub(p.at); took > takes {
			others *= float64(takes) / float64(took)
		}
		most := partMost * max(cost, p.each)
		others = min(max(others, -most), most)
		p.each += (cost + others - p.each) / float64(min(n, partOver))
	}
	p.at, p.n = now, n
}

// of is the part that a call of that cost stands for.
func (p *part) of(cost float64) float64 { return cost / max(cost, p.each) }
