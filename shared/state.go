package shared

import (
	"math"
	"time"

	"github.com/a7df5faa/cruise"
)

// State is the whole state that a [Store] keeps of one scope, and the law by which it changes.
// [MemoryStore] holds one, and the script of cruiseredis does the same, digit for digit. Another
// Store can keep it in a row of a database, for example, and call Sync within a transaction.
//
// Times are microseconds since a moment of the store's choice, rates millionths of a call per
// second, all of them whole numbers below 2^53. The zero value is the state of a new scope.
//
// It holds the rate by which slots are given out, ahead of time, and follows the law of a
// [cruise.AdaptiveLimiter] as far as that can be shared: one cut for one congestion; linear growth
// from successes while the rate is in use, and faster growth where the rate fell far below its
// peak; pauses that double; single calls to a closed server; and a rate that follows the rest of a
// [cruise.Quota].
type State struct {
	At     int64 // of the last sync, which all other times relate to
	Tat    int64 // of the first slot that is not given out yet: the "theoretical arrival time" of GCRA
	Until  int64 // end of the pause
	Credit int64 // until when growth has been paid out
	CutAt  int64 // of the last event that made slots void, such as a cut
	Born   int64 // when the rate began

	ClosedAt int64 // of the first of the throttles that Row counts
	QuotaAt  int64 // when the last quota was told
	HintAt   int64 // when the rate last followed one
	ResetAt  int64 // of the window of a quota

	Epoch   int64 // counts the events that make slots void, such as cuts, from 1; 0 is a new state
	Resumes int64 // how often a pause was lifted
	Rate    int64 // in force
	Ceiling int64 // the rate that the last throttle showed to be too high, 0 before the first
	Peak    int64 // the highest Ceiling after many calls; fades with each cut at or above Ceiling
	Why     int64 // of the last fall of Rate: 0 none yet, 1 CauseThrottle, 2 CauseQuota
	Agreed  int64 // cuts in a row that found Ceiling where it was, at most 3
	Flow    int64 // calls let through, as a rate
	Busy    int64 // share of the time for which slots were given out, in millionths

	Oks       int64 // cost of successes since the last cut
	Total     int64 // cost of calls let through in all
	OpenTotal int64 // Total when the server last opened again
	OpenTime  int64 // in which slots were given out since then, or the server was closed
	Row       int64 // throttles since the last success of a call that was sent after one

	Level  int64 // of the pause backoff, 0 while all is well
	Passed int64 // cost of successes since Level changed
	Most   int64 // that the last pause without a Retry-After may take

	HintLeft, ResetLeft int64 // Remaining of the quotas of HintAt and ResetAt; -1 if that window is too short to use
	HintSame            int64 // cuts in a row that did not change HintLeft, hintSame at most
	Unspread            int64 // the rate before the rest of a window was spread, 0 if it was not

	Count, CountEnd int64 // the count of workers under way, and when it ends
	Counted, Before int64 // workers in it, and in the one before
	Cap, CapBefore  int64 // the lowest maximum rate of their workers, 0 for none
	Lifted          int64 // the end of a pause that was lifted: the state must be kept until then
}

// causes are the values of Why, which the constants below number.
var causes = [...]cruise.Cause{cruise.CauseSuccess, cruise.CauseThrottle, cruise.CauseQuota}

const (
	whySuccess = iota
	whyThrottle
	whyQuota
)

// micros returns d in microseconds, rounded up.
func micros(d time.Duration) int64 {
	us := d.Microseconds()
	if time.Duration(us)*time.Microsecond < d {
		us++
	}
	return us
}

// Sync takes one step, at a time of the store's clock. A clock that goes back takes all times with
// it; a clock that leaps ahead is time gone by. A state that cannot come from a Sync begins anew,
// with the worker's knowledge.
func (s *State) Sync(now time.Duration, q Request) Reply {
	t := now.Microseconds()
	s.awake(t, q)
	if t >= s.CountEnd {
		s.Before, s.CapBefore = s.Counted, s.Cap
		if t-s.CountEnd >= countTime {
			s.Before, s.CapBefore = 0, 0
		}
		s.Count, s.CountEnd, s.Counted, s.Cap = s.Count+1, t+countTime, 0, 0
	}
	if q.Count != s.Count {
		s.Counted++
	}
	workers := max(1, s.Before, s.Counted)
	if s.Cap == 0 || q.Law.Max < s.Cap {
		s.Cap = q.Law.Max
	}
	// The lowest maximum of all workers holds, or the next worker would undo it.
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
	if q.Throttled && q.Epoch == s.Epoch && t-s.CutAt >= cutGap {
		s.throttle(t, q, workers)
	}
	slots, wait, span := s.give(t, q, workers)
	return Reply{
		Slots: int(slots),
		Wait:  time.Duration(wait) * time.Microsecond,
		Span:  time.Duration(span) * time.Microsecond,
		Epoch: s.Epoch, Rate: s.Rate, Ceiling: s.Ceiling, Why: causes[s.Why], Level: s.Level,
		Pause:   time.Duration(max(0, s.Until-t)) * time.Microsecond,
		Resumes: s.Resumes, Workers: int(workers), Count: s.Count,
	}
}

// damaged reports whether s cannot come from a Sync: workers would refuse each answer, or wait for
// it in vain.
func (s *State) damaged() bool {
	return s.Rate < 1 || s.Epoch > mostEpoch || min(s.Ceiling, s.Peak, s.Why, s.Level, s.Resumes, s.Cap, s.CapBefore) < 0 ||
		s.Why > whyQuota ||
		max(s.Until, s.Lifted)-s.At > micros(MaxPause) || s.Tat-s.At > 100*yearMicros || s.CountEnd-s.At > countTime ||
		max(s.Credit, s.CutAt, s.Born, s.ClosedAt, s.QuotaAt, s.HintAt) > s.At
}

// awake begins a state that is new, damaged, or older than the worker's knowledge.
func (s *State) awake(t int64, q Request) {
	switch {
	case s.Epoch == 0 || s.damaged():
		*s = State{
			At: t, Tat: t + min(micros(q.Held), horizon), Until: t, Credit: t, CutAt: t - cutGap, Born: t, Lifted: t,
			ClosedAt: t, QuotaAt: t - yearMicros, HintAt: t, ResetAt: t, HintLeft: math.MaxInt32,
			Resumes: q.Resumes, Rate: q.Law.Initial, Count: q.Count, CountEnd: t,
		}
	case t < s.At:
		back := s.At - t
		s.At, s.Tat, s.Until, s.Credit = t, s.Tat-back, s.Until-back, s.Credit-back
		s.CutAt, s.Born, s.CountEnd = s.CutAt-back, s.Born-back, s.CountEnd-back
		s.ClosedAt, s.QuotaAt, s.HintAt = s.ClosedAt-back, s.QuotaAt-back, s.HintAt-back
		s.ResetAt, s.Lifted = s.ResetAt-back, s.Lifted-back
	}
	if q.Epoch > s.Epoch {
		s.Epoch, s.Rate, s.Ceiling, s.Peak, s.Agreed, s.Unspread = q.Epoch, q.Rate, q.Ceiling, 0, 0, 0
		s.Resumes = max(s.Resumes, q.Resumes)
		s.Born = min(s.Born, s.At-1) // it is no beginning
	}
	if q.Want > 0 && s.Epoch == 1 && s.Tat <= s.Born {
		// No slot was given out yet: a worker that reported a pause did not know the cost of calls.
		s.Rate = q.Law.Initial
	}
	s.Epoch, s.Rate = max(s.Epoch, 1), max(s.Rate, 1) // which is divided by
}

// change sets another rate, within bounds. The next slot follows the last one at the new distance.
func (s *State) change(law *Law, r float64, why int64) {
	was, spacing := s.Rate, s.spacing()
	s.Rate = int64(math.Floor(min(max(r, float64(law.Min)), float64(law.Max))))
	if s.Rate < was {
		s.Why = why
	}
	s.Tat += s.spacing() - spacing
}

// void takes back the slots that were given out, as their workers hear of it. Throttles of their
// calls do not cut the rate.
func (s *State) void() {
	s.Epoch, s.CutAt, s.Tat = s.Epoch+1, s.At, min(s.Tat, s.At)
}

// measure counts the calls let through since the last sync. It keeps Flow and Busy, averages that
// forget within about a second.
//
// Here and below products within a sum are converted. Otherwise some processors, such as arm64,
// fuse the two and round differently from the script in Redis.
func (s *State) measure(t int64, q Request) {
	dt, through := float64(t-s.At), q.Successes+q.Failed
	busy := min(max(float64(s.Tat-s.At), 0), dt)
	memory := max(flowMemory, flowCalls*q.cost()*1e12/float64(s.Rate))
	s.Flow = int64(math.Floor((float64(float64(s.Flow)*memory) + float64(float64(through)*1e12)) / (memory + dt)))
	s.Busy = int64(math.Floor((float64(float64(s.Busy)*memory) + float64(busy*1e6)) / (memory + dt)))
	s.Total += through
	if s.Row > 0 {
		busy = dt // closed for all workers
	}
	s.OpenTime += int64(busy)
	s.At = t
}

// success learns from the successes since the worker's last sync.
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
			return // another worker has reported a later one
		}
		s.QuotaAt = at
	}
	window := q.Quota != nil && s.windowed(q)
	spare, settled := 0., false
	if q.Quota != nil && !window {
		spare, settled = s.hint(t, q)
	}
	// A report without a quota must not raise a rate that was spread for a window.
	spread := q.Quota == nil && s.Unspread > 0 && t < s.ResetAt
	if !settled && !spread && !q.Throttled && q.Epoch == s.Epoch {
		s.grow(t, q, spare)
	}
	s.Credit = t
	if window {
		if q.Quota.Remaining == 0 && q.Quota.Reset <= usedUpMost {
			s.Until = max(s.Until, s.QuotaAt+micros(q.Quota.Reset))
		}
		s.ration(q)
	}
}

// late reports whether the successes come from calls that were under way when the server closed,
// or at the first throttle: these do not show that it is open. One call sent to the closed server
// does, and after a while any call, as workers forget their epoch.
func (s *State) late(t int64, q Request) bool {
	return s.Ceiling > 0 && q.Epoch < s.Epoch-max(0, s.Row-closedRow) && t-s.CutAt < micros(keptFor)
}

// reopen takes the success that ends a closed time. The long-run rate, with the closed time
// included, becomes the new measure of the server: so the law learns a limit per window in one
// closing. The closed time ended somewhere between the last throttle and now.
//
// A long closing may be an outage, and teaches nothing. The first calls of a window are no peak, but
// few calls may be the rest of a brownout.
func (s *State) reopen(t int64, q Request) {
	calls, window := float64(s.Total-s.OpenTotal), t-s.ClosedAt <= outageLeast
	given := math.Floor(calls * 1e12 / float64(max(1, s.OpenTime-(t-s.CutAt)/2)))
	if window && given < float64(s.Ceiling) {
		s.Ceiling = max(q.Law.Min, int64(given))
		s.change(&q.Law, min(float64(s.Rate), reopenTo*given), whySuccess)
	}
	if window && calls >= longCalls*q.cost() {
		s.Peak = int64(min(float64(s.Peak), given))
	}
	s.OpenTime, s.OpenTotal = 0, s.Total
}

// grow is the additive increase. A quota's rest above the reserve, relative to that, is spare.
func (s *State) grow(t int64, q Request, spare float64) {
	r, c, cost := float64(s.Rate), float64(s.Ceiling), q.cost()
	dt := min(float64(t-s.Credit), max(reportPeriod, creditOver*cost*1e12/r)) / 1e6
	if float64(s.Flow) < leastUsed*r {
		return
	}
	if c == 0 {
		s.change(&q.Law, r+float64(r*dt), whySuccess)
		return
	}
	most := c
	if peak := float64(s.Peak); r < peakTo*peak { // the further it fell, the more a delay costs
		most = math.Sqrt(c * max(c, peak))
	}
	age := min(max(probeAge*float64(t-s.Born), minAge), maxAge)
	rarely := 1 + float64(s.Agreed)
	slope := float64(q.Law.Increase) / 1e6 * most / max(rarely*probeOver*cost*1e12/most, age) * 1e6
	if back := math.Floor(backTo * c); r < back {
		slope = max(slope, (backTo-float64(q.Law.Decrease)/1e6)*c/1e6*c/(backOver*cost))
		r = min(back, r+float64(slope*dt))
	} else {
		if r > c {
			slope *= 1 + float64(pushOn*(1+rarely)/2*(r/c-1))
		}
		r += float64(slope * dt)
	}
	r += min(hintGrowMost*r, float64(spare*hintGrow*math.Sqrt(r*1e6)*dt))
	s.change(&q.Law, r, whySuccess)
}

// throttle is the multiplicative decrease, and the pause.
func (s *State) throttle(t int64, q Request, workers int64) {
	again := s.Row > 0
	if !again {
		s.ClosedAt = t
	}
	s.Epoch, s.CutAt, s.Credit, s.Row = s.Epoch+1, t, t, s.Row+1
	if s.Oks > 0 && !s.spent(t) { // else pauses are the answer
		r := float64(max(s.Rate, s.Unspread))
		given := r
		if s.Busy >= leastTold && s.Unspread == 0 { // a spread rate tells of itself
			given = min(r, float64(s.Flow)*1e6/float64(s.Busy))
		}
		given = max(given, r/2) // reports of successes lag behind a rate that grows
		if c := float64(s.Ceiling); math.Abs(given-c) <= agreeWithin*c {
			s.Agreed = min(s.Agreed+1, agreeMost)
		} else {
			s.Agreed = 0
		}
		was := s.Ceiling
		s.Ceiling = int64(math.Floor(given))
		if r >= float64(was) { // else others or chance may have caused it
			s.Peak -= int64(math.Floor(peakFades * float64(max(0, s.Peak-s.Ceiling))))
		}
		if was > 0 && float64(s.Oks) >= longCalls*q.cost() { // a bucket flatters before the first cut, a window always
			s.Peak = max(s.Peak, s.Ceiling)
		}
		rate := given * float64(q.Law.Decrease) / 1e6
		if s.Unspread > 0 { // the rate is slower already, for the rest of a window
			s.Unspread = min(s.Unspread, int64(math.Floor(rate)))
			rate = min(rate, float64(s.Rate))
		}
		s.change(&q.Law, rate, whyThrottle)
		s.Ceiling = max(s.Ceiling, s.Rate)
		s.Oks = 0
	}
	// Slots of the old rate are void as soon as their workers hear of the cut. Until then they
	// are used, and the first new slot follows the last of them at the new distance.
	s.Tat = min(s.Tat, t+turnTime(workers, s.Rate)*(workers-1)/workers+s.spacing())

	s.Level, s.Passed = min(s.Level+1, 60), 0
	most := int64(math.Ceil(pauseGaps * q.cost() * 1e12 / float64(s.Rate)))
	if again { // the server is closed, and its rate says nothing of how long
		most = max(most, micros(q.Law.PauseBase), min(2*s.Most, yearMicros))
	}
	s.Most = most
	if q.Backoff > 0 {
		s.Until = max(s.Until, t+min(micros(q.Backoff), s.Most))
	}
}

// spent reports whether a throttle only shows that a window, whose rest was spread, is used up
// just before its reset: the rest was known too late for slots that had been given out. The next
// window begins at the rate before the spread.
func (s *State) spent(t int64) bool {
	left := s.ResetAt - t
	return s.Unspread > 0 && max(left, -left) <= horizon
}

// spacing returns the time from one slot to the next.
func (s *State) spacing() int64 { return int64(math.Ceil(1e12 / float64(s.Rate))) }

// turnTime returns how long it takes until all workers have synced, where slots are short: the
// time in which each worker gets two slots, if that is longer than the period and the workers are
// enough to use up the slots ahead meanwhile.
func turnTime(workers, rate int64) int64 {
	two := min(2e12*float64(workers)/float64(rate), maxTurn)
	return max(reportPeriod, min(int64(two), horizon*workers/8))
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
		spacing, want = max(4*spacing, closedGap), least
	}
	saved := int64(math.Floor(float64(q.Law.Burst-1) * spacing))
	start := max(s.Tat, t-saved, s.Until)
	free := float64(horizon - (start - t))
	if free <= 0 {
		return 0, int64(-free), 0
	}
	part := math.Floor(free / spacing / float64(min(workers, slotParts)))
	if start-t > queueAhead {
		// Calls wait for slots, so each worker has its share of a turn, however much it had
		// before.
		part = min(part, math.Ceil(float64(turnTime(workers, s.Rate))/spacing/float64(workers)))
	}
	slots = int64(min(max(least, min(want, part)), mostSlots))
	span = int64(math.Ceil(float64(slots) * spacing))
	s.Tat = start + span
	return slots, start - t, span
}
