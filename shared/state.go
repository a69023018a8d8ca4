package shared

import (
	"math"
	"time"

	"github.com/a7df5faa/cruise"
)

// State is the whole state that a [Store] keeps of one scope. [MemoryStore] holds one, and the
// script of cruiseredis keeps the same fields. Another Store can keep it in a row of a database, for
// example, and call Sync within a transaction.
//
// A State gives out slots at a rate, ahead of time, keeps the pause, counts the workers, and gathers
// the [News] of their calls. A step of the law turns the news into another rate: that is
// [News.Decide], which a store that cannot run Go leaves to its worker.
//
// Times are microseconds since a moment of the store's choice, rates millionths of a call per
// second, all of them whole numbers below 2^53. The zero value is the state of a new scope.
type State struct {
	At     int64 // of the last sync, which all other times relate to
	Tat    int64 // of the first slot that is not given out yet: the "theoretical arrival time" of GCRA
	Until  int64 // end of the pause
	Lifted int64 // the end of a pause that was lifted: the state must be kept until then
	CutAt  int64 // of the last event that made slots void, such as a throttle

	Epoch   int64 // counts the events that make slots void, from 1; 0 is a new state
	Resumes int64 // how often a pause was lifted
	Rate    int64 // in force

	Out, OutBefore int64 // slots given out since OutAt, and in the time before, whose calls were not reported yet
	OutAt          int64

	Count, CountEnd int64 // the count of workers under way, and when it ends
	Counted, Before int64 // workers in it, and in the one before
	Cap, CapBefore  int64 // the lowest maximum rate of their workers, 0 for none

	// By the last step of the law.
	Steps     int64  // taken so far
	SteppedAt int64  // when its news were taken
	Lease     int64  // until when no other worker takes a step
	Ceiling   int64  // the rate that the last throttle showed to be too high, 0 before the first
	Why       int64  // of the last fall of Rate: 0 none yet, 1 CauseThrottle, 2 CauseQuota
	Level     int64  // of the pause backoff, 0 while all is well
	Row       int64  // throttles since the last success of a call that was sent after one
	Law       []byte // the rest of its memory

	// The news since then.
	Oks, Errs                    int64 // cost of calls: see [News]
	Late                         int64 // throttled attempts, beside the one of Throttled
	Used                         int64 // time in which slots were given out, or the server was closed
	Throttled                    int64 // 1 after a throttle, 2 while a step takes it
	Backoff, Asked               int64 // of that throttle
	QuotaAt                      int64 // when the last quota was told
	QuotaLimit, QuotaLeft, Reset int64 // of that; QuotaLeft is -1 if it was told already
}

// causes are the values of Why.
var causes = [...]cruise.Cause{cruise.CauseSuccess, cruise.CauseThrottle, cruise.CauseQuota}

const (
	whyThrottle = iota + 1
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

func duration(us int64) time.Duration { return time.Duration(us) * time.Microsecond }

// Sync carries out a request and any step of the law that is due, at a time of the store's clock. A
// clock that goes back takes all times with it; a clock that leaps ahead is time gone by. A state
// that cannot come from a Sync begins anew, with the worker's knowledge.
func (s *State) Sync(now time.Duration, q Request) Reply {
	r, news := s.Report(now, q)
	for news != nil {
		r, news = s.Commit(now, q, news.Decide(q))
	}
	return r
}

// Report takes the reports of a request. If no step of the law is due, it returns the answer,
// and slots. Otherwise it returns the news for the step, which [State.Commit] must follow. Until
// then, or for a fifth of a second, no other step is taken. If Commit does not follow, a throttle is
// taken by the next step; calls that succeeded do not count.
func (s *State) Report(now time.Duration, q Request) (Reply, *News) {
	t := now.Microseconds()
	s.awake(t, q)
	workers := s.count(t, q)
	s.advance(t)
	if s.Rate > s.most(q) {
		s.void()
		s.change(s.most(q))
	}
	s.change(max(s.Rate, q.Law.Min))

	if q.Resume {
		s.Lifted = max(s.Lifted, s.Until)
		s.Resumes, s.Until = s.Resumes+1, t
	} else if q.Pause > 0 && (q.NewPause || q.Resumes >= s.Resumes) {
		s.Until = max(s.Until, t+micros(min(q.Pause, MaxPause)))
	}
	s.Errs += q.Failed
	if s.late(t, q) {
		s.Errs += q.Successes
	} else {
		s.Oks += q.Successes
	}
	s.reported(t, q.Successes+q.Failed)
	if at := t - micros(q.QuotaAge); q.Quota != nil && at > s.QuotaAt { // else another worker has reported a later one
		s.QuotaAt, s.QuotaLimit, s.QuotaLeft, s.Reset = at, int64(q.Quota.Limit), int64(q.Quota.Remaining), micros(q.Quota.Reset)
	}
	s.Late += q.Late
	switch {
	case !q.Throttled:
	case q.Epoch != s.Epoch || t-s.CutAt < cutGap:
		s.Late++
	default:
		s.Throttled, s.Backoff, s.Asked = 1, micros(q.Backoff), 0
		if q.NewPause && q.Backoff <= 0 {
			s.Asked = micros(q.Pause)
		}
		// Slots are void as soon as their workers hear of it. Until then they are used, and the
		// first new slot follows the last of them.
		tat := s.Tat
		s.void()
		s.Tat = min(tat, t+turnTime(workers, s.Rate)*(workers-1)/workers+s.spacing())
	}
	return s.answer(t, q, workers)
}

// Commit takes over the decision on the news that Report returned to the same request, and
// answers as Report does. It leaves a decision that comes too late.
func (s *State) Commit(now time.Duration, q Request, d Decision) (Reply, *News) {
	t := max(now.Microseconds(), s.At)
	s.advance(t)
	if d.Step == s.Steps {
		s.Steps, s.Lease = s.Steps+1, t
		if s.Throttled == 2 {
			s.Throttled = 0
		}
		if d.Void {
			s.void()
		}
		if d.Rate < s.Rate {
			s.Why = d.Why
		}
		s.change(min(max(d.Rate, q.Law.Min), s.most(q)))
		s.Ceiling, s.Level, s.Row, s.Law = d.Ceiling, d.Level, d.Row, d.Law
		if d.Pause > 0 {
			s.Until = max(s.Until, t+micros(d.Pause))
		}
	}
	return s.answer(t, q, max(1, s.Before, s.Counted))
}

// answer returns the news if a step is due, else the answer to a request, with slots.
func (s *State) answer(t int64, q Request, workers int64) (Reply, *News) {
	if s.due(t) {
		return Reply{}, s.news(t, q, workers)
	}
	slots, wait, span := s.give(t, q, workers)
	s.Out += slots
	return Reply{
		Slots: int(slots),
		Wait:  duration(wait),
		Span:  duration(span),
		Epoch: s.Epoch, Rate: s.Rate, Ceiling: s.Ceiling, Why: causes[s.Why], Level: s.Level,
		Pause:   duration(max(0, s.Until-t)),
		Resumes: s.Resumes, Workers: int(workers), Count: s.Count,
	}, nil
}

// due reports whether a worker is to take a step of the law now.
func (s *State) due(t int64) bool {
	switch {
	case t < s.Lease:
		return false
	case s.Throttled > 0:
		return true
	}
	return s.Row > 0 && s.Oks > 0 || s.Oks+s.Errs > 0 && t-s.SteppedAt >= stepGap
}

// news takes the news for a step.
func (s *State) news(t int64, q Request, workers int64) *News {
	n := &News{
		Step: s.Steps, Law: s.Law, Rate: s.Rate, Ceiling: s.Ceiling, Level: s.Level, Most: s.most(q), Turn: duration(max(cutGap, turnTime(workers, s.Rate))),
		Elapsed: duration(t - s.SteppedAt), Used: duration(s.Used), Out: s.Out + s.OutBefore,
		Oks: s.Oks, Errs: s.Errs, Late: s.Late,
		Throttled: s.Throttled > 0, Backoff: duration(s.Backoff), Asked: duration(s.Asked),
	}
	if s.QuotaLeft >= 0 && s.Oks > 0 {
		n.Quota = &cruise.Quota{Limit: int(s.QuotaLimit), Remaining: int(s.QuotaLeft), Reset: duration(s.Reset)}
		n.QuotaAge = duration(t - s.QuotaAt)
	}
	s.SteppedAt, s.Lease = t, t+stepTime
	s.Oks, s.Errs, s.Late, s.Used, s.Throttled, s.QuotaLeft = 0, 0, 0, 0, min(2, 2*s.Throttled), -1
	return n
}

// damaged reports whether s cannot come from a Sync: workers would refuse each answer, or wait for
// it in vain.
func (s *State) damaged() bool {
	return s.Rate < 1 || s.Epoch > mostEpoch || min(s.Ceiling, s.Why, s.Level, s.Row, s.Resumes, s.Cap, s.CapBefore, s.Used) < 0 ||
		s.Why >= int64(len(causes)) ||
		max(s.Until, s.Lifted)-s.At > micros(MaxPause) || s.Tat-s.At > 100*yearMicros || s.CountEnd-s.At > countTime ||
		s.Lease-s.At > stepTime || max(s.CutAt, s.QuotaAt, s.SteppedAt, s.OutAt) > s.At
}

// awake begins a state that is new, damaged, or older than the worker's knowledge.
func (s *State) awake(t int64, q Request) {
	switch {
	case s.Epoch == 0 || s.damaged():
		*s = State{
			At: t, Tat: t + min(micros(q.Held), horizon), Until: t, CutAt: t - cutGap, Lifted: t,
			OutAt: t, SteppedAt: t, Lease: t, QuotaAt: t - yearMicros, QuotaLeft: -1,
			Resumes: q.Resumes, Rate: q.Law.Initial, Count: q.Count, CountEnd: t,
		}
	case t < s.At:
		back := s.At - t
		s.At, s.Tat, s.Until, s.Lifted, s.CutAt = t, s.Tat-back, s.Until-back, s.Lifted-back, s.CutAt-back
		s.SteppedAt, s.Lease, s.QuotaAt, s.CountEnd = s.SteppedAt-back, s.Lease-back, s.QuotaAt-back, s.CountEnd-back
		s.OutAt -= back
	}
	if q.Epoch > s.Epoch {
		s.Epoch, s.Rate, s.Ceiling, s.Law = q.Epoch, q.Rate, q.Ceiling, nil
		s.Resumes = max(s.Resumes, q.Resumes)
		s.Steps++ // it is no beginning
	}
	if q.Want > 0 && s.Steps == 0 && s.Tat <= s.SteppedAt {
		// No slot was given out yet: a worker that reported a pause did not know the cost of calls.
		s.Rate = q.Law.Initial
	}
	s.Epoch, s.Rate = max(s.Epoch, 1), max(s.Rate, 1) // which is divided by
}

// advance goes on to another time.
func (s *State) advance(t int64) {
	dt := t - s.At
	if s.Row == 0 {
		dt = min(max(s.Tat-s.At, 0), dt)
	}
	s.Used, s.At = s.Used+dt, t
}

// reported counts calls that used their slots. Slots are used soon, or void.
func (s *State) reported(t, cost int64) {
	if age := t - s.OutAt; age >= slotsKept {
		s.OutBefore, s.Out, s.OutAt = s.Out, 0, t
		if age >= 2*slotsKept {
			s.OutBefore = 0
		}
	}
	old := min(s.OutBefore, cost)
	s.OutBefore, s.Out = s.OutBefore-old, max(0, s.Out-(cost-old))
}

// count counts the worker, and returns how many there are.
func (s *State) count(t int64, q Request) int64 {
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
	if s.Cap == 0 || q.Law.Max < s.Cap {
		s.Cap = q.Law.Max
	}
	return max(1, s.Before, s.Counted)
}

// most returns the maximum rate: the lowest one of all workers, or the next worker would undo it.
func (s *State) most(q Request) int64 {
	most := min(s.Cap, q.Law.Max)
	if s.CapBefore > 0 {
		most = min(most, s.CapBefore)
	}
	return most
}

// change sets another rate. The next slot follows the last one at the new distance.
func (s *State) change(rate int64) {
	spacing := s.spacing()
	s.Rate = max(1, rate)
	s.Tat += s.spacing() - spacing
}

// void takes back the slots that were given out, as their workers hear of it. Throttles of their
// calls do not cut the rate.
func (s *State) void() {
	s.Epoch, s.CutAt, s.Tat = s.Epoch+1, s.At, min(s.Tat, s.At)
}

// late reports whether the successes come from calls that were under way when the server closed,
// or at the first throttle: these do not show that it is open. One call sent to the closed server
// does, and after a while any call, as workers forget their epoch.
func (s *State) late(t int64, q Request) bool {
	return s.Ceiling > 0 && q.Epoch < s.Epoch-max(0, s.Row-closedRow) && t-s.CutAt < micros(keptFor)
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
	want, least := float64(q.Want), float64(q.cost())
	spacing := 1e12 / float64(s.Rate)
	if s.Row >= closedRow {
		spacing, want = max(4*spacing, closedGap/least), least
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
