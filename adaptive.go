package cruise

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/a7df5faa/cruise/internal/check"
	"github.com/a7df5faa/cruise/internal/clock"
	"github.com/a7df5faa/cruise/internal/law"
	"github.com/a7df5faa/cruise/internal/limits"
	"github.com/a7df5faa/cruise/internal/pacer"
	"github.com/a7df5faa/cruise/internal/queue"
)

// AdaptiveLimiter finds the rate that a server gives, keeps to it, and makes
// everyone behind it pause the moment the server says stop.
//
// It begins without a rate, and more gently than TCP: one call in flight, and one more for
// each seven that succeed. From five on that is one for up to 33 of fast ones, and for fewer
// of those that take seconds. Where many calls begin
// at once and have a deadline, set the [WithMaxRate] that you would ever send, or the last
// of them will miss it. The first throttle shows the limit. From then on it is a token
// bucket. A throttle cuts its rate to half of what the server delivered, once for one
// congestion. Success raises it: quickly back to just below where the throttle came,
// slowly from there on to find the limit, and quickly again beyond it, but only while
// the rate is what holds calls back. An attempt that failed for good is an answer like
// others, and counts as a success here.
//
// Until there is a rate, a call within a call of the same limiter may wait for a second,
// as the one around it is in flight. Give the outer one a Retrier of its own, such as one
// [WithoutLimiter], or set a [WithMaxRate].
//
// A throttle pauses everyone for the server's Retry-After. Without one the pause is two
// intervals between calls at most, and doubles while throttles follow each other: see
// [WithPauseBackoff].
//
// When the server reports a [Quota], the limiter slows down before it is
// throttled: it spreads the last tenth of a window over the time until its reset. Where others
// use a window too, the limiter spreads the part of it that it has. Where nothing of that is left and the reset
// is at most 10 s away, everyone pauses until then. Some quotas are too small to pace by
// and are ignored: quotas whose reset is never more than 5 s away; windows of fewer than 4
// calls; other limits below 10, or below twice the calls in flight.
//
// Rates count calls of cost 1: a call that costs ten counts as ten.
//
// Prefer a [TokenBucket] where the limit is known, fixed and yours alone.
//
// An AdaptiveLimiter is safe for concurrent use and must not be copied. The zero
// value admits nothing, with an error that says so. It starts no goroutine that
// outlives those who wait.
type AdaptiveLimiter struct {
	observer          Observer
	burst             int // 0: by the rate
	initial, min, max rate.Limit

	base                 // whose lock guards the fields below too
	waiters *queue.Queue // that wait for it: its own queue, or that of the shared limiter that it is a part of
	law     *law.Law
	brake   brake
	cold    int // levels by which pauses are longer while nothing has ever got through
	tokens  pacer.Bucket
	largest int           // the highest cost of calls that went, or that wait
	dearest int           // the highest cost of calls that went
	spent   bool          // a pause took what was saved, and nobody went since
	told    clock.Instant // the latest time that the law was told

	mail  mail // what the law is yet to be told
	stats Stats
	quota Quota // that stats points to
}

var _ Learner = (*AdaptiveLimiter)(nil)

// A LimiterOption tunes an [AdaptiveLimiter], or a shared.Limiter. It is an
// [Option] too: given to [New], it tunes the limiter that the Retrier makes for
// itself.
type LimiterOption interface {
	Option
	limits.Tuning
	limiter(*adaptiveConfig)
}

type adaptiveConfig struct {
	check.Errors
	initial  rate.Limit
	min, max rate.Limit // min 0: not given
	burst    int
	decrease float64
	increase float64
	pause    Backoff
	cold     int // levels of pause skipped until the first success
	forgive  int
	observer Observer
}

type limiterOption struct {
	limits.Tunes
	set func(*adaptiveConfig)
}

func (o limiterOption) limiter(c *adaptiveConfig) { o.set(c) }
func (o limiterOption) retrier(c *config)         { c.limiterOpts = append(c.limiterOpts, o) }

func tuning(set func(*adaptiveConfig)) LimiterOption { return limiterOption{set: set} }

// WithInitialRate is the rate to begin with, in calls per second: from the minimum to
// the maximum rate, or [rate.Inf], the default: no limit until the first throttle, and a
// gentle start. With a rate, the limiter begins with a single token, whatever [WithBurst]
// says: the burst has to be saved up first.
func WithInitialRate(limit rate.Limit) LimiterOption {
	return tuning(func(c *adaptiveConfig) {
		c.Check(check.IsLimit(limit), "WithInitialRate(%v): "+check.WantLimit, check.LimitText(limit))
		c.initial = limit
	})
}

// WithMinRate is the lowest rate, in calls per second, however many are throttled: above
// 0, finite, and at most the maximum rate. Default one call in ten minutes, or the
// initial or maximum rate if that is less.
func WithMinRate(limit rate.Limit) LimiterOption {
	return tuning(func(c *adaptiveConfig) {
		c.Check(limit > 0 && limit < rate.Inf, "WithMinRate(%v): want calls per second above 0 and finite", check.LimitText(limit))
		c.min = limit
	})
}

// WithMaxRate is the highest rate, in calls per second, however many calls succeed: above
// 0 or exactly [rate.Inf], and at least the minimum rate. Default rate.Inf: none. With a
// maximum, the limiter is paced from its first call on.
//
// Given to [New], it holds for each key of each scope, and for all calls together. Beside
// [WithoutLimiter] it holds for each key alone; on calls outside a scope it then has no
// effect.
func WithMaxRate(limit rate.Limit) LimiterOption {
	return tuning(func(c *adaptiveConfig) {
		c.Check(check.IsLimit(limit), "WithMaxRate(%v): "+check.WantLimit, check.LimitText(limit))
		c.max = limit
	})
}

// WithBurst is the number of calls that may go at once after a quiet time, and
// the highest cost of a call: 1 to 2^31-1, of a shared.Limiter to 10,000. Default: ten
// milliseconds' worth of the rate, at least 1, or the highest cost of a call that went.
func WithBurst(n int) LimiterOption {
	return tuning(func(c *adaptiveConfig) {
		c.Check(check.IsBurst(n), "WithBurst(%d): "+check.WantBurst, n)
		c.burst = n
	})
}

// WithDecreaseFactor is what a throttle multiplies the delivered rate by, above 0
// and below 1. Default 0.5.
func WithDecreaseFactor(factor float64) LimiterOption {
	return tuning(func(c *adaptiveConfig) {
		c.Check(factor > 0 && factor < 1, "WithDecreaseFactor(%v): want above 0 and below 1", factor)
		c.decrease = factor
	})
}

// WithIncrease is how much the rate grows while it probes for a higher limit: the
// share of the last ceiling added over 100 successes, above 0 and at most 1.
// Default 0.1. The 100 become up to 400 while throttles find the ceiling where it was.
func WithIncrease(share float64) LimiterOption {
	return tuning(func(c *adaptiveConfig) {
		c.Check(share > 0 && share <= 1, "WithIncrease(%v): want above 0 and at most 1", share)
		c.increase = share
	})
}

// WithPauseBackoff is how long everyone pauses for a throttle that names no wait,
// by how many follow each other; [WithForgiveAfter] says how a series ends. Default
// 0.3 s, doubled to a minute, equal jitter. While it has no rate, and no call has ever
// succeeded, an [AdaptiveLimiter] takes four times that, about a second as in the AWS SDKs.
// It is eight times if the throttle comes with a [Quota] that has a Limit and nothing left of
// it. A backoff given here is taken as it is.
//
// Once there is a rate, a pause lasts no longer than two intervals between calls at the
// rate after the cut. That bound does not hold where nothing got through since the last
// throttle. Then the backoff begins anew, and each pause is longer than the last one by
// its multiplier or step; or than the time until the next attempt, if the rate held that up
// for longer. So pauses reach the backoff's own length only where throttles go on.
//
// A wait that the server names is waited for exactly. Only one of less than a second may
// become longer, if nothing got through since the last throttle, as others were told the
// same moment: the wait is then multiplied by the backoff's multiplier for each such
// throttle in a row, at most to 1 s or to the longest delay, whichever is less, and drawn
// from the upper half of that. It is never shorter than asked.
func WithPauseBackoff(b Backoff) LimiterOption {
	return tuning(func(c *adaptiveConfig) { c.pause, c.cold = b, 0 })
}

// WithForgiveAfter is the number of calls that are not throttled after which the
// pause backoff goes back by one level, 1 or more. Default 10.
func WithForgiveAfter(calls int) LimiterOption {
	return tuning(func(c *adaptiveConfig) {
		c.Check(calls >= 1, "WithForgiveAfter(%d): want 1 or more", calls)
		c.forgive = calls
	})
}

// defaultMinRate is slow enough for any API, and quick enough to notice within
// minutes that it is well again.
var defaultMinRate = rate.Every(10 * time.Minute)

// NewAdaptiveLimiter returns a limiter that knows nothing yet, unless told by
// [WithInitialRate]. The error names every option that is out of bounds or
// contradicts another.
func NewAdaptiveLimiter(opts ...LimiterOption) (*AdaptiveLimiter, error) {
	c := defaultAdaptive()
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

func defaultAdaptive() adaptiveConfig {
	return adaptiveConfig{
		initial:  rate.Inf,
		max:      rate.Inf,
		decrease: 0.5,
		increase: 0.1,
		pause:    defaultPause,
		cold:     defaultCold,
		forgive:  defaultForgive,
	}
}

// checkRates finds a minimum rate where none was given, and checks all three.
func (c *adaptiveConfig) checkRates() {
	if c.min == 0 {
		c.min = min(defaultMinRate, c.initial, c.max)
	}
	c.Check(c.min <= c.max, "WithMinRate(%v): want at most %v, the maximum rate", check.LimitText(c.min), check.LimitText(c.max))
	c.Check(c.initial == rate.Inf || c.initial >= c.min && c.initial <= c.max,
		"WithInitialRate(%v): want %v to %v, the minimum and maximum rate", check.LimitText(c.initial), check.LimitText(c.min), check.LimitText(c.max))
}

func newAdaptive(now clock.Instant, c adaptiveConfig) *AdaptiveLimiter {
	a := &AdaptiveLimiter{
		observer: c.observer,
		burst:    c.burst,
		initial:  c.initial,
		min:      c.min,
		max:      c.max,
		law: law.New(law.Config{
			Min: float64(c.min), Max: perSecond(c.max),
			Decrease: c.decrease, Increase: c.increase,
		}),
		brake:   brake{backoff: c.pause, forgive: c.forgive},
		cold:    c.cold,
		tokens:  pacer.NewBucket(rate.Inf, 1),
		largest: 1,
		dearest: 1,
	}
	a.member, a.waiters = limits.Join(a, &a.queue), &a.queue
	a.queue.Init(a.policy(), queue.Config{Start: now}) // the law knows the time, from which it goes on by whatever clock
	if initial := min(c.initial, c.max); initial != rate.Inf {
		a.law.SetRate(now, float64(initial))
		a.apply(now)
	}
	return a
}

// WaitN waits until a call of cost n may go, and takes n tokens. A negative n is
// an error, and n of 0 does not wait. It returns the context's error and cause if
// that ends first; [ErrDeadline] in an [*Error] at once if the wait could not end
// in time; and [ErrCost] if n is above a burst that was set by [WithBurst], or above
// 2^31-1.
//
// Every WaitN that returned nil for n above 0 must be followed by one
// [AdaptiveLimiter.Learn].
func (a *AdaptiveLimiter) WaitN(ctx context.Context, n int) error {
	_, _, err := a.admit(ctx, n)
	return err
}

// Learn takes what became of an attempt: see [Feedback]. A Feedback of Cost 0 or
// less is of an attempt that was never admitted, and is ignored.
func (a *AdaptiveLimiter) Learn(f Feedback) {
	a.learn(f.ending())
	reportToParents(&a.queue, f.ending())
}

func (a *AdaptiveLimiter) learn(e ending) {
	if e.cost <= 0 || !a.queue.Ready() {
		return
	}
	now := clock.Now()
	plain := e.outcome == OutcomeSuccess && e.quota == nil && e.sent != 0 && a.observer == nil
	if plain {
		a.mail.put(now, e)
		if !a.queue.Busy() { // asked after put: whoever comes to wait later opens the mail
			return
		}
	}
	a.queue.Lock()
	now = a.queue.Advance(now)
	was := a.law.Rate()
	a.openMail(now)
	var this lesson
	if !plain {
		this = a.tellLaw(now, e)
	}
	is := a.law.Rate()
	paused := a.pauseBy(now, e, this.pause)
	switch {
	case paused || is < was:
		a.queue.Slowed(now)
	case a.queue.Waiting() > 0:
		a.queue.Reschedule(now)
	}
	a.queue.Unlock()

	if a.observer != nil {
		a.tell(e, this, paused, was, is)
	}
}

// mail keeps successes for whoever takes the lock of the queue next. Where nobody waits that
// is the next call, so a call takes the lock once, not twice.
type mail struct {
	at         atomic.Int64                  // when the last one was put in
	took, cost atomic.Int64                  // sums over all that were ever put in
	n          atomic.Int64                  // how many those are
	opened     struct{ took, cost, n int64 } // the same of those that were taken out; the lock guards them
}

func (m *mail) put(at clock.Instant, e ending) {
	m.at.Store(int64(at))
	m.took.Add(int64(at.Sub(e.sent)))
	m.cost.Add(int64(e.cost))
	m.n.Add(1)
}

// openMail tells the law of the successes in the mail. They came at some time since the law
// was last told anything: it is told that they came in equal steps, took equally long and
// cost the same.
func (a *AdaptiveLimiter) openMail(now clock.Instant) {
	m := &a.mail
	was := m.opened
	m.opened.n = m.n.Load()
	n := m.opened.n - was.n
	if n == 0 {
		return
	}
	m.opened.took, m.opened.cost = m.took.Load(), m.cost.Load()
	took, cost := (m.opened.took-was.took)/n, m.opened.cost-was.cost
	last := min(a.queue.At(clock.Instant(m.at.Load())), now)
	step := max(0, last.Sub(a.told)) / time.Duration(n)
	for i := range n {
		at := last - clock.Instant(step)*clock.Instant(n-1-i)
		part := cost*(i+1)/n - cost*i/n // whole numbers whose sum is cost
		a.tellLaw(at, ending{outcome: OutcomeSuccess, sent: a.queue.Reading(at) - clock.Instant(took), cost: int(part)})
	}
}

// tellLaw tells the law how an attempt ended.
func (a *AdaptiveLimiter) tellLaw(now clock.Instant, e ending) lesson {
	a.told = max(a.told, now)
	e.sent = a.queue.At(e.sent)
	was := a.law.Rate()
	this := a.decide(a.told, e, a.queue.Waiting() == 0)
	if is := a.law.Rate(); is != was {
		a.apply(a.told)
		if this.why == CauseQuota && 2*is < was {
			a.tokens.Drain() // others have used up what was saved here
		}
	}
	a.count(e)
	return this
}

// lesson is what the law and the backoff of pauses make of an attempt, beside the new rate.
type lesson struct {
	pause time.Duration // for everyone, 0 for none
	late  bool          // a throttle that says nothing new
	why   Cause         // of the change of the rate, if it changed
}

// decide asks the law what an attempt means for the rate, and the backoff for how long everyone
// pauses.
func (a *AdaptiveLimiter) decide(now clock.Instant, e ending, idle bool) lesson {
	late := a.brake.late(e.sent)
	end := law.Attempt{
		Kind: kindOf(e), Sent: e.sent, Cost: e.cost, RetryAfter: e.retryAfter, Quota: (*law.Quota)(e.quota), Late: late,
	}
	if e.ownSince != 0 {
		a.law.Undo(e.ownSince)
	}
	d := a.law.Done(now, end)
	ahead := 0
	if d.Cold && a.cold > 0 {
		ahead = a.cold
		if q := e.quota; q != nil && q.Limit > 0 && q.Remaining == 0 {
			ahead++ // others have used it up, and may again
		}
	}
	pause := max(d.Wait, a.brake.learn(now, e, ahead, d.AtMost))
	a.law.Rest(now, end, pause, idle)
	return lesson{pause: pause, late: late, why: causes[d.Why]}
}

// causes are those of the law, in its order.
var causes = [...]Cause{law.ByGrowth: CauseSuccess, law.ByThrottle: CauseThrottle, law.ByQuota: CauseQuota, law.ByLatency: CauseLatency}

// kindOf is what an attempt tells the law.
func kindOf(e ending) law.Kind {
	switch e.outcome {
	case OutcomeSuccess:
		return law.Success
	case OutcomePermanent:
		return law.Denied
	case OutcomeThrottled:
		return law.Throttle
	case OutcomeTransient:
		return law.Passed
	case OutcomeDropped:
		if e.sent != 0 { // it went, and nobody refused it as long as its caller listened
			return law.Passed
		}
	}
	return law.Nothing
}

func (a *AdaptiveLimiter) count(e ending) {
	switch e.outcome {
	case OutcomeSuccess:
		a.stats.Successes++
	case OutcomeThrottled:
		a.stats.Throttles++
	}
	if e.quota != nil {
		a.quota = *e.quota // its owner may use it again
		a.stats.Quota = &a.quota
	}
}

// tell is called without the lock.
func (a *AdaptiveLimiter) tell(e ending, this lesson, paused bool, was, is float64) {
	ctx := context.Background()
	var pause Paused
	if paused {
		pause = pausedFor(this.pause) // from now, as it may take long to tell the rest
	}
	if e.outcome == OutcomeThrottled {
		notify(ctx, a.observer, ThrottleSeen{RetryAfter: e.retryAfter, Scope: e.scope, Late: this.late})
	}
	if was != is {
		notify(ctx, a.observer, RateChanged{From: limitOf(was), To: limitOf(is), Why: this.why})
	}
	if paused {
		notify(ctx, a.observer, pause)
	}
}

// pausedFor reads the wall clock, which the queue's own times do not follow.
func pausedFor(d time.Duration) Paused {
	d = min(d, clock.Farthest)
	return Paused{Until: time.Now().Add(d), For: d}
}

// apply gives the bucket the rate of the law. Ten milliseconds' worth of calls
// may go at once, since timers are no finer than that.
func (a *AdaptiveLimiter) apply(now clock.Instant) {
	limit := a.law.Rate()
	burst := a.burst
	switch {
	case burst > 0:
		burst = max(burst, a.largest) // a worker's share of a burst may be less than its calls cost
	case !math.IsInf(limit, 1):
		burst = int(min(max(1, limit/100, float64(a.largest)), math.MaxInt32))
	}
	if burst > 0 && burst != a.tokens.Burst() {
		a.tokens.SetBurst(now, burst)
	}
	a.tokens.SetLimit(now, limitOf(limit))
	a.queue.KeepPause(now)
}

// paced reports whether there is a rate.
func (a *AdaptiveLimiter) paced() bool { return a.tokens.Limit() != rate.Inf }

// Limit returns the rate in calls per second, [rate.Inf] while there is none: before
// the first throttle, unless [WithInitialRate], [WithMaxRate] or a [Quota] sets one.
func (a *AdaptiveLimiter) Limit() rate.Limit { return a.Stats().Limit }

// SetLimit sets the rate, also for those who wait; the limiter goes on learning
// from there, and forgets what the server gave before. [rate.Inf] begins anew, at
// the maximum rate if there is one. The error says what is allowed, with nothing
// changed: the minimum to the maximum rate, or rate.Inf.
func (a *AdaptiveLimiter) SetLimit(limit rate.Limit) error {
	if !a.queue.Ready() {
		return limits.ErrZero
	}
	if !(limit == rate.Inf || limit >= a.min && limit <= a.max) {
		return fmt.Errorf("cruise: limit %v: want %v to %v, the minimum and maximum rate, or rate.Inf", check.LimitText(limit), check.LimitText(a.min), check.LimitText(a.max))
	}
	a.queue.Lock()
	now := a.queue.Now()
	a.openMail(now)
	was := a.law.Rate()
	a.law.SetRate(now, perSecond(min(limit, a.max)))
	is := a.law.Rate()
	a.apply(now)
	a.queue.Slowed(now)
	a.queue.Unlock()
	if a.observer != nil && was != is {
		notify(context.Background(), a.observer, RateChanged{From: limitOf(was), To: limitOf(is), Why: CauseSet})
	}
	return nil
}

// Pause lets nobody go for d, unless a longer pause is in force already. d of 0
// or less does nothing.
func (a *AdaptiveLimiter) Pause(d time.Duration) {
	if !a.pauseFor(d) {
		return
	}
	a.stopped()
	if a.observer != nil {
		notify(context.Background(), a.observer, pausedFor(d))
	}
}

// Resume ends a pause. Those who waited go at the pace of the rate.
func (a *AdaptiveLimiter) Resume() {
	left := a.resumeNow()
	a.stopped()
	if left > 0 && a.observer != nil {
		notify(context.Background(), a.observer, Resumed{Left: left})
	}
}

// stopped tells the law until when nobody goes, whatever the server would give.
func (a *AdaptiveLimiter) stopped() {
	if !a.queue.Ready() {
		return
	}
	a.queue.Lock()
	defer a.queue.Unlock()
	now := a.queue.Now()
	a.openMail(now)
	a.law.Stop(now, max(now, a.queue.PausedUntil()))
}

// PauseLeft returns how long a pause still lasts, 0 unless there is one.
func (a *AdaptiveLimiter) PauseLeft() time.Duration { return a.pauseLeft() }

// Stats returns what the limiter is doing now.
func (a *AdaptiveLimiter) Stats() Stats {
	if !a.queue.Ready() {
		return Stats{}
	}
	a.queue.Lock()
	defer a.queue.Unlock()
	now := a.queue.Now()
	a.openMail(now)
	s := a.stats
	if s.Quota != nil {
		s.Quota = new(*s.Quota)
	}
	s.Limit = limitOf(a.law.Rate())
	s.Waiting = a.queue.Waiting()
	s.PauseLeft = a.queue.PauseLeft(now)
	return s
}

// An adaptivePolicy is an AdaptiveLimiter as its queue sees it.
type adaptivePolicy struct{ *AdaptiveLimiter }

func (a *AdaptiveLimiter) policy() adaptivePolicy { return adaptivePolicy{a} }

// Pass counts the call as sent too.
func (a adaptivePolicy) Pass(now clock.Instant, n int) time.Duration {
	if wait := a.ask(now, n, (*pacer.Bucket).Pass); wait > 0 {
		return wait
	}
	a.law.Sent(now)
	a.spent = false
	a.stats.Admitted++
	a.dearest = max(a.dearest, n)
	a.relax(now)
	return 0
}

// Peek is Pass for a call that does not go yet.
func (a adaptivePolicy) Peek(now clock.Instant, n int) time.Duration {
	wait := a.ask(now, n, (*pacer.Bucket).Peek)
	if wait == 0 {
		a.law.Free(now) // only a queue above may hold it up
	}
	return wait
}

// Abandoned tells the law that nobody waits any more, though nobody went.
func (a adaptivePolicy) Abandoned(now clock.Instant) {
	a.openMail(now)
	a.told = max(a.told, now)
	a.law.Free(a.told)
	a.relax(a.told)
}

// relax takes back the burst that calls were to have which left without going: many others
// would go at once by it. It must stay for those who wait, be it for a child queue; who goes
// now counts as waiting where others may.
func (a *AdaptiveLimiter) relax(now clock.Instant) {
	if a.largest > a.dearest && a.waiters.AlmostEmpty() && a.paced() {
		a.largest = a.dearest
		a.apply(now)
	}
}

// ask asks the law, and then the tokens, by pass or peek.
func (a *AdaptiveLimiter) ask(now clock.Instant, n int, tokens func(*pacer.Bucket, clock.Instant, int) time.Duration) time.Duration {
	a.openMail(now)
	a.told = now
	wait := a.law.Wait(now)
	if wait == 0 && a.paced() {
		if n > max(a.largest, a.burst) {
			a.largest = n
			a.apply(now)
		}
		wait = tokens(&a.tokens, now, n)
	}
	if wait > 0 {
		a.law.Held(now)
	}
	return wait
}

// AtLeast goes by the rate that may come soon.
func (a adaptivePolicy) AtLeast(now clock.Instant, ahead int64, n int) time.Duration {
	b := a.tokens.WithLimit(limitOf(a.law.Soon())) // whoever is in time at the rate that it may have soon is not refused
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

// Pause drops what was saved, since a server that pauses its clients has none of it.
func (a adaptivePolicy) Pause(now, until clock.Instant) {
	if a.paced() || until <= now { // a pause ends, whatever has become of the rate
		a.tokens.Pause(now, until)
	}
	if a.paced() {
		if !a.spent { // else pauses that are shorter than a call interval would let nobody go
			a.tokens.Drain() // the server has none of that
			a.spent = true
		}
	}
}

// perSecond is a limit as a number, +Inf for none.
func perSecond(l rate.Limit) float64 {
	if l == rate.Inf {
		return math.Inf(1)
	}
	return float64(l)
}

// limitOf is the inverse of perSecond.
func limitOf(perSecond float64) rate.Limit { return min(rate.Limit(perSecond), rate.Inf) }
