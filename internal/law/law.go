// Package law finds the rate that a server gives, from how attempts end. It is AIMD: it halves
// the rate on a throttle and grows it linearly on success, after Chiu and Jain, "Analysis of
// the increase and decrease algorithms for congestion avoidance in computer networks" (1989).
//
// The law is a state machine of events and explicit times. It never looks at a clock and takes
// no lock, so a table, a simulator or a limiter can drive it. Each rule has a file that names
// it: start, closing, cut, chance, growth, quota, window, renewal and latency. docs/control.md says
// why each rule is there.
package law

import (
	"cmp"
	"math"
	"time"

	"github.com/a7df5faa/cruise/internal/clock"
)

// Kind is the news of an attempt about the rate.
type Kind uint8

// The kinds of attempts.
const (
	Nothing  Kind = iota // it was never sent, or says nothing of the rate
	Passed               // the limit let it through, though it failed
	Success              // the server answered
	Denied               // as Success, but its latency says nothing: a "not found"
	Throttle             // the server said slow down
)

// Attempt is how an attempt ended that the law let go.
type Attempt struct {
	Kind       Kind
	Sent       clock.Instant // when it was let go; 0 if unknown
	Cost       int
	Count      int // of attempts that ended so, and were told together; 0 stands for 1
	RetryAfter time.Duration
	Quota      *Quota
	Late       bool // a throttle or success that was sent before the last throttle was known

	Run clock.Instant // identifies the run of throttles that Undo may take back; 0 for none
}

func (a Attempt) count() int { return max(1, a.Count) }

// Cause is why the rate changed.
type Cause uint8

// The causes of a change.
const (
	ByGrowth Cause = iota
	ByThrottle
	ByQuota
	ByLatency
)

// Decision is the answer of the law to an attempt, beside the new rate.
type Decision struct {
	Why    Cause
	Cold   bool          // nothing has ever got through
	AtMost time.Duration // a first pause takes no longer; [clock.Never] for no bound
}

// Config holds the choices of an owner. Rates are in calls of cost 1 per second.
type Config struct {
	Min, Max float64
	Decrease float64 // factor of a cut
	Increase float64 // share of the ceiling that probing adds
	Lag      float64 // seconds until all callers know of a throttle, 0 if they do at once: reports are as late
}

// Law is the state of one limiter.
type Law struct {
	Config
	delivered meter
	start
	closing
	quotas
	latency
	chance

	undo     before        // the state before the last run of throttles
	rate     float64       // calls of cost 1 per second; +Inf before the first throttle
	ceiling  float64       // the rate that the last congestion showed to be too much
	measured int           // calls that the ceiling was measured by
	peak     float64       // the most that was delivered between two cuts; fades with each cut
	peaked   mark          // when the peak was last measured
	known    int           // calls that the rate was known by before the first one here
	agreed   int           // cuts in a row that found the ceiling where it was, agreeMost at most
	fresh    int           // successes since the last cut
	credit   clock.Instant // until when growth has been paid out
	heldAt   clock.Instant // when the rate last made a call wait
	resume   clock.Instant // end of the last pause
	cost     float64       // mean of about the last memoryShort successes
}

const (
	memoryLong  = 128 // calls that a measure looks back: far enough to see a window,
	memoryShort = 32  // or near enough to see a limit that fell
	memoryLeast = 8   // fewer calls are no measure

	margin    = .1 // of a figure: less makes no difference
	outlier   = 4  // times the usual, for which one call counts at most
	fallen    = .7 // of a figure that was higher: below that it has fallen far
	pauseGaps = 2  // call intervals that a first pause takes at most

	cycleMost = 5 * time.Minute // that a probe takes, or the closing of a window: a longer one may be an outage
)

// New returns a law without a rate.
func New(c Config) *Law {
	return &Law{Config: c, rate: math.Inf(1), cost: 1, start: start{window: 1}}
}

// Rate returns the rate in calls of cost 1 per second, +Inf for none.
func (l *Law) Rate() float64 { return l.rate }

// Ceiling returns the rate that the last congestion showed to be too much, +Inf before the first.
func (l *Law) Ceiling() float64 { return l.ceiling }

// Row returns how many throttles came since a call got through that was sent after one.
func (l *Law) Row() int { return l.row }

// Soon returns the highest rate that is possible within a few calls.
func (l *Law) Soon() float64 {
	if l.unspread > 0 {
		return l.rate // for the rest of a window
	}
	return max(l.rate, l.ceiling)
}

// Renewed returns how long from now the rate lasts at least, and the highest rate possible then.
func (l *Law) Renewed(now clock.Instant) (in time.Duration, rate float64) {
	if l.unspread == 0 {
		return clock.Never, l.rate
	}
	return max(0, l.resetAt.Sub(now)), max(l.unspread, l.ceiling)
}

// InFlight returns how many attempts were let go and have not ended.
func (l *Law) InFlight() int { return l.inflight }

// SetRate sets the rate from outside. Calls delivered before say no more about it. +Inf begins
// anew.
func (l *Law) SetRate(now clock.Instant, rate float64) {
	l.rate, l.ceiling, l.peak, l.unspread, l.agreed, l.known = rate, rate, 0, 0, 0, 0
	l.given, l.price, l.closings, l.chance = 0, 0, [len(l.closings)]time.Duration{}, chance{}
	l.credit, l.window, l.undo = now, 1, before{}
	if !math.IsInf(rate, 1) {
		l.known, l.measured = memoryLong, memoryLong // the owner knows it
	}
	l.delivered.restart(l.delivered.n, l.delivered.clock(now))
	l.delivered.floor = l.delivered.n
	l.opened = l.delivered.mark(now)
	l.peaked = l.opened
}

// Begin is SetRate for a rate that was found elsewhere, with its ceiling. Without one, which is
// +Inf, the rate is a guess: until the first congestion it grows by itself in each second.
func (l *Law) Begin(now clock.Instant, rate, ceiling float64) {
	l.SetRate(now, rate)
	if l.ceiling = ceiling; math.IsInf(ceiling, 1) {
		l.known, l.measured = 0, 0
	}
}

// Bound keeps the rate within other bounds from now on.
func (l *Law) Bound(c Config) {
	l.Config = c
	l.rate = min(max(l.rate, c.Min), c.Max)
}

// Settle makes the law probe as rarely as if its ceiling had been found again and again, and a
// throttle had cost ten seconds. That holds until the next one.
func (l *Law) Settle() {
	l.agreed, l.measured, l.price = agreeMost, memoryLong, patienceMost.Seconds()
}

// Stop tells that no call goes before until, for a reason that says nothing about the server's
// limit.
func (l *Law) Stop(now, until clock.Instant) {
	l.resume = until
	l.delivered.pause(now, until, 0, false)
}

// Sent tells that an attempt was let go.
func (l *Law) Sent(now clock.Instant) {
	l.letGo(now)
	l.delivered.busy(now)
	// If the next call comes more than a call interval from now, though nothing held it back,
	// there was no demand since then. Without a rate, twice the latency stands for the interval.
	if !l.unpaced() {
		l.delivered.idle(now, now.Add(clock.CeilSeconds(l.cost/max(l.rate, l.unspread))))
	} else if l.took > 0 {
		l.delivered.idle(now, now.Add(2*l.took))
	}
}

// Held tells that the rate made a call wait.
func (l *Law) Held(now clock.Instant) {
	l.heldAt = now
	if l.unspread == 0 {
		l.delivered.busy(now)
	}
}

// Free tells that the rate makes no call wait now.
func (l *Law) Free(now clock.Instant) {
	if l.inflight == 0 || !l.unpaced() {
		l.delivered.idle(now, l.resume)
	}
}

// Used tells of the demand of many processes, in place of Sent and Free: calls were let go from one
// time until another, and so many of them have not ended. held says that the rate made calls wait.
func (l *Law) Used(from, until clock.Instant, inflight int, held bool) {
	l.inflight = inflight
	if held {
		l.heldAt = until
	}
	l.delivered.busy(from)
	l.delivered.idle(from, until)
}

// Done tells how an attempt ended. [Law.Rest] must follow.
func (l *Law) Done(now clock.Instant, a Attempt) Decision {
	l.landed(now, a.Sent)
	d := Decision{AtMost: clock.Never, Cold: l.unpaced() && l.delivered.n == 0}
	switch a.Kind {
	case Success, Denied:
		d.Why = l.success(now, a)
	case Passed: // an outage is not to look like a limit that gives nothing
		if l.delivered.n == 0 {
			l.delivered.restart(0, l.delivered.clock(now))
			l.opened = l.delivered.mark(now)
			break
		}
		l.share -= l.share / memoryShort
		l.delivered.add(now, a.count())
	case Throttle:
		d.Why = ByThrottle
		l.delivered.busy(now)
		if a.Late {
			l.late += a.count()
		} else {
			l.note(a.Run)
			l.close(now, a.RetryAfter)
			l.cut(now)
		}
		if !l.unpaced() {
			d.AtMost = clock.CeilSeconds(pauseGaps * l.gap())
		}
	}
	return d
}

// Rest tells how long everyone pauses for the attempt, 0 for not at all, and whether no call
// waits for the rate now.
func (l *Law) Rest(now clock.Instant, a Attempt, pause time.Duration, idle bool) {
	throttled := a.Kind == Throttle
	if pause > 0 {
		l.resume = max(l.resume, now.Add(pause))
		counts := time.Duration(0)
		if throttled && !l.unpaced() {
			counts = clock.CeilSeconds(longGaps * l.gap())
		}
		l.delivered.pause(now, l.resume, counts, throttled)
	}
	if idle || throttled && l.unspread > 0 {
		l.Free(now)
	}
}

// gap returns a call interval, in seconds.
func (l *Law) gap() float64 { return l.cost / l.rate }

func (l *Law) unpaced() bool { return math.IsInf(l.rate, 1) }

// success returns why the rate changed.
func (l *Law) success(now clock.Instant, a Attempt) (why Cause) {
	was, cost, n := l.rate, float64(max(1, a.Cost)), a.count()
	first := l.delivered.n == 0
	if first {
		l.cost, l.share = cost, 1
	}
	l.cost += (cost - l.cost) * min(1, float64(n)/memoryShort)
	l.share += (1 - l.share) / memoryShort
	l.delivered.add(now, n)
	l.fresh += n
	// A success that was sent before the last throttle does not show that the server is open.
	if !a.Late || first {
		l.open(now)
	}
	l.spare = 0
	var q Quota
	if a.Quota != nil {
		q = *a.Quota
		q.Reset = cmp.Or(q.Reset, l.reset(now, a.Sent, q, l.delivered.n, l.inflight))
	}
	window := a.Quota != nil && l.windowed(now, q)
	switch {
	case l.rate < was:
		why = ByThrottle
	case l.rate > was:
		why = ByQuota
	}
	if a.Quota != nil {
		if !window && l.heed(now, a.Sent, q) {
			return ByQuota
		}
		if l.spare > 0 {
			why = ByQuota
		}
	}
	spread := a.Quota == nil && l.unspread > 0 && now < l.resetAt // the rest stays spread
	if a.Kind == Success && l.queued(now) {
		why = ByLatency
	} else if !spread {
		l.grow(now, a.Late, n)
	}
	if window && l.ration(now, q) {
		why = ByQuota
	}
	return why
}
