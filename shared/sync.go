package shared

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"golang.org/x/time/rate"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/internal/chance"
	"github.com/a7df5faa/cruise/internal/clock"
	"github.com/a7df5faa/cruise/internal/limits"
)

// The times of a worker, beside the times of the shared law.
const (
	syncPeriod  = reportPeriod * time.Microsecond
	syncHorizon = horizon * time.Microsecond
	slotLife    = time.Second            // after which a slot that is due is void: see leases.expire
	slotLate    = 50 * time.Millisecond  // the same for a slot that a call waits for
	demandOver  = time.Second            // over which the demand is averaged
	firstProbe  = 250 * time.Millisecond // between a failure and the first question whether the store is back
	lastProbe   = 5 * time.Second        // between such questions in the long run
	keptFor     = 10 * time.Minute       // without a sync, after which a store may have forgotten, and learned anew
)

var (
	errStoreTimeout = errors.New("cruise: store did not answer within the time of WithStoreTimeout")
	errStoreExited  = errors.New("cruise: store exited its goroutine")
)

// ahead returns how many slots the worker should have for its calls of the next period, beside the
// slots of calls that wait. A call that is not likely within the period does not count: its slot
// would be taken from others, and expire.
func (s *Limiter) ahead() int {
	cost := int64(0)
	if calls := s.demand * syncPeriod.Seconds(); calls >= 1 {
		cost = int64(math.Ceil(calls))
	}
	return int(max(0, min(max(cost, s.queue.Cost()-int64(s.balance)), mostSlots)))
}

// want returns how many slots to ask for, where the next call costs n.
func (s *Limiter) want(n int) int {
	if n <= s.slots.n {
		return max(0, s.ahead()-s.slots.n)
	}
	return max(n, s.ahead()-s.slots.n)
}

// hurry begins a sync if there is something to report at once.
func (s *Limiter) hurry(now clock.Instant) {
	if s.urgent && s.degraded == 0 && !s.syncing {
		s.next = now
		s.begin(now, 0)
	}
}

// begin starts a sync, unless one is under way or it is too early. n is the cost of the call that
// asks for it.
func (s *Limiter) begin(now clock.Instant, n int) {
	if s.syncing || now < s.next {
		return
	}
	q := s.account(now)
	if !s.conf.pauseOnly && now >= s.queue.PausedUntil() { // else they would be dropped
		n = max(n, s.need(s.queue.NextCost()))
		if want := s.want(n); n > 0 && want > 0 {
			q.Want, q.Least = want, n
			q.Law.Initial = s.initial(n)
		}
	}
	s.send(now, q)
}

// report reports successes sooner where this worker has no slot left: slots are short then, and
// the next request may be seconds away. Before the first throttle it reports at once, as the store
// must know by then how much the server gives, unless the rate is at its maximum. It reports a
// quota within a period, as it may be the quota of a new window.
func (s *Limiter) report(now clock.Instant) {
	switch {
	case s.slots.n > 0 || s.degraded != 0 || s.syncing:
	case s.known.Ceiling == 0 && s.known.Rate < s.law.Max && now < s.next:
		s.send(now, s.account(now))
	case s.quotaAt != 0:
		s.next = min(s.next, s.syncedAt.Add(syncPeriod))
	}
}

// send starts a sync with the request q.
func (s *Limiter) send(now clock.Instant, q Request) {
	s.syncing, s.urgent = true, s.pending.NewPause // account leaves a pause for the next sync
	s.turn++
	s.stats.Syncs++
	if !s.failing { // a second try has the time that the first one left
		s.answerBy = now.Add(s.conf.timeout)
	}
	go s.sync(s.turn, q, s.answerBy.Sub(now))
}

// initial returns the rate to begin at. Unless WithInitialRate sets it, it grows with the cost of
// the first call.
func (s *Limiter) initial(cost int) int64 {
	if s.conf.Initial != rate.Inf {
		return s.law.Initial
	}
	return min(s.law.Initial*int64(cost), s.law.Max)
}

// account returns the next request, and clears the account of events. If the sync fails, failed
// puts back the events that must be reported again.
func (s *Limiter) account(now clock.Instant) Request {
	if now.Sub(s.resumedAt) > lastProbe+s.conf.timeout {
		s.pending.Resume = false // another pause may have begun
	}
	q := s.pending
	q.Law, q.Least, q.Held = s.law, s.cost, s.slots.reach(now)
	q.Epoch, q.Rate, q.Ceiling, q.Resumes, q.Count = s.known.Epoch, s.known.Rate, s.known.Ceiling, s.known.Resumes, s.known.Count
	q.NewPause = q.NewPause && !q.Resume // a pause that follows a Resume is reported after it
	if q.Epoch > 1 && now.Sub(s.syncedAt) > keptFor {
		q.Epoch = 1 // the store may know better by now
	}
	if left := s.common.Sub(now); left > 0 {
		if !s.pending.NewPause {
			// Less the time that the request may take, so that a pause does not grow with
			// each report.
			left -= s.conf.timeout
		}
		q.Pause = max(0, left)
	}
	if s.quotaAt != 0 {
		q.Quota, q.QuotaAge = s.quota, now.Sub(s.quotaAt)
	}
	s.pending = Request{Backoff: q.Backoff, NewPause: s.pending.NewPause && q.Resume}
	return q
}

// sync asks the store, in a goroutine that ends with the answer.
func (s *Limiter) sync(turn uint64, q Request, within time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	// A call waits no longer, even if the store ignores its context.
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

// answer takes the result of a sync.
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

// ask calls Sync of a store. A panic of the store must not end the program.
func ask(ctx context.Context, store Store, q Request) (r Reply, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("cruise: store panicked: %v", p)
		}
	}()
	r, err = store.Sync(ctx, q)
	_ = errors.Is(err, context.DeadlineExceeded) // failed asks the same, and there a nil pointer in err would panic under the lock
	return r, err
}

// check returns an error if no sound store gives such an answer to q.
func (r Reply) check(q Request) error {
	switch {
	case r.Slots < 0 || r.Slots > max(q.Want, q.Least):
		return fmt.Errorf("cruise: store gave %d slots: want 0 to %d", r.Slots, max(q.Want, q.Least))
	case r.Slots > 0 && (r.Span <= 0 || r.Span > clock.Farthest):
		return fmt.Errorf("cruise: store gave slots for %v: want more than 0, and at most %v", r.Span, clock.Farthest)
	case r.Wait > syncHorizon && r.Slots > 0 || r.Wait > clock.Farthest || r.Wait < -clock.Farthest:
		return fmt.Errorf("cruise: store gave slots from %v on: want at most %v", r.Wait, syncHorizon)
	case r.Epoch < 1 || r.Epoch > mostEpoch || r.Rate < 1 || r.Rate > mostRate*1e6 || r.Ceiling < 0:
		return fmt.Errorf("cruise: store gave epoch %d, rate %d, ceiling %d: want 1 to %d, 1 to 1000000000000, 0 or more", r.Epoch, r.Rate, r.Ceiling, int64(mostEpoch))
	case r.Pause < 0 || r.Pause > MaxPause:
		return fmt.Errorf("cruise: store gave a pause of %v: want 0 to %v", r.Pause, MaxPause)
	case r.Workers < 1 || r.Level < 0 || r.Resumes < 0:
		return fmt.Errorf("cruise: store gave %d workers, level %d, %d resumes: want 1 or more, 0 or more, 0 or more", r.Workers, r.Level, r.Resumes)
	}
	return nil
}

// failed takes a sync that failed.
func (s *Limiter) failed(now clock.Instant, q Request, err error) (events []cruise.Event) {
	again := s.degraded == 0 && !s.failing && !errors.Is(err, context.DeadlineExceeded)
	s.failing = again
	// Perhaps only the answer was lost. By its epoch, the same throttle cuts once, and a quota may
	// be told twice. Other results would count twice, so they are dropped.
	s.pending.Throttled = s.pending.Throttled || q.Throttled
	s.pending.NewPause = s.pending.NewPause || q.NewPause && !s.pending.Resume
	s.pending.Resume = s.pending.Resume || q.Resume
	if again {
		// At once, as the connection may have died long ago; and for as many slots, though the
		// call that needs them may not wait yet.
		n := 0
		if q.Want > 0 {
			n = q.Least
		}
		s.next = now
		s.begin(now, n)
		return nil
	}
	s.backTime = min(max(firstProbe, 2*s.backTime), lastProbe)
	s.next = now.Add(chance.UpperHalf(s.backTime))
	if s.degraded == 0 {
		return s.degrade(now, q, err)
	}
	s.err = err
	return nil
}

// degrade makes the limiter go on without the store, after a request without an answer.
func (s *Limiter) degrade(now clock.Instant, q Request, err error) (events []cruise.Event) {
	s.degraded, s.err = now, err
	s.slots.drop()
	s.nextSlot = 0 // the store may forget
	pause := time.Duration(0)
	if q.Throttled {
		pause = q.Backoff
	}
	switch {
	case s.conf.pauseOnly: // the rate is that of this worker in any case
	case s.conf.fallback == FallbackShare:
		s.local = s.fairShare(now, q.Throttled)
		s.queue.KeepPause(now)
		pause = min(pause, clock.CeilSeconds(pauseGaps*float64(q.cost())/s.local.Rate()))
	case s.conf.fallback == FallbackOpen:
		s.local = open{free{s.newLocal(now, s.conf.Options)}}
	default:
		s.local, pause = closed{free{s.alone}, s}, 0 // no call goes in any case
	}
	if s.queue.Pause(now, now.Add(pause)) {
		events = append(events, pausedFor(pause))
	}
	return append(events, cruise.StoreDegraded{Err: err})
}

// newLocal returns a limit of this worker alone.
func (s *Limiter) newLocal(now clock.Instant, o limits.Options) local {
	return s.alone.Part(now, &s.queue, o).(local)
}

// fairShare returns a limit that begins at this worker's share of the rate, with nothing saved.
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
	l.Law().Settle() // the shared rate was found before
	l.Pause(now, now)
	return l
}

// adopt takes the answer of the store.
func (s *Limiter) adopt(now clock.Instant, q Request, r Reply) (events []cruise.Event) {
	if s.degraded != 0 {
		events = append(events, cruise.StoreRecovered{After: now.Sub(s.degraded)})
		if s.conf.fallback == FallbackShare {
			// Other workers may not have reached the store yet. Until then this one keeps to
			// its share.
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
		if s.known.Epoch != 0 {
			s.epochAt = now
		}
		s.unproved = true
		if s.pending.Throttled { // that attempt was sent before the cut
			s.pending.Throttled = false
			s.pending.Late++
		}
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
	if s.known.Epoch != 0 && r.Resumes > s.known.Resumes && !s.pending.NewPause && until < s.queue.PausedUntil() {
		events = append(events, cruise.Resumed{Left: s.queue.PauseLeft(now)})
		if r.Pause > 0 {
			events = append(events, pausedFor(r.Pause))
		}
		s.queue.CutPause(now, until)
		s.common = until
		s.stopped(now)
	} else if r.Pause > 0 && until > s.common && !s.pending.Resume {
		s.common = until
		// The end of a known pause seems to move by the time that answers take.
		news := until.Sub(s.queue.PausedUntil()) > s.conf.timeout
		paused = s.queue.Pause(now, until)
		if news {
			events = append(events, pausedFor(r.Pause))
		}
		if news && r.Pause > outageLeast { // an answer does not tell the reason of a pause
			s.stopped(now)
		}
	}
	if s.pending.Throttled || now < s.queue.PausedUntil() {
		slots = 0
	}
	asked := s.answerBy.Add(-s.conf.timeout)
	if q.Quota == s.quota { // else another came meanwhile
		s.quotaAt = 0
	}
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
		s.next = min(s.next, now.Add(chance.N(s.period())))
	}
	if paused || now < s.queue.PausedUntil() || r.Rate < was || q.Want > 0 && r.Slots == 0 || old {
		s.queue.Slowed(now)
	} else {
		s.queue.Reschedule(now)
	}
	return events
}

// gap returns how long to leave the store alone after an answer.
func (s *Limiter) gap(q Request, r Reply) time.Duration {
	if r.Slots >= q.Want || r.Pause > 0 {
		return 0
	}
	// Slots are short: workers take turns.
	turn := chance.UpperHalf(s.period())
	if r.Slots == 0 {
		// Workers must not ask all at the same moment: the nearest to the store would win each
		// time. Nor wait longer than a turn, since the rate may rise meanwhile, when another
		// worker reports a new window.
		turn = max(turn, min(r.Wait, maxTurn*time.Microsecond)+chance.N(syncPeriod))
	}
	return turn
}
