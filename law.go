package cruise

import (
	"math"
	"time"
)

// law is the control law of an [AdaptiveLimiter]: a state machine of events and
// explicit times that never looks at a clock, so that a table or a simulator can
// drive it, and another law can take its place.
type law interface {
	// room is how long from now an attempt must wait for those in flight: 0 if
	// it need not.
	room(now time.Time) time.Duration
	// sent tells that an attempt was let go.
	sent(now time.Time)
	// held tells that the rate made someone wait.
	held(now time.Time)
	// done tells how an attempt ended; idle says that nobody waits now.
	done(now time.Time, f Feedback, idle bool) lesson
	// limit is the rate in calls per second, +Inf for none.
	limit() float64
	// setLimit makes the rate another one, from outside.
	setLimit(now time.Time, limit float64)
}

// lesson is what a law makes of an attempt, beside the new limit.
type lesson struct {
	pause time.Duration // for everyone, 0 for none
	late  bool          // a throttle that says nothing new
	why   Cause         // of the change of the limit, if it changed
}

// aimd halves on throttle and grows linearly on success: AIMD after Chiu and
// Jain, "Analysis of the increase and decrease algorithms for congestion
// avoidance in computer networks" (1989), with one cut for one congestion, a
// start like TCP's, and a way back in three straight pieces. docs/control.md
// holds the measurements behind every rule.
type aimd struct {
	aimdConfig
	brake brake

	rate     float64   // calls per second; +Inf before the first throttle
	ceiling  float64   // what the last congestion showed to be too much
	window   float64   // most attempts in flight while there is no rate
	inflight int       // let go and not done
	moved    time.Time // when an attempt was last let go or done
	oks      int       // successes since the last cut
	row      int       // throttles since the last success
	heldAt   time.Time // when the rate last made someone wait
	credit   time.Time // until when growth has been paid out
	first    time.Time // when the first attempt was let go
	hintAt   time.Time // when a quota was last heeded
	hintLeft int       // its Remaining

	delivered meter
}

// aimdConfig is what an owner can choose.
type aimdConfig struct {
	min, max float64
	decrease float64 // factor of a cut
	increase float64 // share of the ceiling that probing adds over probeOver calls
}

// The constants of the law.
const (
	startGrow  = .25              // of a call more in flight for each success, before the first throttle
	patience   = time.Second      // after which silence lets one more go
	backTo     = .9               // of the ceiling, at once after a cut
	backOver   = 5                // calls that the way back takes
	probeOver  = 100              // calls that the last tenth takes, or
	probeAge   = .2               // of the time since the first call, if that is longer,
	probeMin   = time.Second      // at least
	probeMax   = 50 * time.Second // and at most
	pushOn     = 40               // times faster per unit of excess above the ceiling
	creditOver = 3                // call intervals that one success can be credited with
	pauseGaps  = 2                // call intervals that a first pause takes at most
	hintCut    = .75              // factor of the rate when a quota is nearly used up
	hintGaps   = 2                // call intervals between two such cuts
	hintGrow   = .01              // growth by quota, per square root of the rate and second,
	hintMost   = 100              // at most this many times for a large rest
	hintFull   = 1.02             // factor while the quota stays full
)

func newAIMD(c aimdConfig, b brake) *aimd {
	return &aimd{aimdConfig: c, brake: b, rate: math.Inf(1), window: 1}
}

func (l *aimd) limit() float64 { return l.rate }

func (l *aimd) setLimit(now time.Time, limit float64) {
	l.rate, l.ceiling, l.credit = limit, limit, now
}

func (l *aimd) room(now time.Time) time.Duration {
	probing := l.row > 1 // one at a time knocks at a closed door
	if l.inflight == 0 || !probing && (!math.IsInf(l.rate, 1) || float64(l.inflight) < l.window) {
		return 0
	}
	// Calls that hang, or whose end nobody reports, must not close the door for
	// good.
	return max(0, l.moved.Add(patience).Sub(now))
}

func (l *aimd) sent(now time.Time) {
	if l.first.IsZero() {
		l.first = now
	}
	l.inflight++
	l.moved = now
	l.delivered.busy(now)
}

func (l *aimd) held(now time.Time) {
	l.heldAt = now
	l.delivered.busy(now)
}

func (l *aimd) done(now time.Time, f Feedback, idle bool) lesson {
	l.inflight = max(0, l.inflight-1)
	l.moved = now
	this := lesson{late: l.brake.late(f.Sent)}
	atMost := never
	if !math.IsInf(l.rate, 1) {
		atMost = ceilSeconds(pauseGaps / l.rate)
	}
	this.pause = l.brake.learn(now, f, atMost)
	switch f.Outcome {
	case OutcomeSuccess:
		this.why = CauseSuccess
		l.delivered.add(now)
		l.oks++
		l.row = 0
		if f.Quota != nil && l.hint(now, *f.Quota) {
			this.why = CauseQuota
		} else {
			l.grow(now, this.late)
		}
	case OutcomeThrottled:
		this.why = CauseThrottle
		if !this.late {
			l.cut(now)
		}
	}
	if idle && l.inflight == 0 {
		l.delivered.idle(now)
	}
	return this
}

// grow is the additive increase, for a success.
func (l *aimd) grow(now time.Time, late bool) {
	if math.IsInf(l.rate, 1) {
		// Without demand for more there is nothing to learn about more.
		if 2*float64(l.inflight+1) >= l.window {
			l.window += startGrow
		}
		return
	}
	if late || !l.heldAt.After(l.credit) {
		return
	}
	l.rate = min(l.max, l.rate+l.slope(now)*l.pay(now))
}

// pay returns the seconds since growth was last paid out, at most a few call
// intervals, so that idle time earns nothing.
func (l *aimd) pay(now time.Time) float64 {
	dt := min(now.Sub(l.credit).Seconds(), creditOver/l.rate)
	l.credit = now
	return dt
}

// slope is the growth of the rate, in calls per second per second.
func (l *aimd) slope(now time.Time) float64 {
	c := l.ceiling
	age := probeAge * now.Sub(l.first).Seconds()
	age = min(max(age, probeMin.Seconds()), probeMax.Seconds())
	slope := l.increase * c / max(probeOver/c, age)
	switch {
	case l.rate < backTo*c:
		slope = max(slope, (backTo-l.decrease)*c*c/backOver)
	case l.rate > c:
		slope *= 1 + pushOn*(l.rate/c-1)
	}
	return slope
}

// cut is the multiplicative decrease, for a throttle that is not late.
func (l *aimd) cut(now time.Time) {
	l.row++
	l.window = 1
	if l.oks == 0 {
		return // nothing got through since the last cut: pauses are the answer
	}
	l.ceiling = min(l.rate, l.delivered.rate(now))
	l.rate = min(l.max, max(l.min, l.decrease*l.ceiling))
	l.ceiling = max(l.ceiling, l.rate)
	l.oks, l.credit = 0, now
	l.delivered.forget(now)
}

// hint follows a reported quota, and reports whether that leaves nothing to be
// done for the success. A quota that is nearly used up is a throttle that cost
// nothing, so the rate can probe for free.
func (l *aimd) hint(now time.Time, q Quota) bool {
	left := float64(q.Remaining)
	reserve := max(10, 2*float64(l.inflight+1))
	if q.Limit > 0 {
		reserve = min(reserve, max(1, float64(q.Limit)/4))
	}
	if math.IsInf(l.rate, 1) {
		rate := l.delivered.rate(now)
		if left >= reserve || math.IsInf(rate, 1) {
			return false
		}
		l.ceiling, l.rate = rate, rate
		if l.delivered.n > 4 {
			l.rate *= hintCut
		}
		l.hintAt, l.hintLeft, l.credit = now, q.Remaining, now
		l.rate = min(l.max, max(l.min, l.rate))
		return true
	}
	if left < reserve {
		since := now.Sub(l.hintAt).Seconds()
		if since < hintGaps/l.rate {
			return true
		}
		switch {
		case q.Remaining <= l.hintLeft:
			l.ceiling = l.rate
			l.rate = max(l.min, hintCut*l.rate)
		case q.Remaining > l.hintLeft+1:
			l.rate = min(l.max, l.rate+hintGrow*math.Sqrt(l.rate)*since)
		}
		l.hintAt, l.hintLeft = now, q.Remaining
		return true
	}
	l.rate += hintGrow * math.Sqrt(l.rate) * l.pay(now) * min(hintMost, left/reserve-1)
	full := q.Limit > 0 && left >= min(.9*float64(q.Limit), float64(q.Limit-1))
	if full && q.Remaining >= l.hintLeft {
		l.rate *= hintFull
	}
	l.rate = min(l.max, l.rate)
	l.hintAt, l.hintLeft = now, q.Remaining
	l.ceiling = max(l.ceiling, l.rate)
	return true
}

// memory is how many successes a meter looks back.
const memory = 64

// meter measures what a server delivers: successes per second over the last
// ones, on a clock that stands still while nobody wants anything.
type meter struct {
	active  bool
	since   time.Time     // when active began
	elapsed time.Duration // busy time before that
	ring    [memory]time.Duration
	n       int           // successes in all
	base    int           // those that do not count any more
	baseAt  time.Duration // busy time where counting began
	begun   bool          // the burst before the first cut is forgotten
}

func (m *meter) clock(now time.Time) time.Duration {
	if m.active {
		return m.elapsed + now.Sub(m.since)
	}
	return m.elapsed
}

func (m *meter) busy(now time.Time) {
	if !m.active {
		m.active, m.since = true, now
	}
}

func (m *meter) idle(now time.Time) {
	m.elapsed, m.active = m.clock(now), false
}

func (m *meter) add(now time.Time) {
	m.ring[m.n%memory] = m.clock(now)
	m.n++
}

// forget leaves out what came before the first cut, once: a bucket that was
// full flatters.
func (m *meter) forget(now time.Time) {
	if !m.begun && m.n > 4 {
		m.base, m.baseAt = m.n, m.clock(now)
	}
	m.begun = true
}

// rate is +Inf where nothing can be said.
func (m *meter) rate(now time.Time) float64 {
	k := min(m.n-m.base, memory)
	from := m.baseAt
	if m.n-m.base > memory {
		from = m.ring[m.n%memory]
	}
	took := (m.clock(now) - from).Seconds()
	if k == 0 || took <= 0 {
		return math.Inf(1)
	}
	return float64(k) / took
}
