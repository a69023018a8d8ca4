// Package check collects the faults in the arguments and options of a constructor.
package check

import (
	"fmt"
	"math"

	"golang.org/x/time/rate"
)

// Errors collects all faults of one call, so that a caller learns of them at once.
type Errors []error

// Check adds an error unless ok holds, and returns ok. For an option the format reads
// "WithX(value): want …".
func (e *Errors) Check(ok bool, format string, args ...any) bool {
	if !ok {
		*e = append(*e, fmt.Errorf("cruise: "+format, args...))
	}
	return ok
}

// The texts that follow the name and the value of a limit or a burst that is out of bounds.
const (
	WantLimit = "want calls per second above 0, or rate.Inf"
	WantBurst = "want 1 to 2147483647"
)

// IsLimit reports whether limit is above 0, and finite or [rate.Inf].
func IsLimit(limit rate.Limit) bool { return limit > 0 && limit <= rate.Inf }

// IsBurst reports whether burst is 1 to 2^31-1.
func IsBurst(burst int) bool { return burst >= 1 && burst <= math.MaxInt32 }

// LimitText prints a limit in messages. It prints [rate.Inf] by its name instead of its
// digits.
type LimitText rate.Limit

func (l LimitText) String() string {
	if rate.Limit(l) == rate.Inf {
		return "rate.Inf"
	}
	return fmt.Sprint(float64(l))
}

// RateText returns a rate as people read it.
func RateText(limit rate.Limit) string {
	if limit >= rate.Inf {
		return "unlimited"
	}
	return fmt.Sprintf("%.4g/s", float64(limit))
}
