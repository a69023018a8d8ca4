package server

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Step says that a server's rate is Rate requests a second from At on.
type Step struct {
	At   time.Duration
	Rate float64
}

// Schedule is a rate that changes in steps. Its first step is at 0 and the
// times increase; the zero Schedule is a rate of 0.
type Schedule []Step

// Constant is a schedule of one rate that never changes.
func Constant(rate float64) Schedule { return Schedule{{0, rate}} }

// Wave alternates between the given rates, each for the time of half, until end.
func Wave(half, end time.Duration, rates ...float64) Schedule {
	var s Schedule
	for i, at := 0, time.Duration(0); at < end; i, at = i+1, at+half {
		s = append(s, Step{at, rates[i%len(rates)]})
	}
	return s
}

// Doubling starts at rate and doubles after each period, until end.
func Doubling(rate float64, period, end time.Duration) Schedule {
	var s Schedule
	for at := time.Duration(0); at < end; at, rate = at+period, rate*2 {
		s = append(s, Step{at, rate})
	}
	return s
}

// index is that of the step that is in force at t.
func (s Schedule) index(t time.Duration) int {
	if len(s) < 2 || t < s[1].At {
		return 0
	}
	i, found := slices.BinarySearchFunc(s, t, func(e Step, t time.Duration) int {
		return cmp.Compare(e.At, t)
	})
	if found {
		return i
	}
	return i - 1
}

// At is the rate in force at t.
func (s Schedule) At(t time.Duration) float64 {
	if len(s) == 0 {
		return 0
	}
	return s[s.index(t)].Rate
}

// Between is how many requests the rate gives from a until b.
func (s Schedule) Between(a, b time.Duration) float64 {
	if len(s) == 0 || b <= a {
		return 0
	}
	sum := 0.0
	for i := s.index(a); i < len(s) && s[i].At < b; i++ {
		from, to := max(a, s[i].At), b
		if i+1 < len(s) {
			to = min(b, s[i+1].At)
		}
		sum += s[i].Rate * (to - from).Seconds()
	}
	return sum
}

// After is how long from t on it takes until the rate has given n requests,
// rounded up so that they are really there. It is a century if that never happens.
func (s Schedule) After(t time.Duration, n float64) time.Duration {
	const never = 100 * 365 * 24 * time.Hour
	if n <= 0 {
		return 0
	}
	if len(s) == 0 {
		return never
	}
	for i, from := s.index(t), t; ; i++ {
		last := i+1 == len(s)
		if !last {
			if given := s[i].Rate * (s[i+1].At - from).Seconds(); given < n {
				n -= given
				from = s[i+1].At
				continue
			}
		}
		if s[i].Rate <= 0 {
			return never
		}
		d := math.Ceil(n / s[i].Rate * float64(time.Second))
		return min(from-t+time.Duration(min(d, float64(never))), never)
	}
}

// next is when the rate changes after t, math.MaxInt64 if it does not.
func (s Schedule) next(t time.Duration) time.Duration {
	if i := s.index(t) + 1; i < len(s) {
		return s[i].At
	}
	return math.MaxInt64
}

// Highest is the greatest rate before end.
func (s Schedule) Highest(end time.Duration) float64 {
	top := 0.0
	for _, e := range s {
		if e.At < end {
			top = max(top, e.Rate)
		}
	}
	return top
}

// Changes are the times before end at which the rate changes.
func (s Schedule) Changes(end time.Duration) []time.Duration {
	var at []time.Duration
	for i := 1; i < len(s) && s[i].At < end; i++ {
		at = append(at, s[i].At)
	}
	return at
}
