// Package clock reads the monotonic clock as a plain number and does arithmetic on it that
// neither overflows nor rounds a wait down to nothing.
package clock

import (
	"math"
	"time"
)

const (
	// Never is the delay of a call that cannot go before another event lets it.
	Never = time.Duration(math.MaxInt64)
	// Farthest is the longest pause, about 100 years.
	Farthest = 100 * Year
	// Year has 365 days.
	Year = 365 * 24 * time.Hour
)

// An Instant is a reading of the monotonic clock, in nanoseconds since base. It takes a third
// of the size of a [time.Time] and holds no pointer. The zero Instant stands for "no time" and
// is before all others.
type Instant int64

// base is earlier than any reading of the clock. The clock of a synctest bubble begins in the
// year 2000, and that of a machine without a battery in 1970. Package time drops the monotonic
// reading of a time before 1885, so base must not be much earlier than this.
var base = time.Now().Add(-80 * Year)

// Now reads the monotonic clock alone, at half the price of time.Now. Steps of the wall clock
// do not show in it.
func Now() Instant { return Instant(time.Since(base)) }

// Of converts a time to an Instant. The zero time becomes the zero Instant.
func Of(t time.Time) Instant {
	if t.IsZero() {
		return 0
	}
	return max(1, Instant(t.Sub(base)))
}

// Deadline converts the deadline of a context to an Instant. A deadline without a monotonic
// reading is compared with the present wall clock, as the context does, so a step of the wall
// clock since base was read makes no difference.
func Deadline(t time.Time) Instant {
	now, left := Now(), Instant(time.Until(t))
	return max(1, now+min(left, math.MaxInt64-now))
}

// Time converts t back. It is the inverse of [Of].
func (t Instant) Time() time.Time {
	if t == 0 {
		return time.Time{}
	}
	return base.Add(time.Duration(t))
}

// Add returns t+d. Above the latest Instant it saturates.
func (t Instant) Add(d time.Duration) Instant {
	return t + min(Instant(d), math.MaxInt64-t)
}

// Sub returns the duration t-u.
func (t Instant) Sub(u Instant) time.Duration { return time.Duration(t - u) }

// CeilSeconds converts seconds to a Duration. It rounds up and saturates at [Never]. Negative
// numbers and NaN become 0.
func CeilSeconds(s float64) time.Duration {
	ns := math.Ceil(s * 1e9)
	switch {
	case !(ns > 0):
		return 0
	case ns >= math.MaxInt64:
		return Never
	}
	return time.Duration(ns)
}
