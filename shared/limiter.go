package shared

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"golang.org/x/time/rate"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/internal/check"
	"github.com/a7df5faa/cruise/internal/clock"
	"github.com/a7df5faa/cruise/internal/limits"
	"github.com/a7df5faa/cruise/internal/nils"
	"github.com/a7df5faa/cruise/internal/queue"
)

// Limiter is an [AdaptiveLimiter] that workers on many machines share: they
// find one rate together, take slots of one stream, and pause together, by way of
// a [Store]. Each worker makes one, with a store of the same scope and with the
// same options.
//
// Slots are fetched ahead, as many as the worker's calls of the next half second
// will need, so most calls don't wait for the store. What a worker has learned is
// told with the next sync: at once if it is a throttle, within half a second
// while calls go, else with the next call. So after a throttle of one worker, the
// others stop within about half a second, or a second where slots are short; calls that
// a limit around theirs holds up hear of it within about 5 s.
//
// The rate begins at [WithInitialRate], by default at 10 times the cost of the first call,
// a second, and grows from there while successes come and it is in use; the first throttle
// shows the limit. From then on cuts, growth and pauses are those of an AdaptiveLimiter,
// as far as news that are half a second old allow.
//
// A sync that fails is tried once more, at once. If that fails too, or both take longer than
// [WithStoreTimeout], the limiter goes on by itself, as [WithFallback] says: by default at a
// fair share of the last known rate, which it adapts alone. No call is taken for throttled
// for the store's sake, and none refused but with [FallbackClosed]. It tries the store again
// after 0.25 s at most, then less and less often down to every 5 s. When the store is back it
// keeps to its share until the other workers are likely to be back, too.
//
// A Limiter is safe for concurrent use and must not be copied. The zero
// value admits nothing, with an error that says so. It runs a goroutine while a
// sync is under way, and none else.
type Limiter struct {
	store Store
	alone local // never in force: what local is made of
	conf  config
	law   Law // what the store is told of conf

	member
	queue queue.Queue // whose lock guards the fields below too
	stats cruise.Stats
	local local // what else a call needs, beside slots: see free

	// What is known of the shared state.
	known    Reply
	epochAt  clock.Instant // when the epoch became known
	slots    leases
	nextSlot clock.Instant // when the store has a slot again, by its last answer; zero if unknown
	due      clock.Instant // when the head of the line has its slots, zero if it has none or does not wait
	paid     clock.Instant // until when the calls that went use up this worker's own maximum rate

	unproved bool // nothing has succeeded in this epoch yet

	// What is to be told.
	oks       int64
	errs      int64         // cost of calls that failed, though they were let through
	refused   int64         // cost of calls that were throttled
	cost      int           // of the last call that was answered
	quota     cruise.Quota  // the last that a success was told
	quotaAt   clock.Instant // when that was, zero if it need not be told
	throttled bool
	elsewhere bool // see Request
	backoff   time.Duration
	common    clock.Instant // end of everyone's pause; that of the queue may be this worker's own
	newPause  bool
	resume    bool
	resumedAt clock.Instant // when Resume was called

	// Syncs.
	syncing  bool          // one is under way
	turn     uint64        // counts syncs
	syncedAt clock.Instant // end of the last good one
	next     clock.Instant // before which there is none
	urgent   bool          // the next is to be at once
	taken    int           // slots used since the last good one
	balance  int           // slots that calls gave back, for the next ones; below 0 that they owe
	dearest  int           // the highest cost of calls that went
	demand   float64       // slots per second, an average
	answerBy clock.Instant // when the one under way must be answered
	failing  bool          // it failed, and is tried once more until then, before the store counts as lost
	degraded clock.Instant // since when; zero while the store answers
	err      error         // why, nil while the store answers
	backTime time.Duration // between the last failure and the next sync
	settled  clock.Instant // until when local is in force beside the store

	untold  []cruise.Event // of syncs
	telling bool           // somebody tells them
}

type member = limits.Member

var _ cruise.Learner = (*Limiter)(nil)

// An Option tunes a [Limiter]. Every [cruise.LimiterOption] is one.
type Option interface{ limits.Tuning }

type config struct {
	check.Errors
	limits.Options
	timeout   time.Duration
	fallback  Fallback
	pauseOnly bool
}

type option struct {
	limits.Tunes
	set func(*config)
}

func tuning(set func(*config)) Option { return option{set: set} }

// DefaultStoreTimeout is that of [WithStoreTimeout].
const DefaultStoreTimeout = 100 * time.Millisecond

// WithStoreTimeout is how long a sync with the store may take, with the second try after an
// error, 1 ms to 10 s. After that the limiter goes on by itself, but with [FallbackClosed]. A
// call waits for the store twice as long at most, where a sync for another call is under way
// when it comes. Default [DefaultStoreTimeout].
func WithStoreTimeout(d time.Duration) Option {
	return tuning(func(c *config) {
		c.Check(d >= time.Millisecond && d <= 10*time.Second, "WithStoreTimeout(%v): want 1ms to 10s", d)
		c.timeout = d
	})
}

// Fallback is what a [Limiter] does while its store cannot be reached.
// Pauses are kept in any case.
type Fallback uint8

const (
	// FallbackShare goes on at the last known rate divided by the last known
	// number of workers, and adapts that alone, up to the whole of the last known
	// rate. [WithBurst] is divided likewise. A worker that never knew the rate begins
	// as an [AdaptiveLimiter] does.
	FallbackShare Fallback = iota
	// FallbackClosed lets nobody go. If a call that is under way is throttled, the store is
	// told when it is back.
	FallbackClosed
	// FallbackOpen lets everyone go at once, except after a throttle, for which the
	// worker pauses as a [TokenBucket] does.
	FallbackOpen
)

// WithFallback is what to do while the store cannot be reached. Default
// [FallbackShare].
func WithFallback(f Fallback) Option {
	return tuning(func(c *config) {
		c.Check(f <= FallbackOpen, "WithFallback(%d): want FallbackShare, FallbackClosed or FallbackOpen", f)
		c.fallback = f
	})
}

// WithPauseOnly shares pauses and nothing else: each worker finds a rate of its
// own, as an [AdaptiveLimiter] does, and a Retry-After that one of them is given
// stops them all until then. It costs one sync in half a second for each worker
// that makes calls. Pauses for throttles that name no wait stay the worker's own, and its
// rates bind nobody else.
func WithPauseOnly() Option {
	return tuning(func(c *config) { c.pauseOnly = true })
}

// Bounds of a shared rate, in calls per second, and its default beginning.
const (
	sharedLeastRate = 1e-4
	sharedMostRate  = 1e6
	sharedInitial   = 10
	sharedMostCost  = 10_000
	sharedMostEpoch = 1 << 52 // more than congestions in the life of a scope; 2^53 ends whole numbers in Redis
)

// New returns a limiter that shares what it does with all others whose
// store is of the same scope. It does not ask the store yet.
//
// Of the [LimiterOption] values, the rates are those of all workers together, and
// [WithInitialRate] is 10 by default, times the cost of the first call. Rates are at most
// 1,000,000 calls a second, the minimum at least 0.0001, [WithDecreaseFactor] is 0.000001
// to 0.999999 and [WithIncrease] 0.000001 to 1; with [WithPauseOnly] these bounds do not
// hold. Workers should be given the same; if they are not, each sync goes by the options
// of its own worker, so that the lowest maximum holds while that worker is active.
// [WithBurst] is saved up in common; it is 1 by default.
//
// The error names every option that is out of bounds or contradicts another.
func New(store Store, opts ...Option) (*Limiter, error) {
	c := config{timeout: DefaultStoreTimeout}
	c.Check(!nils.Is(store), "shared.New: store is nil: want a Store")
	var tunes []cruise.LimiterOption
	for i, opt := range opts {
		switch o := opt.(type) {
		case option:
			o.set(&c)
		case cruise.LimiterOption:
			tunes = append(tunes, o)
		default:
			c.Check(false, "option %d is nil", i+1)
		}
	}
	alone, err := newLocal(tunes...)
	if err != nil {
		c.Errors = append(c.Errors, err)
	}
	if len(c.Errors) == 0 {
		c.Options = alone.Options()
		c.checkRates()
	}
	if len(c.Errors) > 0 {
		return nil, errors.Join(c.Errors...)
	}
	s := &Limiter{store: store, conf: c, alone: alone, local: free{alone}, law: c.law()}
	conf := queue.Config{Resumed: s.lifted}
	if c.pauseOnly {
		s.conf.fallback = FallbackShare
		conf.Start = clock.Now()
		s.local = s.newLocal(conf.Start, c.Options)
	}
	s.member = limits.Join(s, &s.queue)
	s.queue.Init(s.policy(), conf)
	return s, nil
}

func (c *config) checkRates() {
	if c.pauseOnly {
		return
	}
	const bounds = "want %v to %.0f calls per second for a shared rate"
	c.Check(c.Min >= sharedLeastRate && c.Min <= sharedMostRate, "WithMinRate(%v): "+bounds, check.LimitText(c.Min), sharedLeastRate, sharedMostRate)
	c.Check(c.Max == rate.Inf || c.Max <= sharedMostRate, "WithMaxRate(%v): "+bounds, check.LimitText(c.Max), sharedLeastRate, sharedMostRate)
	c.Check(c.Initial == rate.Inf || c.Initial <= sharedMostRate, "WithInitialRate(%v): "+bounds, check.LimitText(c.Initial), sharedLeastRate, sharedMostRate)
	c.Check(c.Burst <= sharedMostCost, "WithBurst(%d): want 1 to %d for a shared rate", c.Burst, sharedMostCost)
	c.Check(c.Decrease >= 1e-6 && c.Decrease <= 1-1e-6, "WithDecreaseFactor(%v): want 0.000001 to 0.999999 for a shared rate", c.Decrease)
	c.Check(c.Increase >= 1e-6, "WithIncrease(%v): want 0.000001 to 1 for a shared rate", c.Increase)
}

// law is what a store is told of the options.
func (c *config) law() Law {
	law := Law{
		Min: microRate(c.Min), Max: microRate(c.Max), Initial: microRate(min(c.Initial, c.Max)),
		Decrease: int64(math.Round(c.Decrease * 1e6)), Increase: int64(math.Round(c.Increase * 1e6)),
		Burst: int64(max(1, c.Burst)), Forgive: int64(c.Forgive), PauseBase: c.PauseBase,
	}
	switch {
	case c.pauseOnly: // those who share a rate are not to be bound by those of this worker
		law.Min, law.Max, law.Initial = 1, sharedMostRate*1e6, sharedInitial*1e6
	case c.Initial == rate.Inf:
		law.Initial = min(max(sharedInitial*1e6, law.Min), law.Max)
	}
	return law
}

// sane is a count of calls that a store can reckon with.
func sane(n int) int { return min(max(0, n), math.MaxInt32) }

// microRate is a limit in millionths of a call per second, 1 at least: none is 0. It is
// rounded down, as calls a bit faster than a slow limit would be throttled every other time;
// what is missing by the arithmetic of floats alone is not.
func microRate(l rate.Limit) int64 {
	return max(1, int64(math.Floor(min(float64(l), sharedMostRate)*1e6+.001)))
}

func limitOfMicro(r int64) rate.Limit { return rate.Limit(float64(r) / 1e6) }

// WaitN waits until a call of cost n may go, and takes n slots. A negative n is
// an error, and n of 0 does not wait. It returns the context's error and cause if
// that ends first; [ErrDeadline] in an [*Error] at once if the wait could not end
// in time; and [ErrCost] if n is above a burst that was set by [WithBurst], or
// above 10,000. It never returns an error of the store.
//
// Every WaitN that returned nil for n above 0 must be followed by one
// [Limiter.Learn].
func (s *Limiter) WaitN(ctx context.Context, n int) error {
	_, _, err := limits.Admit(ctx, &s.queue, n)
	return explained(err, n)
}

// TryN lets a call of cost n go now, or returns false: it does not wait, and takes nothing then.
// It is false while others wait, during a pause, for a negative n, and for one that can never
// go; n of 0 always may.
//
// Every TryN of 1 or more that returned true must be followed by one [Limiter.Learn].
func (s *Limiter) TryN(n int) bool { return limits.Try(&s.queue, n) }

var reasons = [...]error{
	queue.DeadlineTooSoon: cruise.ErrDeadline,
	queue.PauseTooLong:    cruise.ErrServerDelay,
	queue.QuotaTooLong:    cruise.ErrQuotaExhausted,
	queue.WaitTooLong:     cruise.ErrMaxWait,
}

// explained returns an error of the queue as the caller of cost n gets it.
func explained(err error, n int) error {
	r, ok := err.(*queue.Refusal)
	switch {
	case !ok:
		return err
	case r.Why == queue.TooExpensive:
		return &cruise.Error{Reason: fmt.Errorf("%w: cost %d, at most %d", cruise.ErrCost, n, r.MaxCost)}
	}
	return &cruise.Error{Reason: reasons[r.Why], RetryAfter: r.RetryAfter, Paused: r.Paused, Ahead: r.Ahead}
}

// MaxCost returns the burst, if one was set.
func (s policy) MaxCost() int {
	if s.conf.Burst > 0 {
		return s.conf.Burst
	}
	return sharedMostCost
}

// Learn takes what became of an attempt: see [Feedback]. A Feedback of Cost 0 or
// less is of an attempt that was never admitted, and is ignored.
func (s *Limiter) Learn(f cruise.Feedback) {
	s.policy().Apply(f)
	f.Quota, f.RetryAfter = nil, 0 // for limiters that the answer is not about
	if stops(f.Outcome) {
		f.Outcome = cruise.OutcomeDropped
	}
	limits.Report(&s.queue, f)
}

// stops reports whether the server wants no calls for a while.
func stops(o cruise.Outcome) bool {
	return o == cruise.OutcomeThrottled || o == cruise.OutcomeQuotaExhausted
}

// Apply is Learn without the ancestors.
func (s policy) Apply(f cruise.Feedback) {
	if f.Cost <= 0 || !s.queue.Ready() {
		return
	}
	f.Cost = min(f.Cost, s.MaxCost()) // more was never let go
	now := clock.Now()
	s.queue.Lock()
	now = s.queue.Advance(now)
	sent := s.queue.At(clock.Of(f.Sent))
	f.Sent = sent.Time()
	events := s.heed(now, sent, f)
	s.queue.Unlock()
	s.tell(events)
}

// heed is Apply under the lock.
func (s *Limiter) heed(now, sent clock.Instant, e cruise.Feedback) (events []cruise.Event) {
	late := s.epochAt != 0 && sent != 0 && sent <= s.epochAt
	closed := s.conf.fallback == FallbackClosed // so the attempt went before the store was lost
	var pause time.Duration                     // of this worker's own, or asked for
	if stops(e.Outcome) {
		pause = e.RetryAfter
		s.pauseAll(now, pause)
	}
	was := s.local.Rate()
	own, old, why := s.local.Adapt(now, e, s.queue.Waiting() == 0)
	is := s.local.Rate()
	if is != was {
		s.queue.KeepPause(now)
		if s.isAlone() {
			events = append(events, cruise.RateChanged{From: limitOf(was), To: limitOf(is), Why: why})
		}
	}
	if s.isAlone() && !closed {
		late, pause = old, max(pause, own)
	}
	switch e.Outcome {
	case cruise.OutcomeSuccess, cruise.OutcomePermanent: // an answer in any case
		if e.Outcome == cruise.OutcomeSuccess {
			s.stats.Successes++
		}
		if !s.conf.pauseOnly {
			s.answered(now, e, late)
		}
	case cruise.OutcomeTransient, cruise.OutcomeDropped:
		went := e.Outcome == cruise.OutcomeTransient || sent != 0 // see aimd
		if !s.conf.pauseOnly && went {
			s.errs += int64(e.Cost)
		}
	case cruise.OutcomeThrottled:
		s.stats.Throttles++
		if !s.conf.pauseOnly {
			s.refused += int64(e.Cost)
		}
		if !late && (closed || !s.isAlone()) {
			s.congested(e)
		}
		events = append(events, cruise.ThrottleSeen{RetryAfter: e.RetryAfter, Scope: e.Scope, Late: late})
	}
	switch e.Outcome {
	case cruise.OutcomeQuotaExhausted:
		s.queue.QuotaUsedUp(now.Add(e.RetryAfter))
	case cruise.OutcomeThrottled:
		s.queue.ProbeNext()
	}
	paused := s.queue.Pause(now, now.Add(pause))
	if paused {
		events = append(events, pausedFor(pause))
	}
	s.hurry(now)
	switch {
	case paused || is < was:
		s.queue.Slowed(now)
	case s.queue.Waiting() > 0:
		s.queue.Reschedule(now)
	}
	return events
}

// answered notes a call that the server let through, which is to be told.
func (s *Limiter) answered(now clock.Instant, e cruise.Feedback, late bool) {
	s.oks, s.cost = s.oks+int64(e.Cost), e.Cost
	if q := e.Quota; q != nil {
		if q.Reset > 0 && q.Remaining < e.Cost && s.quota.Remaining >= e.Cost {
			// Others have used up what slots were fetched for.
			s.slots.drop()
			s.urgent = true
		}
		s.quotaAt = now
		s.quota = cruise.Quota{Limit: sane(q.Limit), Remaining: sane(q.Remaining), Reset: min(max(0, q.Reset), clock.Year)}
	}
	if s.unproved && !late {
		// That the door is open again is worth telling at once.
		s.unproved, s.urgent = false, true
	}
	s.report(now)
}

// congested notes a throttle that is to be told, at once.
func (s *Limiter) congested(e cruise.Feedback) {
	s.throttled, s.urgent = true, true
	s.elsewhere = elsewhere(e.Quota, s.quota)
	s.backoff = 0
	if e.RetryAfter <= 0 {
		s.backoff = min(s.alone.Backoff().Delay(int(s.known.Level)+1, 0), MaxPause)
	}
	s.slots.drop() // until the store has said how to go on
}

// tell is called without the lock.
func (s *Limiter) tell(events []cruise.Event) {
	for _, e := range events {
		s.alone.Notify(e)
	}
}

// tellSyncs tells what syncs have come to, one after the other though each has a goroutine
// of its own: who heard that the store is back before that it is away would take it for
// away from then on.
func (s *Limiter) tellSyncs() {
	s.queue.Lock()
	defer s.queue.Unlock()
	if s.telling {
		return
	}
	s.telling = true
	defer func() { s.telling = false }()
	for len(s.untold) > 0 {
		events := s.untold
		s.untold = nil
		func() {
			s.queue.Unlock()
			defer s.queue.Lock() // also if an observer ends the goroutine
			s.tell(events)
		}()
	}
}

// Limit returns the rate in calls per second: that of all workers together, or
// while the store cannot be reached, or with [WithPauseOnly], that of this one. While the
// store cannot be reached it is 0 with [FallbackClosed]; it is [rate.Inf] with
// [FallbackOpen], and where the rate was never known and no option sets one. WithPauseOnly
// knows no fallback.
func (s *Limiter) Limit() rate.Limit { return s.Stats().Limit }

// Pause lets nobody go for d, on any worker, unless a longer pause is in force
// already. The others hear of it as they sync, and of [MaxPause] at most. d of 0 or
// less does nothing.
func (s *Limiter) Pause(d time.Duration) {
	if !s.queue.Ready() {
		return
	}
	s.queue.Lock()
	now := s.queue.Now()
	paused := s.queue.Pause(now, now.Add(d))
	s.pauseAll(now, d)
	s.hurry(now)
	if paused {
		s.stopped(now)
		s.queue.Slowed(now)
	}
	s.queue.Unlock()
	if paused {
		s.tell([]cruise.Event{pausedFor(d)})
	}
}

// pauseAll notes a pause that everyone is to hear of at once, unless they know of a longer
// one. What is longer than may be shared would seem a longer one each time that it is told.
func (s *Limiter) pauseAll(now clock.Instant, d time.Duration) {
	if until := now.Add(min(d, MaxPause)); until > max(now, s.common) {
		s.common, s.newPause, s.urgent = until, true, true
	}
}

// Resume ends a pause for all workers; those who waited go at the pace of the
// rate. Workers that know of the pause and whose calls wait ask for its end every
// half second, or where there are many of them less often, every 5 s at least.
// While the store cannot be reached it ends the pause of this worker only; that of
// the others ends if a sync reaches the store within 5 s. After that it must be given
// again, as it would end a pause that may have begun since.
func (s *Limiter) Resume() {
	if !s.queue.Ready() {
		return
	}
	s.queue.Lock()
	now := s.queue.Now()
	s.resume, s.resumedAt, s.newPause, s.urgent, s.common = true, now, false, true, 0
	left := s.queue.PauseLeft(now)
	if left > 0 {
		s.queue.CutPause(now, now)
	}
	s.stopped(now)
	s.hurry(now)
	s.queue.Reschedule(now)
	s.queue.Unlock()
	if left > 0 {
		s.tell([]cruise.Event{cruise.Resumed{Left: left}})
	}
}

// stopped tells the law of this worker until when nobody goes, whatever the server
// would give.
func (s *Limiter) stopped(now clock.Instant) {
	s.local.Stop(now, max(now, s.queue.PausedUntil()))
}

// PauseLeft returns how long a pause still lasts, 0 unless there is one.
func (s *Limiter) PauseLeft() time.Duration {
	s.queue.Lock()
	defer s.queue.Unlock()
	return s.queue.PauseLeft(s.queue.Now())
}

// Stats returns what the limiter is doing now. While Degraded, its Limit is that of this worker
// alone: see [Limiter.Limit].
func (s *Limiter) Stats() cruise.Stats {
	s.queue.Lock()
	defer s.queue.Unlock()
	st := s.stats
	st.Limit = limitOfMicro(s.law.Initial)
	if s.known.Rate > 0 {
		st.Limit = limitOfMicro(s.known.Rate)
	}
	if s.isAlone() {
		st.Limit = limitOf(s.local.Rate())
	}
	st.Workers = s.known.Workers
	st.Degraded, st.Err = s.degraded != 0, s.err
	st.Waiting = s.queue.Waiting()
	st.PauseLeft = s.queue.PauseLeft(s.queue.Now())
	return st
}

// pausedFor reads the wall clock, which the queue's own times do not follow.
func pausedFor(d time.Duration) cruise.Paused {
	d = min(d, clock.Farthest)
	return cruise.Paused{Until: time.Now().Add(d), For: d}
}

// limitOf returns a rate as a limit, +Inf as rate.Inf.
func limitOf(perSecond float64) rate.Limit { return min(rate.Limit(perSecond), rate.Inf) }
