package law

import (
	"math"

	"github.com/a7df5faa/cruise/internal/clock"
)

const (
	agreeMost = 3            // cuts that agree, by which probing slows down
	longShare = 1 - margin/2 // of the server's limit is delivered in the long run: ways back take the rest
)

// cut is the multiplicative decrease, for a throttle that is not late. The ceiling is not the
// rate that was throttled but the rate that the server delivered.
func (l *Law) cut(now clock.Instant) {
	if l.fresh == 0 {
		l.late++
		return // nothing got through since the last one: pauses are the answer
	}
	if l.byChance() {
		l.fresh = 0 // the next one is as far away as after a cut
		return
	}
	was := l.ceiling
	l.measured = l.delivered.counted()
	l.ceiling = min(max(l.rate, l.unspread), l.Delivered(now))
	if !math.IsInf(was, 1) && math.Abs(l.ceiling-was) <= margin*was {
		l.agreed = min(l.agreed+1, agreeMost)
	} else {
		l.agreed = 0
	}
	l.sink(was)
	l.fadePeak()
	l.seekPeak(now)
	rate := min(l.Max, max(l.Min, l.Decrease*l.ceiling))
	l.ceiling = max(l.ceiling, rate)
	if l.unspread > 0 { // the rate is slower already, for the rest of a window
		l.unspread = min(l.unspread, rate)
		rate = min(rate, l.rate)
	}
	l.rate, l.fresh, l.credit = rate, 0, now
	l.delivered.forgetBurst(now)
}

// fadePeak brings the peak nearer to a ceiling that was found below it.
func (l *Law) fadePeak() { l.peak -= margin * max(0, l.peak-l.ceiling) }

// seekPeak takes up what was delivered since the last time, over memoryLong calls or more. Pauses
// count, or the burst of a window would be a peak.
func (l *Law) seekPeak(now clock.Instant) {
	at := l.delivered.mark(now)
	calls, took := at.calls-l.peaked.calls, (at.total - l.peaked.total).Seconds()
	switch {
	case calls >= memoryLong && took > 0:
		l.peak = max(l.peak, l.cost*float64(calls)/took)
	case l.delivered.begun:
		return // few calls before the first cut are forgotten: a full bucket flatters
	}
	l.peaked = at
}

// before is the state that a run of throttles changes.
type before struct {
	run                                   clock.Instant
	rate, ceiling, peak, unspread, window float64
	agreed                                int
}

// note keeps the state before the first throttle of a run, for Undo.
func (l *Law) note(run clock.Instant) {
	if run != l.undo.run {
		l.undo = before{run, l.rate, l.ceiling, l.peak, l.unspread, l.window, l.agreed}
	}
}

// Undo takes back what the last run of throttles taught, if it is that run: the throttles concerned
// their calls alone. So does TCP where a timeout was spurious: RFC 4015, "The Eifel Response
// Algorithm for TCP" (2005).
func (l *Law) Undo(run clock.Instant) {
	if b := l.undo; b.run != 0 && b.run == run {
		l.rate, l.ceiling, l.peak = max(l.rate, b.rate), b.ceiling, b.peak
		l.unspread, l.window, l.agreed, l.price = b.unspread, max(l.window, b.window), b.agreed, 0
		l.undo = before{}
	}
}

// Delivered returns the rate that the server delivers, +Inf if it is unknown. Where there is no
// rate calls come ever faster, so the last ones count. Reports of many processes come in bunches, and
// late: then the higher measure counts, or half of the rate, as its calls are not reported yet.
func (l *Law) Delivered(now clock.Instant) float64 {
	short, long := l.cost*l.delivered.over(now, memoryShort), l.cost*l.delivered.over(now, memoryLong)/longShare
	switch {
	case l.unpaced():
		return short
	case l.Lag > 0:
		return max(short, long, l.rate/2)
	}
	return min(short, long)
}
