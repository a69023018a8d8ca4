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
	paused  pause         // the last one, which ends at since
	ring    []entry       // the last ones
	entries int           // in all
	n       int           // calls let through in all
	base    int           // calls that do not count any more
	baseAt  time.Duration // busy time where counting began
	floor   int           // calls that never count again
	begun   bool          // the burst before the first cut is forgotten
}

// entry is a call let through, and the calls that follow it within the grain.
type entry struct {
	before int           // calls let through before
	at     time.Duration // busy time
}

// grain is the least time between entries. A measure looks back over as many grains as calls at
// least: a bucket that fills up in a pause flatters a fast process.
const grain = time.Second / 64

// pause is a time in which nobody goes. Its beginning counts as busy, the rest is skipped.
type pause struct {
	from          clock.Instant
	counts, skips time.Duration // skips is 0 where the pause is for no throttle
}

// at returns the busy time, and the part of pauses for throttles that it leaves out.
func (m *meter) at(now clock.Instant) (busy, skipped time.Duration) {
	if now >= m.since {
		return m.elapsed + max(0, min(now, m.ends).Sub(m.since)), m.skipped
	}
	gone := max(0, now.Sub(m.paused.from))
	counted := min(gone, m.paused.counts)
	return m.elapsed - m.paused.counts + counted, m.skipped - m.paused.skips + min(gone-counted, m.paused.skips)
}

// clock returns the busy time.
func (m *meter) clock(now clock.Instant) time.Duration {
	busy, _ := m.at(now)
	return busy
}

// total returns the busy time, with all of the pauses for throttles.
func (m *meter) total(now clock.Instant) time.Duration {
	busy, skipped := m.at(now)
	return busy + skipped
}

// mark is a moment of a meter.
type mark struct {
	calls int           // let through by then
	total time.Duration // busy time and pauses for throttles by then
}

func (m *meter) mark(now clock.Instant) mark { return mark{m.n, m.total(now)} }

// counted returns how many calls the measure goes by.
func (m *meter) counted() int { return m.n - m.base }

// busy tells that a call wants to go.
func (m *meter) busy(now clock.Instant) {
	if now > m.ends {
		m.elapsed, m.skipped = m.at(now)
		m.since = now
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
// Where the pause is for a throttle, total knows of the rest. It replaces a pause that lasts.
func (m *meter) pause(now, until clock.Instant, counts time.Duration, throttle bool) {
	switch {
	case now < m.since:
		counts = max(0, m.paused.counts-now.Sub(m.paused.from))
		throttle = throttle || m.paused.skips > 0
	case now >= m.ends:
		counts = 0
	}
	m.elapsed, m.skipped = m.at(now)
	length := max(0, until.Sub(now))
	m.paused = pause{from: now, counts: min(counts, length)}
	if throttle {
		m.paused.skips = length - m.paused.counts
	}
	m.elapsed += m.paused.counts
	m.skipped += m.paused.skips
	m.since = max(now, until)
	if m.ends != clock.Instant(clock.Never) {
		m.ends = m.since
	}
}

// add notes n calls that were let through: the last one now, the others since the last time.
func (m *meter) add(now clock.Instant, n int) {
	e := entry{m.n + n - 1, m.clock(now)}
	m.n += n
	switch {
	case m.entries > 0 && e.at-m.ring[(m.entries-1)%memoryLong].at < grain:
		return
	case len(m.ring) < memoryLong:
		m.ring = append(m.ring, e)
	default:
		m.ring[m.entries%memoryLong] = e
	}
	m.entries++
}

// back returns the last entry that is so many calls ago at least, and so long.
func (m *meter) back(now clock.Instant, calls int, took time.Duration) (e entry, ok bool) {
	latest := m.clock(now) - took
	for k := 1; k <= len(m.ring); k++ {
		if e = m.ring[(m.entries-k)%memoryLong]; m.n-e.before >= calls && e.at <= latest {
			return e, true
		}
	}
	return e, false
}

// forgetBurst leaves out the calls before the first cut, once: a full bucket flatters.
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

// over returns the rate over most calls, or grains if that is longer, and +Inf where nothing can
// be said. It goes by memoryLeast calls at least, if there are as many.
func (m *meter) over(now clock.Instant, most int) float64 {
	from := entry{m.base, m.baseAt}
	if least := min(memoryLeast, m.n-m.floor); m.counted() < least {
		from = entry{m.n - least, 0}
		if e, ok := m.back(now, least+1, 0); ok {
			from = entry{e.before + 1, e.at}
		}
	}
	if e, ok := m.back(now, most, time.Duration(most-1)*grain); ok && e.before > from.before {
		from = e
	}
	calls, took := m.n-from.before, (m.clock(now) - from.at).Seconds()
	if calls == 0 || took <= 0 {
		return math.Inf(1)
	}
	return float64(calls) / took
}
