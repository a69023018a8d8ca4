package law

import (
	"math"
	"time"

	"github.com/a7df5faa/cruise/internal/clock"
)

// meter measures calls let through per second, on a clock that stands still while there is no
// demand, and for most of a long pause.
type meter struct {
	since   clock.Instant // from when on the clock goes,
	ends    clock.Instant // and until when, unless a call comes; clock.Never if that is not known
	elapsed time.Duration // busy time before since
	skipped time.Duration // of pauses for throttles, before since
	ring    []time.Duration
	n       int           // calls let through in all
	base    int           // calls that do not count any more
	baseAt  time.Duration // busy time where counting began
	floor   int           // calls that never count again
	begun   bool          // the burst before the first cut is forgotten
}

// clock returns the busy time.
func (m *meter) clock(now clock.Instant) time.Duration {
	return m.elapsed + max(0, min(now, m.ends).Sub(m.since))
}

// total returns the busy time, with all of the pauses for throttles.
func (m *meter) total(now clock.Instant) time.Duration {
	return m.clock(now) + m.skipped - max(0, m.since.Sub(now))
}

// counted returns how many calls the measure goes by.
func (m *meter) counted() int { return m.n - m.base }

// busy tells that a call wants to go.
func (m *meter) busy(now clock.Instant) {
	if now > m.ends {
		m.elapsed, m.since = m.clock(now), now
	}
	m.ends = clock.Instant(clock.Never)
}

// idle tells that no call wants to go from now on. The time up to until still counts.
func (m *meter) idle(now, until clock.Instant) {
	if now < m.ends {
		m.ends = max(now, until)
	}
}

// pause leaves out the time from now to until, but for its beginning of the length counts.
// Where the pause is for a throttle, total knows of the rest; what a shorter pause spares of an
// earlier one is taken back.
func (m *meter) pause(now, until clock.Instant, counts time.Duration, throttle bool) {
	m.elapsed = m.clock(now)
	if now < m.since || now >= m.ends {
		counts = 0 // it stands still, or the beginning has been counted
	}
	more := until.Sub(max(now, m.since))
	counts = min(counts, max(0, more))
	m.elapsed += counts
	if throttle || more < 0 {
		m.skipped += more - counts
	}
	m.since = until
	if m.ends != clock.Instant(clock.Never) {
		m.ends = until
	}
}

// add notes a call that was let through.
func (m *meter) add(now clock.Instant) {
	if at := m.clock(now); len(m.ring) < memoryLong {
		m.ring = append(m.ring, at)
	} else {
		m.ring[m.n%memoryLong] = at
	}
	m.n++
}

// forgetBurst leaves out what came before the first cut, once: a bucket that was full
// flatters.
func (m *meter) forgetBurst(now clock.Instant) {
	if !m.begun && m.n > memoryLeast {
		m.restart(m.n, m.clock(now))
	}
	m.begun = true
}

// restart leaves out the first n calls, and the busy time before at.
func (m *meter) restart(n int, at time.Duration) {
	m.base, m.baseAt = n, max(0, at)
}

// over returns the rate over most calls, +Inf where nothing can be said. It goes by
// memoryLeast calls at least, if there are as many.
func (m *meter) over(now clock.Instant, most int) float64 {
	k, from := m.counted(), m.baseAt
	if least := min(memoryLeast, m.n-m.floor); k < least {
		k, from = least, 0
		if m.n > least {
			from = m.ring[(m.n-least-1)%memoryLong]
		}
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
