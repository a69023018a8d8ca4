package delay

import (
	"errors"
	"math"
	"time"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/internal/check"
	"github.com/a7df5faa/cruise/internal/clock"
)

// A Rule says how the delay of a [Limiter] moves. Take one of [Responsive], [Linear],
// [HerokuGradual], [HerokuProportional] and [HerokuRemaining], and change any of its fields.
type Rule struct {
	// A throttle turns a delay of 0 into First, and any other delay d into
	// (d + Add) × Factor, Max at most.
	First  time.Duration // above 0
	Add    time.Duration // 0 or more
	Factor float64       // 1 or more, finite; 0 is 1
	Max    time.Duration // First or more, at most 100 years

	// EachThrottle raises the delay for every attempt that is throttled. Without it the
	// throttles of one burst count once: a throttle is ignored if its attempt was sent before
	// the last raise.
	EachThrottle bool

	// After Every successes in a row the delay goes down by all steps below that are set, in
	// their order. At least one must be set. A permanent failure, such as a "not found", is an
	// answer and counts as a success.
	Every       int           // 0 or more; 0 is 1
	LowerFactor float64       // multiplies the delay: above 0 and below 1; 0 is unset
	LowerBy     time.Duration // is subtracted; 0 is unset
	// LowerRemaining subtracts the share Remaining/Limit of the [cruise.Quota] reported with
	// the success. It stands in for a Limit that is not reported; 0 is unset.
	LowerRemaining int
	Reset          bool // lowers the delay to 0 at once

	// NoneBelow turns a lowered delay that is shorter into 0.
	NoneBelow time.Duration // 0 or more

	// Jitter spreads the delays of callers evenly, in 16 steps, from JitterBelow less to
	// JitterAbove more than the delay. Both are shares of the delay.
	JitterBelow float64       // 0 to 1
	JitterAbove float64       // 0 to 1
	JitterMax   time.Duration // bounds the jitter either way; 0 is no bound
}

// Responsive returns the rule "responsive exponential backoff": 500 ms after the first
// throttle, ×1.5 for each further one up to 15 min, ×0.9 after every 10 successes, 0 below
// 500 ms, with a jitter of ±30 % but ±2 min at most.
//
// Source: Sakthi Priyan H, "Responsive exponential backoff in Go" (2022), its AutoSleeper.
func Responsive() Rule {
	return Rule{
		First: 500 * time.Millisecond, Factor: 1.5, Max: 15 * time.Minute, EachThrottle: true,
		Every: 10, LowerFactor: .9, NoneBelow: 500 * time.Millisecond,
		JitterBelow: .3, JitterAbove: .3, JitterMax: 2 * time.Minute,
	}
}

// Linear returns the rule of linear backoff: one step more for each throttle, up to 15 min,
// and 0 again after a success. step must be above 0 and at most 15 min.
func Linear(step time.Duration) Rule {
	return Rule{First: step, Add: step, Max: 15 * time.Minute, Reset: true}
}

// The constants of Heroku's rate_throttle_client: 4,500 calls an hour.
const (
	herokuLimit  = 4500
	herokuSleep  = time.Hour / herokuLimit // 0.8 s
	herokuFactor = 1.2
	herokuJitter = .1
)

func heroku() Rule {
	return Rule{
		First: herokuSleep * 12 / 10, Add: herokuSleep, Factor: herokuFactor, Max: 15 * time.Minute,
		JitterAbove: herokuJitter,
	}
}

// HerokuGradual returns the strategy ExponentialIncreaseGradualDecrease of Heroku's Ruby
// client. A throttle raises the delay by 0.8 s and then by a fifth, and a success lowers it by
// 0.8 s. So it comes down quickly, and is throttled as often.
//
// The Ruby client differs in one point: a call keeps a delay of its own while it is retried,
// and the first retry waits before the factor is applied, so that it is a sixth sooner. The
// delay that is shared afterwards is the same.
//
// Source: rate_throttle_client 0.1.2.
func HerokuGradual() Rule {
	r := heroku()
	r.LowerBy = herokuSleep
	return r
}

// HerokuProportional returns the strategy ExponentialIncreaseProportionalDecrease:
// [HerokuGradual], but a success lowers the delay by a 4,500th of it. It is rarely throttled
// and slow to use a limit that has grown.
func HerokuProportional() Rule {
	r := heroku()
	r.LowerFactor = 1 - 1./herokuLimit
	return r
}

// HerokuRemaining returns the strategy ExponentialIncreaseProportionalRemainingDecrease, which
// Heroku's own client uses: [HerokuGradual], but a success lowers the delay by the share of the
// quota that remains, as the server reports it. A success without a reported [cruise.Quota]
// leaves the delay as it is.
func HerokuRemaining() Rule {
	r := heroku()
	r.LowerRemaining = herokuLimit
	return r
}

// HerokuBackoff returns the strategy ExponentialBackoff of Heroku's Ruby client, which shares
// no delay: each call waits only before its own retries, 0.8 s ×1.2 for each, and up to 10 %
// more. Give it to [cruise.WithThrottleBackoff], with [cruise.WithoutLimiter]. The Ruby client
// has no longest delay; here it is 15 min.
func HerokuBackoff() cruise.Backoff { return herokuBackoff }

// A delay from d to 1.1 d is 1.05 d with a jitter of a 21st.
var herokuBackoff = cruise.Must(cruise.NewBackoff(cruise.WithBase(herokuSleep*105/100), cruise.WithMultiplier(herokuFactor),
	cruise.WithMaxDelay(15*time.Minute), cruise.ProportionalJitter(1./21)))

func (r Rule) check() error {
	var e check.Errors
	e.Check(r.First > 0, "delay.Rule: First %v: want above 0", r.First)
	e.Check(r.Add >= 0, "delay.Rule: Add %v: want 0 or more", r.Add)
	e.Check(r.Factor == 0 || r.Factor >= 1 && r.Factor <= math.MaxFloat64, "delay.Rule: Factor %v: want 1 or more, and finite", r.Factor)
	e.Check(r.Max >= r.First && r.Max <= clock.Farthest, "delay.Rule: Max %v: want First or more, at most %v", r.Max, clock.Farthest)
	e.Check(r.Every >= 0, "delay.Rule: Every %d: want 0 or more", r.Every)
	e.Check(r.LowerFactor == 0 || r.LowerFactor > 0 && r.LowerFactor < 1, "delay.Rule: LowerFactor %v: want above 0 and below 1, or 0 for none", r.LowerFactor)
	e.Check(r.LowerBy >= 0, "delay.Rule: LowerBy %v: want 0 or more", r.LowerBy)
	e.Check(r.LowerRemaining >= 0, "delay.Rule: LowerRemaining %d: want 0 or more", r.LowerRemaining)
	e.Check(r.LowerFactor != 0 || r.LowerBy != 0 || r.LowerRemaining != 0 || r.Reset, "delay.Rule: nothing lowers the delay: want LowerFactor, LowerBy, LowerRemaining or Reset")
	e.Check(r.NoneBelow >= 0, "delay.Rule: NoneBelow %v: want 0 or more", r.NoneBelow)
	e.Check(r.JitterBelow >= 0 && r.JitterBelow <= 1, "delay.Rule: JitterBelow %v: want 0 to 1", r.JitterBelow)
	e.Check(r.JitterAbove >= 0 && r.JitterAbove <= 1, "delay.Rule: JitterAbove %v: want 0 to 1", r.JitterAbove)
	e.Check(r.JitterMax >= 0, "delay.Rule: JitterMax %v: want 0 or more", r.JitterMax)
	return errors.Join(e...)
}

// withDefaults returns the rule with numbers in place of zeros that stand for a default.
func (r Rule) withDefaults() Rule {
	if r.Factor == 0 {
		r.Factor = 1
	}
	if r.JitterMax == 0 {
		r.JitterMax = clock.Never
	}
	return r
}

// raised returns the delay that follows d after a throttle.
func (r *Rule) raised(d time.Duration) time.Duration {
	if d == 0 {
		return r.First
	}
	f := (float64(d) + float64(r.Add)) * r.Factor
	if f >= float64(r.Max) {
		return r.Max
	}
	return time.Duration(f)
}

// lowered returns the delay that follows d after Every successes. q is the quota that the last of
// them reported.
func (r *Rule) lowered(d time.Duration, q *cruise.Quota) time.Duration {
	if r.Reset {
		return 0
	}
	if r.LowerFactor > 0 {
		d = time.Duration(float64(d) * r.LowerFactor)
	}
	d -= r.LowerBy
	if r.LowerRemaining > 0 && q != nil {
		limit := r.LowerRemaining
		if q.Limit > 0 {
			limit = q.Limit
		}
		d -= time.Duration(float64(d) * min(1, float64(q.Remaining)/float64(limit)))
	}
	if d < r.NoneBelow { // which is 0 or more
		return 0
	}
	return d
}

// jittered returns the delay of one caller: the shortest if luck is 0, the longest if it is 1.
func (r *Rule) jittered(d time.Duration, luck float64) time.Duration {
	share := luck*(r.JitterBelow+r.JitterAbove) - r.JitterBelow
	extra := float64(d) * share
	limit := float64(r.JitterMax)
	return max(0, d+time.Duration(min(max(extra, -limit), limit)))
}
