package cruise

import (
	"errors"
	"math"
	"time"

	"github.com/a7df5faa/cruise/internal/check"
	"github.com/a7df5faa/cruise/internal/clock"
)

// A DelayRule says how the delay of a [DelayLimiter] moves. Take one of
// [ResponsiveDelay], [LinearDelay], [HerokuGradual], [HerokuProportional] and
// [HerokuRemaining], and change what you like.
type DelayRule struct {
	// A throttle turns a delay of none into First, and any other delay d into
	// (d + Add) × Factor, Max at most.
	First  time.Duration // above 0
	Add    time.Duration // 0 or more
	Factor float64       // 1 or more, finite; 0 is 1
	Max    time.Duration // First or more, at most 100 years

	// EachThrottle raises the delay for every attempt that is throttled.
	// Otherwise one that was sent before the last raise says nothing new, so
	// that the throttles of one burst count once.
	EachThrottle bool

	// Every so many successes without a throttle between them, the delay goes
	// down: by all of the steps below that are set, one at least, in their order. A
	// failure for good, such as a "not found", is an answer and counts like a success.
	Every       int           // 0 or more; 0 is 1
	LowerFactor float64       // times this, above 0 and below 1; 0 is unset
	LowerBy     time.Duration // less this; 0 is unset
	// LowerRemaining: less its share Remaining/Limit of the [Quota] reported with the
	// success. It is the Limit where none is reported; 0 is unset.
	LowerRemaining int
	Reset          bool // to none

	// NoneBelow turns a delay that was lowered below it into none.
	NoneBelow time.Duration // 0 or more

	// Jitter spreads the delays of callers evenly from JitterBelow less to
	// JitterAbove more than the delay, as shares of it, in 16 steps.
	JitterBelow float64       // 0 to 1
	JitterAbove float64       // 0 to 1
	JitterMax   time.Duration // less and more than the delay at most; 0 is no limit
}

// ResponsiveDelay is "responsive exponential backoff": 500 ms after the first
// throttle, ×1.5 for each up to 15 min, ×0.9 after every 10 successes, none
// below 500 ms, ±30 % of jitter but ±2 min at most.
//
// Source: Sakthi Priyan H, "Responsive exponential backoff in Go" (2022), its
// AutoSleeper.
func ResponsiveDelay() DelayRule {
	return DelayRule{
		First: 500 * time.Millisecond, Factor: 1.5, Max: 15 * time.Minute, EachThrottle: true,
		Every: 10, LowerFactor: .9, NoneBelow: 500 * time.Millisecond,
		JitterBelow: .3, JitterAbove: .3, JitterMax: 2 * time.Minute,
	}
}

// LinearDelay is linear back off: one step more for each throttle, up to 15 min, and
// none again after a success. step must be above 0 and at most 15 min.
func LinearDelay(step time.Duration) DelayRule {
	return DelayRule{First: step, Add: step, Max: 15 * time.Minute, Reset: true}
}

// The constants of Heroku's rate_throttle_client: 4,500 calls an hour.
const (
	herokuLimit  = 4500
	herokuSleep  = time.Hour / herokuLimit // 0.8 s
	herokuFactor = 1.2
	herokuJitter = .1
)

func heroku() DelayRule {
	return DelayRule{
		First: herokuSleep * 12 / 10, Add: herokuSleep, Factor: herokuFactor, Max: 15 * time.Minute,
		JitterAbove: herokuJitter,
	}
}

// HerokuGradual raises the delay by 0.8 s and then by a fifth for each throttle,
// and lowers it by 0.8 s for each success: the strategy
// ExponentialIncreaseGradualDecrease of Heroku's Ruby client. It comes down
// quickly, and is throttled as often.
//
// In the Ruby client a call keeps a delay of its own while it is retried, and
// the first retry waits before the factor is applied, so that it is a sixth
// sooner; the delay that is shared afterwards is the same.
//
// Source: rate_throttle_client 0.1.2.
func HerokuGradual() DelayRule {
	r := heroku()
	r.LowerBy = herokuSleep
	return r
}

// HerokuProportional is [HerokuGradual], but a success lowers the delay by a
// 4,500th of it: ExponentialIncreaseProportionalDecrease. It is rarely throttled
// and slow to use a limit that has grown.
func HerokuProportional() DelayRule {
	r := heroku()
	r.LowerFactor = 1 - 1./herokuLimit
	return r
}

// HerokuRemaining is [HerokuGradual], but a success lowers the delay by the share
// of the quota that remains, as the server reports it:
// ExponentialIncreaseProportionalRemainingDecrease, which Heroku's own client
// uses. Success without a reported [Quota] leaves the delay as it is.
func HerokuRemaining() DelayRule {
	r := heroku()
	r.LowerRemaining = herokuLimit
	return r
}

// HerokuBackoff is the strategy ExponentialBackoff of Heroku's Ruby client, which
// shares no delay: each call waits only before its own retries, 0.8 s ×1.2 for
// each, and up to 10 % more. Give it to [WithThrottleBackoff], with
// [WithoutLimiter]. The Ruby client has no longest delay; here it is 15 min.
func HerokuBackoff() Backoff { return herokuBackoff }

// A delay from d to 1.1 d is 1.05 d with a jitter of a 21st.
var herokuBackoff = Must(NewBackoff(WithBase(herokuSleep*105/100), WithMultiplier(herokuFactor),
	WithMaxDelay(15*time.Minute), WithJitter(ProportionalJitter(1./21))))

func (r DelayRule) check() error {
	var f check.Errors
	f.Check(r.First > 0, "DelayRule: First %v: want above 0", r.First)
	f.Check(r.Add >= 0, "DelayRule: Add %v: want 0 or more", r.Add)
	f.Check(r.Factor == 0 || r.Factor >= 1 && r.Factor <= math.MaxFloat64, "DelayRule: Factor %v: want 1 or more, and finite", r.Factor)
	f.Check(r.Max >= r.First && r.Max <= clock.Farthest, "DelayRule: Max %v: want First or more, at most %v", r.Max, clock.Farthest)
	f.Check(r.Every >= 0, "DelayRule: Every %d: want 0 or more", r.Every)
	f.Check(r.LowerFactor == 0 || r.LowerFactor > 0 && r.LowerFactor < 1, "DelayRule: LowerFactor %v: want above 0 and below 1, or 0 for none", r.LowerFactor)
	f.Check(r.LowerBy >= 0, "DelayRule: LowerBy %v: want 0 or more", r.LowerBy)
	f.Check(r.LowerRemaining >= 0, "DelayRule: LowerRemaining %d: want 0 or more", r.LowerRemaining)
	f.Check(r.LowerFactor != 0 || r.LowerBy != 0 || r.LowerRemaining != 0 || r.Reset, "DelayRule: nothing lowers the delay: want LowerFactor, LowerBy, LowerRemaining or Reset")
	f.Check(r.NoneBelow >= 0, "DelayRule: NoneBelow %v: want 0 or more", r.NoneBelow)
	f.Check(r.JitterBelow >= 0 && r.JitterBelow <= 1, "DelayRule: JitterBelow %v: want 0 to 1", r.JitterBelow)
	f.Check(r.JitterAbove >= 0 && r.JitterAbove <= 1, "DelayRule: JitterAbove %v: want 0 to 1", r.JitterAbove)
	f.Check(r.JitterMax >= 0, "DelayRule: JitterMax %v: want 0 or more", r.JitterMax)
	return errors.Join(f...)
}

// raised is what a throttle makes of a delay.
func (r *DelayRule) raised(d time.Duration) time.Duration {
	if d == 0 {
		return r.First
	}
	f := (float64(d) + float64(r.Add)) * r.Factor
	if f >= float64(r.Max) {
		return r.Max
	}
	return time.Duration(f)
}

// lowered is what enough successes make of a delay, with the quota that the last
// one reported.
func (r *DelayRule) lowered(d time.Duration, q *Quota) time.Duration {
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

// jittered is the delay of a caller with luck from 0 to 1.
func (r *DelayRule) jittered(d time.Duration, luck float64) time.Duration {
	share := luck*(r.JitterBelow+r.JitterAbove) - r.JitterBelow
	extra := float64(d) * share
	limit := float64(r.JitterMax)
	return max(0, d+time.Duration(min(max(extra, -limit), limit)))
}
