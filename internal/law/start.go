package law

import (
	"time"

	"github.com/a7df5faa/cruise/internal/clock"
)

// start limits the calls in flight before there is a rate, as TCP does.
type start struct {
	window   float64       // most in flight
	inflight int           // let go and not done
	silent   int           // of these, the calls without an answer for so long that they don't count
	silentAt clock.Instant // when the last of the silent was let go
	moved    clock.Instant // when a call was last let go or done
	went     clock.Instant // when a call was last let go
	took     time.Duration // by the last call
}

const (
	startGrow  = .15 // of a call more in flight for each success
	startFew   = 5   // in flight; from there on the growth is the latency in seconds,
	startLeast = .03 // but no less than this

	silence      = 300 * time.Millisecond // without an answer; then calls in flight don't count,
	silenceGrow  = 8                      // and the window grows by this factor
	patience     = time.Second            // at a closed server, until the next probe
	patienceMost = 10 * time.Second       // the same where it is twice the latency
)

// Wait returns how long from now a call must wait for the calls in flight: 0 if it need not. At a
// closed server one call at a time probes.
func (l *Law) Wait(now clock.Instant) time.Duration {
	closed := l.row >= closedRow
	wait := max(silence, 2*l.took)
	switch {
	case l.inflight == 0, !closed && !l.unpaced(), !closed && l.counted() < l.window:
		return 0
	case closed:
		wait = min(max(patience, 2*l.took), patienceMost)
	}
	wait -= now.Sub(l.moved)
	if !closed && l.usual() { // a server that becomes slow is asked as often as before
		wait = min(wait, clock.CeilSeconds(l.long/l.window)-now.Sub(l.went))
	}
	return max(0, wait)
}

// usual reports whether it is known how long calls take.
func (l *Law) usual() bool { return l.samples >= memoryShort }

// counted returns the calls in flight that may still be throttled.
func (s *start) counted() float64 { return float64(s.inflight - s.silent) }

// letGo counts a call in flight. A full window whose calls are all silent has met no throttle:
// they may be long polls or streams, and must not hold up short calls.
func (l *Law) letGo(now clock.Instant) {
	if l.unpaced() && l.row == 0 && l.counted() >= l.window && !l.usual() {
		l.window *= silenceGrow
		l.silent, l.silentAt = l.inflight, l.moved
	}
	l.inflight++
	l.moved, l.went = now, now
}

// landed counts a call in flight no more.
func (l *Law) landed(now, sent clock.Instant) {
	l.inflight = max(0, l.inflight-1)
	if l.silent > 0 && (sent <= l.silentAt || l.silent > l.inflight) {
		l.silent--
	}
	l.moved = now
	if sent != 0 {
		l.took = max(0, now.Sub(sent))
	}
}

// growWindow is for a success. Without demand for more there is nothing to learn about more.
// All in flight are throttled at once when a full bucket runs dry, so from startFew on they
// grow with time, not with round trips.
func (l *Law) growWindow() {
	if 2*(l.counted()+1) < l.window {
		return
	}
	more := startGrow
	if l.window >= startFew {
		more = min(startGrow, max(startLeast, l.took.Seconds()))
	}
	l.window += more
}
