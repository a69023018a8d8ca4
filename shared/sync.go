package shared

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"golang.org/x/time/rate"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/internal/clock"
	"github.com/a7df5faa/cruise/internal/limits"
	"github.com/a7df5faa/cruise/internal/queue"
)

// The times of a worker, beside those of the shared law.
const (
	syncPeriod  = sharedPeriod * time.Microsecond
	syncHorizon = sharedHorizon * time.Microsecond
	slotLife    = time.Second            // a slot that has been due for longer is void: see leases.expire
	slotLate    = 50 * time.Millisecond  // the same for a slot that a call waits for
	demandOver  = time.Second            // over which the demand is averaged
	firstProbe  = 250 * time.Millisecond // after which a store that failed is asked again at first
	lastProbe   = 5 * time.Second        // the same in the long run
	keptFor     = 10 * time.Minute       // without a sync: after that a store may have forgotten, and learned anew
)

var (
	errStoreTimeout = errors.New("cruise: store did not answer within the time of WithStoreTimeout")
	errStoreExited  = errors.New("cruise: store exited its goroutine")
)

// A policy is a Limiter as its queue sees it.
type policy struct{ *Limiter }

func (s *Limiter) policy() policy { return policy{s} }

// Pass takes the slots of the call.
func (s policy) Pass(now clock.Instant, n int) time.Duration {
	if wait := s.Peek(now, n); wait > 0 {
		return wait
	}
	s.local.Pass(now, n) // as it has just agreed
	if !s.isAlone() {
		s.dearest = max(s.dearest, n)
		need := s.need(n)
		s.balance -= n - need
		if n = need; n > 0 {
			s.slots.take(n)
			s.paid = s.pays(now, n)
		}
	}
	s.taken += n
	s.stats.Admitted++
	return 0
}

// Peek is Pass for a call that does not go yet.
func (s policy) Peek(now clock.Instant, n int) time.Duration {
	switch {
	case s.degraded != 0:
		return min(s.await(now, n), s.local.Peek(now, n))
	case s.conf.pauseOnly:
		if wait := s.fresh(now); wait > 0 {
			return wait
		}
		return s.local.Peek(now, n)
	}
	if now >= s.settled {
		s.local = free{s.alone}
	}
	wait := time.Duration(0)
	if need := s.need(n); need > 0 {
		wait = s.slot(now, need)
		if wait == 0 {
			wait = s.tooMuch(now, need)
		}
	}
	if wait == 0 {
		wait = min(s.local.Peek(now, n), max(0, s.settled.Sub(now)))
	}
	return wait
}

// need is how many slots a call of cost n takes: fewer if calls before it gave some back, more if
// they owe some, as many as one call may take at most.
func (s *Limiter) need(n int) int {
	return min(max(0, n-s.balance), max(n, s.policy().MaxCost()))
}

// Charge keeps the account of this worker. It gives back no more than its calls take at once, so that
// no burst is saved up.
func (s policy) Charge(now, sent clock.Instant, n int) {
	if s.isAlone() {
		s.local.Charge(now, sent, n)
		return
	}
	s.balance = min(max(s.balance-n, -math.MaxInt32), s.dearest)
}

// pays is what paid becomes when a call of cost n goes now.
func (s *Limiter) pays(now clock.Instant, n int) clock.Instant {
	gap := s.leastGap()
	return max(s.paid, now-clock.Instant(n-1)*gap) + clock.Instant(n)*gap
}

// leastGap is between two slots at this worker's own maximum rate.
func (s *Limiter) leastGap() clock.Instant { return clock.Instant(1e15 / s.law.Max) }

// tooMuch is how long a call must wait although it has its slots, in case the store has
// given more than the worker's own maximum rate makes. Slots that are late by up to
// slotLife are not more, nor is a burst that was saved.
func (s *Limiter) tooMuch(now clock.Instant, n int) time.Duration {
	saved := clock.Instant(s.law.Burst+1) * s.leastGap()
	return max(0, (s.pays(now, n) - saved).Sub(now.Add(slotLife)))
}

// isAlone reports whether the rate is that of this worker.
func (s *Limiter) isAlone() bool { return s.conf.pauseOnly || s.degraded != 0 }

// slot is how long from now the next call must wait for a slot.
func (s *Limiter) slot(now clock.Instant, n int) time.Duration {
	life := slotLife
	if s.due != 0 && now.Sub(s.due) > slotLate && s.queue.Waiting() > 0 {
		// The timer was late, and so may be those of all workers: all that they missed
		// would go at once.
		life = slotLate
	}
	s.due = 0
	until := s.queue.PathPausedUntil()
	if until <= now {
		s.slots.skip(until)
	}
	if until > now || !s.queue.HeldUpAbove() { // else a limit around this one holds up the call that they are for
		s.slots.expire(now, n, life)
	}
	if wait, ok := s.slots.wait(now, n); ok {
		if s.queue.HeldUpAbove() { // a limit around holds up the call, and slots for the next would get old
			s.ask(now, queue.ListenAbove)
		} else if now.Sub(s.syncedAt) >= syncPeriod || s.slots.n-n < s.ahead()/4 && s.want(n) > 0 {
			s.begin(now, n)
		}
		if left := max(0, syncHorizon-now.Sub(s.syncedAt)); wait > left { // others may be told to stop meanwhile
			s.ask(now, syncHorizon)
			if left > 0 {
				wait = left
			}
		}
		if wait > 0 {
			s.due = now.Add(wait)
		}
		return wait
	}
	return s.await(now, n)
}

// ask asks for news alone, if the last are so old.
func (s *Limiter) ask(now clock.Instant, old time.Duration) {
	if !s.syncing && now.Sub(s.syncedAt) >= old {
		s.send(now, s.account(now))
	}
}

// await is begin, and returns how long a call must wait for what the sync brings: never
// while that is under way, else until it may begin.
func (s *Limiter) await(now clock.Instant, n int) time.Duration {
	if s.begin(now, n); s.syncing {
		return clock.Never
	}
	return s.next.Sub(now)
}

// fresh is how long a call must wait for news of pauses: 0 unless there have been
// none for long. One that a limit around has held up would lose its place there.
func (s *Limiter) fresh(now clock.Instant) time.Duration {
	if now.Sub(s.syncedAt) < syncPeriod {
		return 0
	}
	s.begin(now, 0)
	if now.Sub(s.syncedAt) < 2*syncPeriod || !s.syncing || s.queue.HeldUpAbove() {
		return 0
	}
	return clock.Never // until the sync ends
}

// isOld reports whether the rate may be another one by now: a worker whose calls wait has
// news more often.
func (s *Limiter) isOld(now clock.Instant) bool { return now.Sub(s.syncedAt) > 2*lastProbe }

// period is how often to ask for news alone: as often as a worker syncs that is short
// of slots, so that a large fleet asks no more than when it runs.
func (s *Limiter) period() time.Duration {
	if s.conf.pauseOnly || s.known.Rate <= 0 {
		return syncPeriod
	}
	return time.Duration(sharedTurn(int64(s.known.Workers), s.known.Rate)) * time.Microsecond
}

// lifted asks in a pause, for a call that it holds up, whether another worker has
// ended it, and returns when to do so again.
func (s *Limiter) lifted(now clock.Instant) time.Duration {
	if wait := s.period() - now.Sub(s.syncedAt); wait > 0 {
		return wait
	}
	return s.await(now, 0)
}

// deserted tells that nobody waits any more, though nobody went.
func (s policy) Abandoned(now clock.Instant) {
	s.local.Abandoned(now)
}

func (s policy) AtLeast(now clock.Instant, ahead int64, n int) time.Duration {
	if s.isAlone() {
		return s.local.AtLeast(now, ahead, n)
	}
	slots := max(0, ahead+int64(n)-int64(s.balance))
	missing := slots - int64(s.slots.n)
	if missing <= 0 {
		wait, _ := s.slots.wait(now, int(slots))
		return wait
	}
	// Nobody knows when other workers leave off: at best there are none. Nor is the rate known
	// after a while without news. Within a few calls it can be the ceiling; before the first
	// throttle it has grown since the last news, and goes on, by e a second at most.
	if s.known.Rate <= 0 || s.isOld(now) {
		return 0
	}
	left, over := float64(missing), max(0, float64(missing-s.law.Burst))
	limit, ceiling, most := float64(s.known.Rate)/1e6, float64(s.known.Ceiling)/1e6, float64(s.law.Max)/1e6
	if ceiling == 0 && limit < most {
		limit = min(most, limit*math.Exp(now.Sub(s.syncedAt).Seconds()))
		return clock.CeilSeconds(max(math.Log1p(over/limit), over/most))
	}
	soon := max(limit, min(ceiling, most))
	wait := over / soon
	if s.nextSlot != 0 && s.known.Why != cruise.CauseQuota { // a new window may bring slots at once
		// A rate that rises brings the next slot nearer by what it takes off the interval.
		wait = max(wait, s.nextSlot.Sub(now).Seconds()-1/limit+left/soon)
	}
	return clock.CeilSeconds(wait)
}

func (s policy) Pause(now, until clock.Instant) {
	s.local.Pause(now, until)
}

// Counts reports false: the store keeps what went.
func (s policy) Counts(clock.Instant) bool { return false }

// ahead is how many slots the worker should have for its calls of the next period, beside
// those of calls that wait. A call that is not likely within it is none: its slot would be
// taken from others, and expire.
func (s *Limiter) ahead() int {
	cost := int64(0)
	if calls := s.demand * syncPeriod.Seconds(); calls >= 1 {
		cost = int64(math.Ceil(calls))
	}
	return int(max(0, min(max(cost, s.queue.Cost()-int64(s.balance)), sharedMost)))
}

// want is how many slots to ask for, where the next call is one of cost n.
func (s *Limiter) want(n int) int {
	if n <= s.slots.n {
		return max(0, s.ahead()-s.slots.n)
	}
	return max(n, s.ahead()-s.slots.n)
}

// hurry begins a sync if something is to be told at once.
func (s *Limiter) hurry(now clock.Instant) {
	if s.urgent && s.degraded == 0 && !s.syncing {
		s.next = now
		s.begin(now, 0)
	}
}

// begin starts a sync, unless there is one or it is too early. n is the cost of
// the call that asks for it.
func (s *Limiter) begin(now clock.Instant, n int) {
	if s.syncing || now < s.next {
		return
	}
	q := s.account(now)
	if !s.conf.pauseOnly {
		n = max(n, s.need(s.queue.NextCost()))
		if want := s.want(n); n > 0 && want > 0 {
			q.Want, q.Least = want, n
			q.Law.Initial = s.initial(n)
		}
	}
	s.send(now, q)
}

// report tells successes sooner where this worker has no slot left: slots are short then,
// and it may be seconds until it asks for more. Before the first throttle it tells them at
// once, as the store must know by then what the server gives, unless the rate is as high
// as it may be. A quota it tells within a period, as it may be that of a new window.
func (s *Limiter) report(now clock.Instant) {
	switch {
	case s.slots.n > 0 || s.degraded != 0 || s.syncing:
	case s.known.Ceiling == 0 && s.known.Rate < s.law.Max && now < s.next:
		s.send(now, s.account(now))
	case s.quotaAt != 0:
		s.next = min(s.next, s.syncedAt.Add(syncPeriod))
	}
}

func (s *Limiter) send(now clock.Instant, q Request) {
	s.syncing, s.urgent = true, s.newPause // a pause that account has left for the next sync
	s.turn++
	s.stats.Syncs++
	if !s.failing { // else it has what the first try left
		s.answerBy = now.Add(s.conf.timeout)
	}
	go s.sync(s.turn, q, s.answerBy.Sub(now))
}

// initial is the rate to begin at: unless WithInitialRate says it, it is so many calls of
// that cost.
func (s *Limiter) initial(cost int) int64 {
	if s.conf.Initial != rate.Inf {
		return s.law.Initial
	}
	return min(s.law.Initial*int64(cost), s.law.Max)
}

// account is what to tell the store. It is taken off what is yet to be told: failed puts
// back what must be told again.
func (s *Limiter) account(now clock.Instant) Request {
	if now.Sub(s.resumedAt) > lastProbe+s.conf.timeout {
		s.resume = false // there may be another pause now
	}
	q := Request{
		Law: s.law, Least: s.cost,
		Epoch: s.known.Epoch, Rate: s.known.Rate, Ceiling: s.known.Ceiling,
		Throttled: s.throttled, Elsewhere: s.elsewhere, Backoff: s.backoff, Successes: s.oks, Failed: s.errs, Throttles: s.refused,
		NewPause: s.newPause && !s.resume, Resume: s.resume, Resumes: s.known.Resumes,
		Count: s.known.Count, Held: s.slots.reach(now),
	}
	if q.Epoch > 1 && now.Sub(s.syncedAt) > keptFor {
		q.Epoch = 1 // whatever others have learned since then counts
	}
	if left := s.common.Sub(now); left > 0 {
		if !s.newPause {
			// As much as the request may take, so that a pause does not grow by
			// being told.
			left -= s.conf.timeout
		}
		q.Pause = max(0, left)
	}
	if s.quotaAt != 0 {
		q.Quota, q.QuotaAge = new(s.quota), now.Sub(s.quotaAt)
	}
	s.oks, s.errs, s.refused, s.quotaAt, s.throttled = 0, 0, 0, 0, false
	s.newPause, s.resume = s.newPause && s.resume, false // a pause that came after a Resume is told after it
	return q
}

// sync asks the store. It runs in a goroutine of its own.
func (s *Limiter) sync(turn uint64, q Request, within time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	// Whatever the store does with its context, nobody waits longer.
	stop := context.AfterFunc(ctx, func() {
		s.queue.Lock()
		if s.turn == turn && s.degraded == 0 {
			now := s.queue.Now()
			s.untold = append(s.untold, s.degrade(now, q, errStoreTimeout)...)
			s.queue.Slowed(now)
		}
		s.queue.Unlock()
		s.tellSyncs()
	})
	reply, err := Reply{}, errStoreExited
	defer func() { s.answer(q, reply, err, stop()) }() // also if the store ends the goroutine
	reply, err = ask(ctx, s.store, q)
}

// answer takes what a sync has come to.
func (s *Limiter) answer(q Request, reply Reply, err error, onTime bool) {
	if err == nil {
		err = reply.check(q)
	}
	if err == nil && !onTime {
		err = errStoreTimeout
	}
	s.queue.Lock()
	now := s.queue.Now()
	s.syncing = false
	if err != nil {
		s.stats.Failures++
		s.untold = append(s.untold, s.failed(now, q, err)...)
		s.queue.Slowed(now)
	} else {
		s.untold = append(s.untold, s.adopt(now, q, reply)...)
	}
	s.hurry(now)
	s.queue.Unlock()
	s.tellSyncs()
}

// ask is Sync of a store, whose panics must not end the program.
func ask(ctx context.Context, store Store, q Request) (r Reply, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("cruise: store panicked: %v", p)
		}
	}()
	r, err = store.Sync(ctx, q)
	_ = errors.Is(err, context.DeadlineExceeded) // failed asks that too, where a nil pointer in err would panic under the lock
	return r, err
}

// check is nil unless no store in its senses would give such an answer to q.
func (r Reply) check(q Request) error {
	switch {
	case r.Slots < 0 || r.Slots > max(q.Want, q.Least):
		return fmt.Errorf("cruise: store gave %d slots: want 0 to %d", r.Slots, max(q.Want, q.Least))
	case r.Slots > 0 && (r.Span <= 0 || r.Span > clock.Farthest):
		return fmt.Errorf("cruise: store gave slots for %v: want more than 0, and less than %v", r.Span, clock.Farthest)
	case r.Wait > syncHorizon && r.Slots > 0 || r.Wait > clock.Farthest || r.Wait < -clock.Farthest:
		return fmt.Errorf("cruise: store gave slots from %v on: want at most %v", r.Wait, syncHorizon)
	case r.Epoch < 1 || r.Epoch > sharedMostEpoch || r.Rate < 1 || r.Rate > sharedMostRate*1e6 || r.Ceiling < 0:
		return fmt.Errorf("cruise: store gave epoch %d, rate %d, ceiling %d: want 1 to %d, 1 to 1000000000000, 0 or more", r.Epoch, r.Rate, r.Ceiling, int64(sharedMostEpoch))
	case r.Pause < 0 || r.Pause > MaxPause:
		return fmt.Errorf("cruise: store gave a pause of %v: want 0 to %v", r.Pause, MaxPause)
	case r.Workers < 1 || r.Level < 0 || r.Resumes < 0:
		return fmt.Errorf("cruise: store gave %d workers, level %d, %d resumes: want 1 or more, 0 or more, 0 or more", r.Workers, r.Level, r.Resumes)
	}
	return nil
}

// failed is for a sync that failed.
func (s *Limiter) failed(now clock.Instant, q Request, err error) (events []cruise.Event) {
	again := s.degraded == 0 && !s.failing && !errors.Is(err, context.DeadlineExceeded)
	s.failing = again
	// The store may have heard it, and only its answer was lost. By the epoch, the
	// same throttle cuts once. Successes and failures would count twice, so they are let go.
	s.throttled = s.throttled || q.Throttled
	s.newPause = s.newPause || q.NewPause && !s.resume
	s.resume = s.resume || q.Resume
	if again {
		// At once, as it may have been a connection that had died long ago; and for as many
		// slots, though the call that they are for may not be in line yet.
		n := 0
		if q.Want > 0 {
			n = q.Least
		}
		s.next = now
		s.begin(now, n)
		return nil
	}
	s.backTime = min(max(firstProbe, 2*s.backTime), lastProbe)
	s.next = now.Add(upperHalf(s.backTime))
	if s.degraded == 0 {
		return s.degrade(now, q, err)
	}
	s.err = err
	return nil
}

// degrade goes on without the store, after a request that was not answered.
func (s *Limiter) degrade(now clock.Instant, q Request, err error) (events []cruise.Event) {
	s.degraded, s.err = now, err
	s.slots.drop()
	s.nextSlot = 0 // the store may forget
	pause := time.Duration(0)
	if q.Throttled {
		pause = q.Backoff
	}
	switch {
	case s.conf.pauseOnly: // its rate is its own in any case
	case s.conf.fallback == FallbackShare:
		s.local = s.fairShare(now, q.Throttled)
		s.queue.KeepPause(now)
		pause = min(pause, clock.CeilSeconds(pauseGaps*q.cost()/s.local.Rate()))
	case s.conf.fallback == FallbackOpen:
		s.local = open{free{s.newLocal(now, s.conf.Options)}}
	default:
		s.local, pause = closed{free{s.alone}, s}, 0 // nobody goes in any case
	}
	if s.queue.Pause(now, now.Add(pause)) {
		events = append(events, pausedFor(pause))
	}
	return append(events, cruise.StoreDegraded{Err: err})
}

// newLocal is a limiter of this worker alone.
func (s *Limiter) newLocal(now clock.Instant, o limits.Options) local {
	return s.alone.Part(now, &s.queue, o).(local)
}

// fairShare is a limiter that begins at this worker's share of the rate, with
// nothing saved.
func (s *Limiter) fairShare(now clock.Instant, throttled bool) local {
	o := s.conf.Options
	if s.known.Rate <= 0 {
		return s.newLocal(now, o)
	}
	known, workers := rate.Limit(s.known.Rate)/1e6, rate.Limit(s.known.Workers)
	o.Min, o.Max, o.Initial = o.Min/workers, known, known/workers
	if throttled {
		o.Initial *= rate.Limit(o.Decrease)
	}
	o.Initial = max(o.Initial, o.Min)
	if o.Burst > 0 {
		o.Burst = max(1, o.Burst/s.known.Workers)
	}
	l := s.newLocal(now, o)
	l.Settle() // it is no newcomer
	l.Pause(now, now)
	return l
}

// adopt takes what the store has answered.
func (s *Limiter) adopt(now clock.Instant, q Request, r Reply) (events []cruise.Event) {
	if s.degraded != 0 {
		events = append(events, cruise.StoreRecovered{After: now.Sub(s.degraded)})
		if s.conf.fallback == FallbackShare {
			// Other workers that were cut off may not be back yet. Until they are, this
			// one keeps to its share.
			s.settled = now.Add(2 * s.backTime)
		}
		s.degraded, s.err, s.backTime = 0, nil, 0
	}
	s.failing = false
	r.Rate = min(r.Rate, s.law.Max)
	was, cut := s.known.Rate, r.Epoch != s.known.Epoch
	if was == 0 {
		was = s.law.Initial
	}
	slots := r.Slots
	if cut {
		s.slots.drop()
		s.epochAt, s.unproved = now, true
		s.throttled = false // a throttle heard during the sync was of an attempt before the cut
	}
	if was != r.Rate && !s.conf.pauseOnly {
		e := cruise.RateChanged{From: limitOfMicro(was), To: limitOfMicro(r.Rate), Why: cruise.CauseSuccess}
		if e.To < e.From {
			e.Why = r.Why
		}
		events = append(events, e)
	}

	until := now.Add(r.Pause)
	paused := false
	if r.Resumes > s.known.Resumes && !s.newPause && until < s.queue.PausedUntil() {
		events = append(events, cruise.Resumed{Left: s.queue.PauseLeft(now)})
		if r.Pause > 0 {
			events = append(events, pausedFor(r.Pause))
		}
		s.queue.CutPause(now, until)
		s.common = until
		s.stopped(now)
	} else if r.Pause > 0 && until > s.common && !s.resume {
		s.common = until
		// A pause that is known seems to move by the time that answers take.
		news := until.Sub(s.queue.PausedUntil()) > s.conf.timeout
		paused = s.queue.Pause(now, until)
		if news {
			events = append(events, pausedFor(r.Pause))
		}
		if news && r.Pause > outageLeast { // what it is for is not told
			s.stopped(now)
		}
	}
	if s.throttled || now < s.queue.PausedUntil() {
		slots = 0
	}
	asked := s.answerBy.Add(-s.conf.timeout)
	switch {
	case q.Want <= 0 || r.Pause > 0: // tells nothing of slots
	case r.Slots > 0:
		s.nextSlot = asked + clock.Instant(r.Wait+r.Span)
	default:
		s.nextSlot = asked + clock.Instant(r.Wait+syncHorizon)
	}
	if slots > 0 {
		s.slots.add(now, now+clock.Instant(r.Wait), r.Span/time.Duration(slots), slots)
	}

	if dt := now.Sub(s.syncedAt); s.syncedAt != 0 {
		s.demand = (s.demand*demandOver.Seconds() + float64(s.taken)) / (demandOver + min(dt, time.Hour)).Seconds()
	}
	old := s.isOld(now)
	s.taken, s.syncedAt = 0, now
	s.known = r
	if q.Want > 0 {
		s.next = now.Add(s.gap(q, r))
	} else if r.Rate > was {
		s.next = min(s.next, now.Add(rand.N(s.period())))
	}
	if paused || now < s.queue.PausedUntil() || r.Rate < was || q.Want > 0 && r.Slots == 0 || old {
		s.queue.Slowed(now)
	} else {
		s.queue.Reschedule(now)
	}
	return events
}

// gap is how long to leave the store alone after an answer.
func (s *Limiter) gap(q Request, r Reply) time.Duration {
	if r.Slots >= q.Want || r.Pause > 0 {
		return 0
	}
	// There is less than is wanted: everyone gets something in turn.
	turn := s.period()
	turn = upperHalf(turn)
	if r.Slots == 0 {
		// Not all workers at the same moment: the nearest to the store would win each
		// time. And no longer than a turn, since the rate may rise meanwhile, as others
		// tell of a new window.
		turn = max(turn, min(r.Wait, sharedMaxTurn*time.Microsecond)+rand.N(syncPeriod))
	}
	return turn
}

// leases are the slots that a worker has, in the order in which they are due.
type leases struct {
	all []lease
	n   int // slots
}

// A lease is a row of slots: the first is due at at, the others each gap later.
type lease struct {
	at  clock.Instant
	gap time.Duration
	n   int
}

// add adds slots. Those that were saved up, for a burst, are due now, not long ago.
func (l *leases) add(now, at clock.Instant, gap time.Duration, n int) {
	gap = max(1, gap)
	l.n += n
	if saved := int(min(int64(now.Sub(at)/gap), int64(n))); saved > 0 {
		l.all = append(l.all, lease{now, 1, saved})
		at, n = at+clock.Instant(saved)*clock.Instant(gap), n-saved
	}
	if n > 0 {
		l.all = append(l.all, lease{at, gap, n})
	}
}

func (l *leases) drop() { l.all, l.n = l.all[:0], 0 }

// cut takes the first n slots of the first lease away.
func (l *leases) cut(n int) {
	first := &l.all[0]
	first.n -= n
	first.at += clock.Instant(n) * clock.Instant(first.gap)
	l.n -= n
	if first.n == 0 {
		l.all = append(l.all[:0], l.all[1:]...)
	}
}

// skip drops the slots that were due before a time. Those that come later outlive a pause
// until then, also one that is lifted: there is none to make up for them for an interval.
func (l *leases) skip(until clock.Instant) {
	for len(l.all) > 0 && l.all[0].at < until {
		first := l.all[0]
		l.cut(int(min(int64(first.n), 1+int64((until.Sub(first.at)-1)/first.gap))))
	}
}

// expire drops the slots that have been due for longer than life. For a call of cost n
// life counts from when the last of n slots is due. No slot is void before the next one is
// due: so of all workers no more than one call goes late.
func (l *leases) expire(now clock.Instant, n int, life time.Duration) {
	for l.n > 0 {
		first := l.all[0]
		over := now.Sub(first.at) - max(life, first.gap) - time.Duration(n-1)*first.gap
		if over <= 0 {
			return
		}
		l.cut(int(min(int64(first.n), 1+int64(over/first.gap)))) // in 64 bits, as saved slots are a nanosecond apart
	}
}

// wait is how long from now n slots are due, if there are as many.
func (l *leases) wait(now clock.Instant, n int) (wait time.Duration, ok bool) {
	if l.n < n {
		return 0, false
	}
	for _, x := range l.all {
		if n <= x.n {
			return max(0, x.at.Sub(now)+time.Duration(n-1)*x.gap), true
		}
		n -= x.n
	}
	return 0, false
}

// reach is how long from now the last slot is due, 0 if none is.
func (l *leases) reach(now clock.Instant) time.Duration {
	if len(l.all) == 0 {
		return 0
	}
	last := l.all[len(l.all)-1]
	return max(0, last.at.Sub(now)+time.Duration(last.n)*last.gap)
}

// take takes the first n slots, which are due.
func (l *leases) take(n int) {
	for n > 0 && len(l.all) > 0 {
		k := min(n, l.all[0].n)
		l.cut(k)
		n -= k
	}
}

// upperHalf is a random time of at most most, and at least half of it.
func upperHalf(most time.Duration) time.Duration {
	return most - rand.N(most/2+1)
}
