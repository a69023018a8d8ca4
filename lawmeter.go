package cruise

import (
	"math"
	"time"

	"github.com/a7df5faa/cruise/internal/clock"
)

// How many calls a meter looks back: far enough to see a whole window, and
// near enough to see a limit that fell.
const (
	memoryLong  = 250
	memoryShort = 32
	memoryLeast = 4
)

// meter measures what a server delivers: calls let through per second over the last
// ones, on a clock that stands still while nobody wants anything.
type meter struct {
	since   clock.Instant // from when on the clock goes,
	ends    clock.Instant // and until when, unless somebody comes; instant(never) if that is not known
	elapsed time.Duration // busy time before since
	ahead   clock.Instant // until when it has been counted already
	ring    []time.Duration
	n       int           // calls let through in all
	base    int           // those that do not count any more
	baseAt  time.Duration // busy time where counting began
	gone    int           // of those, the ones that do not count where the others are too few, either
	goneAt  time.Duration // busy time by then
	begun   bool          // the burst before the first cut is forgotten
}

func (m *meter) clock(now clock.Instant) time.Duration {
	return m.elapsed + max(0, min(now, m.ends).Sub(m.since))
}

func (m *meter) busy(now clock.Instant) {
	if now > m.ends {
		m.elapsed, m.since = m.clock(now), now
	}
	m.ends = clock.Instant(clock.Never)
}

// idle tells that nobody wants anything from now on. The time up to until still counts.
func (m *meter) idle(now, until clock.Instant) {
	if now < m.ends {
		m.ends = max(now, until)
	}
}

// skip leaves out the time from now to until, but for its beginning, which is as long as but.
// What an earlier one counted ahead and this one ends does not count.
func (m *meter) skip(now clock.Instant, but time.Duration, until clock.Instant) {
	if now >= m.ends || now < m.since {
		but = 0 // it stands still, or the beginning has been counted
	}
	m.elapsed, m.since = m.clock(now)+but, until
	if but > 0 {
		m.ahead = now.Add(but)
	} else if until < m.ahead {
		m.elapsed, m.ahead = m.elapsed-m.ahead.Sub(max(now, until)), 0
	}
	if m.ends != clock.Instant(clock.Never) {
		m.ends = until
	}
}

func (m *meter) add(now clock.Instant) {
	if at := m.clock(now); len(m.ring) < memoryLong {
		m.ring = append(m.ring, at)
	} else {
		m.ring[m.n%memoryLong] = at
	}
	m.n++
}

// forget leaves out what came before the first cut, once: a bucket that was
// full flatters.
func (m *meter) forget(now clock.Instant) {
	if !m.begun && m.n > memoryLeast {
		m.restart(m.n, m.clock(now))
	}
	m.begun = true
}

// restart leaves out the first n calls, and the busy time before at.
func (m *meter) restart(n int, at time.Duration) {
	m.base, m.baseAt = n, max(0, at)
}

// anew forgets what was.
func (m *meter) anew(now clock.Instant) {
	if m.ahead > now { // what was counted ahead is forgotten, too
		m.elapsed, m.ahead = m.elapsed-m.ahead.Sub(now), 0
	}
	m.gone, m.goneAt = m.n, m.clock(now)
	m.restart(m.gone, m.goneAt)
}

// over is the rate over most calls, +Inf where nothing can be said.
func (m *meter) over(now clock.Instant, most int) float64 {
	k, from := m.n-m.base, m.baseAt
	if k < memoryLeast {
		k, from = m.n-m.gone, m.goneAt // too few to go by: the burst counts after all
	}
	if k > most {
		k, from = most, m.ring[(m.n-most)%memoryLong]
	}
	took := (m.clock(now) - from).Seconds()
	if k == 0 || took <= 0 {
		return math.Inf(1)
	}
	return float64(k) / took
}

// latencies are means of how long successes took, in seconds: over about the last
// memoryShort of them, and the last memoryLong, or all while there are fewer. After that the
// long one rises slower than it falls, or it would grow with a queue, and hide it.
type latencies struct {
	short, long float64
	n           int // successes, memoryLong at most
}

const (
	queueGrown = 2 // times the long mean, by which the short one shows a queue
	queueMost  = 4 // times the long mean that one call counts for: a few slow ones are none
	queueSlow  = 4 // times slower than it falls the long mean rises
)

func (l *latencies) add(took float64) {
	if l.long == 0 {
		l.short, l.long = took, took
	}
	took = min(took, queueMost*l.long)
	l.n = min(l.n+1, memoryLong)
	l.short += (took - l.short) / float64(min(l.n, memoryShort))
	over := float64(l.n)
	if took > l.long && l.n == memoryLong {
		over *= queueSlow
	}
	l.long += (took - l.long) / over
}

func (l *latencies) grown() bool { return l.short > queueGrown*l.long }
