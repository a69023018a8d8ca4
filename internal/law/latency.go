package law

import (
	"cmp"

	"github.com/a7df5faa/cruise/internal/clock"
)

// latency watches for calls that stand in a queue at the server, as they take ever longer.
// Delay as a sign of congestion is from TCP Vegas: Brakmo and Peterson, "TCP Vegas: End to End
// Congestion Avoidance on a Global Internet" (1995).
type latency struct {
	short, long float64 // means of about the last memoryShort and memoryLong successes, in seconds
	samples     int     // memoryLong at most
	share       float64 // of successes among the calls let through, over about the last memoryShort
	slowedAt    int     // calls let through when a queue last slowed the rate down
	slowedFrom  float64 // rate when this queue first did, 0 while there is none
}

// queueGrown is how many times the long mean the short one has to be to show a queue.
const queueGrown = 2

// add notes a latency. From memoryLong on, the long mean rises slower than it falls, or it
// would grow with a queue and hide it.
func (l *latency) add(took float64) {
	if l.long == 0 {
		l.short, l.long = took, took
	}
	took = min(took, outlier*l.long)
	l.samples = min(l.samples+1, memoryLong)
	l.short += (took - l.short) / float64(min(l.samples, memoryShort))
	over := float64(l.samples)
	if took > l.long && l.samples == memoryLong {
		over *= outlier
	}
	l.long += (took - l.long) / over
}

// queued reports whether calls stand in a queue. The rate then falls below the output of
// the queue, so that the queue is worked off before callers give up. The ceiling stays as it is, so
// the rate is back at once if it was something else.
func (l *Law) queued(now clock.Instant) bool {
	l.latency.add(l.took.Seconds())
	if l.short <= queueGrown*l.long {
		l.slowedFrom = 0
		return false
	}
	if l.unpaced() || now.Sub(l.heldAt).Seconds() > outlier*l.gap() {
		return false // slow calls that come slowly stand in no queue
	}
	l.credit = now
	if l.delivered.n-l.slowedAt >= memoryShort { // else the last time has not shown yet
		l.slowedAt = l.delivered.n
		l.slowedFrom = cmp.Or(l.slowedFrom, l.rate)
		out := l.share * l.cost * l.delivered.over(now, memoryShort)
		l.rate = min(l.rate, max(l.Min, l.Decrease*l.slowedFrom, (1-margin)*out))
	}
	return true
}
