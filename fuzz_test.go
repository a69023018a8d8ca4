package cruise

import (
	"math"
	"testing"

	"golang.org/x/time/rate"
)

// Whatever is asked for, there is either a limiter that works or an error.
func FuzzLimiterOptions(f *testing.F) {
	f.Add(10., 1., 100., 5, 0.5, 0.1, 10)
	f.Add(math.NaN(), math.Inf(1), math.Inf(-1), 0, 0., 2., -1)
	f.Add(math.MaxFloat64, math.SmallestNonzeroFloat64, math.MaxFloat64, math.MaxInt32, 0.999, 1e-300, 1)
	f.Fuzz(func(t *testing.T, initial, low, high float64, burst int, decrease, increase float64, forgive int) {
		a, err := NewAdaptiveLimiter(WithInitialRate(rate.Limit(initial)), WithTuning(Tuning{MinRate: rate.Limit(low)}), WithMaxRate(rate.Limit(high)),
			WithTuning(Tuning{Burst: burst}), WithTuning(Tuning{DecreaseFactor: decrease}), WithTuning(Tuning{Increase: increase}), WithTuning(Tuning{ForgiveAfter: forgive}))
		if (a == nil) != (err != nil) {
			t.Fatalf("limiter %v with error %v", a, err)
		}
		if a != nil {
			checkWorks(t, a, a.min, a.max)
		}
		b, err := NewTokenBucket(rate.Limit(initial), burst)
		if (b == nil) != (err != nil) {
			t.Fatalf("bucket %v with error %v", b, err)
		}
		if b != nil {
			checkWorks(t, b, 0, rate.Inf)
		}
	})
}

func checkWorks(t *testing.T, l interface {
	Learner
	Limit() rate.Limit
	SetLimit(rate.Limit) error
}, low, high rate.Limit) {
	if err := l.WaitN(t.Context(), 1); err != nil {
		t.Fatalf("%T: the first call: %v", l, err)
	}
	l.Learn(Feedback{Outcome: OutcomeSuccess, Cost: 1})
	l.Learn(Feedback{Outcome: OutcomeThrottled, Cost: 1})
	if limit := l.Limit(); !(limit >= low && limit <= high) {
		t.Fatalf("%T: limit %v outside %v to %v", l, limit, low, high)
	}
	for _, limit := range []rate.Limit{low, high, rate.Limit(math.NaN()), -1, 0} {
		was := l.Limit()
		if err := l.SetLimit(limit); err != nil && l.Limit() != was {
			t.Fatalf("%T: refused %v, but changed %v", l, limit, was)
		}
	}
}
