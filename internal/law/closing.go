package law

import (
	"math"
	"slices"
	"time"

	"github.com/a7df5faa/cruise/internal/clock"
)

// closing measures a server that lets nothing through for a time. How much goes through from
// one opening to the next is the rate of a window in the long run, however fast a part of it goes.
type closing struct {
	row      int           // throttles until a call succeeds that was sent after the last of them
	closedAt time.Duration // total time at the first of them
	shutAt   time.Duration // total time at the last of them
	opened   mark          // when the server last opened
	given    float64       // rate from the opening before to that one

	price    float64          // seconds that a throttle costs, which probing goes by
	closings [4]time.Duration // how long the server was closed the last times
}

const (
	closedRow   = 2   // throttles in a row by which a server counts as closed
	longGaps    = 30  // call intervals: a longer Retry-After closes by itself, and no pause counts for more
	windowShare = .25 // of a window: the least that it closes for, and the time that its part is learnt over
)

// close is for a throttle that is not late.
func (l *Law) close(now clock.Instant, retryAfter time.Duration) {
	l.shutAt = l.delivered.total(now)
	if l.row == 0 {
		l.closedAt = l.shutAt
	}
	l.row++
	if retryAfter.Seconds() > longGaps*l.gap() {
		l.row = max(l.row, closedRow)
	}
	l.price, l.window = retryAfter.Seconds(), 1
}

// open is for a success that was sent after the last throttle. The server opened somewhere
// between that throttle and now.
func (l *Law) open(now clock.Instant) {
	row, calls := l.row, l.delivered.n-l.opened.calls
	if row == 0 {
		return
	}
	l.row = 0
	at := l.delivered.mark(now)
	opened := (min(l.shutAt, at.total) + at.total) / 2
	closed := opened - l.closedAt
	l.pay(closed - clock.CeilSeconds(l.gap()))
	burst := l.shutAt == l.closedAt && calls <= memoryShort // one throttle, perhaps after the burst of a bucket
	if (row < closedRow || burst) && l.delivered.n > 1 {
		return
	}
	if took := (opened - l.opened.total).Seconds(); took > 0 && l.delivered.n > 1 {
		given := l.cost * float64(calls) / took
		// A few calls may be the burst of a bucket, or the rest that others left, and a long closing
		// an outage. A window gives the same again.
		sure := calls >= memoryLeast && closed < cycleMost || math.Abs(given-l.given) <= margin*l.given
		window := closed.Seconds() >= windowShare*took
		if sure && window && given < l.ceiling && !l.unpaced() {
			l.ceiling, l.measured = max(l.Min, given), calls
			l.rate = min(l.rate, max(l.Min, longShare*given))
			if calls >= memoryShort {
				l.peak = min(l.peak, given) // the first calls of a window are no peak
			}
		}
		l.given = given
	}
	l.opened, l.credit = at, now
	l.delivered.restart(l.delivered.n-1, l.delivered.clock(now)-(at.total-opened))
}

// pay takes the second longest of the last closings for the price of a throttle, if the server did
// not tell a longer one: a window closes again and again, an outage comes once.
func (l *Law) pay(closed time.Duration) {
	copy(l.closings[:], l.closings[1:])
	l.closings[len(l.closings)-1] = closed
	sorted := l.closings
	slices.Sort(sorted[:])
	l.price = max(l.price, sorted[len(sorted)-2].Seconds())
}
