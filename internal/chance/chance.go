// Package chance is the source of all jitter in this module: the global generator of math/rand/v2,
// or in a test a generator with a seed, so that a run can be repeated.
package chance

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// seeded is nil outside tests, so that calls share no lock.
var seeded atomic.Pointer[source]

type source struct {
	mu  sync.Mutex // guards rng
	rng *rand.Rand
}

// Seed makes all numbers follow from seed until restore is called. It is for tests: the numbers are
// drawn from one sequence, in the order in which goroutines ask.
func Seed(seed uint64) (restore func()) {
	was := seeded.Swap(&source{rng: rand.New(rand.NewPCG(seed, 0))})
	return func() { seeded.Store(was) }
}

// Float64 returns a number from 0 to 1, without 1.
func Float64() float64 {
	if s := seeded.Load(); s != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.rng.Float64()
	}
	return rand.Float64()
}

// N returns a number from 0 to n, without n, which must be above 0.
func N[T ~int | ~int64](n T) T {
	if s := seeded.Load(); s != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		return T(s.rng.Int64N(int64(n)))
	}
	return rand.N(n)
}

// UpperHalf returns a random time from half of most, which is 0 or more, to most: equal jitter.
func UpperHalf(most time.Duration) time.Duration { return most - N(most/2+1) }
