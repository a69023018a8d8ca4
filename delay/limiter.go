// Package delay has a limiter of another kind than those of cruise: one delay before every
// call, which all callers share, as in older clients of some APIs.
//
//	limiter, err := delay.New(delay.Responsive())
//	…
//	api, err := cruise.New(cruise.WithLimiter(limiter))
package delay

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/internal/chance"
	"github.com/a7df5faa/cruise/internal/clock"
	"github.com/a7df5faa/cruise/internal/limits"
)

// A Limiter makes every call wait for one delay that all callers share. The delay is 0 at
// first. A throttle raises it and successes lower it, by a [Rule].
//
// Callers wait side by side, not one after the other: with 10 callers and a delay of 1 s, 10 calls
// go each second. A change of the delay reaches callers that wait already: each goes when the
// present delay has passed since it came. A Retry-After pauses all callers. Callers that waited
// through a pause leave spread over one delay, and callers that came meanwhile may leave behind
// them.
//
// A Limiter sets the time between the calls of one caller, not a rate. Twice the callers make twice
// the calls, and the delay has to find its level again with each caller that comes or goes. Prefer
// it to reproduce a client that you know, for a worker that calls in a loop, or where the server
// wants time between the calls of each worker.
//
// Otherwise prefer the [cruise.AdaptiveLimiter], which learns the rate itself, cuts it once for one
// congestion, and lets calls wait in order. The simulator's suite of 13 servers (folder simulation)
// plays all rules except [Linear], and throttles each of them more often than the AdaptiveLimiter.
// All except [HerokuGradual] use a third less of the servers' capacity. HerokuGradual uses as much,
// and every second attempt is throttled. [HerokuProportional] and [HerokuRemaining] come closest at
// the one server that they were made for. There they are throttled two and a half times as often if
// the server reports no quota, and twenty times as often if it reports its limit and the rest of
// the quota.
//
// The cost of a call makes no difference, except that a cost of 0 does not wait. Retries and
// background work wait like all others.
//
// A Limiter reports nothing to a [cruise.Observer]. It is safe for concurrent use and must not be
// copied. The zero value admits nothing, with an error that says so.
type Limiter struct {
	rule Rule // zero unless made by New

	mu          sync.Mutex // guards the fields below; nothing sleeps and no other code runs under it
	time        clock.Timeline
	delay       time.Duration
	raised      clock.Instant // when the delay was last raised
	answers     int           // since the delay last moved
	pausedUntil clock.Instant
	quotaUntil  clock.Instant // until when a quota is used up, if there is a pause
	lanes       [lanes]list.List
	firstLane   int         // goes first after a pause
	timer       *time.Timer // of the next waiter; nil while no call waits
	stats       Stats       // only its counters and Waiting
}

// The waiters of one lane have the same jitter, so they are ready in the order in which they came,
// however the delay changes.
const lanes = 16

// A waiter is a call that waits.
type waiter struct {
	lane     int
	came     clock.Instant
	deadline clock.Instant // zero if there is none
	maxPause time.Duration // the call does not wait for a longer pause
	place    *list.Element // in its lane; nil once it has left
	err      error         // why it was refused, nil if it was let go
	left     chan struct{} // closed when the waiter was let go or refused
}

var _ cruise.Learner = (*Limiter)(nil)

// New returns a limiter with a delay of 0. The error names every field of the rule that is out
// of bounds. A rule that never lowers the delay is refused.
func New(rule Rule) (*Limiter, error) {
	if err := rule.check(); err != nil {
		return nil, err
	}
	return &Limiter{rule: rule.withDefaults()}, nil
}

var errZero = errors.New("cruise: delay.Limiter not made by delay.New")

// WaitN waits until the delay has passed since the call of WaitN. A negative n is an error, and
// n of 0 does not wait. WaitN returns the context's error and cause if the context ends first.
// It returns a [*cruise.Error] at once, with the reason [cruise.ErrDeadline], if the wait could
// not end in time.
func (l *Limiter) WaitN(ctx context.Context, n int) error {
	switch {
	case l.rule.First == 0:
		return errZero
	case n < 0:
		return fmt.Errorf("cruise: cost %d: want 0 or more", n)
	case ctx == nil:
		return limits.ErrNilContext
	case ctx.Err() != nil:
		return limits.ContextError(ctx)
	case n == 0:
		return nil
	}
	if l.pass() {
		return nil
	}
	t := limits.Ticket(ctx, n)
	w := &waiter{lane: chance.N(lanes), maxPause: t.MaxPause, deadline: t.Deadline, left: make(chan struct{})}
	if err := l.join(w); err != nil {
		return err
	}
	select {
	case <-w.left:
	case <-ctx.Done():
		if l.abandon(w) {
			return limits.ContextError(ctx)
		}
	}
	return w.err
}

// pass lets a call go at once if there is neither a delay nor a pause nor a waiter, and reports
// whether it did.
func (l *Limiter) pass() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.delay > 0 || l.stats.Waiting > 0 || l.now() < l.pausedUntil {
		return false
	}
	l.stats.Calls++
	return true
}

// join makes w wait, unless w would wait in vain.
func (l *Limiter) join(w *waiter) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	w.came = now
	if err := l.refusal(now, w); err != nil {
		return err
	}
	w.place = l.lanes[w.lane].PushBack(w)
	l.stats.Waiting++
	l.release(now)
	return nil
}

// abandon removes w, whose context has ended, and reports whether w still waited.
func (l *Limiter) abandon(w *waiter) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.place == nil {
		return false
	}
	l.leave(w)
	l.release(l.now())
	return true
}

func (l *Limiter) leave(w *waiter) {
	l.lanes[w.lane].Remove(w.place)
	w.place = nil
	l.stats.Waiting--
}

func (l *Limiter) now() clock.Instant { return l.time.Advance(clock.Now()) }

// ready returns when w may go. A waiter whose delay ends within a pause goes after the pause,
// at a moment of its lane within one delay.
func (l *Limiter) ready(w *waiter) clock.Instant {
	luck := float64(w.lane) / (lanes - 1)
	at := w.came.Add(l.rule.jittered(l.delay, luck))
	if at < l.pausedUntil {
		turn := (w.lane - l.firstLane + lanes) % lanes
		return l.pausedUntil.Add(l.delay / lanes * time.Duration(turn))
	}
	return at
}

// earliest returns a bound of when w goes: not before the head of its lane.
func (l *Limiter) earliest(w *waiter) clock.Instant {
	at := l.ready(w)
	if head := l.lanes[w.lane].Front(); head != nil {
		at = max(at, l.ready(head.Value.(*waiter)))
	}
	return at
}

// refusal returns why w would wait in vain, nil if it would not.
func (l *Limiter) refusal(now clock.Instant, w *waiter) error {
	pause := l.pauseLeft(now)
	if pause > w.maxPause {
		reason := cruise.ErrServerDelay
		if l.quotaUntil.Sub(now) > w.maxPause {
			reason = cruise.ErrQuotaExhausted
		}
		return &cruise.Error{Reason: reason, RetryAfter: pause, Paused: pause}
	}
	if w.deadline == 0 {
		return nil
	}
	// A call that would go at the deadline races its context.
	wait := max(0, l.earliest(w).Sub(now))
	if wait >= w.deadline.Sub(l.time.Reading(now)) {
		return &cruise.Error{Reason: cruise.ErrDeadline, RetryAfter: wait, Paused: pause}
	}
	return nil
}

// next returns the waiter that is ready first, nil if no call waits.
func (l *Limiter) next() (next *waiter, at clock.Instant) {
	for i := range l.lanes {
		if head := l.lanes[i].Front(); head != nil {
			w := head.Value.(*waiter)
			if ready := l.ready(w); next == nil || ready < at {
				next, at = w, ready
			}
		}
	}
	return next, at
}

// release lets all waiters go that are ready, and sets the timer for the next one. Every change
// of delay, pause or waiters must end with it.
func (l *Limiter) release(now clock.Instant) {
	for {
		w, at := l.next()
		if w == nil {
			break
		}
		if at > now {
			l.arm(min(at.Sub(now), clock.Year)) // a longer step would look like another clock
			return
		}
		l.leave(w)
		l.stats.Calls++
		l.stats.Slept++
		l.stats.TotalSleep += now.Sub(w.came)
		close(w.left)
	}
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
}

func (l *Limiter) arm(wait time.Duration) {
	if l.timer == nil {
		l.timer = time.AfterFunc(wait, l.tick)
	} else {
		l.timer.Reset(wait)
	}
}

func (l *Limiter) tick() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.release(l.now())
}

// slowed refuses the waiters that would wait in vain since the delay or the pause has grown.
func (l *Limiter) slowed(now clock.Instant) {
	for i := range l.lanes {
		var next *list.Element
		for e := l.lanes[i].Front(); e != nil; e = next {
			next = e.Next()
			w := e.Value.(*waiter)
			if w.err = l.refusal(now, w); w.err != nil {
				l.leave(w)
				close(w.left)
			}
		}
	}
	l.release(now)
}

// Learn raises the delay if the attempt was throttled, counts the attempt if it succeeded or
// failed for good, and pauses if the server asked for a wait. It ignores a Feedback of Cost 0
// or less, whose attempt was never admitted.
func (l *Limiter) Learn(f cruise.Feedback) {
	if f.Cost <= 0 || l.rule.First == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now, was := l.now(), l.delay
	switch f.Outcome {
	case cruise.OutcomeThrottled:
		l.raise(now, f)
	case cruise.OutcomeSuccess, cruise.OutcomePermanent:
		l.answered(f.Quota)
	}
	paused := false
	switch f.Outcome {
	case cruise.OutcomeQuotaExhausted:
		l.quotaUntil = max(l.quotaUntil, now.Add(max(0, f.RetryAfter)))
		paused = l.pause(now, f.RetryAfter)
	case cruise.OutcomeThrottled:
		paused = l.pause(now, f.RetryAfter)
	}
	switch {
	case paused || l.delay > was:
		l.slowed(now)
	case l.delay < was:
		l.release(now)
	}
}

// raise raises the delay for a throttle.
func (l *Limiter) raise(now clock.Instant, f cruise.Feedback) {
	l.answers = 0
	sent := l.time.At(clock.Of(f.Sent))
	if late := sent != 0 && sent <= l.raised; late && !l.rule.EachThrottle {
		return
	}
	l.raised = now
	if d := l.rule.raised(l.delay); d > l.delay {
		l.delay = d
		l.stats.WentUp++
	}
}

// answered counts an answer, and lowers the delay if there were enough of them.
func (l *Limiter) answered(q *cruise.Quota) {
	if l.answers++; l.answers < l.rule.Every {
		return
	}
	l.answers = 0
	if d := l.rule.lowered(l.delay, q); d < l.delay {
		l.delay = d
		l.stats.WentDown++
	}
}

// pause lets no call go for d, and reports whether that extends a pause. The lane that goes first
// changes with each pause: else the last lanes would never go while pauses follow each other.
func (l *Limiter) pause(now clock.Instant, d time.Duration) bool {
	until := now.Add(min(max(0, d), clock.Farthest))
	if until <= max(now, l.pausedUntil) {
		return false
	}
	l.pausedUntil, l.firstLane = until, chance.N(lanes)
	return true
}

func (l *Limiter) pauseLeft(now clock.Instant) time.Duration { return max(0, l.pausedUntil.Sub(now)) }

// Delay returns the present delay, without jitter.
func (l *Limiter) Delay() time.Duration { return l.Stats().Delay }

// Pause lets no call go for d, unless a longer pause is in force already. d of 0 or less does
// nothing.
func (l *Limiter) Pause(d time.Duration) {
	if l.rule.First == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := l.now(); l.pause(now, d) {
		l.slowed(now)
	}
}

// Resume ends a pause. Callers that waited through it go spread over one delay.
func (l *Limiter) Resume() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := l.now(); l.pauseLeft(now) > 0 {
		l.pausedUntil, l.quotaUntil = now, 0
		l.release(now)
	}
}

// PauseLeft returns how long a pause still lasts, 0 without one.
func (l *Limiter) PauseLeft() time.Duration { return l.Stats().PauseLeft }

// Waiting returns how many calls wait.
func (l *Limiter) Waiting() int { return l.Stats().Waiting }

// Stats describes what a [Limiter] does now, and counts what it has done.
type Stats struct {
	Delay      time.Duration // the present delay, without jitter
	Waiting    int           // calls that wait now
	PauseLeft  time.Duration // time left of a pause, 0 without one
	Calls      uint64        // calls that were let go
	WentUp     uint64        // times that the delay was raised
	WentDown   uint64        // times that the delay was lowered
	Slept      uint64        // calls that had to wait
	TotalSleep time.Duration // of all calls, added up
}

// Stats returns the present state and the counters.
func (l *Limiter) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.stats
	s.Delay, s.PauseLeft = l.delay, l.pauseLeft(l.now())
	return s
}
