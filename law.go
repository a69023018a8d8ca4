package cruise

import (
	"cmp"
	"math"
	"time"

	"github.com/a7df5faa/cruise/internal/clock"
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
	brake     brake
	delivered meter
	door
	quotas
	queueing

	rate    float64       // calls of cost 1 per second; +Inf before the first throttle
	ceiling float64       // what the last congestion showed to be too much
	trusted float64       // the highest ceiling since more than chance made it fall
	peak    float64       // the most it was over memoryLong calls; fades with each cut below it
	window  float64       // most attempts in flight while there is no rate
	agreed  int           // cuts in a row that found the ceiling where it was, agreeMost at most
	doubted bool          // the ceiling may be what an outage made it
	oks     int           // successes since the last cut
	credit  clock.Instant // until when growth has been paid out

	inflight int           // let go and not done
	first    clock.Instant // when the first attempt was let go
	moved    clock.Instant // when one was last let go or done
	went     clock.Instant // when one was last let go
	latency  time.Duration // of the last
	refusal  time.Duration // latency of the last throttle
	cost     float64       // of a call, the mean of about the last memoryShort successes
	share    float64       // of successes among the calls let through, over about the last memoryShort
	answers  int           // of throttles and of calls let through, fewOver at most
	refused  float64       // share of throttles among the last fewOver of them, or all while there are fewer
	heldAt   clock.Instant // when the rate last made someone wait
	resume   clock.Instant // until when the last pause lasts
}

// door tells whether a server is closed: it throttles, and lets nothing through.
type door struct {
	row      int           // throttles until a call succeeds that was sent after the last of them
	closedAt clock.Instant // when the first of them came
	shut     bool          // that one gave the first rate, and asked for a wait that is long beside it
	shutAt   time.Duration // busy time when a throttle last cut, or when its wait ends if shut
	openAt   time.Duration // busy time when the server last opened again
	openOks  int           // calls let through by then
	outageAt clock.Instant // when a closing ended that may have been an outage
}

// queueing tells of a queue: what calls stand in where they take longer and longer.
type queueing struct {
	took      latencies
	queuedOks int     // calls let through by when a queue last slowed the rate down
	queuedTop float64 // rate when this queue first did, 0 while there is none
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
	startSlow  = 1.  // seconds; where calls take longer a success lets in more,
	startPace  = 2   // and calls go at this multiple at most of the rate at which they end
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

	fewMost = .03              // share of throttles below which they are few, and may come by chance,
	fewOver = 300              // among so many answers
	fewTo   = .3               // of the trusted ceiling, below which few do not take the next one
	fewWait = 10 * time.Second // Retry-After, or time for which the door was closed, from which on it is no chance

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

	queueTo = .9 // of what comes out of a queue, to which the rate falls
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

// renewed is how long from now the rate lasts at least, and what it can be then.
func (l *aimd) renewed(now clock.Instant) (in time.Duration, rate float64) {
	if l.unspread == 0 {
		return clock.Never, l.rate
	}
	return max(0, l.resetAt.Sub(now)), max(l.unspread, l.ceiling)
}

// stopped tells that nobody goes before until, for a reason that says nothing of
// what the server gives.
func (l *aimd) stopped(now, until clock.Instant) {
	l.resume = until
	l.delivered.skip(now, 0, until)
}

// gap is a call interval, in seconds.
func (l *aimd) gap() float64 { return l.cost / l.rate }

// setLimit makes the rate another one, from outside: what was delivered says no more of it.
func (l *aimd) setLimit(now clock.Instant, limit float64) {
	l.rate, l.ceiling, l.trusted, l.unspread, l.agreed, l.doubted, l.credit, l.peak = limit, limit, 0, 0, 0, false, now, 0
	l.delivered.anew(now)
	l.openAt, l.openOks = l.delivered.goneAt, l.delivered.gone
	if math.IsInf(limit, 1) {
		l.window = 1 // it begins anew
	}
}

// wait is how long from now an attempt must wait for those in flight: 0 if it need
// not.
func (l *aimd) wait(now clock.Instant) time.Duration {
	closed := l.row >= closedRow // one at a time knocks at a closed door
	if l.inflight == 0 || !closed && !math.IsInf(l.rate, 1) {
		return 0
	}
	if !closed && float64(l.inflight) < l.window {
		if l.took.long <= startSlow {
			return 0
		}
		// Two at one moment would be too many for a small bucket, whatever the rate.
		return max(0, min(patience, clock.CeilSeconds(l.took.long/(startPace*l.window)))-now.Sub(l.went))
	}
	// Calls that hang, or whose end nobody reports, must not close the door for
	// good.
	wait := patience
	if closed {
		wait = min(max(wait, 2*l.latency), patienceMax)
	}
	wait -= now.Sub(l.moved)
	// The window is of calls that take as long as ever. Of those that take longer as many go in
	// a second, though more are in flight: a server that is slow has throttled nobody.
	if l.row == 0 && l.took.n >= memoryShort {
		wait = min(wait, clock.CeilSeconds(l.took.long/l.window)-now.Sub(l.went))
	}
	return max(0, wait)
}

// sent tells that an attempt was let go.
func (l *aimd) sent(now clock.Instant) {
	if l.first == 0 {
		l.first = now
	}
	l.inflight++
	l.moved, l.went = now, now
	l.delivered.busy(now)
	// If the next call comes more than a call interval from now, though it was not held
	// back, nobody wanted what the server would have given since then. Nor did who saves
	// the rest of a window for later, which is slower than the rate. Without a rate,
	// twice the latency stands for the interval: calls come one after the other, unless
	// they wait at the server for something to happen.
	if !math.IsInf(l.rate, 1) {
		l.delivered.idle(now, now.Add(clock.CeilSeconds(l.cost/max(l.rate, l.unspread))))
	} else if l.latency > 0 {
		l.delivered.idle(now, now.Add(2*l.latency))
	}
}

// held tells that the rate made someone wait.
func (l *aimd) held(now clock.Instant) {
	l.heldAt = now
	if l.unspread == 0 {
		l.delivered.busy(now)
	}
}

// free tells that the rate makes nobody wait now: whoever waited has left, or waits for
// another limiter.
func (l *aimd) free(now clock.Instant) {
	if l.inflight == 0 || !math.IsInf(l.rate, 1) {
		l.delivered.idle(now, l.resume)
	}
}

// done tells how an attempt ended; idle says that nobody waits for the rate now.
func (l *aimd) done(now clock.Instant, e ending, idle bool) lesson {
	l.inflight = max(0, l.inflight-1)
	l.moved = now
	if e.sent != 0 {
		l.latency = max(0, now.Sub(e.sent))
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
		this.why, l.refusal = CauseThrottle, l.latency
		l.answered(1)
		l.elsewhere = elsewhere(e.quota, l.told)
		l.delivered.busy(now) // its pause counts
		if !this.late {
			l.cut(now, e.retryAfter)
		}
		if e.retryAfter >= fewWait {
			l.trusted = 0
		}
	}
	atMost := clock.Never
	if e.outcome == OutcomeThrottled && !math.IsInf(l.rate, 1) {
		atMost = clock.CeilSeconds(pauseGaps * l.gap())
	}
	ahead := 0
	if l.delivered.n == 0 && math.IsInf(l.rate, 1) {
		ahead = l.cold
		if q := e.quota; ahead > 0 && q != nil && q.Limit > 0 && q.Remaining == 0 {
			ahead++ // others have used it up, and may again
		}
	}
	if this.pause = max(reset, l.brake.learn(now, e, ahead, atMost)); this.pause > 0 {
		l.resume = max(l.resume, now.Add(this.pause))
	}
	switch {
	case e.outcome == OutcomeQuotaExhausted && this.pause > 0:
		l.stopped(now, l.resume)
	case e.outcome == OutcomeThrottled && e.retryAfter > outageLeast:
		// It may be for an outage, so no less than a part of the ceiling is learnt from it.
		if most := clock.CeilSeconds(outageMost * memoryLong * l.cost / l.ceiling); most < e.retryAfter {
			l.delivered.skip(now, most, l.resume)
		}
	}
	if idle || e.outcome == OutcomeThrottled && l.unspread > 0 {
		l.free(now) // who saves the rest of a window wants nothing when the pause has ended, either
	}
	return this
}

// success returns how long to wait for a reset, too.
func (l *aimd) success(now clock.Instant, e ending, late bool) (why Cause, reset time.Duration) {
	q, cost, was := e.quota, float64(max(1, e.cost)), l.rate
	if l.delivered.n == 0 {
		l.cost, l.share = cost, 1
	}
	l.cost += (cost - l.cost) / memoryShort
	l.delivered.add(now)
	l.answered(0)
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
			if more, settled = l.hint(now, e.sent, *q); settled {
				return CauseQuota, 0
			}
		}
	}
	spread := q == nil && l.unspread > 0 && now < l.resetAt // what is left stays spread
	if e.outcome == OutcomeSuccess && l.queued(now) {
		why = CauseLatency
	} else if !spread {
		l.grow(now, more, late)
	}
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

// answered notes an answer: a throttle is 1, a call that was let through 0.
func (l *aimd) answered(throttle float64) {
	l.answers = min(l.answers+1, fewOver)
	l.refused += (throttle - l.refused) / float64(l.answers)
}

// failed is for an attempt that came to nothing, though the server's limit let it through.
// So it counts as delivered: an outage is not to look like a limit that gives nothing.
func (l *aimd) failed(now clock.Instant) {
	if l.delivered.n == 0 { // an outage at the beginning tells nothing of what the limit gives
		l.delivered, l.shutAt = meter{}, 0
		return
	}
	l.delivered.add(now)
	l.answered(0)
	l.share -= l.share / memoryShort
}

// queued reports whether calls take so much longer than they did that they stand in
// a queue. The rate falls below what comes out of it, so that the queue is worked off
// before callers give up on calls that the server still works on. The ceiling stays
// as it is, so that the rate is back at once if it was something else.
//
// Delay as a sign of congestion is from TCP Vegas: Brakmo and Peterson, "TCP Vegas: End
// to End Congestion Avoidance on a Global Internet" (1995).
func (l *aimd) queued(now clock.Instant) bool {
	l.took.add(l.latency.Seconds())
	if !l.took.grown() {
		l.queuedTop = 0
		return false
	}
	if math.IsInf(l.rate, 1) || now.Sub(l.heldAt).Seconds() > creditOver*l.gap() {
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
// by who was first. It counts with what comes next, unless that was an outage.
func (l *aimd) reopen(now clock.Instant) {
	closed := now.Sub(l.closedAt)
	first, long := l.delivered.n == 1, closed > outageLeast
	outage := long && (l.outageAt == 0 || l.closedAt.Sub(l.outageAt) > outageApart*closed)
	if first && long {
		l.delivered = meter{}
		l.delivered.busy(now)
		l.delivered.add(now)
		l.shutAt = 0
	}
	one := l.delivered.n-l.openOks < reopenAfter
	if one && !first && !outage {
		l.credit = now
		return
	}
	busy := l.delivered.clock(now)
	opened := (min(l.shutAt, busy) + busy) / 2
	took := (opened - l.openAt).Seconds()
	given := l.cost * float64(l.delivered.n-l.openOks) / took
	if !one && took > 0 && given < l.ceiling && !math.IsInf(l.rate, 1) {
		if outage {
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
	if closed >= fewWait {
		l.trusted = 0
	}
	l.openAt, l.openOks, l.credit = busy, l.delivered.n, now
	l.delivered.restart(l.delivered.n-1, opened)
}

// grow is the additive increase, for a success.
func (l *aimd) grow(now clock.Instant, quota surplus, late bool) {
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
	grown := l.growth(now, l.ceiling, dt)
	// What fell far is back. Its peak has faded by then, so pushing on may be faster.
	if back := peakTo * l.peak; l.ceiling < back && l.rate >= back {
		grown = max(grown, l.growth(now, l.peak, dt))
	}
	l.rate = min(l.max, l.rate+grown+more)
}

// growth is what the rate gains in some seconds, with a ceiling.
func (l *aimd) growth(now clock.Instant, ceiling, seconds float64) float64 {
	grown := l.slope(now, ceiling) * seconds
	if l.rate < ceiling {
		grown = min(grown, ceiling-l.rate) // beyond it the slope is another one
	}
	return grown
}

// more is how much wider the window gets for a success. All in flight are throttled at once
// when a bucket that was full is empty: once there are some, they grow with time, not with
// round trips. And they grow by more where calls take seconds: by round trips of that length
// they would grow for minutes.
func (l *aimd) more() float64 {
	more, took := startGrow, l.latency.Seconds()
	if l.window >= startFew {
		more = min(startGrow, max(startLeast, took))
	}
	return min(1, more*max(1, took/startSlow)) // 1 doubles the window in a round trip, as TCP begins
}

// pay returns the seconds since growth was last paid out, at most a few call
// intervals, so that idle time earns nothing.
func (l *aimd) pay(now clock.Instant) float64 {
	dt := min(now.Sub(l.credit).Seconds(), creditOver*l.gap())
	l.credit = now
	return dt
}

// slope is the growth of the rate with a ceiling of c, per second.
func (l *aimd) slope(now clock.Instant, c float64) float64 {
	calls := c / l.cost // a second
	age := probeAge * now.Sub(l.first).Seconds()
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
func (l *aimd) cut(now clock.Instant, retryAfter time.Duration) {
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
	// Few throttles may come by chance, whatever the rate: those of one key among many, say.
	// Where the rate is too high there will be more.
	if l.refused >= fewMost {
		l.trusted = 0
	}
	l.ceiling = max(l.ceiling, rate, fewTo*l.trusted)
	if !first { // a burst goes faster than what the server gives in the long run
		l.trusted = max(l.trusted, l.ceiling)
	}
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
func (l *aimd) given(now clock.Instant) float64 {
	given := l.delivered.over(now, memoryShort)
	if !math.IsInf(l.rate, 1) || math.IsInf(given, 1) { // answers that come at one moment tell nothing
		given = min(given, l.delivered.over(now, memoryLong)/longShare)
	}
	return l.cost * max(given, l.underWay())
}

// underWay is at how many calls a second the server lets those through that have not ended:
// those that would have been throttled by now, by the time that a call takes. Where calls take
// long, and throttles come at once, what has ended tells of a rate of long ago.
func (l *aimd) underWay() float64 {
	if l.took.long == 0 || math.IsInf(l.rate, 1) {
		return 0
	}
	n := float64(l.inflight) - 2*l.refusal.Seconds()/l.gap()
	if n < memoryLeast { // so few may hang
		return 0
	}
	return n / l.took.long
}
