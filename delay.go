package cruise

import (
	"context"
	"math"
	"math/rand/v2"
	"time"

	"github.com/a7df5faa/cruise/internal/clock"
)

// DelayLimiter makes every call wait for one delay that all callers share. It is
// none at first; a throttle raises it and successes lower it, by a [DelayRule].
//
// Callers wait for it side by side, not one after the other: with 10 callers and
// a delay of 1 s, 10 calls a second go. A caller that waits already feels each
// change of the delay at once, and goes when the present delay, from the moment
// it came, is over. A Retry-After pauses everyone, and those who waited through
// a pause leave spread over one delay, with some of those who came meanwhile behind
// them.
//
// It sets the time between the calls of one caller, not a rate: twice the callers make
// twice the calls, and the delay has to find its level again with each that comes or
// goes. Prefer it to reproduce a client that you know, for a worker that calls in a loop,
// or where the server wants time between the calls of each worker.
//
// Otherwise prefer the [AdaptiveLimiter], which learns the rate itself, cuts it once for
// one congestion, and lets calls wait in order. In the simulator's suite of 13 servers
// (docs/scoreboard.md) every rule that plays there, which is all but [LinearDelay], is
// throttled more often than that. All but [HerokuGradual] use a third less of what the
// servers give; that one uses as much, and has every second attempt throttled.
// [HerokuProportional] and [HerokuRemaining] come closest at the one server that they
// were made for: they are throttled two and a half times as often where it tells
// nothing, and twenty times as often where it tells its limit and what is left.
//
// The cost of a call makes no difference, except that 0 does not wait, nor does
// its being a retry or background work.
//
// A DelayLimiter is safe for concurrent use and must not be copied. The zero
// value admits nothing, with an error that says so.
type DelayLimiter struct {
	housing // whose lock guards the fields below too
	delays  delays
}

var _ Learner = (*DelayLimiter)(nil)

// NewDelayLimiter returns a limiter without a delay yet. The error names every
// field of the rule that is out of bounds. A rule by which nothing lowers the delay is
// refused.
func NewDelayLimiter(rule DelayRule) (*DelayLimiter, error) {
	if err := rule.check(); err != nil {
		return nil, err
	}
	if rule.Factor == 0 {
		rule.Factor = 1
	}
	if rule.JitterMax == 0 {
		rule.JitterMax = clock.Never
	}
	d := &DelayLimiter{delays: delays{rule: rule}}
	d.room.policy, d.room.delays = &d.delays, &d.delays
	return d, nil
}

// WaitN waits until the delay is over, counted from now. A negative n is an
// error, and n of 0 does not wait. It returns the context's error and cause if
// that ends first, and an [*Error] with [ErrDeadline] at once if the wait could
// not end in time.
func (d *DelayLimiter) WaitN(ctx context.Context, n int) error {
	_, _, err := d.admit(ctx, n)
	return err
}

// Learn raises the delay if the attempt was throttled, counts it if it succeeded
// or failed for good, which is an answer too, and pauses if the server asked for a wait.
// A Feedback of Cost 0 or less is of an attempt that was never admitted, and is ignored.
func (d *DelayLimiter) Learn(f Feedback) { d.learn(f.ending()) }

func (d *DelayLimiter) learn(e ending) {
	if e.cost <= 0 || d.room.policy == nil {
		return
	}
	d.room.mu.Lock()
	defer d.room.mu.Unlock()
	now := d.room.advance(clock.Now())
	e.sent = d.room.sentAt(e.sent)
	was := d.delays.delay
	d.delays.learn(now, e)
	paused := e.outcome.stops() && d.room.pauseBy(now, e, e.retryAfter)
	switch is := d.delays.delay; {
	case paused || is > was:
		d.room.changed(now)
	case is < was:
		d.room.release(now)
	}
}

// Delay returns the present delay of calls, without jitter.
func (d *DelayLimiter) Delay() time.Duration { return d.Stats().Delay }

// Pause lets nobody go for t, unless a longer pause is in force already. t of 0
// or less does nothing.
func (d *DelayLimiter) Pause(t time.Duration) { d.room.pauseFor(t) }

// Resume ends a pause. Those who waited go spread over one delay.
func (d *DelayLimiter) Resume() { d.room.resumeNow() }

// PauseLeft returns how long a pause still lasts, 0 unless there is one.
func (d *DelayLimiter) PauseLeft() time.Duration { return d.room.pauseLeft() }

// DelayStats is what a [DelayLimiter] is doing, and what it has done.
type DelayStats struct {
	Delay      time.Duration // of calls, as it is, without jitter
	Waiting    int           // calls that wait now
	PauseLeft  time.Duration // 0 unless everyone pauses
	Calls      uint64        // that were let go
	WentUp     uint64        // times that the delay was raised
	WentDown   uint64        // times that the delay was lowered
	Slept      uint64        // calls that had to wait
	TotalSleep time.Duration // of all calls, side by side
}

// Stats returns the counters.
func (d *DelayLimiter) Stats() DelayStats {
	d.room.mu.Lock()
	defer d.room.mu.Unlock()
	s := d.delays.stats
	s.Delay = d.delays.delay
	s.Waiting = d.room.waiting
	s.PauseLeft = d.room.leftAt(d.room.advance(clock.Now()))
	return s
}

// delayLevels is how many shades of jitter there are. Waiters of one shade wait
// for the same delay, so each shade is a line in which who came first goes
// first, and a change of the delay moves nobody in it.
const delayLevels = 16

// delays is the pacer of a shared delay.
type delays struct {
	rule  DelayRule
	delay time.Duration
	rose  clock.Instant // when it was last raised
	oks   int           // successes since it last moved
	lines [delayLevels]line
	first class // the shade that goes first after a pause
	stats DelayStats
}

func (d *delays) class() class { return class(rand.IntN(delayLevels)) }

// ready is when a waiter may go, with a pause that ends at resume.
func (d *delays) ready(w *waiter, resume clock.Instant) clock.Instant {
	luck := float64(w.class) / (delayLevels - 1)
	at := w.came.Add(d.rule.jittered(d.delay, luck))
	if at < resume {
		return resume.Add(d.delay / delayLevels * time.Duration((w.class-d.first)%delayLevels))
	}
	return at
}

// goes is when a waiter goes at the soonest: not before the head of its line.
func (d *delays) goes(w *waiter, resume clock.Instant) clock.Instant {
	at := d.ready(w, resume)
	if first := d.lines[w.class].head; first != nil {
		at = max(at, d.ready(first, resume))
	}
	return at
}

// head is the waiter who is ready first, nil if nobody waits.
func (d *delays) head(resume clock.Instant) (first *waiter) {
	var at clock.Instant
	for i := range d.lines {
		if w := d.lines[i].head; w != nil {
			if ready := d.ready(w, resume); first == nil || ready < at {
				first, at = w, ready
			}
		}
	}
	return first
}

func (d *delays) learn(now clock.Instant, e ending) {
	switch e.outcome {
	case OutcomeThrottled:
		d.oks = 0
		if late := e.sent != 0 && e.sent <= d.rose; late && !d.rule.EachThrottle {
			return
		}
		d.rose = now
		if is := d.rule.raised(d.delay); is > d.delay {
			d.delay = is
			d.stats.WentUp++
		}
	case OutcomeSuccess, OutcomePermanent: // an answer in any case
		if d.oks++; d.oks < d.rule.Every {
			return
		}
		d.oks = 0
		if is := d.rule.lowered(d.delay, e.quota); is < d.delay {
			d.delay = is
			d.stats.WentDown++
		}
	}
}

// slept counts a call that waited.
func (d *delays) slept(t time.Duration) {
	d.stats.Calls++
	d.stats.Slept++
	d.stats.TotalSleep += t
}

// pass, atLeast, hold and maxCost make delays the pacer of its room; whoever waits
// there goes when ready says.

func (d *delays) pass(clock.Instant, int) time.Duration {
	if d.delay == 0 {
		d.stats.Calls++
	}
	return d.delay
}

func (d *delays) atLeast(clock.Instant, int64, int) time.Duration { return 0 }

// hold lets another shade go first, or the last ones would not go while pauses follow each
// other. One that is lifted makes nobody later, so that nobody has to be told.
func (d *delays) hold(now, until clock.Instant) {
	if until > now {
		d.first = d.class()
	}
}

func (d *delays) maxCost() int { return math.MaxInt }
