package cruise

import (
	"fmt"
	"math"

	"golang.org/x/time/rate"
)

// faults gathers all that is wrong with what a constructor was given.
type faults []error

// want adds a fault unless ok, which it returns. It reads "WithX(value): want …" for
// an option.
func (f *faults) want(ok bool, format string, args ...any) bool {
	if !ok {
		*f = append(*f, fmt.Errorf("cruise: "+format, args...))
	}
	return ok
}

// What is wrong with a limit or a burst, after its name and value.
const (
	wantLimit = "want calls per second above 0, or rate.Inf"
	wantBurst = "want 1 to 2147483647"
)

func isLimit(limit rate.Limit) bool { return limit > 0 && limit <= rate.Inf }

func isBurst(burst int) bool { return burst >= 1 && burst <= math.MaxInt32 }

// shown is a limit as messages print it: nobody knows rate.Inf by its digits.
type shown rate.Limit

func (s shown) String() string {
	if rate.Limit(s) == rate.Inf {
		return "rate.Inf"
	}
	return fmt.Sprint(float64(s))
}
