package server

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// arrivals are requests at random times, more of them than a limit of n in d lets pass.
func arrivals(rng *rand.Rand, n int, d time.Duration) []time.Duration {
	list := make([]time.Duration, 2000)
	for i := 1; i < len(list); i++ {
		pause := rng.ExpFloat64() * .6 * float64(d) / float64(n)
		if rng.IntN(50) == 0 {
			pause += 2 * rng.Float64() * float64(d) // until all that was used is there again
		}
		list[i] = list[i-1] + time.Duration(pause)
	}
	return list
}

// A token bucket is the generic cell rate algorithm: a request passes unless it is more than
// burst-1 intervals ahead of the time at which the next would be due. That also tells how long
// to wait, and when the bucket is full again.
func TestABucketIsTheGenericCellRateAlgorithm(t *testing.T) {
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 1))
		rate, burst := math.Exp(9*rng.Float64()-3), 1+rng.IntN(20)
		interval := 1 / rate
		s := New(Spec{Kind: Bucket, Rate: Constant(rate), Burst: float64(burst), Signal: RetryAfter | Remaining | Reset}, rng)
		due, most := 0., float64(burst-1)*interval
		for _, at := range arrivals(rng, burst, time.Duration(float64(burst)*interval*float64(time.Second))) {
			r, now := s.Take(at), at.Seconds()
			ahead := max(due, now) - now - most
			if passed := ahead <= 1e-9*interval; passed == r.Throttled {
				t.Fatalf("seed %d: at %v throttled: %v, %v s ahead", seed, at, r.Throttled, ahead)
			} else if passed {
				due, ahead = max(due, now)+interval, 0
			}
			near := 3e-9 + 1e-9*due // waits are rounded up to nanoseconds
			if math.Abs(r.RetryAfter.Seconds()-ahead) > near {
				t.Fatalf("seed %d: at %v Retry-After %v, want %v s", seed, at, r.RetryAfter, ahead)
			}
			if full := max(0, due-now); math.Abs(r.Quota.Reset.Seconds()-full) > near {
				t.Fatalf("seed %d: at %v whole in %v, want %v s", seed, at, r.Quota.Reset, full)
			}
		}
	}
}

// Any sliding window holds no more than the limit, nor does any time that requests take at a
// concurrency limit; and no refused request could have passed.
func TestNoSpanOfALimitHoldsMoreThanItAndLittleLess(t *testing.T) {
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 2))
		n, d := 1+rng.IntN(20), time.Duration(1+rng.IntN(1e10))
		for _, spec := range []Spec{
			{Kind: SlidingWindow, Window: d, Rate: Constant(float64(n) / d.Seconds())},
			{Kind: Concurrency, Work: d, Burst: float64(n)},
		} {
			spec.Signal = RetryAfter
			s := New(spec, rng)
			var passed []time.Duration
			for _, at := range arrivals(rng, n, d) {
				r, want := s.Take(at), time.Duration(0) // until the n-th before it is out of the span
				if k := len(passed) - n; k >= 0 {
					want = max(0, passed[k]+d-at)
				}
				if r.Throttled != (want > 0) || r.RetryAfter != want {
					t.Fatalf("seed %d: %v, %d in %v, at %v: %+v, want a wait of %v", seed, spec.Kind, n, d, at, r, want)
				}
				if !r.Throttled {
					passed = append(passed, at)
				}
			}
		}
	}
}
