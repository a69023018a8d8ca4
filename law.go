package cruise

import (
	"cmp"
	"math"
	"time"
)

// lesson is what the law makes of an attempt, beside the new limit.
type lesson struct {
	pause time.Duration // for everyone, 0 for none
	late  bool          // a throttle that says nothing new
	why   Cause         // of the change of the limit, if it changed
}

// aimd is the control law of an [AdaptiveLimiter]: a state machine of events and
// explicit times that never looks at a clock, so that a table or a simulator can drive
// it.
//
// It halves on throttle and grows linearly on success: AIMD after Chiu and
// Jain, "Analysis of the increase and decrease algorithms for congestion
// avoidance in computer networks" (1989), with one cut for one congestion, a
// start like TCP's, and a way back in three straight pieces. docs/control.md
// holds the measurements behind every rule.
type aimd struct {
	aimdConfig
	brake brake

	rate      float64       // calls of cost 1 per second; +Inf before the first throttle
	ceiling   float64       // what the last congestion showed to be too much
	peak      float64       // the most it was over memoryLong calls; fades with each cut below it
	cost      float64       // of a call, the mean of about the last memoryShort successes
	window    float64       // most attempts in flight while there is no rate
	inflight  int           // let go and not done
	latency   time.Duration // of the last attempt
	moved     instant       // when an attempt was last let go or done
	agreed    int           // cuts in a row that found the ceiling where it was, agreeMost at most
	doubted   bool          // the ceiling may be what an outage made it
	share     float64       // of successes among the calls let through, over about the last memoryShort
	oks       int           // successes since the last cut
	row       int           // throttles since the last success of a call that was sent after one
	closedAt  instant       // when the first of them came
	shut      bool          // that one gave the first rate, and asked for a wait that is long beside it
	outageAt  instant       // when a closing ended that may have been an outage
	heldAt    instant       // when the rate last made someone wait
	credit    instant       // until when growth has been paid out
	first     instant       // when the first attempt was let go
	resume    instant       // until when the last pause lasts
	shutAt    time.Duration // busy time when a throttle last cut, or when its wait ends if shut
	openAt    time.Duration // busy time when the server last opened again
	openOks   int           // calls let through by then
	hintAt    instant       // when a quota was last heeded
	hintLeft  int           // its Remaining
	leftMost  int           // the largest Remaining
	leftFlat  int           // cuts in a row that left Remaining at leftMost, flatAfter at most
	resetAt   instant       // of the window that a quota belongs to
	resetLeft int           // its Remaining when that was first told
	part      part          // of its quota that is used here
	unspread  float64       // the rate before the rest of that window was spread, 0 if it was not
	refillOks int           // calls let through by when that was last looked at
	refillLow int           // Remaining at that time
	told      Quota         // the last that a success was told
	elsewhere bool          // the last throttle came though enough was left: something else limits calls
	queuedOks int           // calls let through by when a queue last slowed the rate down
	queuedTop float64       // rate when this queue first did, 0 while there is none

	delivered meter
	took      latencies
}

// aimdConfig is what an owner can choose.
type aimdConfig struct {
	min, max float64
	decrease float64 // factor of a cut
	increase float64 // share of the ceiling that probing adds over probeOver calls
	cold     int     // levels by which pauses are longer while nothing has ever succeeded, one more if nothing is left of a limit
}

// The constants of the law.
const (
	startGrow  = .15 // of a call more in flight for each success, before the first throttle
	startFew   = 5   // in flight, from where on it is one for each second that a call takes,
	startLeast = .03 // but no less than this, and no more than startGrow
	startHeld  = 8   // successes before that, where throttles came before them all

	patience    = time.Second      // silence after which one more call goes
	patienceMax = 10 * time.Second // the same at a closed door at most, where it is twice the latency

	backTo     = .9  // of the ceiling, to which the rate returns quickly after a cut
	backToSlow = .85 // the same below slowRate, where a throttle costs everyone more time
	slowRate   = 1.  // calls per second
	backOver   = 5   // calls that the way back takes

	probeOver   = 100              // calls in which probing adds aimdConfig.increase
	agreeWithin = .1               // share of a ceiling within which the next one agrees with it
	agreeMost   = 3                // most times that probeOver is added for ceilings that agree
	probeAge    = .2               // least share of the time since the first call that probing takes
	probeMin    = time.Second      // least that probeAge comes to
	probeMax    = 50 * time.Second // most that probeAge comes to
	pushOn      = 40               // times faster per unit of excess above the ceiling
	creditOver  = 3                // call intervals that one success can be credited with
	peakTo      = .7               // of the peak, below which growth heeds it
	peakFades   = .1               // of what the peak is above the ceiling, with each cut

	longShare = .95 // of what the server gives is delivered in the long run: ways back take the rest
	pauseGaps = 2   // call intervals that a first pause takes at most

	closedRow   = 2                // throttles in a row by which a server counts as closed
	closedGaps  = 3                // call intervals; where there was no rate yet, a longer Retry-After closes it, too
	reopenTo    = .95              // of what it delivered, the closed time included, when it opens
	reopenAfter = 2                // calls by which that is a measure
	outageLeast = 3 * time.Minute  // closed, by which it may have been an outage
	outageApart = 10               // times its length that the last one must be ago: what comes sooner is a window
	outageGap   = 20 * time.Second // call interval that is learnt from one at most
	outageMost  = 20               // by which the Retry-After of one divides the ceiling at most

	resetSlack  = 1500 * time.Millisecond // by which a reset in whole seconds may seem to move
	rationAfter = 3                       // calls used up, or a quarter of the limit, by which a reset that stays is a window's
	partOver    = 100                     // calls over which the part of a quota that is used here is learnt
	partAlone   = .75                     // of a quota, from which it is as good as one of its own
	usedUpMost  = 10 * time.Second        // longest pause until the reset of a window that is used up

	queueTo = .9 // of what comes out of a queue, to which the rate falls

	hintLeast    = 10  // calls that must be left, or a quarter of the limit
	hintCut      = .75 // factor of the rate when fewer are left
	hintGaps     = 2   // call intervals between two such cuts
	hintGrow     = .01 // growth when more are left, per square root of the rate and second
	hintGrowMost = .25 // most growth for one success, as a share of the rate
	hintMost     = 100 // most times that a large rest multiplies hintGrow
	refillTo     = .5  // of the limit, which may be used at once where what was used comes back
	flatAfter    = 5   // cuts in a row that change nothing, by which a quota means nothing
)

func newAIMD(c aimdConfig, b brake) *aimd {
	return &aimd{aimdConfig: c, brake: b, rate: math.Inf(1), cost: 1, window: 1}
}

// limit is the rate in calls of cost 1 per second, +Inf for none.
func (l *aimd) limit() float64 { return l.rate }

// soon is what the limit can be within a few calls.
func (l *aimd) soon() float64 {
	if l.unspread > 0 {
		return l.rate // for the rest of a window
	}
	return max(l.rate, l.ceiling)
}

// stopped tells that nobody goes before until, for a reason that says nothing of
// what the server gives.
func (l *aimd) stopped(now, until instant) {
	l.resume = until
	l.delivered.skip(now, 0, until)
}

// gap is a call interval, in seconds.
func (l *aimd) gap() float64 { return l.cost / l.rate }

// setLimit makes the rate another one, from outside.
func (l *aimd) setLimit(now instant, limit float64) {
	l.rate, l.ceiling, l.unspread, l.agreed, l.doubted, l.credit, l.peak = limit, limit, 0, 0, false, now, 0
}

// wait is how long from now an attempt must wait for those in flight: 0 if it need
// not.
func (l *aimd) wait(now instant) time.Duration {
	closed := l.row >= closedRow // one at a time knocks at a closed door
	if l.inflight == 0 || !closed && (!math.IsInf(l.rate, 1) || float64(l.inflight) < l.window) {
		return 0
	}
	// Calls that hang, or whose end nobody reports, must not close the door for
	// good.
	wait := patience
	if closed {
		wait = min(max(wait, 2*l.latency), patienceMax)
	}
	return max(0, wait-now.since(l.moved))
}

// sent tells that an attempt was let go.
func (l *aimd) sent(now instant) {
	if l.first == 0 {
		l.first = now
	}
	l.inflight++
	l.moved = now
	l.delivered.busy(now)
	// If the next call comes more than a call interval from now, though it was not held
	// back, nobody wanted what the server would have given since then. Without a rate,
	// twice the latency stands for the interval: calls come one after the other, unless
	// they wait at the server for something to happen.
	if !math.IsInf(l.rate, 1) {
		l.delivered.idle(now, now.after(ceilSeconds(l.gap())))
	} else if l.latency > 0 {
		l.delivered.idle(now, now.after(2*l.latency))
	}
}

// held tells that the rate made someone wait.
func (l *aimd) held(now instant) {
	l.heldAt = now
	l.delivered.busy(now)
}

// free tells that the rate makes nobody wait now: whoever waited has left, or waits for
// another limiter.
func (l *aimd) free(now instant) {
	if l.inflight == 0 || !math.IsInf(l.rate, 1) {
		l.delivered.idle(now, l.resume)
	}
}

// done tells how an attempt ended; idle says that nobody waits for the rate now.
func (l *aimd) done(now instant, e ending, idle bool) lesson {
	l.inflight = max(0, l.inflight-1)
	l.moved = now
	if e.sent != 0 {
		l.latency = max(0, now.since(e.sent))
	}
	this := lesson{late: l.brake.late(e.sent)}
	reset := time.Duration(0)
	switch e.outcome {
	case OutcomeSuccess, OutcomePermanent: // a "not found" is an answer like others
		this.why, reset = l.success(now, e, this.late)
	case OutcomeTransient:
		l.failed(now)
	case OutcomeDropped:
		if e.sent != 0 { // it went, and nobody refused it as long as its caller listened
			l.failed(now)
		}
	case OutcomeThrottled:
		this.why = CauseThrottle
		l.elsewhere = elsewhere(e.quota, l.told)
		l.delivered.busy(now) // its pause counts
		if !this.late {
			l.cut(now, e.retryAfter)
		}
	}
	atMost := never
	if e.outcome == OutcomeThrottled && !math.IsInf(l.rate, 1) {
		atMost = ceilSeconds(pauseGaps * l.gap())
	}
	ahead := 0
	if l.delivered.n == 0 && math.IsInf(l.rate, 1) {
		ahead = l.cold
		if q := e.quota; ahead > 0 && q != nil && q.Limit > 0 && q.Remaining == 0 {
			ahead++ // others have used it up, and may again
		}
	}
	if this.pause = max(reset, l.brake.learn(now, e, ahead, atMost)); this.pause > 0 {
		l.resume = max(l.resume, now.after(this.pause))
	}
	switch {
	case e.outcome == OutcomeQuotaExhausted && this.pause > 0:
		l.stopped(now, l.resume)
	case e.outcome == OutcomeThrottled && e.retryAfter > outageLeast:
		// It may be for an outage, so no less than a part of the ceiling is learnt from it.
		if most := ceilSeconds(outageMost * memoryLong * l.cost / l.ceiling); most < e.retryAfter {
			l.delivered.skip(now, most, l.resume)
		}
	}
	if idle {
		l.free(now)
	}
	return this
}

// success returns how long to wait for a reset, too.
func (l *aimd) success(now instant, e ending, late bool) (why Cause, reset time.Duration) {
	q, cost, was := e.quota, float64(max(1, e.cost)), l.rate
	if l.delivered.n == 0 {
		l.cost, l.share = cost, 1
	}
	l.cost += (cost - l.cost) / memoryShort
	l.delivered.add(now)
	l.share += (1 - l.share) / memoryShort
	l.oks++
	// One that was under way when a door closed does not tell that it is open again.
	if !late || l.delivered.n == 1 {
		if l.row >= closedRow || l.row > 0 && (l.delivered.n == 1 || l.shut) {
			l.reopen(now)
		}
		l.row = 0
	}
	window := q != nil && l.windowed(now, *q)
	why = CauseSuccess
	switch {
	case l.rate < was:
		why = CauseThrottle // those of the closed time
	case l.rate > was:
		why = CauseQuota // of a new window
	}
	var more surplus
	if q != nil {
		l.told = *q
		if !window {
			settled := false
			if more, settled = l.hint(now, *q); settled {
				return CauseQuota, 0
			}
		}
	}
	if e.outcome == OutcomeSuccess && l.queued(now) {
		return CauseLatency, 0
	}
	l.grow(now, more, late)
	if window {
		if l.ration(now, *q) {
			why = CauseQuota
		}
		if l.part.of(l.cost)*float64(q.Remaining) < l.cost && q.Reset <= usedUpMost {
			reset = q.Reset // what is left is for others, and a rate would let a call go that was saved before
		}
	}
	return why, reset
}

// failed is for an attempt that came to nothing, though the server's limit let it through.
// So it counts as delivered: an outage is not to look like a limit that gives nothing.
func (l *aimd) failed(now instant) {
	if l.delivered.n == 0 { // an outage at the beginning tells nothing of what the limit gives
		l.delivered, l.shutAt = meter{}, 0
		return
	}
	l.delivered.add(now)
	l.share -= l.share / memoryShort
}

// queued reports whether calls take so much longer than they did that they stand in
// a queue. The rate falls below what comes out of it, so that the queue is worked off
// before callers give up on calls that the server still works on. The ceiling stays
// as it is, so that the rate is back at once if it was something else.
//
// Delay as a sign of congestion is from TCP Vegas: Brakmo and Peterson, "TCP Vegas: End
// to End Congestion Avoidance on a Global Internet" (1995).
func (l *aimd) queued(now instant) bool {
	l.took.add(l.latency.Seconds())
	if !l.took.grown() {
		l.queuedTop = 0
		return false
	}
	if math.IsInf(l.rate, 1) || now.since(l.heldAt).Seconds() > creditOver*l.gap() {
		return false // slow calls that come slowly stand in no queue
	}
	l.credit = now
	if l.delivered.n-l.queuedOks >= memoryShort { // else the last time has not shown yet
		l.queuedOks = l.delivered.n
		l.queuedTop = cmp.Or(l.queuedTop, l.rate)
		out := l.share * l.cost * l.delivered.over(now, memoryShort)
		l.rate = min(l.rate, max(l.min, l.decrease*l.queuedTop, queueTo*out))
	}
	return true
}

// windowed reports whether a quota is that of a window: its reset stays where it
// is while calls are used up. That of a bucket, which tells when it will be full,
// moves on with every call. With a new window the rate is back to what it was before
// the rest of the last one was spread.
func (l *aimd) windowed(now instant, q Quota) bool {
	if q.Reset <= 0 {
		return false
	}
	reset := now.after(q.Reset)
	moved := reset.since(l.resetAt).Abs() > resetSlack+q.Reset/100
	takes := max(2*l.latency, ceilSeconds(2*l.gap()))
	l.part.learn(now, l.told.Remaining-q.Remaining, l.delivered.n, l.cost, takes, moved)
	if moved {
		l.resetAt, l.resetLeft = reset, q.Remaining
		if l.unspread > l.rate {
			l.rate, l.credit = min(l.max, l.unspread), now
		}
		l.unspread = 0
	}
	return l.resetLeft-q.Remaining >= max(rationAfter, q.Limit/4)
}

// ration makes what is left of a window last until its reset, once half of it is
// used, or at once if others use it, too, and reports whether that slows the rate down.
func (l *aimd) ration(now instant, q Quota) bool {
	part := l.part.of(l.cost)
	if q.Limit > 0 && q.Remaining > q.Limit/2 && part > partAlone {
		return false
	}
	// If nothing is left, one call goes after the reset.
	pace := max(l.min, max(l.cost, part*float64(q.Remaining))/q.Reset.Seconds())
	if pace >= l.rate {
		return false
	}
	if math.IsInf(l.rate, 1) {
		l.ceiling = min(l.max, max(pace, l.given(now)))
	}
	l.unspread = max(l.unspread, min(l.rate, l.ceiling))
	l.rate, l.credit = pace, now
	return true
}

// reopen is for the success that ends a closed time, somewhere between the last
// throttle, or the end of the long wait of the first one, and now. How much went through
// since the time before that one ended is what the server gives in the long run,
// whatever it gave at once: so a window is learnt in one closing.
//
// The first success of all ends a closed time too, but tells nothing of the long run.
// Nor does a closed time that is long, unless another one was not long ago: it may have
// been an outage. So at the beginning it does not count as time in which the server
// delivered, and later what is learnt from it is bounded, and doubted: see slope. One
// call alone says nothing: where processes share a limit of a few calls, each would go
// by who was first.
func (l *aimd) reopen(now instant) {
	closed := now.since(l.closedAt)
	first, long := l.delivered.n == 1, closed > outageLeast
	if first && long {
		l.delivered = meter{}
		l.delivered.busy(now)
		l.delivered.add(now)
		l.shutAt = 0
	}
	if !first && l.delivered.n-l.openOks < reopenAfter {
		l.credit = now
		return // what comes next counts with it
	}
	busy := l.delivered.clock(now)
	opened := (min(l.shutAt, busy) + busy) / 2
	took := (opened - l.openAt).Seconds()
	given := l.cost * float64(l.delivered.n-l.openOks) / took
	if !first && took > 0 && given < l.ceiling && !math.IsInf(l.rate, 1) {
		if long && (l.outageAt == 0 || l.closedAt.since(l.outageAt) > outageApart*closed) {
			given = max(given, min(l.ceiling, l.cost/outageGap.Seconds()))
			l.doubted, l.agreed = true, 0
		}
		l.ceiling = max(l.min, given)
		l.rate = min(l.rate, max(l.min, reopenTo*given))
	}
	if l.delivered.n-l.openOks >= memoryLong {
		l.peak = min(l.peak, given) // what a window gives at first is no peak
	}
	if long {
		l.outageAt = now
	}
	l.openAt, l.openOks, l.credit = busy, l.delivered.n, now
	l.delivered.restart(l.delivered.n-1, opened)
}

// grow is the additive increase, for a success.
func (l *aimd) grow(now instant, quota surplus, late bool) {
	if math.IsInf(l.rate, 1) {
		// A limit that was used up before anything succeeded is shared, or slow: one call
		// after the other finds out more of it before the first cut, and leaves some to others.
		held := l.openOks > 0 && l.delivered.n-l.openOks < startHeld
		// Without demand for more there is nothing to learn about more.
		if !held && 2*float64(l.inflight+1) >= l.window {
			l.window += l.more()
		}
		return
	}
	if late || l.heldAt <= l.credit {
		return
	}
	dt := l.pay(now)
	more := min(hintGrowMost*l.rate, quota.spare*hintGrow*math.Sqrt(l.rate)*dt) + quota.refill*l.rate
	grown := l.slope(now) * dt
	if l.rate < l.ceiling {
		grown = min(grown, l.ceiling-l.rate) // beyond it the slope is another one
	}
	l.rate = min(l.max, l.rate+grown+more)
}

// more is how much wider the window gets for a success. All in flight are throttled at once
// when a bucket that was full is empty: once there are some, they grow with time, not with
// round trips.
func (l *aimd) more() float64 {
	if l.window < startFew {
		return startGrow
	}
	return min(startGrow, max(startLeast, l.latency.Seconds()))
}

// pay returns the seconds since growth was last paid out, at most a few call
// intervals, so that idle time earns nothing.
func (l *aimd) pay(now instant) float64 {
	dt := min(now.since(l.credit).Seconds(), creditOver*l.gap())
	l.credit = now
	return dt
}

// slope is the growth of the rate, per second.
func (l *aimd) slope(now instant) float64 {
	c := l.ceiling
	calls := c / l.cost // a second
	age := probeAge * now.since(l.first).Seconds()
	age = min(max(age, probeMin.Seconds()), probeMax.Seconds())
	// A limit that stays where it is is looked for less often. When it has moved
	// after all, the time lost is made up for. After what may have been an outage it is
	// looked for as often as the time allows.
	rarely := 1 + float64(l.agreed)
	// What fell by far may come back to where it was: the further it fell, the more a
	// delay costs, compared with a throttle.
	most := c
	if l.rate < peakTo*l.peak {
		most = math.Sqrt(c * max(c, l.peak))
	}
	slope := l.increase * most / max(rarely*probeOver/calls, age)
	if l.doubted {
		slope = l.increase * c / age
	}
	back := backTo
	if calls < slowRate {
		back = backToSlow
	}
	switch {
	case l.rate < back*c:
		slope = max(slope, (back-l.decrease)*c*calls/backOver)
	case l.rate > c:
		slope *= 1 + pushOn*(1+rarely)/2*(l.rate/c-1)
	}
	return slope
}

// cut is the multiplicative decrease, for a throttle that is not late.
func (l *aimd) cut(now instant, retryAfter time.Duration) {
	if l.row == 0 {
		l.closedAt = now
	}
	l.row++
	l.shutAt = l.delivered.clock(now)
	l.window = 1
	if l.oks == 0 {
		return // nothing got through since the last cut: pauses are the answer
	}
	first, was := math.IsInf(l.rate, 1), l.ceiling
	l.ceiling = min(max(l.rate, l.unspread), l.given(now))
	if !math.IsInf(was, 1) && math.Abs(l.ceiling-was) <= agreeWithin*was {
		l.agreed = min(l.agreed+1, agreeMost)
	} else {
		l.agreed = 0
	}
	l.peak -= peakFades * max(0, l.peak-l.ceiling)
	long := l.cost * l.delivered.over(now, memoryLong)
	if l.delivered.begun && l.delivered.n-l.delivered.base >= memoryLong && !math.IsInf(long, 1) {
		l.peak = max(l.peak, long)
	}
	rate := min(l.max, max(l.min, l.decrease*l.ceiling))
	l.ceiling = max(l.ceiling, rate)
	if l.unspread > 0 { // the rate is slower already, for the rest of a window
		l.unspread = min(l.unspread, rate)
		rate = min(rate, l.rate)
	}
	l.rate = rate
	l.oks, l.credit, l.doubted = 0, now, false
	if l.shut = first && retryAfter.Seconds() > closedGaps*l.gap(); l.shut {
		l.shutAt += min(retryAfter, math.MaxInt64-l.shutAt)
	}
	l.delivered.forget(now)
}

// given is what the server delivers, +Inf where nothing can be said. Where there is no
// rate calls come ever faster, so only the last ones count. The long run holds ways back,
// in which the server would have given more.
func (l *aimd) given(now instant) float64 {
	given := l.delivered.over(now, memoryShort)
	if !math.IsInf(l.rate, 1) {
		given = min(given, l.delivered.over(now, memoryLong)/longShare)
	}
	return l.cost * given
}

// surplus is what a quota leaves for growth.
type surplus struct {
	spare  float64 // how far Remaining is above what must be left, relative to that
	refill float64 // growth, relative to the rate, as what was used has come back
}

// hint follows a reported quota, and reports what it leaves for growth, and whether
// nothing more is to be done for the success. A quota that is nearly used up is a
// throttle that cost nothing.
func (l *aimd) hint(now instant, q Quota) (more surplus, settled bool) {
	if l.flat(q) {
		return surplus{}, false
	}
	flying := float64(l.inflight + 1)
	reserve := max(hintLeast, 2*flying)
	if limit := float64(q.Limit); limit > 0 {
		if limit < reserve {
			return surplus{}, false // it is used up and whole again while an answer is under way
		}
		reserve = min(reserve, max(1, limit/4))
	}
	if left := float64(q.Remaining); left >= reserve {
		// What is left is no reason to hurry while it grows less: it may be all
		// that there is for a long time.
		if !l.elsewhere {
			if q.Reset > 0 || q.Remaining >= l.hintLeft {
				more.spare = min(hintMost, left/reserve-1)
			}
			more.refill = l.refilled(q)
		}
		l.hintAt, l.hintLeft = now, q.Remaining
		return more, false
	}
	if math.IsInf(l.rate, 1) {
		given := l.given(now)
		if math.IsInf(given, 1) {
			return surplus{}, false
		}
		l.ceiling, l.credit = given, now
		l.rate = min(l.max, max(l.min, hintCut*given))
		l.hintAt, l.hintLeft = now, q.Remaining
		return surplus{}, true
	}
	if l.hintAt == 0 {
		l.hintAt, l.hintLeft = now, q.Remaining
	}
	since := now.since(l.hintAt).Seconds()
	if since < hintGaps*l.gap() {
		return surplus{}, true // the last decision has not shown yet
	}
	switch {
	case q.Remaining < l.hintLeft:
		l.ceiling = l.rate
		l.rate = max(l.min, hintCut*l.rate)
	case q.Remaining == l.hintLeft:
		l.rate = max(l.min, hintCut*l.rate)
		if q.Remaining == l.leftMost {
			l.leftFlat++
		}
	case q.Remaining > l.hintLeft+1:
		l.rate = min(l.max, l.rate+min(hintGrowMost*l.rate, hintGrow*math.Sqrt(l.rate)*since))
	}
	l.hintAt, l.hintLeft, l.credit = now, q.Remaining, now
	return surplus{}, true
}

// refilled returns by what share of itself the rate may grow since a part of the limit
// has been used and is back already: so far that refillTo of the limit would be used
// at once, and no further than to twice the rate. In a window nothing comes back before
// its end, when everything does in one step.
func (l *aimd) refilled(q Quota) (more float64) {
	if q.Limit <= 0 {
		return 0
	}
	part := max(rationAfter, q.Limit/4, 2*l.inflight) // answers overtake each other
	step := q.Remaining-l.hintLeft >= part
	if !step && l.delivered.n-l.refillOks < max(hintLeast, part) {
		return 0
	}
	if !step && q.Remaining >= l.refillLow {
		used := max(0, 1-float64(q.Remaining)/float64(q.Limit))
		more = min(1, max(0, refillTo/used-1))
	}
	l.refillOks, l.refillLow = l.delivered.n, q.Remaining
	return more
}

// elsewhere reports whether a throttle came though enough was left, by what it says itself
// or else by what a success was told last: then something else limits calls.
func elsewhere(throttle *Quota, last Quota) bool {
	if throttle != nil {
		return throttle.Remaining > 0
	}
	enough := hintLeast
	if last.Limit > 0 {
		enough = last.Limit / 2
	}
	return last.Remaining > enough
}

// flat reports whether what is left stays where it is, at the most that was ever seen,
// however slowly calls come: a bucket that is full, or a number that means nothing.
func (l *aimd) flat(q Quota) bool {
	switch {
	case q.Remaining > l.leftMost:
		l.leftMost, l.leftFlat = q.Remaining, 0
	case q.Remaining < l.leftMost && l.leftFlat < flatAfter:
		l.leftFlat = 0
	}
	return l.leftFlat >= flatAfter
}

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
	since   instant       // from when on the clock goes,
	ends    instant       // and until when, unless somebody comes; instant(never) if that is not known
	elapsed time.Duration // busy time before since
	ring    []time.Duration
	n       int           // calls let through in all
	base    int           // those that do not count any more
	baseAt  time.Duration // busy time where counting began
	begun   bool          // the burst before the first cut is forgotten
}

func (m *meter) clock(now instant) time.Duration {
	return m.elapsed + max(0, min(now, m.ends).since(m.since))
}

func (m *meter) busy(now instant) {
	if now > m.ends {
		m.elapsed, m.since = m.clock(now), now
	}
	m.ends = instant(never)
}

// idle tells that nobody wants anything from now on. The time up to until still counts.
func (m *meter) idle(now, until instant) {
	if now < m.ends {
		m.ends = max(now, until)
	}
}

// skip leaves out the time from now to until, but for its beginning, which is as long as but.
func (m *meter) skip(now instant, but time.Duration, until instant) {
	if now >= m.ends || now < m.since {
		but = 0 // it stands still, or the beginning has been counted
	}
	m.elapsed, m.since = m.clock(now)+but, until
	if m.ends != instant(never) {
		m.ends = until
	}
}

func (m *meter) add(now instant) {
	if at := m.clock(now); len(m.ring) < memoryLong {
		m.ring = append(m.ring, at)
	} else {
		m.ring[m.n%memoryLong] = at
	}
	m.n++
}

// forget leaves out what came before the first cut, once: a bucket that was
// full flatters.
func (m *meter) forget(now instant) {
	if !m.begun && m.n > memoryLeast {
		m.restart(m.n, m.clock(now))
	}
	m.begun = true
}

// restart leaves out the first n calls, and the busy time before at.
func (m *meter) restart(n int, at time.Duration) {
	m.base, m.baseAt = n, max(0, at)
}

// over is the rate over most calls, +Inf where nothing can be said.
func (m *meter) over(now instant, most int) float64 {
	k, from := m.n-m.base, m.baseAt
	if k < memoryLeast {
		k, from = m.n, 0 // too few to go by: the burst counts after all
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

// A part is how much of a quota is used for each call of here: more than the call itself
// costs if others use it, too, who do not know of each other. Where each of them takes of
// what is left the part that it had of what was used, all is used, and no more.
type part struct {
	each float64 // over about the last partOver calls, 0 at first
	at   instant // when it was last learnt
	n    int     // calls let through by then
}

// learn is told by how much a quota fell since it was last asked, unless it is a new one,
// how many calls were let through by now, and how long one takes at most while somebody
// wants more: what others use meanwhile counts, and not what they use in quiet times.
func (p *part) learn(now instant, fell, n int, cost float64, takes time.Duration, fresh bool) {
	switch {
	case p.each == 0:
		p.each = cost
	case !fresh && n > p.n:
		others := float64(fell)/float64(n-p.n) - cost
		if took := now.since(p.at); took > takes {
			others *= float64(takes) / float64(took)
		}
		p.each += (cost + others - p.each) / float64(min(n, partOver))
	}
	p.at, p.n = now, n
}

// of is the part that a call of that cost stands for.
func (p *part) of(cost float64) float64 { return cost / max(cost, p.each) }

// latencies are means of how long successes took, in seconds: over about the last
// memoryShort of them, and the last memoryLong. The long one rises slower than it falls, or
// it would grow with a queue, and hide it.
type latencies struct{ short, long float64 }

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
	l.short += (took - l.short) / memoryShort
	over := float64(memoryLong)
	if took > l.long {
		over *= queueSlow
	}
	l.long += (took - l.long) / over
}

func (l *latencies) grown() bool { return l.short > queueGrown*l.long }
