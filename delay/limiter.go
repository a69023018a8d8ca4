// Package delay has a limiter of another kind than those of cruise: one delay before every
// call, which all callers share, as in older clients of some APIs.
//
//	limiter, err := delay.New(delay.Responsive())
//	…
//	api, err := cruise.New(cruise.WithLimiter(limiter))
package delay

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/internal/chance"
	"github.com/a7df5faa/cruise/internal/clock"
	"github.com/a7df5faa/cruise/internal/limits"
	"github.com/a7df5faa/cruise/internal/queue"
)

// A Limiter makes every call wait for one delay that all callers share. The delay is 0 at
// first. A throttle raises it and successes lower it, by a [Rule].
//
// Callers wait side by side, not one after the other: with 10 callers and a delay of 1 s, 10 calls
// go each second. A change of the delay reaches callers that wait already, a lower one once it has
// fallen by a sixteenth: each goes when the present delay has passed since it came. A Retry-After
// pauses all callers. Callers that waited through a pause leave spread over one delay, and callers
// that came meanwhile may leave behind them.
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
	firstLane   int           // goes first after a pause
	changed     chan struct{} // closed when the delay or the pause changes; nil while no call waits
	woken       time.Duration // the delay when changed was last closed
	stats       Stats         // only its counters and Waiting
}

// lanes is the number of values that the jitter has, and of moments at which callers leave after a
// pause.
const lanes = 16

// A waiter is a call that waits.
type waiter struct {
	queue.Ticket
	lane int
	came clock.Instant
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
	if l.rule.First == 0 {
		return errZero
	}
	if _, _, err := limits.Free(ctx, n); err != nil || n == 0 || l.pass() {
		return err
	}
	w := &waiter{Ticket: limits.Ticket(ctx, n), lane: chance.N(lanes)}
	for {
		wait, changed, err := l.wait(w)
		if wait == 0 {
			return err
		}
		timer := time.NewTimer(min(wait, clock.Year)) // a longer step would look like another clock
		select {
		case <-timer.C:
		case <-changed:
		case <-ctx.Done():
			l.abandon()
			err = limits.ContextError(ctx)
		}
		timer.Stop()
		if err != nil {
			return err
		}
	}
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

// wait returns how long w must wait, unless changed is closed before. It returns 0 if w goes, or is
// refused with an error.
func (l *Limiter) wait(w *waiter) (wait time.Duration, changed chan struct{}, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	if w.came == 0 {
		w.came = now
		l.stats.Waiting++
	}
	switch wait = l.ready(w).Sub(now); {
	case wait <= 0:
		l.stats.Calls++
		l.stats.Slept++
		l.stats.TotalSleep += now.Sub(w.came)
	default:
		if err = l.refusal(now, w); err == nil {
			if l.changed == nil {
				l.changed = make(chan struct{})
			}
			return wait, l.changed, nil
		}
	}
	l.leave()
	return 0, nil, err
}

// abandon is for a call whose context has ended.
func (l *Limiter) abandon() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leave()
}

// leave counts a call that waits no more.
func (l *Limiter) leave() {
	if l.stats.Waiting--; l.stats.Waiting == 0 {
		l.changed = nil
	}
}

// wake lets all waiters look at the delay and the pause again.
func (l *Limiter) wake() {
	l.woken = l.delay
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
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

// refusal returns why w would wait in vain, nil if it would not.
func (l *Limiter) refusal(now clock.Instant, w *waiter) error {
	pause := l.pauseLeft(now)
	if pause > w.MaxPause {
		reason := cruise.ErrServerDelay
		if l.quotaUntil.Sub(now) > w.MaxPause {
			reason = cruise.ErrQuotaExhausted
		}
		return &cruise.Error{Reason: reason, RetryAfter: pause, Paused: pause}
	}
	if w.Deadline == 0 {
		return nil
	}
	// A call that would go at the deadline races its context.
	wait := max(0, l.ready(w).Sub(now))
	if wait >= w.Deadline.Sub(l.time.Reading(now)) {
		return &cruise.Error{Reason: cruise.ErrDeadline, RetryAfter: wait, Paused: pause}
	}
	return nil
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
	paused := false
	switch f.Outcome {
	case cruise.OutcomeThrottled:
		l.raise(now, f)
		paused = l.pause(now, f.RetryAfter)
	case cruise.OutcomeQuotaExhausted:
		l.quotaUntil = max(l.quotaUntil, now.Add(max(0, f.RetryAfter)))
		paused = l.pause(now, f.RetryAfter)
	case cruise.OutcomeSuccess, cruise.OutcomePermanent:
		l.answered(f.Quota)
	}
	// Callers that wait hear of a lower delay once it has fallen by a sixteenth, as there may be many.
	if paused || l.delay > was || l.delay <= l.woken-l.woken/lanes {
		l.wake()
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
		l.wake()
	}
}

// Resume ends a pause. Callers that waited through it go spread over one delay.
func (l *Limiter) Resume() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := l.now(); l.pauseLeft(now) > 0 {
		l.pausedUntil, l.quotaUntil = now, 0
		l.wake()
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
