// Package observing holds the common parts of the packages that log, count and show the work of
// Retriers.
package observing

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"reflect"
	"time"

	"github.com/a7df5faa/cruise"
)

// NoWait is the longest time in which a call passes a limiter without waiting.
const NoWait = time.Millisecond

// Reasons are the reasons to give a call up. An error that matches several counts for the first of
// them.
var Reasons = [...]error{
	cruise.ErrAttemptsExhausted, cruise.ErrBudgetExhausted, cruise.ErrMaxElapsed, cruise.ErrMaxWait, cruise.ErrServerDelay,
	cruise.ErrQuotaExhausted, cruise.ErrPermanent, cruise.ErrDeadline, cruise.ErrCost,
	context.DeadlineExceeded, context.Canceled,
}

// ReasonIndex is where a reason stands in [Reasons]: behind the last if it is none of them.
func ReasonIndex(reason error) int {
	for i, r := range Reasons {
		if errors.Is(reason, r) {
			return i
		}
	}
	return len(Reasons)
}

// Digest is a function for keys that cannot be undone by trying keys: the same for equal
// keys, and another one in the next program.
func Digest() func(scope, key string) string {
	salt := rand.Text()
	return func(scope, key string) string {
		sum := sha256.Sum256([]byte(salt + "\x00" + scope + "\x00" + key))
		return "#" + hex.EncodeToString(sum[:4])
	}
}

// Seen are the limiters that were seen, by the index of the first Retrier that has them.
type Seen map[cruise.Limiter]int

// Before reports whether a limiter was seen in a Retrier other than the i-th. If it was
// not, it is now.
func (s Seen) Before(l cruise.Limiter, i int) bool {
	if !reflect.ValueOf(l).Comparable() {
		return false
	}
	first, was := s[l]
	if !was {
		s[l] = i
	}
	return was && first != i
}
