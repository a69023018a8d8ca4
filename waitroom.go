package cruise

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"time"

	"github.com/a7df5faa/cruise/internal/clock"
)

// A policy decides when calls may leave a room. It is a state machine of explicit times. The
// room calls it with its lock held. It passes a time before that of an earlier call only to
// make up for a late timer.
type policy interface {
	// pass lets a call of cost n go now and returns 0, or returns how long from now the call
	// must wait: never if only an event can let it go.
	pass(now clock.Instant, n int) time.Duration
	// peek returns what pass would, for a call that does not go yet.
	peek(now clock.Instant, n int) time.Duration
	// atLeast returns a lower bound of the wait of a call of cost n behind others of a total
	// cost.
	atLeast(now clock.Instant, ahead int64, n int) time.Duration
	// hold sets the end of a pause. An until of now lifts it.
	hold(now, until clock.Instant)
	// deserted tells that the last waiter has left without going.
	deserted(now clock.Instant)
	// counts reports whether calls that went keep later calls waiting for longer. While they
	// do, the limiter of a scope is kept if there is room.
	counts(now clock.Instant) bool
	// maxCost returns the highest cost that is ever let go. It never changes.
	maxCost() int
}

var (
	_ policy = (*bucketPolicy)(nil)
	_ policy = (*windowPolicy)(nil)
	_ policy = (*AdaptiveLimiter)(nil)
	_ policy = (*SharedLimiter)(nil)
)

// A room is where calls wait for a pacer. Waiters stand in line and hold no
// time of their own: one timer runs, for the head of the line, and every change
// of rate, pause or line sets it anew. So a change reaches all who wait, and
// whoever leaves costs nobody anything.
//
// Retries stand before first attempts, and background work behind all others,
// except that it gets every backgroundTurn-th turn; within a class the line is
// first in, first out.
//
// A room may stand in another one: see tree.go.
type room struct {
	mu treeLock // guards the fields below and the pacer; no code of others runs under it

	policy   policy
	timeline clock.Timeline // the room's time, which may be another one than the clock's
	resume   clock.Instant  // nobody goes before
	usedUp   clock.Instant  // until when a quota is, if there is a pause
	// news is asked, when a pause holds up or would refuse a call, whether somebody
	// elsewhere has ended the pause; nil if nobody can. It returns how long from now it is
	// to be asked again, or never while an answer is under way: whoever gets that calls
	// changed if the pause lasts.
	news    func(now clock.Instant) time.Duration
	lines   [classes]line
	waiting int
	calls   int           // that wait here or in rooms below, also those that a room below holds up
	busy    atomic.Bool   // somebody waits
	skipped int           // turns that went past waiting background work
	timer   *time.Timer   // for the head of the line; nil while nobody waits
	fires   clock.Instant // when that should go off

	catchUp time.Duration // lateness of the timer that is made up for
	behind  clock.Instant // after a late timer, the time for which the pacer is asked next; else zero
	branch
}

// errNilContext is what a nil context gets instead of a panic deep inside.
var errNilContext = errors.New("cruise: nil context")

// errZeroLimiter is what the zero value of a limiter gives instead: it has a room
// without a pacer.
var errZeroLimiter = errors.New("cruise: limiter not made by its constructor")

// admit is enter for a call that may cost nothing, or more than is ever let go.
func (r *room) admit(ctx context.Context, n int) (came, sent clock.Instant, err error) {
	switch {
	case r.policy == nil:
		return came, sent, errZeroLimiter
	case n <= 0:
		return free(ctx, n)
	}
	if err := r.checkCost(n); err != nil {
		return came, sent, err
	}
	return r.enter(ctx, n)
}

// checkCost is an error for a cost that r, or a room around it, never lets go.
func (r *room) checkCost(n int) error {
	for x := r; x != nil; x = x.around() {
		if most := x.policy.maxCost(); n > most {
			return costError(n, most)
		}
	}
	return nil
}

// enter waits until a call of cost n may go, and returns when it came and when it
// went.
//
// The error is that of the context with its cause, or an [*Error] whose reason
// is ErrDeadline, ErrServerDelay or ErrQuotaExhausted, with nothing taken.
func (r *room) enter(ctx context.Context, n int) (came, sent clock.Instant, err error) {
	if ctx == nil {
		return came, sent, errNilContext
	}
	came = clock.Now()
	if ctx.Err() != nil {
		return came, sent, contextError(ctx)
	}
	r.mu.lockPatiently()
	now := r.advance(came)
	if r.waiting == 0 {
		if r.up != nil {
			if sent, ok := r.passAll(now, n); ok {
				r.mu.Unlock()
				return came, sent, nil
			}
		} else if r.pass(now, n) == 0 {
			sent = r.reading(now)
			r.mu.Unlock()
			return came, sent, nil
		}
	}
	r.mu.Unlock()
	w := newWaiter(ctx, n) // asks the context, which may be anyone's code
	r.mu.Lock()
	now = r.advance(clock.Now())
	ahead := r.ahead(w.class)
	if err := r.refusal(now, w, ahead); err != nil {
		for x := r; x != nil; x = x.up {
			x.deserted(x.advance(r.reading(now)))
		}
		r.mu.Unlock()
		return came, sent, err
	}
	r.push(w)
	if r.head() == w || r.seat.queued && r.seat.class.background() { // w may lift that
		r.release(now)
	}
	tell := w.queued && w.observer != nil
	var outlook Waiting
	if tell {
		outlook = r.outlook(now, w, ahead)
	}
	r.mu.Unlock()
	if tell {
		notify((*eventContext)(callOf(ctx)), w.observer, outlook)
	}

	select {
	case <-w.done:
	case <-ctx.Done():
		if r.abandon(w) {
			return came, sent, contextError(ctx)
		}
		// It was let go at the same moment: it goes, so that what the pacer
		// counted is what the server gets.
	}
	return came, w.sent, w.err
}

// outlook is what is known of the wait of w, behind others of a cost in all.
func (r *room) outlook(now clock.Instant, w *waiter, ahead int64) Waiting {
	wait := r.least(now, w, ahead)
	o := Waiting{AtLeast: wait, Ahead: int(min(ahead, math.MaxInt)), Paused: r.leftAt(now)}
	for x := r.up; x != nil; x = x.up {
		now := x.advance(r.reading(now))
		wait := x.least(now, w, 0) // who knows how many are ahead
		o.AtLeast, o.Paused = max(o.AtLeast, wait), max(o.Paused, x.leftAt(now))
	}
	return o
}

func newWaiter(ctx context.Context, n int) *waiter {
	w := &waiter{n: n, class: firstClass, maxPause: clock.Never, done: make(chan struct{})}
	if c := callOf(ctx); c != nil {
		w.maxPause, w.observer = c.retrier.maxServerDelay, c.retrier.observer
		background, retry := c.kind()
		if background {
			w.class = backgroundClass
		}
		if retry {
			w.class-- // to the retries of its kind
		}
	}
	if t, ok := ctx.Deadline(); ok {
		w.deadline = clock.Deadline(t)
	}
	return w
}

// abandon takes w out of the line, and reports whether it still stood there.
func (r *room) abandon(w *waiter) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !w.queued {
		return false
	}
	first := r.head() == w
	now := r.advance(clock.Now())
	r.quit(now, w)
	if first {
		r.release(now)
	}
	return true
}

// advance returns the room's time for a reading of the clock.
func (r *room) advance(reading clock.Instant) clock.Instant { return r.timeline.Advance(reading) }

// reading is the inverse of advance: what the clock said at a time of the room.
func (r *room) reading(now clock.Instant) clock.Instant { return r.timeline.Reading(now) }

// sentAt is the room's time of a call that it let go at a reading, zero if that is.
func (r *room) sentAt(t clock.Instant) clock.Instant { return r.timeline.At(t) }

// push puts w at the end of its line.
func (r *room) push(w *waiter) {
	r.lines[w.class].push(w)
	r.waiting++
	r.count(w, 1)
	r.busy.Store(true)
	w.queued = true
}

// ahead is the cost of those who surely go before a newcomer of a class. Other work does
// not surely go before the background, which gets turns; nor that before other work, but for
// the one whose turn it is.
func (r *room) ahead(c class) (cost int64) {
	for k := range c + 1 {
		if k.background() == c.background() {
			cost += r.lines[k].cost
		}
	}
	if w := r.head(); w != nil && w.class.background() && !c.background() && r.skipped >= backgroundTurn-1 {
		cost += int64(w.n)
	}
	return cost
}

// refuses is why a call of cost n need not wait elsewhere before it enters.
func (r *room) refuses(ctx context.Context, n int) error {
	w := newWaiter(ctx, n) // asks the context, which may be anyone's code
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.refusal(r.advance(clock.Now()), w, r.ahead(w.class))
}

// refusal is why w need not wait at all, behind others of a cost in all.
func (r *room) refusal(now clock.Instant, w *waiter, ahead int64) error {
	err := r.refuse(now, w, ahead)
	for x := r.up; x != nil && err == nil; x = x.up {
		err = x.refuse(x.advance(r.reading(now)), w, 0) // who knows how many are ahead
	}
	return err
}

func (r *room) refuse(now clock.Instant, w *waiter, ahead int64) error {
	pause := r.leftAt(now)
	if pause > 0 && r.news != nil && r.news(now) == clock.Never {
		return nil // the pause may be over: the answer will tell
	}
	if pause > w.maxPause {
		reason := ErrServerDelay
		if r.usedUp.Sub(now) > w.maxPause {
			reason = ErrQuotaExhausted
		}
		return &Error{Reason: reason, RetryAfter: pause, Paused: pause}
	}
	if w.deadline == 0 {
		return nil
	}
	// A call that would go at the deadline races its context.
	if wait := r.least(now, w, ahead); wait >= w.deadline.Sub(r.reading(now)) {
		return &Error{Reason: ErrDeadline, RetryAfter: wait, Paused: pause, Ahead: int(min(ahead, math.MaxInt))}
	}
	return nil
}

// least is how long w must wait at least, behind others of a cost in all.
func (r *room) least(now clock.Instant, w *waiter, ahead int64) time.Duration {
	pause := r.leftAt(now)
	if wait := pause + r.policy.atLeast(now.Add(pause), ahead, w.n); wait >= 0 {
		return wait
	}
	return clock.Never // overflow
}

// head is who goes next; nil if nobody waits.
func (r *room) head() *waiter {
	if r.waiting == 0 {
		return nil
	}
	var next *waiter
	for c := range classes {
		w := r.lines[c].head
		switch {
		case w == nil:
		case !c.background():
			if next == nil {
				next = w
			}
		case next == nil || !next.class.background() && r.skipped >= backgroundTurn-1:
			next = w
		}
	}
	return next
}

// leave takes w out of the line.
func (r *room) leave(w *waiter) {
	r.lines[w.class].remove(w)
	r.waiting--
	r.count(w, -1)
	r.busy.Store(r.waiting > 0)
	w.queued = false
}

// count counts w, unless it is a seat, here and in all rooms above.
func (r *room) count(w *waiter, n int) {
	for x := r; x != nil && w.below == nil; x = x.up {
		x.calls += n
	}
}

// quit takes w out of the line without letting it go.
func (r *room) quit(now clock.Instant, w *waiter) {
	r.leave(w)
	r.deserted(now)
}

// deserted must follow when a call that was told to wait will not go: a pacer may have to
// know that nobody waits any more.
func (r *room) deserted(now clock.Instant) {
	if r.waiting == 0 {
		r.policy.deserted(now)
	}
}

// letGo lets w go, which is the head of the line.
func (r *room) letGo(now clock.Instant, w *waiter) {
	r.leave(w)
	switch {
	case w.class.background():
		r.skipped = 0
	case r.lines[backgroundRetryClass].head != nil || r.lines[backgroundClass].head != nil:
		r.skipped++
	}
	if w.below != nil {
		w.below.passBelow(r.reading(now))
		return
	}
	w.sent = r.reading(now)
	close(w.done)
}

// release lets go whoever may go, and sets the timer for the next. It must
// follow every change of the line, of the pause and of the pacer.
func (r *room) release(now clock.Instant) {
	if r.up != nil {
		if r.stand(now) {
			r.up.release(r.up.advance(r.reading(now)))
		}
		return
	}
	for w := r.head(); w != nil; w = r.head() {
		if w.below != nil && !w.below.open(r.reading(now)) {
			continue
		}
		if wait := r.pass(now, w.n); wait > 0 {
			r.arm(now, wait)
			return
		}
		r.letGo(now, w)
	}
	r.behind = 0
	r.disarm()
}

func (r *room) disarm() {
	if r.timer != nil {
		r.timer.Stop()
		r.timer = nil
	}
}

func (r *room) pass(now clock.Instant, n int) time.Duration {
	if pause := r.held(now); pause > 0 {
		return pause
	}
	if r.late(now) {
		return r.makeUp(now, n, r.policy.pass)
	}
	return r.policy.pass(now, n)
}

// held is how long the pause lasts, or until news is to be asked again if that is sooner.
func (r *room) held(now clock.Instant) time.Duration {
	pause := r.leftAt(now)
	if pause > 0 && r.news != nil {
		pause = min(pause, r.news(now))
	}
	return pause
}

// late reports whether there is a late timer to make up for. Whoever was held up by a room
// above for longer than timers are late was not held up by a timer.
func (r *room) late(now clock.Instant) bool {
	return r.behind != 0 && now.Sub(r.behind) <= r.catchUp
}

// makeUp asks the pacer, by pass or peek, as if the timer had not been late: at the time
// at which it should have gone off, then whenever the pacer says that a turn is due, up to
// now.
func (r *room) makeUp(now clock.Instant, n int, ask func(clock.Instant, int) time.Duration) time.Duration {
	for {
		wait := ask(r.behind, n)
		if late := now.Sub(r.behind); wait == 0 || wait > late {
			return max(0, wait-late)
		}
		r.behind = r.behind.Add(wait)
	}
}

func (r *room) arm(now clock.Instant, wait time.Duration) {
	if wait != clock.Never {
		wait = min(wait, clock.Year) // advance would take a step of many for another clock
	}
	r.behind, r.fires = 0, now.Add(wait)
	switch {
	case r.timer == nil && wait == clock.Never:
	case r.timer == nil:
		r.timer = time.AfterFunc(wait, r.tick)
	case wait == clock.Never:
		r.timer.Stop()
	default:
		r.timer.Reset(wait)
	}
}

// tick is the timer's.
func (r *room) tick() {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.advance(clock.Now())
	if r.catchUp > 0 && now > r.fires {
		r.behind = max(r.fires, now-clock.Instant(r.catchUp))
	}
	r.release(now)
}

// pause lets nobody go before until. It reports whether that is later than
// before: pauses are only ever extended.
func (r *room) pause(now, until clock.Instant) bool {
	until = min(until, now.Add(clock.Farthest))
	if until <= max(now, r.resume) {
		return false
	}
	r.resume = until
	r.policy.hold(now, until)
	return true
}

// pauseBy is pause for what an attempt taught.
func (r *room) pauseBy(now clock.Instant, e ending, d time.Duration) bool {
	if e.outcome == OutcomeQuotaExhausted {
		r.usedUp = max(r.usedUp, now.Add(e.retryAfter))
	}
	return r.pause(now, now.Add(d))
}

// lift ends the pause.
func (r *room) lift(now clock.Instant) {
	r.resume, r.usedUp = now, 0
	r.policy.hold(now, now)
}

// rehold keeps a pause in force across a change of the pacer's rate.
func (r *room) rehold(now clock.Instant) {
	if now < r.resume {
		r.policy.hold(now, r.resume)
	}
}

// leftAt is what is left of the pause at a time, 0 if there is none.
func (r *room) leftAt(now clock.Instant) time.Duration { return max(0, r.resume.Sub(now)) }

func (r *room) pauseLeft() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.leftAt(r.advance(clock.Now()))
}

// counts reports whether calls that went keep later ones waiting for longer: a limiter
// that is made anew would let those go.
func (r *room) counts() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.policy.counts(r.advance(clock.Now()))
}

// pauseFor is Pause of the limiters. It reports whether the pause is new or
// extends another.
func (r *room) pauseFor(d time.Duration) bool {
	if r.policy == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.advance(clock.Now())
	if !r.pause(now, now.Add(d)) {
		return false
	}
	r.changed(now)
	return true
}

// resumeNow is Resume of the limiters. It returns what was left of the pause, 0 if there
// was none.
func (r *room) resumeNow() (left time.Duration) {
	if r.policy == nil {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.advance(clock.Now())
	left = r.leftAt(now)
	if left > 0 {
		r.lift(now)
		r.release(now)
	}
	return left
}

// changed must follow a change for the slower, once the state is whole again:
// whoever cannot make their deadline any more, or will not wait that long, is
// told so now; or if a room below holds them up, as soon as that lets them go.
func (r *room) changed(now clock.Instant) {
	r.sweep(now)
	r.release(now)
}

// sweep refuses all in line, and in the rooms below whose seats stand there, who need not
// wait any longer.
func (r *room) sweep(now clock.Instant) {
	ahead := int64(0)
	for c := range r.lines {
		if class(c) == backgroundRetryClass {
			ahead = 0
		}
		var next *waiter
		for w := r.lines[c].head; w != nil; w = next {
			next = w.next
			if w.below != nil {
				now := w.below.advance(r.reading(now))
				w.below.sweep(now)
				w.below.stand(now)
				if !w.queued || w.class != class(c) {
					continue // the seat is gone, or in another line
				}
			} else if w.err = r.refusal(now, w, ahead); w.err != nil {
				r.quit(now, w)
				close(w.done)
				continue
			}
			ahead += int64(w.n)
		}
	}
}
