package shared

import (
	"math"
	"time"

	"github.com/a7df5faa/cruise"
)

// Request is what a worker tells a [Store], and asks of it, in one sync. It
// holds durations and counts only, no moment in time, so that clocks of workers
// need not agree. Rates are in millionths of a call per second.
type Request struct {
	// Law are the worker's options. Each sync goes by those of its own worker.
	Law Law

	// Want is the number of slots wanted, 0 for none. Least is the fewest that are of
	// use: the cost of the next call, or of the last one where none waits.
	Want, Least int

	// Epoch is the newest epoch that the worker knows, 0 for none. Rate and
	// Ceiling are those of it: a store that has lost its state, or holds an older
	// one, takes them over.
	Epoch         int64
	Rate, Ceiling int64

	// Throttled tells that an attempt sent in Epoch was throttled, and Backoff
	// how long everyone pauses for it at most, 0 if Pause says how long. Elsewhere
	// tells that it was throttled though enough was left of the quota, so that something
	// else limits calls: anything by the Quota that came with the throttle; where none
	// came, more than half of the Limit by that of the last success, or more than 10 if
	// that had no Limit.
	Throttled, Elsewhere bool
	Backoff              time.Duration
	// Successes is the cost of the attempts, since the last sync, that succeeded or failed
	// for good, Failed that of others that the server let through, and Throttles that of
	// those that were throttled, in whichever epoch.
	Successes, Failed, Throttles int64
	// Quota is the last that a success was told, nil if none was, and QuotaAge how
	// long ago that is.
	Quota    *cruise.Quota
	QuotaAge time.Duration

	// Pause is what is left of the longest pause of everyone's that the worker knows.
	// NewPause says that the store may not know of it yet.
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
	// [Reply].
	Count int64
}

// cost is that of a call, whose intervals the law goes by.
func (q *Request) cost() float64 { return float64(max(1, q.Least)) }

// Law are the options of a worker that concern the shared rate: see
// [New]. Rates are in millionths of a call per second, factors in
// millionths.
type Law struct {
	Min, Max, Initial  int64
	Decrease, Increase int64
	Burst              int64         // 1 or more
	Forgive            int64         // 1 or more
	PauseBase          time.Duration // the shortest bound of a pause where throttles go on
}

// Reply is the answer to a [Request].
type Reply struct {
	// Slots is how many calls may go. The first goes in Wait, the others at equal
	// distances within Span. Wait is negative where a burst was saved. If Slots is
	// 0, it makes no sense to ask again before Wait is over, unless the rate rises.
	Slots      int
	Wait, Span time.Duration

	Epoch         int64        // counts cuts of the rate and what else makes slots void, from 1 on
	Rate, Ceiling int64        // Ceiling is 0 before the first throttle
	Why           cruise.Cause // of the last fall of the rate, CauseSuccess before any
	Level         int64        // of the pause backoff, 0 while all is well

	Pause   time.Duration // what is left of the pause, 0 for none
	Resumes int64

	Workers int   // that synced lately, 1 or more
	Count   int64 // of workers, in which this one is now included
}

// State is all that a [Store] keeps of one scope, and the law by which it
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
// linear growth from successes while the rate is in use, and faster growth where it fell far
// below what was delivered before, pauses that double, single
// calls at a closed door, and a look at what a [Quota] leaves.
type State struct {
	At     int64 // of the last sync: all other times are to be seen from there
	Tat    int64 // from when on no slot is given out yet: the "theoretical arrival time" of GCRA
	Until  int64 // end of the pause
	Credit int64 // until when growth has been paid out
	CutAt  int64 // of the last cut, or of what else made slots void
	Born   int64 // when the rate began

	ClosedAt int64 // of the first of the throttles that Row counts
	OutageAt int64 // when a closing ended that may have been an outage

	QuotaAt int64 // when the last quota was told
	HintAt  int64 // when one was last heeded
	ResetAt int64 // of the window that one belongs to

	Epoch   int64 // counts what makes slots void, such as a cut, from 1; 0 is a new state
	Resumes int64 // how often a pause was lifted
	Rate    int64 // in force
	Ceiling int64 // what the last throttle showed to be too much, 0 before the first
	Peak    int64 // the most that was let through from one cut to another one; fades with each cut that found Ceiling
	Why     int64 // of the last fall of Rate: 0 none yet, 1 CauseThrottle, 2 CauseQuota
	Agreed  int64 // cuts in a row that found Ceiling where it was, at most 3
	Doubted int64 // 1 if an outage may have made Ceiling what it is, else 0
	Flow    int64 // calls let through, as a rate
	Busy    int64 // share of the time for which slots were given out, in millionths

	Answers int64 // cost of throttles and of calls let through, that of so many at most as Refused tells of
	Refused int64 // share of throttles among about the last of them, in millionths

	Oks       int64 // cost of successes since the last cut
	Total     int64 // cost of calls let through in all
	OpenTotal int64 // Total when the server last opened again
	OpenTime  int64 // for which slots were given out since then, or the server was closed
	Row       int64 // throttles since the last success of a call that was sent after one

	Level  int64 // of the pause backoff, 0 while all is well
	Passed int64 // cost of successes since Level changed
	Most   int64 // that the last pause without a Retry-After may take

	HintLeft, ResetLeft int64 // Remaining of the quotas of HintAt and ResetAt; -1 if that window is too short to heed
	Unspread            int64 // the rate before the rest of a window was spread, 0 if it was not
	LeftFlat, LeftStays int64 // cuts that did not make enough Remaining, flatAfter at most, and the most that was, meanwhile

	PeakTotal, PeakTime    int64 // Total and OpenTime, from where on what is let through may be a peak; 0 before the first cut
	RefillTotal, RefillLow int64 // Total and Remaining, when it was last looked at what has come back
	Elsewhere              int64 // 1 if enough was left at the last throttle, else 0

	Count, CountEnd int64 // the count of workers under way, and when it ends
	Counted, Before int64 // workers in it, and in the one before
	Cap, CapBefore  int64 // the lowest maximum rate of those workers, 0 for none
	Lifted          int64 // until when a pause that was lifted would have lasted, and the state is to be kept
}

// MaxPause is the longest pause that workers share, 31 days.
const MaxPause = 31 * 24 * time.Hour

// The constants of the shared law, beside those of the law of one process. Times
// are microseconds. They are in the script of cruiseredis too.
const (
	sharedMillion = 1_000_000
	sharedHorizon = 1_000_000            // how far ahead slots are given out
	sharedPeriod  = 500_000              // within which an active worker syncs
	sharedMaxTurn = 5 * sharedMillion    // for which a worker leaves the store alone while slots are short
	sharedGap     = 2 * sharedPeriod     // between two cuts: everyone knows of the last one
	sharedCount   = 5 * sharedMillion    // how long a count of workers takes
	sharedMemory  = 1_000_000            // of Flow and Busy, at least
	sharedCalls   = 20                   // of which Flow and Busy remember the time, if that is longer
	sharedUsed    = .75                  // of the rate must be in use for growth
	sharedStart   = .5                   // the same before the first throttle, and far below the peak
	sharedTold    = sharedMillion / 4    // of the time must have been in use to tell what the server gives
	sharedMinAge  = 5 * sharedMillion    // that probing takes, at least
	sharedMaxAge  = 50 * sharedMillion   // that probing takes, at most
	sharedStep    = .1                   // of the rate is the most that one sync adds above .9 of the ceiling
	sharedLeap    = 1.                   // the same where the rate is far below the peak
	sharedKeeps   = .98                  // of the ceiling, from below which a throttle takes it no further where throttles are few
	sharedFades   = .2                   // of what the peak is above the ceiling, with each cut at or above the one of before
	sharedPeak    = 10 * sharedPeriod    // over which a peak is measured, at least
	sharedClosed  = sharedHorizon        // between calls at a closed door, at least, so that one is under way
	sharedReopen  = .9                   // of what the server gave in the long run, when it opens again
	sharedPart    = 4                    // of what is free, the part that one sync gets at most
	sharedQueue   = sharedPeriod / 8     // how far ahead slots are given out where they are not short
	sharedMost    = 1_000_000            // slots in one sync
	sharedYear    = 365 * 86_400_000_000 // bound of Most
	sharedShort   = 3 * sharedMillion    // a window that has moved on when what was left of it is known
)

// The rules of the shared law that stand in the script of cruiseredis too.
const (
	closedRow   = 2                // throttles in a row by which the server counts as closed
	outageLeast = 3 * time.Minute  // closed, by which it may have been an outage
	outageApart = 10               // times its length that the last one must be ago: what comes sooner is a window
	outageGap   = 20 * time.Second // call interval that is learnt from one at most
	reopenAfter = 2                // calls by which a closing is a measure

	backTo      = .9 // of the ceiling, to which the rate returns quickly after a cut
	backOver    = 5  // calls that the way back takes
	probeOver   = 100
	agreeWithin = .1
	agreeMost   = 3
	probeAge    = .2
	pushOn      = 40
	creditOver  = 3
	peakTo      = .7
	memoryLong  = 250
	pauseGaps   = 2
	fewMost     = .03 // share of throttles below which they are few, and may come by chance,
	fewOver     = 300 // among so many answers

	hintLeast    = 10
	hintCut      = .75
	hintGaps     = 2
	hintGrow     = .01
	hintGrowMost = .25
	hintMost     = 100
	refillTo     = .5
	flatAfter    = 5
	resetSlack   = 1500 * time.Millisecond
	rationAfter  = 3
	usedUpMost   = 10 * time.Second
)

// surplus is what a quota leaves for growth.
type surplus struct {
	spare  float64 // how far Remaining is above what must be left, relative to that
	refill float64 // growth, relative to the rate, as what was used has come back
}

// elsewhere reports whether a throttle came though enough was left, by what it says itself
// or else by what a success was told last: then something else limits calls.
func elsewhere(throttle *cruise.Quota, last cruise.Quota) bool {
	if throttle != nil {
		return throttle.Remaining > 0
	}
	enough := hintLeast
	if last.Limit > 0 {
		enough = last.Limit / 2
	}
	return last.Remaining > enough
}

// sharedCauses are what Why says, and the constants its numbers.
var sharedCauses = [...]cruise.Cause{cruise.CauseSuccess, cruise.CauseThrottle, cruise.CauseQuota}

const (
	whySuccess = iota
	whyThrottle
	whyQuota
)

// micros is d in microseconds, rounded up.
func micros(d time.Duration) int64 {
	us := d.Microseconds()
	if time.Duration(us)*time.Microsecond < d {
		us++
	}
	return us
}

// Sync is one step of the state, at a time of the store's clock. A clock that goes
// back takes all times with it; one that leaps ahead is time gone by. A state that no
// Sync can have left is begun anew, by what the worker knows.
func (s *State) Sync(now time.Duration, q Request) Reply {
	t := now.Microseconds()
	s.awake(t, q)
	if t >= s.CountEnd {
		s.Before, s.CapBefore = s.Counted, s.Cap
		if t-s.CountEnd >= sharedCount {
			s.Before, s.CapBefore = 0, 0
		}
		s.Count, s.CountEnd, s.Counted, s.Cap = s.Count+1, t+sharedCount, 0, 0
	}
	if q.Count != s.Count {
		s.Counted++
	}
	workers := max(1, s.Before, s.Counted)
	if s.Cap == 0 || q.Law.Max < s.Cap {
		s.Cap = q.Law.Max
	}
	// The lowest maximum holds, whoever asks: else the next one undoes it.
	q.Law.Max = s.Cap
	if s.CapBefore > 0 {
		q.Law.Max = min(s.Cap, s.CapBefore)
	}
	s.measure(t, q)
	if s.Rate > q.Law.Max {
		s.void()
	}
	s.change(&q.Law, float64(s.Rate), s.Why)

	if q.Resume {
		s.Lifted = max(s.Lifted, s.Until)
		s.Resumes, s.Until = s.Resumes+1, t
	} else if q.Pause > 0 && (q.NewPause || q.Resumes >= s.Resumes) {
		s.Until = max(s.Until, t+micros(min(q.Pause, MaxPause)))
	}
	if q.Successes > 0 {
		s.success(t, q)
	}
	if q.Throttled && q.Epoch == s.Epoch && t-s.CutAt >= sharedGap {
		s.throttle(t, q, workers)
	}
	slots, wait, span := s.give(t, q, workers)
	return Reply{
		Slots: int(slots),
		Wait:  time.Duration(wait) * time.Microsecond,
		Span:  time.Duration(span) * time.Microsecond,
		Epoch: s.Epoch, Rate: s.Rate, Ceiling: s.Ceiling, Why: sharedCauses[s.Why], Level: s.Level,
		Pause:   time.Duration(max(0, s.Until-t)) * time.Microsecond,
		Resumes: s.Resumes, Workers: int(workers), Count: s.Count,
	}
}

// damaged reports that no Sync has left s behind: workers would refuse each answer, or wait
// for it in vain.
func (s *State) damaged() bool {
	return s.Rate < 1 || s.Epoch > sharedMostEpoch || min(s.Ceiling, s.Peak, s.Answers, s.Refused, s.Why, s.Level, s.Resumes, s.Cap, s.CapBefore) < 0 ||
		s.Why > whyQuota || s.Refused > sharedMillion ||
		max(s.Until, s.Lifted)-s.At > micros(MaxPause) || s.Tat-s.At > 100*sharedYear || s.CountEnd-s.At > sharedCount ||
		max(s.Credit, s.CutAt, s.Born, s.ClosedAt, s.OutageAt, s.QuotaAt, s.HintAt) > s.At
}

// awake makes a state of none, of a damaged one, and of an older one than the worker knows.
func (s *State) awake(t int64, q Request) {
	switch {
	case s.Epoch == 0 || s.damaged():
		*s = State{
			At: t, Tat: t + min(micros(q.Held), sharedHorizon), Until: t, Credit: t, CutAt: t - sharedGap, Born: t, Lifted: t,
			ClosedAt: t, OutageAt: t - sharedYear, QuotaAt: t - sharedYear, HintAt: t, ResetAt: t, HintLeft: math.MaxInt32, Resumes: q.Resumes, Rate: q.Law.Initial, Count: q.Count, CountEnd: t,
		}
	case t < s.At:
		back := s.At - t
		s.At, s.Tat, s.Until, s.Credit = t, s.Tat-back, s.Until-back, s.Credit-back
		s.CutAt, s.Born, s.CountEnd = s.CutAt-back, s.Born-back, s.CountEnd-back
		s.ClosedAt, s.OutageAt = s.ClosedAt-back, s.OutageAt-back
		s.QuotaAt, s.HintAt, s.ResetAt = s.QuotaAt-back, s.HintAt-back, s.ResetAt-back
		s.Lifted -= back
	}
	if q.Epoch > s.Epoch {
		s.Epoch, s.Rate, s.Ceiling, s.Peak, s.Agreed, s.Doubted, s.Unspread = q.Epoch, q.Rate, q.Ceiling, 0, 0, 0, 0
		s.Resumes = max(s.Resumes, q.Resumes)
		s.Born = min(s.Born, s.At-1) // it is no beginning
	}
	if q.Want > 0 && s.Epoch == 1 && s.Tat <= s.Born {
		// Nobody had a slot yet: who told or asked for a pause knew nothing of what calls cost.
		s.Rate = q.Law.Initial
	}
	s.Epoch, s.Rate = max(s.Epoch, 1), max(s.Rate, 1) // which is divided by
}

// change makes the rate another one, within bounds. The next slot follows the last one at
// the new distance.
func (s *State) change(law *Law, r float64, why int64) {
	was, spacing := s.Rate, s.spacing()
	s.Rate = int64(math.Floor(min(max(r, float64(law.Min)), float64(law.Max))))
	if s.Rate < was {
		s.Why = why
	}
	s.Tat += s.spacing() - spacing
}

// void takes back the slots that were given out, as their owners hear of it. Throttles that
// they bring about say nothing of what comes.
func (s *State) void() {
	s.Epoch, s.CutAt, s.Tat = s.Epoch+1, s.At, min(s.Tat, s.At)
}

// measure is for calls let through since the last sync. It keeps Flow and Busy, averages
// that forget what is older than about a second.
//
// Here and below products within a sum are converted: else some processors, such as arm64,
// fuse the two and round otherwise than the script in Redis does.
func (s *State) measure(t int64, q Request) {
	dt, through := float64(t-s.At), q.Successes+q.Failed
	busy := min(max(float64(s.Tat-s.At), 0), dt)
	memory := max(sharedMemory, sharedCalls*q.cost()*1e12/float64(s.Rate))
	s.Flow = int64(math.Floor((float64(float64(s.Flow)*memory) + float64(float64(through)*1e12)) / (memory + dt)))
	s.Busy = int64(math.Floor((float64(float64(s.Busy)*memory) + float64(busy*1e6)) / (memory + dt)))
	s.Total += through
	if s.Row > 0 {
		busy = dt // closed for all, whoever wants something
	}
	s.OpenTime += int64(busy)
	if n := through + q.Throttles; n > 0 {
		s.Answers = min(s.Answers+n, max(n, fewOver*int64(q.cost())))
		s.Refused = (s.Refused*(s.Answers-n) + sharedMillion*q.Throttles) / s.Answers
	}
	s.At = t
}

// success is for what succeeded since the worker's last sync.
func (s *State) success(t int64, q Request) {
	s.Oks += q.Successes
	s.Passed += q.Successes
	if s.Level > 0 && s.Passed >= q.Law.Forgive {
		s.Level, s.Passed = s.Level-1, 0
	}
	if !s.late(t, q) {
		if s.Row >= closedRow {
			s.reopen(t, q)
		}
		s.Row = 0
	}

	if q.Quota != nil {
		at := t - micros(q.QuotaAge)
		if at <= s.QuotaAt {
			return // what another worker was told later holds
		}
		s.QuotaAt = at
	}
	window := q.Quota != nil && s.windowed(q)
	var more surplus
	settled := false
	if q.Quota != nil && !window {
		more, settled = s.hint(t, q)
	}
	// Who is told nothing takes a rate that was spread for one on its way back.
	spread := q.Quota == nil && s.Unspread > 0 && t < s.ResetAt
	if !settled && !spread && !q.Throttled && q.Epoch == s.Epoch {
		s.grow(t, q, more)
	}
	s.Credit = t
	if window {
		if q.Quota.Remaining == 0 && q.Quota.Reset <= usedUpMost {
			s.Until = max(s.Until, s.QuotaAt+micros(q.Quota.Reset))
		}
		s.ration(q)
	}
}

// late reports whether what succeeded was under way when the door closed, or when the first
// of the throttles came: that does not open it. One call that knocks does, whatever became of
// others since, and after a while any, as workers forget their epoch.
func (s *State) late(t int64, q Request) bool {
	return s.Ceiling > 0 && q.Epoch < s.Epoch-max(0, s.Row-closedRow) && t-s.CutAt < micros(keptFor)
}

// reopen is for the success that ends a closed time. What the server gave in the long run,
// the closed time included, is what it gives: so a limit per window is learnt in one closing.
// It ended somewhere between the last throttle and now. A long one that comes alone may have
// been an outage: what that teaches is bounded, and doubted. One call alone teaches nothing,
// and counts with what comes next, unless that was an outage.
func (s *State) reopen(t int64, q Request) {
	closed := t - s.ClosedAt
	long := closed > micros(outageLeast)
	outage := long && s.ClosedAt-s.OutageAt > outageApart*closed
	one := s.Ceiling > 0 && float64(s.Total-s.OpenTotal) < reopenAfter*q.cost()
	if one && !outage {
		return
	}
	took := max(1, s.OpenTime-(t-s.CutAt)/2)
	given := math.Floor(float64(s.Total-s.OpenTotal) * 1e12 / float64(took))
	if !one && given < float64(s.Ceiling) {
		if outage {
			given = max(given, min(float64(s.Ceiling), math.Floor(q.cost()*1e6/outageGap.Seconds())))
			s.Agreed, s.Doubted = 0, 1
		}
		s.Ceiling = max(q.Law.Min, int64(given))
		s.change(&q.Law, min(float64(s.Rate), sharedReopen*given), whySuccess)
	}
	if long {
		s.OutageAt = t
	}
	if float64(s.Total-s.OpenTotal) >= memoryLong*q.cost() {
		s.Peak = int64(min(float64(s.Peak), given)) // what a window gives at first is no peak
	}
	s.OpenTime, s.OpenTotal, s.PeakTime = 0, s.Total, 0
	if s.PeakTotal > 0 {
		s.PeakTotal = s.Total
	}
}

// windowed reports whether a quota is that of a window: see aimd.
func (s *State) windowed(q Request) bool {
	if q.Quota.Reset <= 0 {
		return false
	}
	left := int64(q.Quota.Remaining)
	reset := s.QuotaAt + micros(q.Quota.Reset)
	slack := micros(resetSlack) + micros(q.Quota.Reset)/100
	if moved := reset - s.ResetAt; max(moved, -moved) > slack {
		s.ResetAt, s.ResetLeft = reset, left
		if micros(q.Quota.Reset) <= sharedShort {
			s.ResetLeft = -1
		}
		if s.Unspread > s.Rate { // the slots of the old window may be an hour away
			s.void()
			s.change(&q.Law, float64(s.Unspread), whyQuota)
		}
		s.Unspread = 0
	}
	used, limit := s.ResetLeft-left, int64(q.Quota.Limit)
	return used >= max(rationAfter, min(limit, s.ResetLeft)/4) &&
		(used >= limit/4 || float64(micros(q.Quota.Reset))*float64(used) > float64(slack)*float64(limit-left))
}

// ration makes what is left of a window last until its reset, once half of it is
// used.
func (s *State) ration(q Request) {
	if limit := q.Quota.Limit; limit > 0 && q.Quota.Remaining > limit/2 {
		return
	}
	// If nothing is left, one call goes after the reset.
	pace := max(q.cost(), float64(q.Quota.Remaining)) * 1e12 / float64(micros(q.Quota.Reset))
	if pace >= float64(s.Rate) {
		return
	}
	if s.Ceiling == 0 {
		s.Ceiling = s.Rate
	}
	s.Unspread = max(s.Unspread, min(s.Rate, s.Ceiling))
	s.change(&q.Law, pace, whyQuota)
}

// hint follows a quota, and reports what it leaves for growth, and whether nothing more
// is to be done for the successes: see aimd.
func (s *State) hint(t int64, q Request) (more surplus, settled bool) {
	r, left, limit := float64(s.Rate), int64(q.Quota.Remaining), float64(q.Quota.Limit)
	if s.ResetLeft < 0 {
		return surplus{}, false
	}
	// What is told was left before the calls of a period.
	untold := 2 * (1 + math.Floor(r*sharedPeriod/1e12))
	reserve := max(hintLeast, untold)
	if limit > 0 {
		if limit < reserve {
			return surplus{}, false
		}
		reserve = min(reserve, max(1, limit/4))
	}
	if s.flat(left, min(reserve, hintLeast)) {
		return surplus{}, false
	}
	was := s.HintLeft
	if float64(left) >= reserve {
		if s.Elsewhere == 0 {
			if q.Quota.Reset > 0 || left >= was {
				more.spare = min(hintMost, float64(left)/reserve-1)
			}
			more.refill = s.refilled(left, int64(q.Quota.Limit), int64(untold))
		}
		s.HintAt, s.HintLeft = t, left
		return more, false
	}
	since := float64(t-s.HintAt) / 1e6
	if s.Ceiling > 0 && since < max(hintGaps*q.cost()*1e6/r, sharedGap/1e6) {
		return surplus{}, true // the last decision has not shown yet
	}
	switch {
	case s.Ceiling == 0 || left <= was:
		if s.Ceiling == 0 || left < was {
			s.Ceiling = s.Rate
		}
		s.change(&q.Law, hintCut*r, whyQuota)
		s.LeftFlat++
	case left > was+1:
		s.change(&q.Law, r+min(hintGrowMost*r, float64(hintGrow*math.Sqrt(r*1e6)*since)), whyQuota)
	}
	s.HintAt, s.HintLeft = t, left
	return surplus{}, true
}

// refilled returns by what share of itself the rate may grow since what was used of a
// limit is back already: see aimd.
func (s *State) refilled(left, limit, untold int64) (more float64) {
	if limit <= 0 {
		return 0
	}
	part := max(rationAfter, limit/4, untold)
	step := left-s.HintLeft >= part
	if !step && s.Total-s.RefillTotal < max(hintLeast, part) {
		return 0
	}
	if !step && left >= s.RefillLow {
		used := max(0, 1-float64(left)/float64(limit))
		more = min(1, max(0, refillTo/used-1))
	}
	s.RefillTotal, s.RefillLow = s.Total, left
	return more
}

// flat reports whether less than enough is left however slowly calls come, until more than
// that is seen: see aimd.
func (s *State) flat(left int64, enough float64) bool {
	flat := s.LeftFlat >= flatAfter
	if flat && left <= s.LeftStays {
		return true
	}
	if flat || float64(left) >= enough {
		s.LeftFlat = 0
	}
	if s.LeftFlat == 0 || left > s.LeftStays {
		s.LeftStays = left
	}
	return false
}

// grow is the additive increase.
func (s *State) grow(t int64, q Request, quota surplus) {
	r, c, cost := float64(s.Rate), float64(s.Ceiling), q.cost()
	dt := min(float64(t-s.Credit), max(sharedPeriod, creditOver*cost*1e12/r)) / 1e6
	used := float64(s.Flow) / r
	if c == 0 {
		if used >= sharedStart {
			s.change(&q.Law, r+float64(r*dt), whySuccess)
		}
		return
	}
	// What fell by far may come back to where it was, and is looked for as at first: by
	// calls that are so few, a tenth at a time takes hours, and Flow lags behind.
	most, least, step := c, sharedUsed, sharedStep
	if peak := float64(s.Peak); r < peakTo*peak {
		most, least, step = math.Sqrt(c*max(c, peak)), sharedStart, sharedLeap
	}
	if used < least {
		return
	}
	age := min(max(probeAge*float64(t-s.Born), sharedMinAge), sharedMaxAge)
	rarely := 1 + float64(s.Agreed)
	over := max(rarely*probeOver*cost*1e12/most, age)
	if s.Doubted > 0 {
		most, over = c, age
	}
	slope := float64(q.Law.Increase) / 1e6 * most / over * 1e6
	if back := math.Floor(backTo * c); r < back {
		slope = max(slope, (backTo-float64(q.Law.Decrease)/1e6)*c/1e6*c/(backOver*cost))
		r = min(back, r+float64(slope*dt))
	} else {
		if r > c {
			slope *= 1 + float64(pushOn*(1+rarely)/2*(r/c-1))
		}
		r += min(float64(slope*dt), step*r)
	}
	r += min(hintGrowMost*r, float64(quota.spare*hintGrow*math.Sqrt(r*1e6)*dt)) + float64(quota.refill*r)
	s.change(&q.Law, r, whySuccess)
}

// throttle is the multiplicative decrease, and the pause.
func (s *State) throttle(t int64, q Request, workers int64) {
	again := s.Row > 0
	if !again {
		s.ClosedAt = t
	}
	s.Epoch, s.CutAt, s.Credit, s.Row = s.Epoch+1, t, t, s.Row+1
	s.Elsewhere = 0
	if q.Elsewhere {
		s.Elsewhere = 1
	}
	if s.Oks > 0 && !s.spent(t, q) { // else pauses are the answer
		r := float64(max(s.Rate, s.Unspread))
		given := r
		if s.Busy >= sharedTold && s.Unspread == 0 { // a spread rate tells of itself
			given = min(r, float64(s.Flow)*1e6/float64(s.Busy))
		}
		// What is told of successes lags behind a rate that grows.
		given = max(given, r/2)
		if r < float64(s.Ceiling) && float64(s.Refused) < fewMost*sharedMillion {
			given = max(given, sharedKeeps*float64(s.Ceiling)) // it may have come by chance, whatever the rate
		}
		if c := float64(s.Ceiling); math.Abs(given-c) <= agreeWithin*c {
			s.Agreed = min(s.Agreed+1, agreeMost)
		} else {
			s.Agreed = 0
		}
		was := s.Ceiling
		s.Ceiling, s.Doubted = int64(math.Floor(given)), 0
		s.peak(q, r, was)
		rate := given * float64(q.Law.Decrease) / 1e6
		if s.Unspread > 0 { // the rate is slower already, for the rest of a window
			s.Unspread = min(s.Unspread, int64(math.Floor(rate)))
			rate = min(rate, float64(s.Rate))
		}
		s.change(&q.Law, rate, whyThrottle)
		s.Ceiling = max(s.Ceiling, s.Rate)
		s.Oks = 0
	}
	// Slots that were given out at the old rate are void as soon as their owners
	// hear of it. Until then they are used, and the first new one follows the last
	// of them at the new distance.
	s.Tat = min(s.Tat, t+sharedTurn(workers, s.Rate)*(workers-1)/workers+s.spacing())

	s.Level, s.Passed = min(s.Level+1, 60), 0
	most := int64(math.Ceil(pauseGaps * q.cost() * 1e12 / float64(s.Rate)))
	if again { // the server is closed, and its rate says nothing of how long
		most = max(most, micros(q.Law.PauseBase), min(2*s.Most, sharedYear))
	}
	s.Most = most
	if q.Backoff > 0 {
		s.Until = max(s.Until, t+min(micros(q.Backoff), s.Most))
	}
}

// peak is for a cut from r, where the ceiling was another one: what was let through since the
// last one counts, or since one before if that were too few calls, or too short a time, as
// successes are told late. More than r is chance. What came before the first cut does not
// count, as a bucket that was full flatters. See aimd.
func (s *State) peak(q Request, r float64, was int64) {
	if r >= float64(was) { // else others or chance may have caused it
		s.Peak -= int64(math.Floor(sharedFades * float64(max(0, s.Peak-s.Ceiling))))
	}
	calls, took := float64(s.Total-s.PeakTotal), s.OpenTime-s.PeakTime
	if s.PeakTotal > 0 {
		if calls < memoryLong*q.cost() || took < sharedPeak {
			return // what comes next counts with it
		}
		s.Peak = max(s.Peak, int64(math.Floor(min(r, calls*1e12/float64(took)))))
	}
	s.PeakTotal, s.PeakTime = s.Total, s.OpenTime
}

// spent reports whether a throttle only says that a window, whose rest was spread, is used up
// just before its reset: what was left was known too late for slots that had been given out. The
// next window begins at the rate of before.
func (s *State) spent(t int64, q Request) bool {
	left := s.ResetAt - t
	return s.Unspread > 0 && !q.Elsewhere && max(left, -left) <= sharedHorizon
}

// spacing is the time from one slot to the next.
func (s *State) spacing() int64 { return int64(math.Ceil(1e12 / float64(s.Rate))) }

// sharedTurn is how long it takes until all workers have synced, where there are fewer
// slots than they want: the time in which each gets two slots, if that is more than the
// period and there are enough of them to use up what is ahead meanwhile.
func sharedTurn(workers, rate int64) int64 {
	two := min(2e12*float64(workers)/float64(rate), sharedMaxTurn)
	return max(sharedPeriod, min(int64(two), sharedHorizon*workers/8))
}

// give gives out slots: calls that go from wait on, within span.
func (s *State) give(t int64, q Request, workers int64) (slots, wait, span int64) {
	if s.Until > t {
		return 0, s.Until - t, 0
	}
	if q.Want <= 0 {
		return 0, 0, 0
	}
	want, least := float64(q.Want), q.cost()
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
	if start-t > sharedQueue {
		// Calls wait for slots, so each worker has its share of a turn, and nobody
		// more for having had more before.
		part = min(part, math.Ceil(float64(sharedTurn(workers, s.Rate))/spacing/float64(workers)))
	}
	slots = int64(min(max(least, min(want, part)), sharedMost))
	span = int64(math.Ceil(float64(slots) * spacing))
	s.Tat = start + span
	return slots, start - t, span
}
