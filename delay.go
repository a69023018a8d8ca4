package cruise

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// DelayLimiter makes every call wait for one delay that all callers share. It is
// none at first; a throttle raises it and successes lower it, by a [DelayRule].
//
// Callers wait for it side by side, not one after the other: with 10 callers and
// a delay of 1 s, 10 calls a second go. A caller that waits already feels each
// change of the delay at once, and goes when the present delay, from the moment
// it came, is over. A Retry-After pauses everyone, and those who waited through
// a pause leave spread over one delay.
//
// It holds a number of clients to a number of callers, not to a rate, so the
// rate follows the number of callers, and the delay has to find its level again
// with each that comes or goes. The [AdaptiveLimiter] is the default because it
// learns the rate itself: it cuts once for one congestion, and lets calls wait
// in order. Prefer a DelayLimiter to reproduce a client that you know, for a
// worker that calls in a loop, or where the server wants time between the calls
// of each worker.
//
// The cost of a call makes no difference, except that 0 does not wait, nor does
// its being a retry or background work.
//
// A DelayLimiter is safe for concurrent use and must not be copied. The zero
// value admits nothing, with an error that says so.
type DelayLimiter struct {
	room   room // guards the fields below too
	delays delays
}

var _ Learner = (*DelayLimiter)(nil)

// A DelayRule says how the delay of a [DelayLimiter] moves. Take one of
// [ResponsiveDelay], [LinearDelay], [HerokuGradual], [HerokuProportional] and
// [HerokuRemaining], and change what you like.
type DelayRule struct {
	// A throttle turns a delay of none into First, and any other delay d into
	// (d + Add) × Factor, Max at most.
	First  time.Duration // above 0
	Add    time.Duration // 0 or more
	Factor float64       // 1 or more, finite; 0 is 1
	Max    time.Duration // First or more, at most 100 years

	// EachThrottle raises the delay for every attempt that is throttled.
	// Otherwise one that was sent before the last raise says nothing new, so
	// that the throttles of one burst count once.
	EachThrottle bool

	// Every so many successes without a throttle between them, the delay goes
	// down: by all of the steps below that are set, one at least, in their order.
	Every          int           // 0 or more; 0 is 1
	LowerFactor    float64       // times this, above 0 and below 1; 0 is unset
	LowerBy        time.Duration // less this; 0 is unset
	LowerRemaining int           // less its share Remaining/Limit of the Quota reported with the success; this is the Limit where none is reported; 0 is unset
	Reset          bool          // to none

	// NoneBelow turns a delay that was lowered below it into none.
	NoneBelow time.Duration // 0 or more

	// Jitter spreads the delays of callers evenly from JitterBelow less to
	// JitterAbove more than the delay, as shares of it, in 16 steps.
	JitterBelow float64       // 0 to 1
	JitterAbove float64       // 0 to 1
	JitterMax   time.Duration // less and more than the delay at most; 0 is no limit
}

// ResponsiveDelay is "responsive exponential backoff": 500 ms after the first
// throttle, ×1.5 for each up to 15 min, ×0.9 after every 10 successes, none
// below 500 ms, ±30 % of jitter but ±2 min at most.
//
// Source: Sakthi Priyan H, "Responsive exponential backoff in Go" (2022), its
// AutoSleeper.
func ResponsiveDelay() DelayRule {
	return DelayRule{
		First: 500 * time.Millisecond, Factor: 1.5, Max: 15 * time.Minute, EachThrottle: true,
		Every: 10, LowerFactor: .9, NoneBelow: 500 * time.Millisecond,
		JitterBelow: .3, JitterAbove: .3, JitterMax: 2 * time.Minute,
	}
}

// LinearDelay is linear back off: one step more for each throttle, up to 15 min,
// and none again after a success.
func LinearDelay(step time.Duration) DelayRule {
	return DelayRule{First: step, Add: step, Max: 15 * time.Minute, Reset: true}
}

// The constants of Heroku's rate_throttle_client: 4,500 calls an hour.
const (
	herokuLimit  = 4500
	herokuSleep  = time.Hour / herokuLimit // 0.8 s
	herokuFactor = 1.2
	herokuJitter = .1
)

func heroku() DelayRule {
	return DelayRule{
		First: herokuSleep * 12 / 10, Add: herokuSleep, Factor: herokuFactor, Max: 15 * time.Minute,
		JitterAbove: herokuJitter,
	}
}

// HerokuGradual raises the delay by 0.8 s and then by a fifth for each throttle,
// and lowers it by 0.8 s for each success: the strategy
// ExponentialIncreaseGradualDecrease of Heroku's Ruby client. It comes down
// quickly, and is throttled as often.
//
// In the Ruby client a call keeps a delay of its own while it is retried, and
// the first retry waits before the factor is applied, so that it is a sixth
// sooner; the delay that is shared afterwards is the same.
//
// Source: rate_throttle_client 0.1.2.
func HerokuGradual() DelayRule {
	r := heroku()
	r.LowerBy = herokuSleep
	return r
}

// HerokuProportional is [HerokuGradual], but a success lowers the delay by a
// 4,500th of it: ExponentialIncreaseProportionalDecrease. It is rarely throttled
// and slow to use a limit that has grown.
func HerokuProportional() DelayRule {
	r := heroku()
	r.LowerFactor = 1 - 1./herokuLimit
	return r
}

// HerokuRemaining is [HerokuGradual], but a success lowers the delay by the share
// of the quota that remains, as the server reports it:
// ExponentialIncreaseProportionalRemainingDecrease, which Heroku's own client
// uses. Success without a reported [Quota] leaves the delay as it is.
func HerokuRemaining() DelayRule {
	r := heroku()
	r.LowerRemaining = herokuLimit
	return r
}

// HerokuBackoff is the strategy ExponentialBackoff of Heroku's Ruby client, which
// shares no delay: each call waits only before its own retries, 0.8 s ×1.2 for
// each, and up to 10 % more. Give it to [WithThrottleBackoff], with
// [WithoutLimiter]. The Ruby client has no longest delay; here it is 15 min.
func HerokuBackoff() Backoff { return herokuBackoff }

// A delay from d to 1.1 d is 1.05 d with a jitter of a 21st.
var herokuBackoff = Must(NewBackoff(WithBase(herokuSleep*105/100), WithMultiplier(herokuFactor),
	WithMaxDelay(15*time.Minute), WithJitter(ProportionalJitter(1./21))))

// NewDelayLimiter returns a limiter without a delay yet. The error names every
// field of the rule that is out of bounds.
func NewDelayLimiter(rule DelayRule) (*DelayLimiter, error) {
	if err := rule.check(); err != nil {
		return nil, err
	}
	if rule.Factor == 0 {
		rule.Factor = 1
	}
	if rule.JitterMax == 0 {
		rule.JitterMax = never
	}
	d := &DelayLimiter{delays: delays{rule: rule}}
	d.room.pacer, d.room.delays = &d.delays, &d.delays
	return d, nil
}

func (r DelayRule) check() error {
	var errs []error
	fail := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("cruise: DelayRule: "+format, args...))
	}
	if r.First <= 0 {
		fail("First %v: want above 0", r.First)
	}
	if r.Add < 0 {
		fail("Add %v: want 0 or more", r.Add)
	}
	if r.Factor != 0 && !(r.Factor >= 1 && r.Factor <= math.MaxFloat64) {
		fail("Factor %v: want 1 or more, and finite", r.Factor)
	}
	if r.Max < r.First || r.Max > farthest {
		fail("Max %v: want First or more, at most %v", r.Max, farthest)
	}
	if r.Every < 0 {
		fail("Every %d: want 0 or more", r.Every)
	}
	if r.LowerFactor != 0 && !(r.LowerFactor > 0 && r.LowerFactor < 1) {
		fail("LowerFactor %v: want above 0 and below 1, or 0 for none", r.LowerFactor)
	}
	if r.LowerBy < 0 {
		fail("LowerBy %v: want 0 or more", r.LowerBy)
	}
	if r.LowerRemaining < 0 {
		fail("LowerRemaining %d: want 0 or more", r.LowerRemaining)
	}
	if r.LowerFactor == 0 && r.LowerBy == 0 && r.LowerRemaining == 0 && !r.Reset {
		fail("nothing lowers the delay: want LowerFactor, LowerBy, LowerRemaining or Reset")
	}
	if r.NoneBelow < 0 {
		fail("NoneBelow %v: want 0 or more", r.NoneBelow)
	}
	if !(r.JitterBelow >= 0 && r.JitterBelow <= 1) {
		fail("JitterBelow %v: want 0 to 1", r.JitterBelow)
	}
	if !(r.JitterAbove >= 0 && r.JitterAbove <= 1) {
		fail("JitterAbove %v: want 0 to 1", r.JitterAbove)
	}
	if r.JitterMax < 0 {
		fail("JitterMax %v: want 0 or more", r.JitterMax)
	}
	return errors.Join(errs...)
}

// raised is what a throttle makes of a delay.
func (r *DelayRule) raised(d time.Duration) time.Duration {
	if d == 0 {
		return r.First
	}
	f := (float64(d) + float64(r.Add)) * r.Factor
	if f >= float64(r.Max) {
		return r.Max
	}
	return time.Duration(f)
}

// lowered is what enough successes make of a delay, with the quota that the last
// one reported.
func (r *DelayRule) lowered(d time.Duration, q *Quota) time.Duration {
	if r.Reset {
		return 0
	}
	if r.LowerFactor > 0 {
		d = time.Duration(float64(d) * r.LowerFactor)
	}
	d -= r.LowerBy
	if r.LowerRemaining > 0 && q != nil {
		limit := r.LowerRemaining
		if q.Limit > 0 {
			limit = q.Limit
		}
		d -= time.Duration(float64(d) * min(1, float64(q.Remaining)/float64(limit)))
	}
	if d < r.NoneBelow {
		return 0
	}
	return max(0, d)
}

// jittered is the delay of a caller with luck from 0 to 1.
func (r *DelayRule) jittered(d time.Duration, luck float64) time.Duration {
	share := luck*(r.JitterBelow+r.JitterAbove) - r.JitterBelow
	extra := float64(d) * share
	limit := float64(r.JitterMax)
	return max(0, d+time.Duration(min(max(extra, -limit), limit)))
}

// WaitN waits until the delay is over, counted from now. A negative n is an
// error, and n of 0 does not wait. It returns the context's error and cause if
// that ends first, and an [*Error] with [ErrDeadline] at once if the wait could
// not end in time.
func (d *DelayLimiter) WaitN(ctx context.Context, n int) error {
	_, _, err := d.admit(ctx, n)
	return err
}

func (d *DelayLimiter) admit(ctx context.Context, n int) (came, sent time.Time, err error) {
	if d.room.pacer == nil {
		return came, sent, errZeroLimiter
	}
	if n <= 0 {
		return free(ctx, n)
	}
	return d.room.enter(ctx, n)
}

// Learn raises the delay if the attempt was throttled, counts it if it succeeded,
// and pauses if the server asked for a wait. A Feedback of Cost 0 or less is of
// an attempt that was never admitted, and is ignored.
func (d *DelayLimiter) Learn(f Feedback) {
	if f.Cost <= 0 || d.room.pacer == nil {
		return
	}
	d.room.mu.Lock()
	defer d.room.mu.Unlock()
	now := d.room.advance(clock())
	f.Sent = d.room.sentAt(f.Sent)
	was := d.delays.delay
	d.delays.learn(now, f)
	paused := false
	if f.RetryAfter > 0 && (f.Outcome == OutcomeThrottled || f.Outcome == OutcomeQuotaExhausted) {
		paused = d.room.pause(now, satAdd(now, f.RetryAfter))
	}
	switch is := d.delays.delay; {
	case paused || is > was:
		d.room.changed(now)
	case is < was:
		d.room.release(now)
	}
}

// Delay returns the delay that calls wait for now, without jitter.
func (d *DelayLimiter) Delay() time.Duration { return d.Stats().Delay }

// Pause lets nobody go for t, unless a longer pause is in force already. t of 0
// or less does nothing.
func (d *DelayLimiter) Pause(t time.Duration) { d.room.pauseFor(t) }

// Resume ends a pause. Those who waited go spread over one delay.
func (d *DelayLimiter) Resume() { d.room.resumeNow() }

// DelayStats is what a [DelayLimiter] is doing, and what it has done.
type DelayStats struct {
	Delay      time.Duration // that calls wait for now, without jitter
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
	s.PauseLeft = max(0, d.room.resume.Sub(d.room.advance(clock())))
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
	rose  time.Time // when it was last raised
	oks   int       // successes since it last moved
	lines [delayLevels]line
	stats DelayStats
}

func (d *delays) class() class { return class(rand.IntN(delayLevels)) }

// ready is when a waiter may go, with a pause that ends at resume.
func (d *delays) ready(w *waiter, resume time.Time) time.Time {
	luck := float64(w.class) / (delayLevels - 1)
	at := w.came.Add(d.rule.jittered(d.delay, luck))
	if at.Before(resume) {
		return resume.Add(d.delay / delayLevels * time.Duration(w.class))
	}
	return at
}

// head is the waiter who is ready first, nil if nobody waits.
func (d *delays) head(resume time.Time) (first *waiter) {
	var at time.Time
	for i := range d.lines {
		if w := d.lines[i].head; w != nil {
			if ready := d.ready(w, resume); first == nil || ready.Before(at) {
				first, at = w, ready
			}
		}
	}
	return first
}

func (d *delays) learn(now time.Time, f Feedback) {
	switch f.Outcome {
	case OutcomeThrottled:
		d.oks = 0
		if late := !d.rose.IsZero() && !f.Sent.IsZero() && !f.Sent.After(d.rose); late && !d.rule.EachThrottle {
			return
		}
		d.rose = now
		if is := d.rule.raised(d.delay); is > d.delay {
			d.delay = is
			d.stats.WentUp++
		}
	case OutcomeSuccess:
		if d.oks++; d.delay == 0 || d.oks < d.rule.Every {
			return
		}
		d.oks = 0
		if is := d.rule.lowered(d.delay, f.Quota); is < d.delay {
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

// pass, atLeast and hold make delays the pacer of its room; whoever waits there
// goes when ready says.

func (d *delays) pass(time.Time, int) time.Duration {
	if d.delay == 0 {
		d.stats.Calls++
	}
	return d.delay
}

func (d *delays) atLeast(time.Time, int) time.Duration { return 0 }

func (d *delays) hold(time.Time, time.Time) {}
