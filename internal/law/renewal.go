package law

import (
	"time"

	"github.com/a7df5faa/cruise/internal/clock"
)

// renewals finds the reset of a window that tells what is left, but not until when. Where such a
// window begins, the rest jumps up. In between it never rises, while that of a bucket or of a
// sliding window does so all the time.
type renewals struct {
	jumpedAt clock.Instant // 0 for never
	every    time.Duration // between the last two jumps, 0 if they are not known
	rises    int           // smaller ones, since the last jump
	seenAt   clock.Instant // when the last quota was told
	left     int           // Remaining then; at first none, so that a window begins with the first call
}

// fewRises is how many times the rest may rise between two jumps. More are those of a bucket.
const fewRises = 1

// reset returns the time until the next window, 0 if it is not known. Of the answers to calls that
// were under way together only the first counts: the others may overtake each other.
func (r *renewals) reset(now, sent clock.Instant, q Quota) time.Duration {
	if q.Limit > 0 && sent >= r.seenAt {
		rose := min(q.Limit, q.Remaining) - r.left
		r.seenAt, r.left = now, min(q.Limit, q.Remaining)
		switch {
		case rose >= max(lowLeast, q.Limit/4):
			if r.jumpedAt != 0 {
				r.every = now.Sub(r.jumpedAt)
			}
			r.jumpedAt, r.rises = now, 0
		case rose > 0:
			if r.rises++; r.rises > fewRises {
				r.jumpedAt, r.every = 0, 0
			}
		case sent.Sub(r.jumpedAt) > r.every+resetSlack:
			r.every = 0 // the next window is late
		}
	}
	if r.every == 0 {
		return 0
	}
	return max(time.Second, r.jumpedAt.Add(r.every).Sub(now))
}
