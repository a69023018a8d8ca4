package cruise

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"golang.org/x/time/rate"

	"github.com/a7df5faa/cruise/internal/check"
	"github.com/a7df5faa/cruise/internal/clock"
	"github.com/a7df5faa/cruise/internal/law"
	"github.com/a7df5faa/cruise/internal/limits"
	"github.com/a7df5faa/cruise/internal/pacer"
	"github.com/a7df5faa/cruise/internal/queue"
)

// AdaptiveLimiter finds the rate that a server allows and keeps to it. It pauses every caller as
// soon as the server throttles one.
//
// It begins without a rate, more gently than TCP: concurrency starts at 1 and grows by one per 7
// successes, and above five calls in flight per up to 33. If many calls begin at once and have a
// deadline, set the highest rate that you would ever send by [WithMaxRate], or the last of them
// miss it. The first throttle shows the limit, and the limiter becomes a token bucket. A throttle
// cuts the rate to half of the delivered one, once per congestion. Successes raise it: quickly back
// to just below the last throttle, then slowly to find the limit, then quickly beyond it, but only
// while the rate is the bottleneck. A permanent failure counts as a success here. Throttles that come
// as often at a far lower rate have another cause, such as a busy shard: they pause calls, but cut
// nothing.
//
// Until there is a rate, a call within a call of the same limiter may wait for 0.3 s,
// since the outer one is in flight. Give the outer call another Retrier, such as one
// [WithoutLimiter], or set a [WithMaxRate].
//
// A throttle pauses everyone for the server's Retry-After. Without one, the pause lasts at most two
// intervals between calls, and doubles while throttles follow each other: see [Tuning].
//
// A reported [Quota] slows the limiter down before a throttle: it spreads the last tenth of a
// window, or its own share if other clients use the window too, over the time until the reset. The
// limiter ignores quotas that are too small to pace by: a reset never more than 5 s away; a window of
// one call; another limit below 8, or below twice the calls in flight.
//
// Rates count calls of cost 1: a call that costs ten counts as ten. Prefer a [TokenBucket] for a
// limit that is known, fixed and yours alone.
//
// An AdaptiveLimiter is safe for concurrent use and must not be copied. The zero value refuses
// every call with an error that says so.
type AdaptiveLimiter struct {
	settings
	base                     // its lock guards the brake and the fields below too
	waiters     *queue.Queue // its queue, or the queue of the shared limiter that it is a part of
	law         *law.Law
	tokens      pacer.Bucket
	maxCost     int  // the highest cost of an admitted or waiting call
	maxAdmitted int  // the highest cost of an admitted call
	drained     bool // a pause took the saved tokens, and no call went since
	stats       Stats
	quota       Quota // stats points to it
}

var _ Learner = (*AdaptiveLimiter)(nil)

// A LimiterOption tunes an [AdaptiveLimiter], or a shared.Limiter. It is an [Option] too: given to
// [New], it tunes the limiters that the Retrier makes.
type LimiterOption interface {
	Option
	limits.Tuning
	limiter(*adaptiveConfig)
}

type adaptiveConfig struct {
	check.Errors
	settings
	law law.Config // without the rates
}

// settings are the choices that a limiter keeps.
type settings struct {
	observer          Observer
	burst             int        // 0: by the rate
	initial, min, max rate.Limit // min 0: not given
	brake             brake
	cold              int // levels by which pauses are longer before the first success
}

type limiterOption struct {
	limits.Tunes
	set func(*adaptiveConfig)
}

func (o limiterOption) limiter(c *adaptiveConfig) { o.set(c) }
func (o limiterOption) retrier(c *config)         { c.limiterOpts = append(c.limiterOpts, o) }

func tuning(set func(*adaptiveConfig)) LimiterOption { return limiterOption{set: set} }

// WithInitialRate sets the rate to begin with, in calls per second. The limiter then begins with a
// single token: the Burst of [Tuning] has to be saved up first. Default: [rate.Inf], a gentle start
// without a limit. Range: the minimum to the maximum rate, or rate.Inf. Any other value is an error.
func WithInitialRate(limit rate.Limit) LimiterOption {
	return tuning(func(c *adaptiveConfig) {
		c.Check(check.IsLimit(limit), "WithInitialRate(%v): "+check.WantLimit, check.LimitText(limit))
		c.initial = limit
	})
}

// WithMaxRate caps the rate, in calls per second, to which successes may raise it. With a maximum,
// the limiter paces calls from the first one on. Default: [rate.Inf], no maximum. Range: above 0,
// and at least the minimum rate. Any other value is an error.
//
// Given to [New], it holds for each key of each scope, and for all calls together, unless
// [WithoutLimiter] is given too.
func WithMaxRate(limit rate.Limit) LimiterOption {
	return tuning(func(c *adaptiveConfig) {
		c.Check(check.IsLimit(limit), "WithMaxRate(%v): "+check.WantLimit, check.LimitText(limit))
		c.max = limit
	})
}

// Tuning holds what few programs change about an [AdaptiveLimiter] or a shared.Limiter, at servers
// that are known to be odd: see [WithTuning]. A zero field keeps its default.
type Tuning struct {
	// MinRate is the lowest rate, in calls per second, to which throttles may cut. Default: one call
	// in ten minutes, or the initial or maximum rate if lower. Range: above 0, to the maximum rate.
	MinRate rate.Limit
	// Burst is the number of calls that may go at once after a quiet time, which is also the highest
	// cost of a call. Default: ten milliseconds' worth of the rate, at least 1, or the highest cost of
	// an admitted call. Range: 1 to 2^31-1, of a shared.Limiter to 10,000.
	Burst int
	// DecreaseFactor is the factor by which a throttle multiplies the delivered rate. Default: 0.5.
	// Range: above 0 and below 1.
	DecreaseFactor float64
	// Increase is the growth of the rate while it probes for a higher limit, as a share of the last
	// ceiling per 128 successes. The 128 become up to 512 while throttles find the ceiling unchanged.
	// Default: 0.1. Range: above 0 and at most 1.
	Increase float64
	// PauseBackoff is the pause of everyone after a throttle without a Retry-After, by the number of
	// throttles in a series. Default: 0.3 s, doubled to a minute, equal jitter. Before the first rate
	// and the first success, the default of an [AdaptiveLimiter] is four times that, about a second
	// as in the AWS SDKs, or eight times if the throttle comes with a [Quota] that has a Limit and no
	// Remaining. A given backoff is used unchanged. Every Backoff that a constructor made is valid.
	//
	// Once there is a rate, a pause lasts at most two intervals between calls at the rate after the
	// cut, unless no call got through since the last throttle. Each pause is then longer than the one
	// before it.
	//
	// A Retry-After is never shortened. One of less than a second is raised if no call got through
	// since the last throttle: it is multiplied by the backoff's multiplier for each consecutive
	// throttle, up to 1 s or the longest delay, and drawn from the upper half of that.
	PauseBackoff Backoff
	// ForgiveAfter is the number of calls without a throttle that lower the pause backoff by one
	// level. Default: 10. Range: 1 or more.
	ForgiveAfter int
}

// WithTuning sets what the fields of t that are not zero say. Given more than once, the last one of
// each field counts. Default: none. A field out of range is an error that names it.
func WithTuning(t Tuning) LimiterOption {
	return tuning(func(c *adaptiveConfig) {
		if t.MinRate != 0 {
			c.Check(t.MinRate > 0 && t.MinRate < rate.Inf, "WithTuning: MinRate %v: want calls per second above 0 and finite", check.LimitText(t.MinRate))
			c.min = t.MinRate
		}
		if t.Burst != 0 {
			c.Check(check.IsBurst(t.Burst), "WithTuning: Burst %d: "+check.WantBurst, t.Burst)
			c.burst = t.Burst
		}
		if t.DecreaseFactor != 0 {
			c.Check(t.DecreaseFactor > 0 && t.DecreaseFactor < 1, "WithTuning: DecreaseFactor %v: want above 0 and below 1", t.DecreaseFactor)
			c.law.Decrease = t.DecreaseFactor
		}
		if t.Increase != 0 {
			c.Check(t.Increase > 0 && t.Increase <= 1, "WithTuning: Increase %v: want above 0 and at most 1", t.Increase)
			c.law.Increase = t.Increase
		}
		if t.PauseBackoff.multiplier != 0 {
			c.brake.backoff, c.cold = t.PauseBackoff, 0
		}
		if t.ForgiveAfter != 0 {
			c.Check(t.ForgiveAfter >= 1, "WithTuning: ForgiveAfter %d: want 1 or more", t.ForgiveAfter)
			c.brake.forgive = t.ForgiveAfter
		}
	})
}

// defaultMinRate is slow enough for any API, and fast enough to notice a recovery within minutes.
var defaultMinRate = rate.Every(10 * time.Minute)

// NewAdaptiveLimiter returns a limiter without a rate, unless [WithInitialRate] or [WithMaxRate]
// sets one. The error names every option that is out of range or contradicts another.
func NewAdaptiveLimiter(opts ...LimiterOption) (*AdaptiveLimiter, error) {
	c := adaptiveConfig{
		settings: settings{initial: rate.Inf, max: rate.Inf, brake: newBrake(), cold: 2},
		law:      law.Config{Decrease: 0.5, Increase: 0.1},
	}
	for i, opt := range opts {
		if c.Check(opt != nil, "option %d is nil", i+1) {
			opt.limiter(&c)
		}
	}
	if len(c.Errors) == 0 {
		c.checkRates()
	}
	if len(c.Errors) > 0 {
		return nil, errors.Join(c.Errors...)
	}
	return newAdaptive(clock.Now(), c), nil
}

// checkRates sets a minimum rate if none was given, and checks all three rates.
func (c *adaptiveConfig) checkRates() {
	if c.min == 0 {
		c.min = min(defaultMinRate, c.initial, c.max)
	}
	c.Check(c.min <= c.max, "WithTuning: MinRate %v: want at most %v, the maximum rate", check.LimitText(c.min), check.LimitText(c.max))
	c.Check(c.initial == rate.Inf || c.initial >= c.min && c.initial <= c.max,
		"WithInitialRate(%v): want %v to %v, the minimum and maximum rate", check.LimitText(c.initial), check.LimitText(c.min), check.LimitText(c.max))
}

func newAdaptive(now clock.Instant, c adaptiveConfig) *AdaptiveLimiter {
	c.law.Min, c.law.Max = float64(c.min), perSecond(c.max)
	a := &AdaptiveLimiter{settings: c.settings, law: law.New(c.law), tokens: pacer.NewBucket(rate.Inf, 1), maxCost: 1, maxAdmitted: 1}
	a.member, a.waiters = limits.Join(a, &a.queue), &a.queue
	a.queue.Init(adaptivePolicy{a}, queue.Config{Start: now}) // the law goes on from its own time
	if initial := min(c.initial, c.max); initial != rate.Inf {
		a.law.SetRate(now, float64(initial))
		a.applyRate(now)
	}
	return a
}

// Learn takes the result of an attempt: see [Feedback]. It ignores a Feedback of Cost 0 or less.
func (a *AdaptiveLimiter) Learn(f Feedback) {
	adaptivePolicy{a}.Apply(f)
	reportToParents(&a.queue, f)
}

// Apply is Learn without the ancestors.
func (a adaptivePolicy) Apply(f Feedback) {
	if f.Cost <= 0 || !a.queue.Ready() {
		return
	}
	a.queue.Lock()
	now, was := a.queue.Now(), a.law.Rate()
	d := a.teachLaw(now, clock.Of(f.Sent), f)
	is := a.law.Rate()
	paused := a.pauseBy(now, f, a.brake.row, d.pause)
	switch {
	case paused || is < was:
		a.queue.Slowed(now)
	case a.queue.Waiting() > 0:
		a.queue.Reschedule(now)
	}
	a.queue.Unlock()

	if a.observer != nil {
		a.notifyAll(f, d, paused, was, is)
	}
}

// decision holds the pause and the cause of a new rate after an attempt.
type decision struct {
	pause time.Duration // for everyone, 0 for none
	late  bool          // a throttle that says nothing new
	why   Cause         // of the change of the rate, if it changed
}

// teachLaw tells the law the result of an attempt, and asks the backoff for the pause of everyone.
func (a *AdaptiveLimiter) teachLaw(now, sent clock.Instant, f Feedback) decision {
	sent = a.queue.At(sent)
	was, late := a.law.Rate(), a.brake.late(sent)
	end := law.Attempt{
		Kind: kindOf(sent, f.Outcome), Sent: sent, Cost: f.Cost, RetryAfter: f.RetryAfter, Quota: (*law.Quota)(f.Quota), Late: late, Run: f.run,
	}
	if f.own {
		a.law.Undo(f.run)
	}
	d := a.law.Done(now, end)
	ahead := 0
	if d.Cold && a.cold > 0 {
		ahead = a.cold
		if q := f.Quota; q != nil && q.Limit > 0 && q.Remaining == 0 {
			ahead++ // other clients have used it up, and may again
		}
	}
	pause := a.brake.pauseAfter(now, sent, f, ahead, d.AtMost)
	a.law.Rest(now, end, pause, a.waiters.Waiting() == 0)
	if is := a.law.Rate(); is != was {
		a.applyRate(now)
		if d.Why == law.ByQuota && 2*is < was {
			a.tokens.Drain() // other clients have used up the saved tokens
		}
	}
	a.count(f)
	return decision{pause: pause, late: late, why: causes[d.Why]}
}

// causes maps the causes of the law, in its order.
var causes = [...]Cause{law.ByGrowth: CauseSuccess, law.ByThrottle: CauseThrottle, law.ByQuota: CauseQuota, law.ByLatency: CauseLatency}

// kindOf returns the kind of an attempt for the law.
func kindOf(sent clock.Instant, o Outcome) law.Kind {
	switch o {
	case OutcomeSuccess:
		return law.Success
	case OutcomePermanent:
		return law.Denied
	case OutcomeThrottled:
		return law.Throttle
	case OutcomeTransient:
		return law.Passed
	case OutcomeDropped:
		if sent != 0 { // it went, and was not refused before its caller gave up
			return law.Passed
		}
	}
	return law.Nothing
}

func (a *AdaptiveLimiter) count(f Feedback) {
	switch f.Outcome {
	case OutcomeSuccess:
		a.stats.Successes++
	case OutcomeThrottled:
		a.stats.Throttles++
	}
	if f.Quota != nil {
		a.quota = *f.Quota // its owner may use it again
		a.stats.Quota = &a.quota
	}
}

// notify tells the observer, if there is one. It wants the lock free.
func (a *AdaptiveLimiter) notify(e Event) {
	if a.observer != nil {
		notify(context.Background(), a.observer, e)
	}
}

// notifyAll sends the events of an attempt to the observer. It is called without the lock.
func (a *AdaptiveLimiter) notifyAll(f Feedback, d decision, paused bool, was, is float64) {
	var pause Paused
	if paused {
		pause = pausedFor(d.pause) // from now, as it may take long to tell the rest
	}
	if f.Outcome == OutcomeThrottled {
		a.notify(ThrottleSeen{RetryAfter: f.RetryAfter, Scope: f.Scope, Late: d.late})
	}
	if was != is {
		a.notify(RateChanged{From: limitOf(was), To: limitOf(is), Why: d.why})
	}
	if paused {
		a.notify(pause)
	}
}

// pausedFor reads the wall clock, which the queue's own times do not follow.
func pausedFor(d time.Duration) Paused {
	d = min(d, clock.Farthest)
	return Paused{Until: time.Now().Add(d), For: d}
}

// applyRate gives the bucket the rate of the law. Ten milliseconds' worth of calls may go at once,
// since timers are no finer than that.
func (a *AdaptiveLimiter) applyRate(now clock.Instant) {
	limit := a.law.Rate()
	burst := a.burst
	switch {
	case burst > 0:
		burst = max(burst, a.maxCost) // a worker's share of a burst may be below the cost of a call
	case !math.IsInf(limit, 1):
		burst = int(min(max(1, limit/100, float64(a.maxCost)), math.MaxInt32))
	}
	if burst > 0 && burst != a.tokens.Burst() {
		a.tokens.SetBurst(now, burst)
	}
	a.tokens.SetLimit(now, limitOf(limit))
	a.queue.KeepPause(now)
}

// paced reports whether there is a rate.
func (a *AdaptiveLimiter) paced() bool { return a.tokens.Limit() != rate.Inf }

// Limit returns the rate in calls per second, [rate.Inf] while there is none. rate.Inf is a number
// of 309 digits: compare with it, or print [AdaptiveLimiter.Stats], which says unlimited.
func (a *AdaptiveLimiter) Limit() rate.Limit { return a.Stats().Limit }

// SetLimit sets the rate, in calls per second, for waiting calls too. The limiter goes on learning
// from there and forgets the rates delivered before. [rate.Inf] begins anew, at the maximum rate if
// there is one. Range: the minimum to the maximum rate, or rate.Inf. Any other value is an error.
func (a *AdaptiveLimiter) SetLimit(limit rate.Limit) error {
	if !a.queue.Ready() {
		return limits.ErrZero
	}
	if !(limit == rate.Inf || limit >= a.min && limit <= a.max) {
		return fmt.Errorf("cruise: limit %v: want %v to %v, the minimum and maximum rate, or rate.Inf", check.LimitText(limit), check.LimitText(a.min), check.LimitText(a.max))
	}
	a.queue.Lock()
	now := a.queue.Now()
	was := a.law.Rate()
	a.law.SetRate(now, perSecond(min(limit, a.max)))
	is := a.law.Rate()
	a.applyRate(now)
	a.queue.Slowed(now)
	a.queue.Unlock()
	if was != is {
		a.notify(RateChanged{From: limitOf(was), To: limitOf(is), Why: CauseSet})
	}
	return nil
}

// Pause stops all calls for d, unless a longer pause is in force. d of 0 or less does nothing.
func (a *AdaptiveLimiter) Pause(d time.Duration) {
	if !a.pauseFor(d) {
		return
	}
	a.stopLaw()
	a.notify(pausedFor(d))
}

// Resume ends a pause. Waiting calls go at the pace of the rate.
func (a *AdaptiveLimiter) Resume() {
	left := a.resumeNow()
	a.stopLaw()
	if left > 0 {
		a.notify(Resumed{Left: left})
	}
}

// stopLaw tells the law the end of the pause: until then no call goes, at any rate of the server.
func (a *AdaptiveLimiter) stopLaw() {
	a.queue.Locked(func(now clock.Instant) {
		a.law.Stop(now, max(now, a.queue.PausedUntil()))
	})
}

// Stats returns the state of the limiter now.
func (a *AdaptiveLimiter) Stats() (s Stats) {
	a.queue.Locked(func(now clock.Instant) {
		s = a.stats
		if s.Quota != nil {
			s.Quota = new(*s.Quota)
		}
		s.Limit = limitOf(a.law.Rate())
		s.Waiting = a.queue.Waiting()
		s.PauseLeft = a.queue.PauseLeft(now)
	})
	return s
}

// An adaptivePolicy is an AdaptiveLimiter as its queue sees it.
type adaptivePolicy struct{ *AdaptiveLimiter }

// Take takes the tokens of a call, and counts it as sent.
func (a adaptivePolicy) Take(now clock.Instant, n int) {
	if a.paced() {
		a.tokens.Take(now, n)
	}
	a.law.Sent(now)
	a.drained = false
	a.stats.Admitted++
	a.maxAdmitted = max(a.maxAdmitted, n)
	a.shrinkBurst(now)
}

// Abandoned tells the law that the last waiting call has given up.
func (a adaptivePolicy) Abandoned(now clock.Instant) {
	a.law.Free(now)
	a.shrinkBurst(now)
}

// shrinkBurst lowers the burst again when the expensive call that it was raised for has given up.
// It keeps the burst while any other call waits here or in a child queue, or goes now.
func (a *AdaptiveLimiter) shrinkBurst(now clock.Instant) {
	if a.maxCost > a.maxAdmitted && a.waiters.AlmostEmpty() && a.paced() {
		a.maxCost = a.maxAdmitted
		a.applyRate(now)
	}
}

// Peek asks the law for the wait, and then the tokens.
func (a adaptivePolicy) Peek(now clock.Instant, n int) time.Duration {
	wait := a.law.Wait(now)
	if wait == 0 && a.paced() {
		if n > max(a.maxCost, a.burst) {
			a.maxCost = n
			a.applyRate(now)
		}
		wait = a.tokens.Peek(now, n)
	}
	if wait > 0 {
		a.law.Held(now)
	} else {
		a.law.Free(now) // only a queue above may hold it up
	}
	return wait
}

// AtLeast returns the least wait at the rate expected soon.
func (a adaptivePolicy) AtLeast(now clock.Instant, ahead int64, n int) time.Duration {
	b := a.tokens.WithLimit(limitOf(a.law.Soon())) // do not refuse a call that is in time at the rate expected soon
	wait := b.AtLeast(now, ahead, n)
	if in, rate := a.law.Renewed(now); wait > in { // for the rest, the next window's rate
		wait = in + clock.CeilSeconds((wait-in).Seconds()*float64(b.Limit())/rate)
	}
	return wait
}

// Charge takes tokens, or gives them back, while there is a rate.
func (a adaptivePolicy) Charge(now, sent clock.Instant, n int) {
	if a.paced() {
		a.tokens.Charge(now, sent, n)
	}
}

// MaxCost returns the burst, if one was set.
func (a adaptivePolicy) MaxCost() int {
	if a.burst > 0 {
		return a.burst
	}
	return math.MaxInt32
}

// Counts reports whether tokens are missing.
func (a adaptivePolicy) Counts(now clock.Instant) bool { return a.tokens.Counts(now) }

// Pause drops the saved tokens, since a server that pauses its clients has none of them.
func (a adaptivePolicy) Pause(now, until clock.Instant) {
	if a.paced() || until <= now { // a pause ends at any rate
		a.tokens.Pause(now, until)
	}
	if a.paced() && !a.drained { // else pauses shorter than a call interval would stop all calls
		a.tokens.Drain()
		a.drained = true
	}
}

// perSecond returns a limit as a number, +Inf for none.
func perSecond(l rate.Limit) float64 {
	if l == rate.Inf {
		return math.Inf(1)
	}
	return float64(l)
}

// limitOf inverts perSecond.
func limitOf(perSecond float64) rate.Limit { return min(rate.Limit(perSecond), rate.Inf) }
