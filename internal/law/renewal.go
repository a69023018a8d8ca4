package law

import (
	"time"

	"github.com/a7df5faa/cruise/internal/clock"
)

// renewals finds the reset of a window that tells what is left, but not until when. Where such a
// window begins, the rest jumps up. In between each call lowers it, while a bucket and a window that
// slides fill up again all the time.
type renewals struct {
	jumpedAt clock.Instant // 0 for never
	every    time.Duration // between the last two jumps, 0 if they are not known
	calls    int           // let go before the last jump was known
	seenAt   clock.Instant // when the last quota was told
	left     int           // Remaining then; at first none, so that a window begins with the first call
}

// reset returns the time until the next window, 0 if it is not known, after n calls were let through
// and while some are under way. Of the answers to calls that were under way together only the first
// counts: the others may overtake each other.
func (r *renewals) reset(now, sent clock.Instant, q Quota, n, inflight int) time.Duration {
	if q.Limit > 0 && sent >= r.seenAt {
		left := min(q.Limit, q.Remaining)
		rose := left - r.left
		r.seenAt, r.left = now, left
		switch {
		case rose >= max(memoryLeast, q.Limit/4):
			if r.jumpedAt != 0 {
				r.every = now.Sub(r.jumpedAt)
			}
			r.jumpedAt, r.calls = now, n+inflight
		case n-r.calls > q.Limit-left: // more went from here than are used: it fills up
			r.jumpedAt, r.every = 0, 0
		case sent.Sub(r.jumpedAt) > r.every+resetSlack:
			r.every = 0 // the next window is late
		}
	}
	if r.every == 0 {
		return 0
	}
	return max(time.Second, r.jumpedAt.Add(r.every).Sub(now))
}
