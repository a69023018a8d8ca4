package shared

import (
	"math"
	"time"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/internal/clock"
	"github.com/a7df5faa/cruise/internal/queue"
)

// A policy is a Limiter as its queue knows it.
type policy struct{ *Limiter }

func (s *Limiter) policy() policy { return policy{s} }

// Take takes the slots of the call.
func (s policy) Take(now clock.Instant, n int) {
	s.local.Take(now, n)
	s.pour(now, n)
	if !s.isAlone() {
		need := s.need(n)
		s.balance -= n - need
		s.slots.take(need)
	}
	s.taken += n
	s.stats.Admitted++
}

// Peek returns how long the call must wait for its slots, and for the limits of this worker alone.
func (s policy) Peek(now clock.Instant, n int) time.Duration {
	s.dearest = max(s.dearest, n)
	switch {
	case s.degraded != 0:
		wait := s.local.Peek(now, n)
		if s.conf.fallback == FallbackShare {
			wait = max(wait, s.emptiedBy(now, n).Sub(now))
		}
		return min(s.await(now, n), wait)
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
	}
	if wait == 0 {
		wait = max(s.emptiedBy(now, n).Sub(now), min(s.local.Peek(now, n), s.settled.Sub(now)), 0)
	}
	return wait
}

// need returns how many slots a call of cost n takes: fewer if earlier calls gave some back, more
// if they owe some. A call pays mostCost for others at least, if they owe as much.
func (s *Limiter) need(n int) int { return min(max(0, n-s.balance), 2*mostCost) }

// Charge keeps the balance of this worker. It gives back no more than one call takes, so that no
// burst is saved up.
func (s policy) Charge(now, sent clock.Instant, n int) {
	s.pour(now, max(-s.MaxCost(), min(n, s.MaxCost())))
	if s.isAlone() {
		s.local.Charge(now, sent, n)
		return
	}
	s.balance = min(max(s.balance-n, -math.MaxInt32), s.dearest)
}

// emptiedBy returns the value of emptyAt after a call of cost n has gone now. If it is later than
// now, the call is too early. The bucket holds the burst or the highest cost of a call, and as much
// more as slots may be late: see [leases.expire].
func (s *Limiter) emptiedBy(now clock.Instant, n int) clock.Instant {
	gap := s.leastGap()
	full := max(s.law.Burst, int64(s.dearest))*int64(gap) + max(int64(slotLife), int64(gap))
	return max(s.emptyAt, now-clock.Instant(full)) + clock.Instant(n)*gap
}

// pour takes n calls out of the bucket, or puts them back if n is below 0. The bucket keeps no debt:
// the balance or the local limit has that of a call that costs more than it took, and FallbackOpen
// goes beyond the maximum.
func (s *Limiter) pour(now clock.Instant, n int) { s.emptyAt = min(s.emptiedBy(now, n), now) }

// leastGap returns the time between two calls at this worker's own maximum rate.
func (s *Limiter) leastGap() clock.Instant { return clock.Instant(1e15 / s.law.Max) }

// isAlone reports whether the rate is that of this worker.
func (s *Limiter) isAlone() bool { return s.conf.pauseOnly || s.degraded != 0 }

// slot returns how long from now the next call must wait for its slots.
func (s *Limiter) slot(now clock.Instant, n int) time.Duration {
	life := slotLife
	if s.due != 0 && now.Sub(s.due) > slotLate && s.queue.Waiting() > 0 {
		// The timer was late. If the timers of all workers are, all missed slots would be used
		// at once.
		life = slotLate
	}
	s.due = 0
	until := s.queue.PathPausedUntil()
	if until <= now {
		s.slots.skip(until)
	}
	if until > now || !s.queue.HeldUpAbove() { // else a limit around this one holds up their call
		s.slots.expire(now, n, life)
	}
	if wait, ok := s.slots.wait(now, n); ok {
		if s.queue.HeldUpAbove() { // slots for the next call would get old meanwhile
			s.ask(now, queue.ListenAbove)
		} else if now.Sub(s.syncedAt) >= syncPeriod || s.slots.n-n < s.ahead()/4 && s.want(n) > 0 {
			s.begin(now, n)
		}
		if left := max(0, syncHorizon-now.Sub(s.syncedAt)); wait > left { // other workers may be throttled meanwhile
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

// ask asks for news alone, if the last are old enough.
func (s *Limiter) ask(now clock.Instant, old time.Duration) {
	if !s.syncing && now.Sub(s.syncedAt) >= old {
		s.send(now, s.account(now))
	}
}

// await begins a sync, and returns how long a call must wait for the slots that it brings:
// clock.Never while the sync is under way, else the time until it may begin.
func (s *Limiter) await(now clock.Instant, n int) time.Duration {
	if s.begin(now, n); s.syncing {
		return clock.Never
	}
	return s.next.Sub(now)
}

// fresh returns how long a call must wait for news of pauses: 0 unless the last are old. A call
// that a limit around has held up would lose its place there.
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

// isOld reports whether the rate may have changed by now: a worker whose calls wait has news more
// often.
func (s *Limiter) isOld(now clock.Instant) bool { return now.Sub(s.syncedAt) > 2*lastProbe }

// period returns how often to ask for news alone: as often as a worker syncs that is short of
// slots, so that a large fleet asks no more than when it runs.
func (s *Limiter) period() time.Duration {
	if s.conf.pauseOnly || s.known.Rate <= 0 {
		return syncPeriod
	}
	return time.Duration(turnTime(int64(s.known.Workers), s.known.Rate)) * time.Microsecond
}

// lifted asks, for a call that a pause holds up, whether another worker has ended the pause. It
// returns when to ask again.
func (s *Limiter) lifted(now clock.Instant) time.Duration {
	if wait := s.period() - now.Sub(s.syncedAt); wait > 0 {
		return wait
	}
	return s.await(now, 0)
}

// Abandoned tells the law of this worker that the last waiter has left without going.
func (s policy) Abandoned(now clock.Instant) {
	s.local.Abandoned(now)
}

// AtLeast returns a lower bound of the wait, by the slots in hand and the store's last answer.
func (s policy) AtLeast(now clock.Instant, ahead int64, n int) time.Duration {
	if s.isAlone() {
		return s.local.AtLeast(now, ahead, n)
	}
	slots := max(0, ahead+min(int64(n)-int64(s.balance), 2*mostCost))
	missing := slots - int64(s.slots.n)
	switch {
	case slots == 0:
		return 0
	case missing <= 0:
		wait, _ := s.slots.wait(now, int(slots))
		return wait
	}
	// At best no other worker needs slots. The rate is unknown after a while without news. It can
	// reach the ceiling within a few calls; before the first throttle it has grown since the last
	// news, and grows on, by e a second at most.
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
		// A rate that rises shortens the interval, and brings the next slot nearer by as much.
		wait = max(wait, s.nextSlot.Sub(now).Seconds()-1/limit+left/soon)
	}
	return clock.CeilSeconds(wait)
}

// Pause passes the end of a pause on to the limit of this worker.
func (s policy) Pause(now, until clock.Instant) {
	s.local.Pause(now, until)
}

// Counts reports false: the store remembers past calls.
func (s policy) Counts(clock.Instant) bool { return false }
