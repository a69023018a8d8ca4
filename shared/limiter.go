package shared

import (
	"context"
	"errors"
	"time"

	"golang.org/x/time/rate"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/internal/clock"
	"github.com/a7df5faa/cruise/internal/limits"
	"github.com/a7df5faa/cruise/internal/nils"
	"github.com/a7df5faa/cruise/internal/queue"
)

// A Limiter is a [cruise.AdaptiveLimiter] that workers on many machines share: they find one rate
// together, take slots of one stream, and pause together, by way of a [Store]. Each worker makes
// one, with a store of the same scope and with the same options.
//
// A worker fetches slots ahead, as many as its calls of the next half second will need, so most
// calls do not wait for the store. It reports results with the next sync: a throttle at once,
// others within half a second while calls go, else with the next call. So after a throttle of one
// worker, the others stop within about half a second, or a second where slots are short. Calls
// that a limit around theirs holds up hear of it within about 5 s.
//
// The rate begins at [cruise.WithInitialRate], by default at 10 a second times the cost of the
// first call. It grows from there while successes come and the rate is in use, and the first
// throttle shows the limit. From then on cuts, growth and pauses follow the rules of an
// AdaptiveLimiter, as far as news that are half a second old allow.
//
// A sync that fails is tried once more, at once. If both fail, or take longer than
// [WithStoreTimeout], the limiter goes on alone, by its [Fallback]: by default at a fair share of
// the last known rate, which it then adapts. Without its store it takes no call for throttled, and
// refuses none unless [FallbackClosed] is set. It asks the store again after 0.25 s at most, then
// less and less often, down to every 5 s. When the store is back, the limiter keeps to its share
// until the other workers are likely to be back too.
//
// A Limiter is safe for concurrent use and must not be copied. The zero value admits nothing, with
// an error that says so. It runs a goroutine during a sync, and no other.
type Limiter struct {
	store Store
	alone local // the options, and the policy that local copies; never in force
	conf  config
	law   Law // conf, as the store is told it

	member
	queue queue.Queue // whose lock guards the fields below too
	stats cruise.Stats
	local local // limits this worker alone: see free

	// The shared state, as far as it is known.
	known    Reply
	epochAt  clock.Instant // when the epoch became known
	slots    leases
	nextSlot clock.Instant // when the store has a slot again, by its last answer; zero if unknown
	due      clock.Instant // when the first waiter has its slots; zero if it has none or does not wait
	emptyAt  clock.Instant // when the token bucket of this worker's own maximum rate was empty

	unproved  bool          // nothing has succeeded in this epoch yet
	refusedAt clock.Instant // the last throttle; zero once a later attempt got through

	// The next request to the store.
	pending   Request       // what it reports of the calls of this worker
	cost      int           // of the last call that was answered
	quota     *cruise.Quota // the last that came with a success
	quotaAt   clock.Instant // when it came; zero if the store knows it
	common    clock.Instant // end of the shared pause; the queue may pause for this worker alone
	resumedAt clock.Instant // when Resume was called

	// The syncs.
	syncing  bool          // one is under way
	turn     uint64        // counts syncs
	syncedAt clock.Instant // end of the last that succeeded
	next     clock.Instant // of the next sync, at the earliest
	urgent   bool          // the next is to be at once
	taken    int           // slots used since syncedAt
	balance  int           // slots that calls gave back for later ones; below 0 if they owe slots
	dearest  int           // the highest cost of a call that came
	demand   float64       // slots per second, an average
	answerBy clock.Instant // when the sync under way must end
	failing  bool          // the sync failed once; it is tried again before the store counts as lost
	degraded clock.Instant // since when; zero while the store answers
	err      error         // why, nil while the store answers
	backTime time.Duration // between the last failure and the next sync
	settled  clock.Instant // until when local is in force beside the store

	untold  []cruise.Event // of syncs
	telling bool           // a goroutine tells them now
}

type member = limits.Member

var _ cruise.Learner = (*Limiter)(nil)

// New returns a limiter that shares its limit with all others whose store is of the same scope. It
// does not ask the store yet.
//
// The rates of a [cruise.LimiterOption] are those of all workers together.
// [cruise.WithInitialRate] is 10 by default, times the cost of the first call. Rates are at most
// 1,000,000 calls a second, the minimum at least 0.0001. A [cruise.Tuning] may have a DecreaseFactor
// of 0.000001 to 0.999999 and an Increase of 0.000001 to 1. With [WithPauseOnly] these bounds do not
// hold. Give all workers the same options. Otherwise each sync follows the options of its worker,
// so that the lowest maximum holds while that worker is active. Workers save up the Burst in common;
// it is 1 by default.
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

// WaitN waits until a call of cost n may go, and takes n slots. A negative n is an error, and n of
// 0 does not wait. WaitN returns the context's error and cause if the context ends first. It
// returns a [*cruise.Error] at once: with [cruise.ErrDeadline] if by the store's last answer the
// wait cannot end in time, and with [cruise.ErrCost] if n is above the Burst of [cruise.Tuning], or
// above 10,000. It never returns an error of the store.
//
// One [Limiter.Learn] must follow every WaitN that returned nil for n above 0.
func (s *Limiter) WaitN(ctx context.Context, n int) error {
	_, _, err := limits.Admit(ctx, &s.queue, n)
	if r, ok := err.(*queue.Refusal); ok {
		return s.alone.Refused(r, n)
	}
	return err
}

// TryN lets a call of cost n go now, or returns false: it does not wait, and takes nothing then.
// It is false while others wait, during a pause, for a negative n, and for an n above the highest
// cost; n of 0 always may go.
//
// One [Limiter.Learn] must follow every TryN of 1 or more that returned true.
func (s *Limiter) TryN(n int) bool { return limits.Try(&s.queue, n) }

// MaxCost returns the burst, if one was set.
func (s policy) MaxCost() int {
	if s.conf.Burst > 0 {
		return s.conf.Burst
	}
	return mostCost
}

// Learn takes the result of an attempt: see [cruise.Feedback]. It ignores a Feedback of Cost 0 or
// less, whose attempt was never admitted.
func (s *Limiter) Learn(f cruise.Feedback) {
	s.policy().Apply(f)
	f.Quota, f.RetryAfter = nil, 0 // the answer is not about the limiters around this one
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
	f.Cost = min(f.Cost, s.MaxCost()) // no call costs more
	now := clock.Now()
	s.queue.Lock()
	now = s.queue.Advance(now)
	sent := s.queue.At(clock.Of(f.Sent))
	f.Sent = sent.Time()
	events := s.result(now, sent, f)
	s.queue.Unlock()
	s.tell(events)
}

// result is Apply under the lock.
func (s *Limiter) result(now, sent clock.Instant, e cruise.Feedback) (events []cruise.Event) {
	late := s.epochAt != 0 && sent != 0 && sent <= s.epochAt
	closed := s.conf.fallback == FallbackClosed // then the attempt went before the store was lost
	var pause time.Duration                     // that the server asked for, or for this worker alone
	if stops(e.Outcome) {
		pause = e.RetryAfter
		s.pauseAll(now, pause)
	}
	was := s.local.Rate()
	own, old, why := s.local.Adapt(now, e)
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
	case cruise.OutcomeSuccess, cruise.OutcomePermanent: // both are answers
		if e.Outcome == cruise.OutcomeSuccess {
			s.stats.Successes++
		}
		if !s.conf.pauseOnly {
			s.answered(now, e, late)
		}
	case cruise.OutcomeTransient, cruise.OutcomeDropped:
		went := e.Outcome == cruise.OutcomeTransient || sent != 0 // as the law counts
		if !s.conf.pauseOnly && went {
			s.pending.Failed += int64(e.Cost)
		}
	case cruise.OutcomeThrottled:
		s.stats.Throttles++
		switch {
		case s.isAlone() && !closed:
		case late || s.pending.Throttled:
			s.pending.Late++
		default:
			s.congested(e)
		}
		events = append(events, cruise.ThrottleSeen{RetryAfter: e.RetryAfter, Scope: e.Scope, Late: late})
	}
	s.probe(now, sent, e)
	if e.Outcome == cruise.OutcomeQuotaExhausted {
		s.queue.QuotaUsedUp(now.Add(e.RetryAfter))
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

// probe makes a first attempt go next after two consecutive throttles, and after one without a
// Retry-After.
func (s *Limiter) probe(now, sent clock.Instant, e cruise.Feedback) {
	switch {
	case sent <= s.refusedAt || e.Outcome == cruise.OutcomeDropped:
	case e.Outcome != cruise.OutcomeThrottled:
		s.refusedAt = 0
	default:
		if s.refusedAt != 0 || e.RetryAfter <= 0 {
			s.queue.ProbeNext()
		}
		s.refusedAt = now
	}
}

// answered notes a call that the server let through, for the next request.
func (s *Limiter) answered(now clock.Instant, e cruise.Feedback, late bool) {
	s.cost = e.Cost
	if late {
		s.pending.Failed += int64(e.Cost) // it was let through, but tells nothing of the server since
	} else {
		s.pending.Successes += int64(e.Cost)
	}
	if q := e.Quota; q != nil {
		if q.Reset > syncHorizon+slotLife && q.Remaining < e.Cost && s.quota != nil && s.quota.Remaining >= e.Cost {
			// Others have used up the rest that slots were fetched for.
			s.slots.drop()
			s.urgent = true
		}
		s.quotaAt = now
		s.quota = &cruise.Quota{Limit: sane(q.Limit), Remaining: sane(q.Remaining), Reset: min(max(0, q.Reset), clock.Year)}
	}
	if s.unproved && !late {
		// The server admits calls again: the others should know at once.
		s.unproved, s.urgent = false, true
	}
	s.report(now)
}

// congested notes a throttle, to be reported at once.
func (s *Limiter) congested(e cruise.Feedback) {
	s.pending.Throttled, s.urgent = true, true
	s.pending.Backoff = 0
	if e.RetryAfter <= 0 {
		s.pending.Backoff = min(s.alone.Backoff().Delay(int(s.known.Level)+1, 0), MaxPause)
	}
	s.slots.drop() // until the store answers
}

// tell tells the observer of events. It wants the lock free.
func (s *Limiter) tell(events []cruise.Event) {
	for _, e := range events {
		s.alone.Notify(e)
	}
}

// tellSyncs tells the observer of the results of syncs. Each sync has a goroutine, but their
// events must come in order: an observer that hears of the recovery before the loss would take the
// store for lost from then on.
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

// Limit returns the rate in calls per second: the rate of all workers together, but the rate of
// this worker while the store cannot be reached, and with [WithPauseOnly]. While the store cannot
// be reached it is 0 with [FallbackClosed], and [rate.Inf] with [FallbackOpen] and where the rate
// was never known and no option sets one. rate.Inf is a number of 309 digits: compare with it, or
// print [Limiter.Stats], which says unlimited.
func (s *Limiter) Limit() rate.Limit { return s.Stats().Limit }

// Pause lets no call go for d, on any worker, unless a longer pause is in force already. The other
// workers hear of it as they sync, and of [MaxPause] at most. d of 0 or less does nothing.
func (s *Limiter) Pause(d time.Duration) {
	paused := false
	s.queue.Locked(func(now clock.Instant) {
		paused = s.queue.Pause(now, now.Add(d))
		s.pauseAll(now, d)
		s.hurry(now)
		if paused {
			s.stopped(now)
			s.queue.Slowed(now)
		}
	})
	if paused {
		s.tell([]cruise.Event{pausedFor(d)})
	}
}

// pauseAll notes a pause of all workers, to be reported at once, unless they know of a longer one.
// A pause beyond MaxPause would look longer each time that it is reported.
func (s *Limiter) pauseAll(now clock.Instant, d time.Duration) {
	if until := now.Add(min(d, MaxPause)); until > max(now, s.common) {
		s.common, s.pending.NewPause, s.urgent = until, true, true
	}
}

// Resume ends a pause for all workers. Calls that waited go at the pace of the rate. Workers that
// know of the pause and whose calls wait ask for its end every half second, or less often where
// there are many of them, but at least every 5 s. While the store cannot be reached, Resume ends
// the pause of this worker. The pause of the others ends too if a sync reaches the store within 5
// s. After that, call Resume again: it could end a pause that has begun since.
func (s *Limiter) Resume() {
	left := time.Duration(0)
	s.queue.Locked(func(now clock.Instant) {
		s.pending.Resume, s.resumedAt, s.pending.NewPause, s.urgent, s.common = true, now, false, true, 0
		if left = s.queue.PauseLeft(now); left > 0 {
			s.queue.CutPause(now, now)
		}
		s.stopped(now)
		s.hurry(now)
		s.queue.Reschedule(now)
	})
	if left > 0 {
		s.tell([]cruise.Event{cruise.Resumed{Left: left}})
	}
}

// stopped tells the law of this worker that no call goes before the end of the pause, whatever the
// server would give.
func (s *Limiter) stopped(now clock.Instant) {
	s.local.Law().Stop(now, max(now, s.queue.PausedUntil()))
}

// PauseLeft returns how long a pause still lasts, 0 without one.
func (s *Limiter) PauseLeft() time.Duration {
	_, left := s.queue.Report()
	return left
}

// Stats returns the present state and the counters. While Degraded, Limit is the rate of this
// worker alone: see [Limiter.Limit].
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

// pausedFor returns the event of a pause of d. It reads the wall clock, since an observer compares
// Until with that.
func pausedFor(d time.Duration) cruise.Paused {
	d = min(d, clock.Farthest)
	return cruise.Paused{Until: time.Now().Add(d), For: d}
}

// limitOf returns a rate as a limit, +Inf as rate.Inf.
func limitOf(perSecond float64) rate.Limit { return min(rate.Limit(perSecond), rate.Inf) }
