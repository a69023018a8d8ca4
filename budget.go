package cruise

import (
	"errors"
	"math"
	"sync"
	"sync/atomic"

	"github.com/a7df5faa/cruise/internal/check"
	"github.com/a7df5faa/cruise/internal/clock"
)

// A Budget limits the retries of all calls that share it, so that retries cannot multiply the load
// of a failing server. It is an account of tokens: a retry takes one, a success gives back a part
// of one, and time gives back slowly, so that it always recovers. First attempts are free. In any
// time, retries are at most capacity + ratio × successes + refill × time.
//
// Sources: gRFC A6 (gRPC retry throttling); Finagle's RetryBudget; the Google SRE book, "Handling
// Overload".
//
// A Budget is safe for concurrent use, and must not be copied. The zero value is not usable.
type Budget struct {
	capacity, ratio, refill float64

	full atomic.Bool // no token is missing, so that success costs next to nothing

	mu    sync.Mutex    // guards the fields below
	spent float64       // tokens missing
	last  clock.Instant // time up to which tokens were refilled
}

// NewBudget returns a full budget of capacity retries, to which each success gives ratio and each
// second refill. Range: capacity 1 to 2^31-1, ratio and refill 0 to 2^31-1 and not both 0. Any other
// value is an error.
func NewBudget(capacity, ratio, refill float64) (*Budget, error) {
	var f check.Errors
	f.Check(capacity >= 1 && capacity <= math.MaxInt32, "budget capacity %v: want 1 to %d", capacity, math.MaxInt32)
	f.Check(ratio >= 0 && ratio <= math.MaxInt32, "budget ratio %v: want 0 to %d", ratio, math.MaxInt32)
	f.Check(refill >= 0 && refill <= math.MaxInt32, "budget refill %v: want 0 to %d", refill, math.MaxInt32)
	f.Check(ratio != 0 || refill != 0, "budget ratio and refill 0: want one above 0, or it never recovers")
	if len(f) > 0 {
		return nil, errors.Join(f...)
	}
	b := &Budget{capacity: capacity, ratio: ratio, refill: refill}
	b.full.Store(true)
	return b, nil
}

// defaultCapacity is the number of retries in a full default budget.
const defaultCapacity = 100.0

func newDefaultBudget() *Budget { return Must(NewBudget(defaultCapacity, 0.1, 0.1)) }

// Left returns the number of retries that the budget allows now, +Inf for nil.
func (b *Budget) Left() float64 {
	if b == nil {
		return math.Inf(1)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.credit(clock.Now(), 0)
	return max(0, b.capacity-b.spent) // rounding may make the difference negative
}

// success gives back the worth of a success.
func (b *Budget) success() {
	if b == nil || b.full.Load() {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.credit(clock.Now(), b.ratio)
}

// rounding is the error that sums of ratios may have: ten times 0.1 is a whole retry.
const rounding = 1e-9

// take takes one retry, and reports whether there was one.
func (b *Budget) take() bool {
	if b == nil {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.credit(clock.Now(), 0)
	if b.spent+1 > b.capacity+rounding {
		return false
	}
	b.spent++
	b.full.Store(false)
	return true
}

// refund gives back the token of a retry that was not made.
func (b *Budget) refund() {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.credit(clock.Now(), 1)
}

// credit gives back some tokens and the refill since the last time; mu must be held.
func (b *Budget) credit(now clock.Instant, tokens float64) {
	if dt := now.Sub(b.last); dt > 0 {
		tokens += b.refill * dt.Seconds()
	}
	b.last = now // may be earlier than before: a synctest bubble has another clock
	if b.spent = max(0, b.spent-tokens); b.spent == 0 {
		b.full.Store(true)
	}
}
