package law

import (
	"math"
	"time"

	"github.com/a7df5faa/cruise/internal/clock"
)

// Quota is a server's report of a limit: the whole, 0 if not told, the rest, and the time until the
// rest is whole again, 0 if not told.
type Quota struct {
	Limit     int
	Remaining int
	Reset     time.Duration
}

// quotas is the memory of the quotas that the server told.
type quotas struct {
	lowAt    clock.Instant // when the rest was last looked at
	lowLeft  int           // Remaining then
	lowCutAt clock.Instant // when a low rest last cut the rate
	lowSame  int           // cuts in a row that did not change the rest
	spare    float64       // how far the rest is above the reserve, relative to that, 1 at most
	quotaWindow
	renewals
}

const (
	quotaStep = .3              // of the rate, by which one answer changes it at most
	spareGrow = .05             // growth for a call when more are left, per square root of the rate
	quickMost = 5 * time.Second // to a reset; a quota that never told more is too short to pace by
)

// heed lets the rate fall while a quota is nearly used up, and reports whether nothing more is
// to be done for the success. A quota that is nearly used up is a throttle that cost nothing.
func (l *Law) heed(now, sent clock.Instant, q Quota) (settled bool) {
	l.spare = 0
	if l.quick() {
		return false // it is whole again before a slower rate shows
	}
	reserve := l.cost * max(memoryLeast, 2*float64(l.inflight+1))
	limit := float64(q.Limit)
	if limit > 0 && limit < reserve {
		return false // it is used up and whole again while an answer is under way
	}
	if !l.unpaced() {
		reserve = max(reserve, l.rate) // of a second
	}
	if limit > 0 {
		reserve = min(reserve, limit/4)
	}
	if left := float64(q.Remaining); left >= reserve {
		// A rest that shrinks is no reason to hurry: no more may come for a long time.
		if q.Remaining >= l.lowLeft {
			l.spare = min(1, left/reserve-1)
		}
		l.lowAt, l.lowLeft = now, q.Remaining
		return false
	}
	if l.unpaced() {
		given := l.Delivered(now)
		if math.IsInf(given, 1) {
			return false
		}
		l.ceiling, l.credit = given, now
		l.rate = min(l.Max, max(l.Min, (1-quotaStep)*given))
		l.lowAt, l.lowLeft, l.lowCutAt = now, q.Remaining, now
		return true
	}
	if l.lowAt == 0 {
		l.lowAt, l.lowLeft = now, q.Remaining
	}
	if now.Sub(l.lowAt).Seconds() < pauseGaps*l.gap() || sent != 0 && sent <= l.lowCutAt {
		return true // the last decision has not shown yet
	}
	switch {
	case q.Remaining <= l.lowLeft:
		if l.lowSame++; q.Remaining < l.lowLeft {
			l.ceiling, l.lowSame = l.rate, 0
			l.fadePeak()
		}
		if l.lowSame > memoryLeast {
			l.lowAt = now
			return false
		}
		l.rate = max(l.Min, l.rate*(1-quotaStep*(1-float64(q.Remaining)/reserve)))
		l.lowCutAt = now
	case q.Remaining > l.lowLeft+1:
		l.spare, l.lowSame = 1, 0
		l.rate = min(l.Max, l.rate+l.spareGrowth(now.Sub(l.lowAt).Seconds()))
		l.spare = 0
	}
	l.lowAt, l.lowLeft, l.credit = now, q.Remaining, now
	return true
}

// spareGrowth returns the gain of the rate in some seconds from a quota's rest above the reserve. A
// high rate gains less of itself than a low one, while both lose the same part of themselves: so
// processes that use one quota come to equal rates. See Bansal and Balakrishnan, "Binomial
// Congestion Control Algorithms" (2001).
func (l *Law) spareGrowth(seconds float64) float64 {
	return min(quotaStep*l.rate, l.spare*spareGrow*l.rate*math.Sqrt(l.rate/l.cost)*seconds)
}

// quick reports whether every reset told was near: of a window of some seconds, or of a bucket
// that tells when it is full.
func (l *Law) quick() bool { return l.longest > 0 && l.longest <= quickMost }
