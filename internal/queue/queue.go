// Package queue makes calls wait in order until a [Policy] lets them go.
//
// Waiters hold no time of their own. One timer runs, for the waiter that goes next, and every
// change of rate, pause or waiters sets it anew. So a change reaches all waiters at once, and
// a waiter that leaves delays nobody.
//
// Queues form a tree. A call that enters a queue passes that queue and all its ancestors at
// one moment, or waits and takes nothing from any of them. See tree.go.
package queue

import (
	"context"
	"math"
	"sync/atomic"
	"time"

	"github.com/a7df5faa/cruise/internal/clock"
)

// A Policy decides when calls may leave a queue. It is a state machine of explicit times. The
// queue calls it with the lock held. The queue passes a time before that of an earlier call only
// to make up for a late timer.
type Policy interface {
	// Peek returns how long from now a call of cost n must wait: 0 if it may go, clock.Never if only
	// an event can let it go.
	Peek(now clock.Instant, n int) time.Duration
	// Take lets the call go for which Peek has just returned 0.
	Take(now clock.Instant, n int)
	// AtLeast returns a lower bound of the wait of a call of cost n behind others of a total
	// cost.
	AtLeast(now clock.Instant, ahead int64, n int) time.Duration
	// Charge takes n more for a call that went at sent, or gives back if n is below 0. It may take
	// more than the balance: then later calls wait for the difference.
	Charge(now, sent clock.Instant, n int)
	// Pause sets the end of a pause. An until that is not after now ends the pause.
	Pause(now, until clock.Instant)
	// Abandoned tells the policy that the last waiter has left without going.
	Abandoned(now clock.Instant)
	// Counts reports whether past calls keep later calls waiting: a new policy would let the later
	// calls go.
	Counts(now clock.Instant) bool
	// MaxCost returns the highest cost that is ever let go. Slowed must follow a change of it.
	MaxCost() int
}

// A Ticket is a call's demand on a queue.
type Ticket struct {
	Cost     int
	Class    Class
	Deadline clock.Instant // by the clock, zero if there is none
	Until    clock.Instant // by the clock: the call waits no longer; zero if it does
	MaxPause time.Duration // the call is refused where a pause lasts longer
	OnWait   func(Outlook) // called without a lock when the call begins to wait; may be nil
}

// An Outlook describes a wait when it begins.
type Outlook struct {
	AtLeast time.Duration // from now, as things are
	Paused  time.Duration // the part of it that is a pause
	Ahead   int           // cost of the calls that surely go first
}

// A Reason says why a call was refused.
type Reason uint8

// The reasons.
const (
	DeadlineTooSoon Reason = iota // the wait cannot end before the deadline
	PauseTooLong                  // the pause lasts longer than the call waits for
	QuotaTooLong                  // the same, and the pause is for a quota that is used up
	WaitTooLong                   // the wait cannot end until Ticket.Until, or did not
	TooExpensive                  // the call costs more than is ever let go
)

// A Refusal says why a call would wait in vain. The call has taken nothing.
type Refusal struct {
	Why        Reason
	RetryAfter time.Duration // until another try makes sense
	Paused     time.Duration // until the pause ends, 0 without one
	Ahead      int           // cost of the calls that surely go first
	MaxCost    int           // the highest cost that is let go, of TooExpensive
}

func (r *Refusal) Error() string {
	return [...]string{"wait would pass the deadline", "pause too long", "quota used up for too long", "wait too long", "costs too much"}[r.Why]
}

// A Queue is where calls wait for a policy. Retries go before first attempts, and background
// work after all others, except that it gets every [BackgroundTurn]-th turn. Waiters of one
// class go in the order in which they came.
//
// The zero Queue has no policy: it must be given one by Init before a call enters.
type Queue struct {
	treeLock // guards the fields below and the policy; no code of others runs under it

	clock.Timeline // the queue's time, which may differ from the clock's

	catchUp     time.Duration
	resumed     func(now clock.Instant) time.Duration
	policy      Policy
	pausedUntil clock.Instant // no call goes before
	quotaUntil  clock.Instant // until when a quota is used up, if there is a pause
	waiters     [classes]waiters
	waiting     int
	calls       int           // waiting here or in child queues, including calls that a child queue holds up
	maxCost     atomic.Int64  // of the policy
	probe       bool          // a first attempt goes next, before the retries
	skipped     int           // turns that went past waiting background work
	timer       *time.Timer   // for the waiter that goes next; nil while no call waits
	firesAt     clock.Instant // when the timer should go off
	owedFrom    clock.Instant // after a late timer, the time for which the policy is asked next; else zero
	branch
}

// Config holds the settings of a queue.
type Config struct {
	// CatchUp is the lateness of the timer that the queue makes up for.
	CatchUp time.Duration
	// Resumed is called when a pause holds up or would refuse a call, to find out whether another
	// process has ended the pause. It returns the time until it is to be called again, or
	// clock.Never while an answer is under way. Slowed must follow that answer if the pause lasts.
	// Resumed is nil if no other process can end a pause.
	Resumed func(now clock.Instant) time.Duration
	// Start is the time at which the queue begins. If it is zero, the time begins with the
	// first call.
	Start clock.Instant
}

// Init gives q its policy, before its first use.
func (q *Queue) Init(p Policy, c Config) {
	q.policy, q.catchUp, q.resumed, q.Last = p, c.CatchUp, c.Resumed, c.Start
	q.maxCost.Store(int64(p.MaxCost()))
}

// Ready reports whether q has a policy.
func (q *Queue) Ready() bool { return q.policy != nil }

// Locked calls f at the present time of q with the lock held, or returns false if q is not Ready.
func (q *Queue) Locked(f func(now clock.Instant)) bool {
	if !q.Ready() {
		return false
	}
	q.Lock()
	defer q.Unlock()
	f(q.Now())
	return true
}

// The methods below, up to Pass, want the lock held.

// Now returns the present time of q.
func (q *Queue) Now() clock.Instant { return q.Advance(clock.Now()) }

// Waiting returns the number of waiters.
func (q *Queue) Waiting() int { return q.waiting }

// AlmostEmpty reports whether at most one call waits, and none in a child queue.
func (q *Queue) AlmostEmpty() bool { return q.waiting <= 1 && q.calls == q.waiting }

// Cost returns the cost of all waiters.
func (q *Queue) Cost() (cost int64) {
	for i := range q.waiters {
		cost += q.waiters[i].cost
	}
	return cost
}

// NextCost returns the cost of the waiter that goes next, 0 if no call waits.
func (q *Queue) NextCost() int {
	if w := q.head(); w != nil {
		return w.Cost
	}
	return 0
}

// TooExpensive reports whether q or an ancestor never lets a call of cost n go, and the highest
// cost that it lets go. It needs no lock.
func (q *Queue) TooExpensive(n int) (most int, is bool) {
	for x := q; x != nil; x = x.Parent() {
		if most := int(x.maxCost.Load()); n > most {
			return most, true
		}
	}
	return 0, false
}

// Counts reports whether past calls keep later calls waiting. It takes the lock.
func (q *Queue) Counts() bool {
	q.Lock()
	defer q.Unlock()
	return q.policy.Counts(q.Now())
}

// Pass lets a call of cost n go if it need not wait, and reports when, by the clock. came is the
// present reading of the clock. joins says that the call joins the queue if it has to wait. Pass takes
// the lock, and allocates nothing itself.
func (q *Queue) Pass(came clock.Instant, n int, joins bool) (sent clock.Instant, ok bool) {
	q.lockPatiently()
	now := q.Advance(came)
	switch {
	case q.waiting > 0:
	case q.parent != nil:
		sent, ok = q.passAll(now, n)
	case q.peek(now, n) == 0:
		q.take(now, n)
		sent, ok = q.Reading(now), true
	}
	if !ok && !joins {
		q.turnedAway(now)
	}
	q.Unlock()
	return sent, ok
}

// turnedAway tells all policies that a call which would have to wait does not wait.
func (q *Queue) turnedAway(now clock.Instant) {
	for x := q; x != nil; x = x.parent {
		x.abandoned(x.Advance(q.Reading(now)))
	}
}

// Charge makes a call that q let go, at sent by the clock, cost n more, or less if n is below 0, in
// q and all its ancestors. It takes the lock.
func (q *Queue) Charge(sent clock.Instant, n int) {
	q.Lock()
	defer q.Unlock()
	reading := q.Reading(q.Now())
	for x := q; x != nil; x = x.parent {
		x.policy.Charge(x.Advance(reading), x.At(sent), n)
	}
	for x := q; x != nil; x = x.parent {
		x.Slowed(x.Advance(reading)) // a waiter may now go, by the tokens given back
	}
}

// Join puts a call among the waiters, unless it would wait in vain: then the call has taken
// nothing. Otherwise Await must follow. Join takes the lock.
func (q *Queue) Join(w *Waiter) *Refusal {
	q.Lock()
	now := q.Now()
	ahead := q.ahead(w.Class)
	if refused := q.refusal(now, w, ahead); refused != nil {
		q.turnedAway(now)
		q.Unlock()
		return refused
	}
	q.enlist(w, (*waiters).push)
	if w.Until != 0 {
		w.timer = time.AfterFunc(w.Until.Sub(clock.Now()), func() { q.outwaited(w) })
	}
	if q.head() == w || q.placeholder.queued && q.placeholder.Class.background() { // w may lift that
		q.Reschedule(now)
	}
	if !w.queued || w.OnWait == nil {
		q.Unlock()
		return nil
	}
	outlook := q.outlook(now, w, ahead)
	q.Unlock()
	w.OnWait(outlook)
	return nil
}

// Await waits until the call of w may go, and returns when it went, by the clock. The error is a
// [*Refusal] or that of ctx, and then the call has taken nothing. Await takes the lock.
//
// Join is apart from Await so that the stack of a goroutine which waits is small.
func (q *Queue) Await(ctx context.Context, w *Waiter) (sent clock.Instant, err error) {
	select {
	case <-w.done:
	case <-ctx.Done():
		if q.abandon(w) {
			return 0, ctx.Err()
		}
		// The call was let go at the same moment. It goes, so that the policy has counted the calls
		// that the server gets.
	}
	if w.refused != nil {
		return 0, w.refused
	}
	return w.sent, nil
}

// Check returns why a call would be refused at once, nil if it would not. It takes the lock.
func (q *Queue) Check(t Ticket) *Refusal {
	q.Lock()
	defer q.Unlock()
	now := q.Now()
	if _, never := q.TooExpensive(t.Cost); !never && t.Until != 0 && q.isFree(q.Reading(now), t.Cost) {
		return nil
	}
	return q.refusal(now, &Waiter{Ticket: t}, q.ahead(t.Class))
}

// Report returns how many calls wait here and how long the pause lasts. The next call of a
// queue with a placeholder waits in the parent. Report takes the lock.
func (q *Queue) Report() (waiting int, pause time.Duration) {
	q.Lock()
	defer q.Unlock()
	waiting = q.waiting
	if q.placeholder.queued {
		waiting--
	}
	return waiting, q.PauseLeft(q.Now())
}

// outlook describes the wait of w behind others of a total cost.
func (q *Queue) outlook(now clock.Instant, w *Waiter, ahead int64) Outlook {
	wait := q.least(now, w, ahead)
	o := Outlook{AtLeast: wait, Ahead: int(min(ahead, math.MaxInt)), Paused: q.PauseLeft(now)}
	for x := q.parent; x != nil; x = x.parent {
		now := x.Advance(q.Reading(now))
		wait := x.least(now, w, 0) // it is unknown how many are ahead there
		o.AtLeast, o.Paused = max(o.AtLeast, wait), max(o.Paused, x.PauseLeft(now))
	}
	return o
}

// abandon takes w out of the queue, and reports whether it still waited.
func (q *Queue) abandon(w *Waiter) bool {
	q.Lock()
	defer q.Unlock()
	if !w.queued {
		return false
	}
	q.drop(q.Now(), w)
	return true
}

// outwaited refuses w at the end of its longest wait, unless it may go now.
func (q *Queue) outwaited(w *Waiter) {
	q.Lock()
	defer q.Unlock()
	if !w.queued {
		return
	}
	now := q.Now()
	q.Reschedule(now) // its turn may have come this moment
	if !w.queued {
		return
	}
	o := q.outlook(now, w, 0) // it is unknown how many are left ahead
	q.drop(now, w)
	w.refuse(&Refusal{Why: WaitTooLong, RetryAfter: o.AtLeast, Paused: o.Paused})
}

// drop takes w out of the queue, and lets the waiters go that w held up.
func (q *Queue) drop(now clock.Instant, w *Waiter) {
	first := q.head() == w
	q.dismiss(now, w)
	if first {
		q.Reschedule(now)
	}
}

// enlist puts w among the waiters of its class.
func (q *Queue) enlist(w *Waiter, at func(*waiters, *Waiter)) {
	at(&q.waiters[w.Class], w)
	q.waiting++
	q.count(w, 1)
	w.queued = true
}

// ahead returns the cost of the waiters that surely go before a newcomer of a class. Other work
// does not surely go before background work, which gets turns. Background work does not surely
// go before other work, except the waiter that has its turn now.
func (q *Queue) ahead(c Class) (cost int64) {
	if q.probe && c == First && q.waiters[First].head == nil {
		return 0 // it would be the probe
	}
	for k := range c + 1 {
		if k.background() == c.background() {
			cost += q.waiters[k].cost
		}
	}
	if w := q.head(); w != nil && w.Class.background() && !c.background() && q.skipped >= BackgroundTurn-1 {
		cost += int64(w.Cost)
	}
	return cost
}

// refusal returns why w would wait in vain behind others of a total cost, nil if it would not.
func (q *Queue) refusal(now clock.Instant, w *Waiter, ahead int64) *Refusal {
	if most, is := q.TooExpensive(w.Cost); is {
		return &Refusal{Why: TooExpensive, MaxCost: most}
	}
	refused := q.tooLong(now, w, ahead)
	if refused == nil {
		refused = q.refuses(now, w, ahead)
	}
	for x := q.parent; x != nil && refused == nil; x = x.parent {
		refused = x.refuses(x.Advance(q.Reading(now)), w, 0) // it is unknown how many are ahead there
	}
	return refused
}

// tooLong refuses a call that would have to wait longer than it may, in q and all its ancestors. If
// the call's deadline comes first, refuses decides.
func (q *Queue) tooLong(now clock.Instant, w *Waiter, ahead int64) *Refusal {
	if w.Until == 0 || w.Deadline != 0 && w.Deadline < w.Until {
		return nil
	}
	left := w.Until.Sub(q.Reading(now))
	for x := q; x != nil && left > 0; x = x.parent {
		if x.mayBeOver(x.Advance(q.Reading(now))) {
			return nil
		}
	}
	o := q.outlook(now, w, ahead)
	if left > 0 && o.AtLeast <= left {
		return nil
	}
	return &Refusal{Why: WaitTooLong, RetryAfter: o.AtLeast, Paused: o.Paused, Ahead: o.Ahead}
}

// mayBeOver reports whether a pause is in force, but an answer under way may end it.
func (q *Queue) mayBeOver(now clock.Instant) bool {
	return q.PauseLeft(now) > 0 && q.resumed != nil && q.resumed(now) == clock.Never
}

// refuses is refusal for q alone.
func (q *Queue) refuses(now clock.Instant, w *Waiter, ahead int64) *Refusal {
	if q.mayBeOver(now) {
		return nil
	}
	pause := q.PauseLeft(now)
	if pause > w.MaxPause {
		why := PauseTooLong
		if q.quotaUntil.Sub(now) > w.MaxPause {
			why = QuotaTooLong
		}
		return &Refusal{Why: why, RetryAfter: pause, Paused: pause}
	}
	if w.Deadline == 0 {
		return nil
	}
	// A call that would go at the deadline races its context.
	if wait := q.least(now, w, ahead); wait >= w.Deadline.Sub(q.Reading(now)) {
		return &Refusal{Why: DeadlineTooSoon, RetryAfter: wait, Paused: pause, Ahead: int(min(ahead, math.MaxInt))}
	}
	return nil
}

// least returns how long w must wait at least, behind others of a total cost.
func (q *Queue) least(now clock.Instant, w *Waiter, ahead int64) time.Duration {
	pause := q.PauseLeft(now)
	if wait := pause + q.policy.AtLeast(now.Add(pause), ahead, w.Cost); wait >= 0 {
		return wait
	}
	return clock.Never // overflow
}

// head returns the waiter that goes next, nil if no call waits.
func (q *Queue) head() *Waiter {
	if q.waiting == 0 {
		return nil
	}
	if w := q.waiters[First].head; q.probe && w != nil {
		return w
	}
	var next *Waiter
	for c := range classes {
		w := q.waiters[c].head
		switch {
		case w == nil:
		case !c.background():
			if next == nil {
				next = w
			}
		case next == nil || !next.Class.background() && q.skipped >= BackgroundTurn-1:
			next = w
		}
	}
	return next
}

// leave takes w out of the queue.
func (q *Queue) leave(w *Waiter) {
	q.waiters[w.Class].remove(w)
	q.waiting--
	q.count(w, -1)
	w.queued = false
	if w.timer != nil {
		w.timer.Stop()
	}
}

// count counts w here and in all ancestors, unless it is a placeholder.
func (q *Queue) count(w *Waiter, n int) {
	for x := q; x != nil && w.child == nil; x = x.parent {
		x.calls += n
	}
}

// dismiss takes w out of the queue without letting it go.
func (q *Queue) dismiss(now clock.Instant, w *Waiter) {
	q.leave(w)
	q.abandoned(now)
}

// abandoned must follow when a call that was told to wait does not go: the policy may have to know
// that the queue is empty.
func (q *Queue) abandoned(now clock.Instant) {
	if q.waiting == 0 {
		q.policy.Abandoned(now)
	}
}

// letGo lets w go, which is the next.
func (q *Queue) letGo(now clock.Instant, w *Waiter) {
	q.leave(w)
	q.probe = false
	switch {
	case w.Class.background():
		q.skipped = 0
	case q.waiters[BackgroundRetry].head != nil || q.waiters[Background].head != nil:
		q.skipped++
	}
	if w.child != nil {
		w.child.passNext(q.Reading(now))
		return
	}
	w.sent = q.Reading(now)
	close(w.done)
}

// Reschedule lets all waiters go that may go, and sets the timer for the next. It must follow
// every change of the waiters, the pause and the policy. It wants the lock held.
func (q *Queue) Reschedule(now clock.Instant) {
	if q.parent != nil {
		if q.updatePlaceholder(now) {
			q.parent.Reschedule(q.parent.Advance(q.Reading(now)))
		}
		return
	}
	for w := q.head(); w != nil; w = q.head() {
		if w.child != nil && !w.child.isOpen(q.Reading(now)) {
			continue
		}
		if wait := q.peek(now, w.Cost); wait > 0 {
			q.arm(now, wait)
			return
		}
		q.take(now, w.Cost)
		q.letGo(now, w)
	}
	q.owedFrom = 0
	q.disarm()
}

// Slowed must follow a change for the slower, once the state is whole again. It refuses the
// waiters that would wait in vain from now on, or if a child queue holds them up, as soon as
// that lets them go. Then it does what Reschedule does. It wants the lock held.
func (q *Queue) Slowed(now clock.Instant) {
	q.maxCost.Store(int64(q.policy.MaxCost()))
	q.refuseHopeless(now)
	q.Reschedule(now)
}

// refuseHopeless refuses all waiters that would wait in vain, here and in the child queues
// whose placeholders wait here.
func (q *Queue) refuseHopeless(now clock.Instant) {
	ahead := int64(0)
	for c := range q.waiters {
		if Class(c) == BackgroundRetry {
			ahead = 0
		}
		var next *Waiter
		for w := q.waiters[c].head; w != nil; w = next {
			next = w.next
			if w.child != nil {
				now := w.child.Advance(q.Reading(now))
				w.child.refuseHopeless(now)
				w.child.updatePlaceholder(now)
				if !w.queued || w.Class != Class(c) {
					continue // the placeholder is gone, or has another class
				}
			} else if why := q.refusal(now, w, ahead); why != nil {
				q.dismiss(now, w)
				w.refuse(why)
				continue
			}
			ahead += int64(w.Cost)
		}
	}
}

// take lets a call of cost n go, after a peek that returned 0.
func (q *Queue) take(now clock.Instant, n int) {
	if q.isLate(now) {
		now = q.owedFrom
	}
	q.policy.Take(now, n)
}

// peek returns how long a call of cost n must wait for the pause and the policy, or until Resumed is
// to be asked again if that is sooner.
func (q *Queue) peek(now clock.Instant, n int) time.Duration {
	pause := q.PauseLeft(now)
	if pause > 0 && q.resumed != nil {
		pause = min(pause, q.resumed(now))
	}
	switch {
	case pause > 0:
		return pause
	case q.isLate(now):
		return q.makeUp(now, n)
	}
	return q.policy.Peek(now, n)
}
