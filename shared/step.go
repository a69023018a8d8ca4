package shared

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/internal/clock"
	"github.com/a7df5faa/cruise/internal/law"
)

// News tells how the calls of all workers ended since the last step of the law.
type News struct {
	Step          int64  // number of the step
	Law           []byte // memory of the law; a law of another version begins anew
	Rate, Ceiling int64
	Level         int64         // of the pause backoff
	Most          int64         // the maximum rate of all workers
	Turn          time.Duration // until all workers have heard of a throttle

	Elapsed time.Duration // since the last step
	Used    time.Duration // the part of it in which slots were given out, or the server was closed
	Out     int64         // slots whose calls were not reported yet

	Oks  int64 // cost of the calls that the server answered
	Errs int64 // cost of those that it let through, and that failed or were sent before the last throttle
	Late int64 // throttled attempts, beside the one of Throttled

	Throttled bool
	Backoff   time.Duration // bound of the pause for the throttle, 0 if Asked is known
	Asked     time.Duration // pause that the server asked for

	Quota    *cruise.Quota // the last that was told, nil if none was; it is void after its reset
	QuotaAge time.Duration
}

// A Decision is the result of a step of the law.
type Decision struct {
	Step          int64 // number of the step
	Law           []byte
	Rate, Ceiling int64
	Why           int64 // as in State
	Level, Row    int64
	Pause         time.Duration // of all workers, from now on
	Void          bool          // the slots that were given out would be late by far
}

// Decide takes a step of the law, with the options and the cost of a request.
func (n *News) Decide(q Request) Decision {
	l := n.load(q.Law)
	l.now = l.now.Add(max(0, n.Elapsed))
	used := min(max(0, n.Used), l.now.Sub(0))
	soon := n.Out + n.Rate*stepGap/(million*million) // let go before the next step shows
	l.Used(l.now-clock.Instant(used), l.now, int(max(0, soon)/q.cost()), 2*used >= n.Elapsed)

	d := Decision{Step: n.Step, Level: n.Level}
	l.done(law.Attempt{Kind: law.Passed}, q.calls(n.Errs))
	a := law.Attempt{Kind: law.Denied, Cost: int(q.cost())} // its latency is not told
	if n.Quota != nil && (n.Quota.Reset == 0 || n.Quota.Reset > n.QuotaAge) {
		a.Sent = max(1, l.now-clock.Instant(n.QuotaAge))
		a.Quota = &law.Quota{Limit: n.Quota.Limit, Remaining: n.Quota.Remaining, Reset: max(0, n.Quota.Reset-n.QuotaAge)}
	}
	switch l.done(a, q.calls(n.Oks)) {
	case law.ByThrottle: // the end of a closing
		d.Why = whyThrottle
	case law.ByQuota:
		d.Why = whyQuota
		d.Void = l.Rate()*million > 2*float64(n.Rate) // a window has begun
	}
	if l.passed += n.Oks; d.Level > 0 && l.passed >= q.Law.Forgive {
		d.Level, l.passed = d.Level-1, 0
	}
	if a.Quota != nil && int64(a.Quota.Remaining) < q.cost() { // calls with slots would be throttled
		if left, _ := l.Renewed(l.now); left <= usedUpMost {
			d.Pause = left
			l.Rest(l.now, law.Attempt{}, left, false)
		}
	}
	l.done(law.Attempt{Kind: law.Throttle, Late: true}, int(n.Late))
	if n.Throttled {
		d.Why, d.Level, l.passed = whyThrottle, min(d.Level+1, mostLevel), 0
		d.Pause = max(d.Pause, l.throttle(n, q))
	}
	d.Rate, d.Row, d.Law = micro(l.Rate()), int64(l.Row()), l.save()
	if c := l.Ceiling(); !math.IsInf(c, 1) {
		d.Ceiling = micro(c)
	}
	return d
}

// micro returns a rate in millionths, at least one.
func micro(rate float64) int64 { return max(1, int64(rate*million)) }

// steps is the law of all workers with the backoff of its pauses. Its time goes by steps.
type steps struct {
	*law.Law
	now    clock.Instant
	passed int64         // cost of successes since the level changed
	most   time.Duration // that the last pause without a Retry-After may take
}

// done tells the law of a number of attempts that ended in the same way.
func (l *steps) done(a law.Attempt, count int) law.Cause {
	if count == 0 {
		return law.ByGrowth
	}
	a.Count = count
	d := l.Done(l.now, a)
	l.Rest(l.now, a, 0, false)
	return d.Why
}

// throttle tells the law of a throttle, and returns the pause unless the server asked for one.
func (l *steps) throttle(n *News, q Request) time.Duration {
	closed := l.Row() > 0
	a := law.Attempt{Kind: law.Throttle, Cost: int(q.cost()), RetryAfter: n.Asked}
	most := l.Done(l.now, a).AtMost
	if closed { // the rate says nothing of how long
		most = max(most, q.Law.PauseBase, min(2*l.most, clock.Year))
	}
	l.most = most
	pause := min(n.Backoff, most)
	l.Rest(l.now, a, max(pause, n.Asked), false)
	return pause
}

// load returns the law with the memory of n, or one that goes on from the rate.
func (n *News) load(options Law) *steps {
	l := &steps{Law: law.New(law.Config{}), now: 1}
	if !l.restore(n.Law) {
		l.Law = law.New(law.Config{})
		ceiling := math.Inf(1)
		if n.Ceiling > 0 {
			ceiling = float64(n.Ceiling) / million
		}
		l.Begin(l.now, float64(n.Rate)/million, ceiling)
	}
	l.Bound(law.Config{
		Min: float64(options.Min) / million, Max: float64(n.Most) / million,
		Decrease: float64(options.Decrease) / million, Increase: float64(options.Increase) / million, Lag: n.Turn.Seconds(),
	})
	return l
}

// header has the numbers that precede the memory of the law.
const header = 3 * 8

func (l *steps) save() []byte {
	b := binary.LittleEndian.AppendUint64(make([]byte, 0, 1024), uint64(l.now))
	b = binary.LittleEndian.AppendUint64(b, uint64(l.passed))
	b = binary.LittleEndian.AppendUint64(b, uint64(l.most))
	return l.Append(b)
}

// restore reads what save returned, and reports whether it could.
func (l *steps) restore(b []byte) bool {
	if len(b) < header || l.Decode(b[header:]) != nil {
		return false
	}
	number := func(i int) int64 { return int64(binary.LittleEndian.Uint64(b[8*i:])) }
	l.now, l.passed, l.most = clock.Instant(number(0)), number(1), time.Duration(number(2))
	return l.now > 0
}
