package server

import "time"

// bucket is a token bucket.
type bucket struct {
	rate   Schedule
	size   float64
	tokens float64
	last   time.Duration
}

func newBucket(spec Spec) *bucket {
	b := &bucket{rate: spec.Rate, size: spec.Burst}
	if !spec.Empty {
		b.tokens = b.size
	}
	return b
}

func (b *bucket) fill(now time.Duration) {
	if now > b.last {
		b.tokens = min(b.size, b.tokens+b.rate.Between(b.last, now))
		b.last = now
	}
}

func (b *bucket) take(now time.Duration) bool {
	b.fill(now)
	if b.tokens < 1-tiny {
		return false
	}
	b.tokens--
	return true
}

func (b *bucket) wait(now time.Duration) time.Duration {
	b.fill(now)
	return b.rate.After(now, 1-b.tokens)
}

func (b *bucket) quota(now time.Duration) (limit, left float64, reset time.Duration) {
	b.fill(now)
	return b.size, b.tokens, b.rate.After(now, b.size-b.tokens)
}
