package cruise

import (
	"math"
	"time"
)

const (
	// never is the delay of a call that cannot go before something else happens.
	never = time.Duration(math.MaxInt64)
	// farthest is the longest pause, about 100 years.
	farthest = 100 * year
	year     = 365 * 24 * time.Hour
)

// An instant is a reading of the monotonic clock, in nanoseconds since base: a
// third of the size of a [time.Time], without a pointer. Zero is no instant, and
// before all others.
type instant int64

// base is before any reading of the clock, of a synctest bubble's too, which
// begins in the year 2000. Package time drops the monotonic reading of a time before
// 1885, and the clock of a machine that does not know the time begins in 1970.
var base = time.Now().Add(-80 * year)

// clock reads the monotonic clock alone, at half the price of time.Now. Steps of
// the wall clock do not show in it.
func clock() instant { return instant(time.Since(base)) }

// instantOf is t on the clock, zero if t is.
func instantOf(t time.Time) instant {
	if t.IsZero() {
		return 0
	}
	return max(1, instant(t.Sub(base)))
}

// deadlineOf is a context's deadline on the clock. One without a monotonic reading is
// as far away as the wall clock says now, as for the context, whatever that clock said
// when base was read.
func deadlineOf(t time.Time) instant {
	now, left := clock(), instant(time.Until(t))
	return max(1, now+min(left, math.MaxInt64-now))
}

// Time is the inverse of instantOf.
func (t instant) Time() time.Time {
	if t == 0 {
		return time.Time{}
	}
	return base.Add(time.Duration(t))
}

// after is t+d for d of 0 or more, without overflow.
func (t instant) after(d time.Duration) instant {
	return t + min(instant(d), math.MaxInt64-t)
}

// since is the time from u to t.
func (t instant) since(u instant) time.Duration { return time.Duration(t - u) }

// ceilSeconds is s seconds as a Duration, rounded up and saturated. What is
// negative or no number is 0.
func ceilSeconds(s float64) time.Duration {
	ns := math.Ceil(s * 1e9)
	switch {
	case !(ns > 0):
		return 0
	case ns >= math.MaxInt64:
		return never
	}
	return time.Duration(ns)
}
