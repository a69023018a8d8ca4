// Package pacer decides by arithmetic when calls may go: by the tokens of a [Bucket], or by
// the calls of the last seconds in [Windows]. Both are state machines of explicit times. They
// read no clock, hold no lock and start no timer; their owner does.
package pacer

import (
	"time"

	"golang.org/x/time/rate"

	"github.com/a7df5faa/cruise/internal/clock"
)

// A Bucket is a token bucket: tokens refill at the limit up to the burst, and a call takes as
// many as it costs. Its arithmetic is that of x/time at explicit times, without the lock and the
// conversions of times that make up most of the price there.
//
// Times may go backwards a little. An earlier time than the last one adds no tokens.
type Bucket struct {
	limit       rate.Limit
	burst       int
	tokens      float64 // at the time of last
	last        clock.Instant
	pausedUntil clock.Instant // when the last pause ends or ended
}

// NewBucket returns a full bucket.
func NewBucket(limit rate.Limit, burst int) Bucket {
	return Bucket{limit: limit, burst: burst, tokens: float64(burst)}
}

// Limit returns the limit in tokens per second.
func (b *Bucket) Limit() rate.Limit { return b.limit }

// Burst returns the most tokens that the bucket holds. A call that costs more never goes.
func (b *Bucket) Burst() int { return b.burst }

// Tokens returns the balance. A pause leaves at most one token at its end, so that the first
// call goes at that moment and all others follow at the limit: a pause saves no burst. During a
// pause the balance is lower by the tokens of the time left until its end.
func (b *Bucket) Tokens(now clock.Instant) float64 {
	if b.pausedUntil <= b.last || b.limit == rate.Inf {
		return b.unpaused(now)
	}
	atEnd := min(1, b.unpaused(b.pausedUntil))
	return min(atEnd+now.Sub(b.pausedUntil).Seconds()*float64(b.limit), float64(b.burst))
}

// unpaused returns the balance as it would be without a pause since last.
func (b *Bucket) unpaused(now clock.Instant) float64 {
	tokens := b.tokens
	if now > b.last {
		tokens += now.Sub(b.last).Seconds() * float64(b.limit)
	}
	return min(tokens, float64(b.burst))
}

// settle brings the balance up to date, which every change of limit, burst or pause requires.
// During a pause it takes the balance without the pause, since the pause may be lifted.
func (b *Bucket) settle(now clock.Instant) {
	if b.pausedUntil > now {
		b.tokens = b.unpaused(now)
	} else {
		b.tokens = b.Tokens(now)
	}
	b.last = max(b.last, now)
}

// Peek returns how long a call of cost n must wait. It may go if the tokens that it lacks are due in
// less than a nanosecond.
func (b *Bucket) Peek(now clock.Instant, n int) time.Duration {
	if lacks := float64(n) - b.Tokens(now); lacks/float64(b.limit)*1e9 < 1 {
		return 0
	}
	return b.AtLeast(now, 0, n)
}

// Take takes n tokens.
func (b *Bucket) Take(now clock.Instant, n int) {
	if b.limit != rate.Inf {
		b.tokens, b.last = b.Tokens(now)-float64(n), max(b.last, now) // now may be earlier than last
	}
}

// AtLeast returns a lower bound of the wait of a call of cost n behind others of a total cost.
func (b *Bucket) AtLeast(now clock.Instant, ahead int64, n int) time.Duration {
	if b.limit == rate.Inf {
		return 0
	}
	return clock.CeilSeconds((float64(ahead) + float64(n) - b.Tokens(now)) / float64(b.limit))
}

// Counts reports whether tokens are missing: a new bucket would let more calls go.
func (b *Bucket) Counts(now clock.Instant) bool {
	return b.limit != rate.Inf && b.Tokens(now) < float64(b.burst)
}

// Pause sets the end of the pause. An until that is not after now ends a pause in force, as if
// it had been given for that long.
func (b *Bucket) Pause(now, until clock.Instant) {
	if b.pausedUntil <= now {
		if until <= now {
			return // no pause is in force
		}
		b.settle(now)
	}
	b.pausedUntil = until
}

// Charge takes n tokens whether there are as many or not, or gives back tokens if n is below 0.
func (b *Bucket) Charge(now, _ clock.Instant, n int) {
	if b.limit != rate.Inf {
		b.settle(now)
		b.tokens = min(b.tokens-float64(n), float64(b.burst))
	}
}

// Drain drops the tokens that were saved by the time of the last change.
func (b *Bucket) Drain() { b.tokens = min(0, b.tokens) }

// SetLimit changes the limit. Tokens that were saved until now stay.
func (b *Bucket) SetLimit(now clock.Instant, limit rate.Limit) {
	b.settle(now)
	// A call that lacked less than a nanosecond's worth left the balance below 0. At a limit far
	// above one token a nanosecond that is many tokens, and hours of a lower limit. A charge stays.
	if -b.tokens/float64(b.limit)*1e9 < 1 {
		b.tokens = max(-1, b.tokens)
	}
	b.limit = limit
}

// SetBurst changes the burst. Tokens above a lower one are lost, and none are added for a higher
// one.
func (b *Bucket) SetBurst(now clock.Instant, burst int) {
	b.settle(now)
	b.burst = burst
}

// WithLimit returns a copy that has had another limit since the time of the last change.
func (b Bucket) WithLimit(limit rate.Limit) Bucket {
	b.limit = limit
	return b
}

// MaxCost returns the burst.
func (b *Bucket) MaxCost() int { return b.burst }

// Abandoned does nothing: a bucket keeps nothing for a call that waits.
func (*Bucket) Abandoned(clock.Instant) {}
