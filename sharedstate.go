package cruise

import (
	"math"
	"time"
)

// StoreRequest is what a worker tells a [Store], and asks of it, in one sync. It
// holds durations and counts only, no moment in time, so that clocks of workers
// need not agree. Rates are in millionths of a call per second.
type StoreRequest struct {
	// Law are the worker's options. Each sync goes by those of its own worker.
	Law SharedLaw

	// Want is the number of slots wanted, 0 for none. Least is the fewest that
	// are of use, the cost of the next call; at most Want.
	Want, Least int

	// Epoch is the newest epoch that the worker knows, 0 for none. Rate and
	// Ceiling are those of it: a store that has lost its state, or holds an older
	// one, takes them over.
	Epoch         int64
	Rate, Ceiling int64

	// Throttled tells that an attempt sent in Epoch was throttled, and Backoff
	// how long everyone pauses for it at most, 0 if Pause says how long.
	Throttled bool
	Backoff   time.Duration
	// Successes is the cost of all attempts that succeeded since the last sync.
	Successes int64

	// Pause is what is left of the longest pause that the worker knows. NewPause
	// says that the store may not know of it yet.
	Pause    time.Duration
	NewPause bool
	// Resume lifts the pause, and Resumes is how many such liftings the worker
	// knows of: a pause of an older one is not brought back.
	Resume  bool
	Resumes int64

	// Held is how far ahead the slots reach that the worker has. A store that has
	// lost its state gives none out before.
	Held time.Duration

	// Count is the count of workers that this one was last part of: see
	// [StoreReply].
	Count int64
}

// SharedLaw are the options of a worker that concern the shared rate: see
// [NewSharedLimiter]. Rates are in millionths of a call per second, factors in
// millionths.
type SharedLaw struct {
	Min, Max, Initial  int64
	Decrease, Increase int64
	Burst              int64         // 1 or more
	Forgive            int64         // 1 or more
	PauseBase          time.Duration // the shortest bound of a pause where throttles go on
}

// StoreReply is the answer to a [StoreRequest].
type StoreReply struct {
	// Slots is how many calls may go. The first goes in Wait, the others at equal
	// distances within Span. Wait is negative where a burst was saved. If Slots is
	// 0, it makes no sense to ask again before Wait is over.
	Slots      int
	Wait, Span time.Duration

	Epoch         int64 // counts the cuts of the rate, from 1 on
	Rate, Ceiling int64 // Ceiling is 0 before the first throttle
	Level         int64 // of the pause backoff, 0 while all is well

	Pause   time.Duration // what is left of the pause, 0 for none
	Resumes int64

	Workers int   // that synced lately, 1 or more
	Count   int64 // of workers, in which this one is now included
}

// SharedState is all that a [Store] keeps of one scope, and the law by which it
// changes: [MemoryStore] holds one, and the script of cruiseredis does the same,
// digit for digit. Whoever writes another Store can keep it in a row of a
// database, for example, and call Sync within a transaction.
//
// Times are microseconds since a moment of the store's choice, rates millionths
// of a call per second, all of them whole numbers below 2^53. The zero value is
// the state of a scope that nobody knows yet.
//
// It is a rate that slots are given out by, ahead of time, and the law of an
// [AdaptiveLimiter] as far as that can be shared: one cut for one congestion,
// linear growth from successes while the rate is in use, pauses that double, and
// single calls at a closed door.
type SharedState struct {
	At     int64 // of the last sync: all other times are to be seen from there
	Tat    int64 // from when on no slot is given out yet
	Until  int64 // end of the pause
	Credit int64 // until when growth has been paid out
	CutAt  int64 // of the last cut
	Born   int64 // when the rate began
	OpenAt int64 // when the server last opened again

	Epoch, Resumes int64
	Rate, Ceiling  int64
	Flow           int64 // successes, as a rate
	Busy           int64 // share of the time for which slots were given out, in millionths

	Oks       int64 // cost of successes since the last cut
	Total     int64 // cost of successes in all
	OpenTotal int64 // of them, by OpenAt
	Row       int64 // throttles since the last success

	Level, Passed, Most int64 // of the pause backoff: see brake; Most in microseconds

	Count, CountEnd int64 // the count of workers under way, and when it ends
	Counted, Before int64 // workers in it, and in the one before
}

// The constants of the shared law, beside those of the law of one process. Times
// are microseconds. They are in the script of cruiseredis too.
const (
	sharedMillion = 1_000_000
	sharedHorizon = 1_000_000            // how far ahead slots are given out
	sharedPeriod  = 500_000              // within which an active worker syncs
	sharedMaxTurn = 5 * sharedMillion    // for which a worker leaves the store alone while slots are short
	sharedGap     = 2 * sharedPeriod     // between two cuts: everyone knows of the last one
	sharedCount   = 5 * sharedMillion    // how long a count of workers takes
	sharedMemory  = 1_000_000            // of Flow and Busy, or
	sharedCalls   = 20                   // as long as that many calls take
	sharedUsed    = .75                  // of the rate must be in use for growth,
	sharedStart   = .5                   // before the first throttle
	sharedMinAge  = 5 * sharedMillion    // probing takes at least
	sharedMaxAge  = 50 * sharedMillion   // and at most
	sharedStep    = .1                   // of the rate is the most that one sync adds above .9 of the ceiling
	sharedClosed  = 100_000              // between calls at a closed door, at least
	sharedReopen  = .9                   // of what the server gave in the long run, when it opens again
	sharedPart    = 4                    // of what is free, the part that one sync gets at most
	sharedMost    = 1_000_000            // slots in one sync
	sharedYear    = 365 * 86_400_000_000 // bound of Most
)

// MaxSharedPause is the longest pause that workers share, 31 days.
const MaxSharedPause = 31 * 24 * time.Hour

// micros is d in microseconds, rounded up.
func micros(d time.Duration) int64 {
	us := d.Microseconds()
	if time.Duration(us)*time.Microsecond < d {
		us++
	}
	return us
}

// Sync is one step of the state, at a time of the store's clock. A clock that goes
// back takes all times with it; one that leaps ahead is time gone by.
func (s *SharedState) Sync(now time.Duration, q StoreRequest) StoreReply {
	t := now.Microseconds()
	law := q.Law
	s.awake(t, q)
	s.Rate = min(max(s.Rate, law.Min), law.Max)

	if t >= s.CountEnd {
		s.Before = s.Counted
		if t-s.CountEnd >= sharedCount {
			s.Before = 0
		}
		s.Count, s.CountEnd, s.Counted = s.Count+1, t+sharedCount, 0
	}
	if q.Count != s.Count {
		s.Counted++
	}
	workers := max(1, s.Before, s.Counted)

	s.measure(t, q.Successes)
	if q.Resume {
		s.Resumes, s.Until = s.Resumes+1, t
	} else if q.Pause > 0 && (q.NewPause || q.Resumes >= s.Resumes) {
		s.Until = max(s.Until, t+micros(min(q.Pause, MaxSharedPause)))
	}
	if q.Successes > 0 {
		s.success(t, q)
	}
	if q.Throttled && q.Epoch == s.Epoch && t-s.CutAt >= sharedGap {
		s.throttle(t, q, workers)
	}
	slots, wait, span := s.give(t, q, workers)
	return StoreReply{
		Slots: int(slots),
		Wait:  time.Duration(wait) * time.Microsecond,
		Span:  time.Duration(span) * time.Microsecond,
		Epoch: s.Epoch, Rate: s.Rate, Ceiling: s.Ceiling, Level: s.Level,
		Pause:   time.Duration(max(0, s.Until-t)) * time.Microsecond,
		Resumes: s.Resumes, Workers: int(workers), Count: s.Count,
	}
}

// awake makes a state of none, and of an older one than the worker knows.
func (s *SharedState) awake(t int64, q StoreRequest) {
	switch {
	case s.Epoch == 0:
		*s = SharedState{
			At: t, Tat: t + min(micros(q.Held), sharedHorizon), Until: t, Credit: t, CutAt: t - sharedGap, Born: t, OpenAt: t,
			Resumes: q.Resumes, Rate: q.Law.Initial, Count: q.Count, CountEnd: t,
		}
	case t < s.At:
		back := s.At - t
		s.At, s.Tat, s.Until, s.Credit = t, s.Tat-back, s.Until-back, s.Credit-back
		s.CutAt, s.Born, s.OpenAt, s.CountEnd = s.CutAt-back, s.Born-back, s.OpenAt-back, s.CountEnd-back
	}
	if q.Epoch > s.Epoch {
		s.Epoch, s.Rate, s.Ceiling = q.Epoch, q.Rate, q.Ceiling
		s.Resumes = max(s.Resumes, q.Resumes)
	}
	s.Epoch = max(s.Epoch, 1)
}

// measure keeps Flow and Busy, averages that forget what is older than about a
// second.
func (s *SharedState) measure(t, successes int64) {
	dt := float64(t - s.At)
	busy := min(max(float64(s.Tat-s.At), 0), dt)
	memory := max(sharedMemory, sharedCalls*1e12/float64(s.Rate))
	s.Flow = int64(math.Floor((float64(float64(s.Flow)*memory) + float64(successes)*1e12) / (memory + dt)))
	s.Busy = int64(math.Floor((float64(float64(s.Busy)*memory) + busy*1e6) / (memory + dt)))
	s.At = t
}

// success is for what succeeded since the worker's last sync.
func (s *SharedState) success(t int64, q StoreRequest) {
	s.Oks += q.Successes
	s.Total += q.Successes
	s.Passed += q.Successes
	if s.Level > 0 && s.Passed >= q.Law.Forgive {
		s.Level, s.Passed, s.Most = s.Level-1, 0, s.Most/2
	}
	if s.Row >= closedRow {
		// What the server gave in the long run, the closed time included, is
		// what it gives: so a limit per window is learnt in one closing.
		given := math.Floor(float64(s.Total-s.OpenTotal) * 1e12 / float64(max(1, t-s.OpenAt)))
		if given < float64(s.Ceiling) {
			s.Ceiling = max(q.Law.Min, int64(given))
			s.Rate = min(s.Rate, max(q.Law.Min, int64(math.Floor(sharedReopen*given))))
		}
		s.OpenAt, s.OpenTotal = t, s.Total
	}
	s.Row = 0
	if !q.Throttled && q.Epoch == s.Epoch {
		s.grow(t, q)
	}
	s.Credit = t
}

// grow is the additive increase.
func (s *SharedState) grow(t int64, q StoreRequest) {
	r, c := float64(s.Rate), float64(s.Ceiling)
	dt := min(float64(t-s.Credit), max(sharedPeriod, creditOver*1e12/r)) / 1e6
	used := float64(s.Flow) / r
	back := math.Floor(backTo * c)
	switch {
	case c == 0:
		if used < sharedStart {
			return
		}
		r += float64(r * dt)
	case used < sharedUsed:
		return
	default:
		age := min(max(probeAge*float64(t-s.Born), sharedMinAge), sharedMaxAge)
		slope := float64(q.Law.Increase) / 1e6 * c / max(probeOver*1e12/c, age) * 1e6
		if r < back {
			decrease := float64(q.Law.Decrease) / 1e6
			slope = max(slope, (backTo-decrease)*c/1e6*c/backOver)
			r = min(back, r+float64(slope*dt))
			break
		}
		if r > c {
			slope *= 1 + float64(pushOn*(r/c-1))
		}
		r += min(float64(slope*dt), sharedStep*r)
	}
	s.Rate = min(q.Law.Max, int64(math.Floor(r)))
}

// throttle is the multiplicative decrease, and the pause.
func (s *SharedState) throttle(t int64, q StoreRequest, workers int64) {
	again := s.Level > 0 && s.Passed == 0
	s.Epoch, s.CutAt, s.Credit, s.Row = s.Epoch+1, t, t, s.Row+1
	if s.Oks > 0 { // else pauses are the answer
		r := float64(s.Rate)
		given := r
		if s.Busy > 0 {
			given = min(r, float64(s.Flow)*1e6/float64(s.Busy))
		}
		// What is told of successes lags behind a rate that grows.
		given = max(given, r/2)
		s.Ceiling = int64(math.Floor(given))
		s.Rate = max(q.Law.Min, int64(math.Floor(given*float64(q.Law.Decrease)/1e6)))
		s.Ceiling = max(s.Ceiling, s.Rate)
		s.Oks = 0
	}
	// Slots that were given out at the old rate are void as soon as their owners
	// hear of it. Until then they are used.
	s.Tat = min(s.Tat, t+s.turn(workers)*(workers-1)/workers)

	s.Level, s.Passed = min(s.Level+1, 60), 0
	s.Most = max(int64(math.Ceil(pauseGaps*1e12/float64(s.Rate))), min(2*s.Most, sharedYear))
	if again { // the server is closed, and its rate says nothing of how long
		s.Most = max(s.Most, micros(q.Law.PauseBase))
	}
	if q.Backoff > 0 {
		s.Until = max(s.Until, t+min(micros(q.Backoff), s.Most))
	}
}

// turn is how long it takes until all workers have synced, where there are fewer
// slots than they want.
func (s *SharedState) turn(workers int64) int64 {
	return sharedTurn(workers, s.Rate)
}

// sharedTurn is the time in which each worker gets two slots, if that is more than
// the period and there are enough of them to use up what is ahead meanwhile.
func sharedTurn(workers, rate int64) int64 {
	two := min(2e12*float64(workers)/float64(rate), sharedMaxTurn)
	return max(sharedPeriod, min(int64(two), sharedHorizon*workers/8))
}

// give gives out slots: calls that go from wait on, within span.
func (s *SharedState) give(t int64, q StoreRequest, workers int64) (slots, wait, span int64) {
	if s.Until > t {
		return 0, s.Until - t, 0
	}
	if q.Want <= 0 {
		return 0, 0, 0
	}
	want, least := float64(q.Want), float64(max(1, q.Least))
	spacing := 1e12 / float64(s.Rate)
	if s.Row >= closedRow {
		spacing, want = max(4*spacing, sharedClosed), least
	}
	saved := int64(math.Floor(float64(q.Law.Burst-1) * spacing))
	start := max(s.Tat, t-saved, s.Until)
	free := float64(sharedHorizon - (start - t))
	if free <= 0 {
		return 0, int64(-free), 0
	}
	part := math.Floor(free / spacing / float64(min(workers, sharedPart)))
	slots = int64(min(max(least, min(want, part)), sharedMost))
	span = int64(math.Ceil(float64(slots) * spacing))
	s.Tat = start + span
	return slots, start - t, span
}
