package server

import (
	"math"
	"time"
)

// bucket is a token bucket.
type bucket struct {
	rate   Schedule
	size   float64
	tokens float64
	last   time.Duration
	whole  bool // see Spec.Whole
}

func newBucket(spec Spec) *bucket {
	b := &bucket{rate: spec.Rate, size: spec.Burst, whole: spec.Whole}
	if !spec.Empty {
		b.tokens = b.size
	}
	return b
}

func (b *bucket) fill(now time.Duration) {
	if now > b.last && !b.whole {
		b.tokens = b.filled(now)
		b.last = now
	}
}

// filled returns the bucket's level at now.
func (b *bucket) filled(now time.Duration) float64 {
	come := b.rate.Between(b.last, now)
	if b.whole {
		come = math.Floor(come + tiny)
	}
	return min(b.size, b.tokens+come)
}

func (b *bucket) take(now time.Duration) bool {
	tokens := b.filled(now)
	if tokens < 1-tiny {
		b.fill(now)
		return false
	}
	b.tokens, b.last = tokens-1, now
	return true
}

func (b *bucket) wait(now time.Duration) time.Duration {
	b.fill(now)
	return max(0, b.last+b.rate.After(b.last, 1-b.tokens)-now)
}

func (b *bucket) quota(now time.Duration) (limit, left float64, reset time.Duration) {
	b.fill(now)
	return b.size, b.filled(now), max(0, b.last+b.rate.After(b.last, b.size-b.tokens)-now)
}
