package law

import (
	"math"

	"github.com/a7df5faa/cruise/internal/clock"
)

const (
	backTo     = 1 - margin // of the ceiling, to which the rate returns quickly after a cut
	backOver   = 5          // calls that the way back takes
	probeTime  = 4          // seconds that probing takes at least, times one more than the cuts that agree
	probePrice = 10         // times the price of a throttle, the same, or times Config.Lag
	pushOn     = 40         // times faster per unit of excess above the ceiling
)

// grow is the additive increase, for n successes. Pauses and time without demand earn nothing.
func (l *Law) grow(now clock.Instant, late bool, n int) {
	if l.unpaced() {
		l.growWindow()
		return
	}
	from := max(l.credit, l.resume)
	if late || l.heldAt <= l.credit || now <= from {
		return
	}
	seconds := min(now.Sub(from).Seconds(), outlier*l.gap()*float64(n))
	l.credit = now
	more := l.growth(l.ceiling, seconds)
	// A limit that fell far is back. Its peak has faded by then, so pushing on may be faster.
	if back := fallen * l.peak; l.ceiling < back && l.rate >= back {
		more = max(more, l.growth(l.peak, seconds))
	}
	l.rate = min(l.Max, l.rate+more+l.spareGrowth(seconds))
}

// growth returns the gain of the rate in some seconds. A step ends where the slope changes.
func (l *Law) growth(ceiling, seconds float64) float64 {
	more := l.slope(ceiling) * seconds
	for _, edge := range [...]float64{backTo * ceiling, ceiling} {
		if l.rate < edge {
			return min(more, edge-l.rate)
		}
	}
	return more
}

// slope returns the growth of the rate per second: quickly back to just below the ceiling,
// slowly from there on to find the limit, and ever faster beyond it. The price of a probe is
// that of a throttle; the evidence for the ceiling is the number of calls that it was measured by.
// A probe takes memoryLong calls, or as many as are known. It ends after cycleMost, but not before
// memoryLeast calls. Where news are late, growth waits for them.
func (l *Law) slope(ceiling float64) float64 {
	if math.IsInf(ceiling, 1) {
		return l.rate // a guess
	}
	most := ceiling
	if l.rate < fallen*l.peak { // the further it fell, the more a delay costs
		most = math.Sqrt(ceiling * max(ceiling, l.peak))
	}
	calls := most / l.cost // per second
	agreed := float64(1 + l.agreed)
	number := max(memoryLeast, min(agreed*evidence(l.known+l.delivered.counted()), cycleMost.Seconds()*calls)) // of calls
	price := l.price * evidence(l.measured) / memoryLong
	lag := min(probePrice*l.Lag, float64(l.measured)/calls) // at most the time that the ceiling was measured over
	over := max(number/calls, lag, agreed*probeTime, agreed*probePrice*price)
	slope := l.Increase * most / over
	switch {
	case l.rate > ceiling:
		slope *= 1 + pushOn*(l.rate/ceiling-1)
	case l.rate < backTo*ceiling:
		slope = max(slope, (backTo-l.Decrease)*ceiling*calls/backOver)
	}
	return slope
}

// evidence returns how many calls of a measure count.
func evidence(calls int) float64 { return float64(min(max(calls, memoryLeast), memoryLong)) }
