package queue

import (
	"time"

	"github.com/a7df5faa/cruise/internal/clock"
)

// The methods of this file want the lock held.

// Pause lets no call go before until, and reports whether that extends the pause: a pause is never
// shortened by another one. Slowed must follow.
func (q *Queue) Pause(now, until clock.Instant) bool {
	until = min(until, now.Add(clock.Farthest))
	if until <= max(now, q.pausedUntil) {
		return false
	}
	q.pausedUntil = until
	q.policy.Pause(now, until)
	return true
}

// QuotaUsedUp notes that a quota is used up until a time, so that a pause that long is for the
// quota.
func (q *Queue) QuotaUsedUp(until clock.Instant) { q.quotaUntil = max(q.quotaUntil, until) }

// ProbeNext lets a first attempt go before the retries, once. It is for a throttle whose pause may be
// too short, or that hit the first call after a pause: the server may refuse that call at any rate.
func (q *Queue) ProbeNext() { q.probe = true }

// CutPause makes the pause end at another time, earlier than before: at once if that is now.
// Reschedule must follow.
func (q *Queue) CutPause(now, until clock.Instant) {
	q.pausedUntil, q.quotaUntil = until, min(q.quotaUntil, until)
	q.policy.Pause(now, until)
}

// KeepPause keeps the pause in force across a change of the policy's rate.
func (q *Queue) KeepPause(now clock.Instant) {
	if now < q.pausedUntil {
		q.policy.Pause(now, q.pausedUntil)
	}
}

// PausedUntil returns when the last pause of q ends or has ended, zero if there was none.
func (q *Queue) PausedUntil() clock.Instant { return q.pausedUntil }

// PauseLeft returns how long the pause lasts, 0 without one.
func (q *Queue) PauseLeft(now clock.Instant) time.Duration { return max(0, q.pausedUntil.Sub(now)) }
