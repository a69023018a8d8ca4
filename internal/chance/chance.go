// Package chance is where all jitter of this module comes from: math/rand/v2's global generator, or
// in a test one with a seed, so that a run can be played again.
package chance

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
)

// seeded is nil but in tests, so that nobody shares a lock.
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
