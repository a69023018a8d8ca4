package cruise

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/a7df5faa/cruise/internal/clock"
)

// Rooms form a tree: a call that enters a room passes it and all those above it,
// and takes what they count in all of them at one moment or in none. So whoever
// is held up by one room holds nothing of another.
//
// The head of a room's line, once only the rooms above can hold it, has a seat
// in the line of the room above; whoever is paused below does not stand there.
// As one room has one seat, rooms take turns above, however many wait in each.
//
// A tree has one lock, that of its root, so there is no order to take locks in.
// Each room has its own time, so what goes from one to another is a reading of
// the clock.

// listenAbove is how often the pacer of a room that has news is asked, so that it asks for
// them, while the rooms above hold up the head of the line: somebody elsewhere may have paused.
const listenAbove = 5 * time.Second

// branch is what a room has to do with the one above.
type branch struct {
	up      *room
	seat    waiter      // in the line of up, queued or not
	adopted atomic.Bool // once and for all
}

// A treeLock is the lock of a room, or that of the tree that the room is in. A room
// may be adopted while somebody looks at it, so whoever has got a lock asks whether
// it is still the one.
type treeLock struct {
	own sync.Mutex
	of  atomic.Pointer[sync.Mutex]
}

func (l *treeLock) Lock() {
	for {
		m := l.root()
		m.Lock()
		if m == l.root() {
			return
		}
		m.Unlock()
	}
}

func (l *treeLock) Unlock() { l.root().Unlock() }

func (l *treeLock) root() *sync.Mutex {
	if m := l.of.Load(); m != nil {
		return m
	}
	return &l.own
}

// Where nobody waits, the lock is held for a tenth of a microsecond. So a call that
// finds it taken looks again some times, a microsecond apart, before it is parked. A
// sync.Mutex does so too, but parks at once where other goroutines are ready to run;
// eight of them got half as many calls through. Looks in quicker succession would
// let processors take the room's memory from each other at every call.
const (
	looks   = 4
	between = 3000 // turns of an empty loop
)

// lockPatiently is Lock for the way on which calls crowd.
func (l *treeLock) lockPatiently() {
	m := l.root()
	for range looks {
		if m.TryLock() {
			if m == l.root() {
				return
			}
			m.Unlock()
			break
		}
		for range between {
		}
	}
	l.Lock()
}

// adopting is held while a room gets its place: which lock it shares is settled only once
// it is settled where the one above stands.
var adopting sync.Mutex

// adopt makes a room stand below up, or at the root if that is nil, and reports
// whether it did: it does so only once.
func (r *room) adopt(up *room) bool {
	adopting.Lock()
	defer adopting.Unlock()
	if r == up || !r.adopted.CompareAndSwap(false, true) {
		return false
	}
	if up == nil {
		return true
	}
	up.adopted.Store(true) // those below share its lock for good
	up.mu.Lock()
	defer up.mu.Unlock()
	r.mu.own.Lock() // nobody else takes two
	defer r.mu.own.Unlock()
	r.up = up
	r.seat.below = r
	for x := up; x != nil; x = x.up {
		x.calls += r.calls
	}
	r.mu.of.Store(up.mu.root())
	return true
}

// teachAbove tells the limiters of the rooms above of an attempt of which nobody further out
// than the limiter of r was told, as by its Learn: what counts calls in flight there let it
// go too. A Retrier tells those of its own scopes by itself.
func (r *room) teachAbove(e ending) {
	for x := r.around(); x != nil; x = x.around() {
		if l, ok := x.policy.(gate); ok {
			l.learn(e.elsewhere())
		}
	}
}

// around is the room above, for those who do not hold the lock: once there is one it
// stays.
func (r *room) around() *room {
	if r.mu.of.Load() == nil {
		return nil
	}
	return r.up
}

// pausedUntil is when the last pause of r and of the rooms above ends, or has ended, in the time
// of r; zero if there was none.
func (r *room) pausedUntil() (until clock.Instant) {
	for x := r; x != nil; x = x.up {
		if x.resume != 0 {
			until = max(until, x.reading(x.resume)+r.timeline.Skew)
		}
	}
	return until
}

// peek is pass for a call that does not go yet.
func (r *room) peek(now clock.Instant, n int) time.Duration {
	if pause := r.held(now); pause > 0 {
		return pause
	}
	if r.late(now) {
		return r.makeUp(now, n, r.policy.peek)
	}
	return r.policy.peek(now, n)
}

// passAll lets a call go through r and all rooms above, where nobody waits, and
// reports whether it did, and when.
func (r *room) passAll(now clock.Instant, n int) (sent clock.Instant, ok bool) {
	reading := r.reading(now)
	for x := r; x != nil; x = x.up {
		if x.waiting > 0 || x.peek(x.advance(reading), n) > 0 {
			return sent, false
		}
	}
	for x := r; x != nil; x = x.up {
		x.pass(x.timeline.Last, n)
		sent = max(sent, x.reading(x.timeline.Last))
	}
	return sent, true
}

// stand gives the head of the line its seat above, or takes it away if r itself
// holds it up, and reports whether that changed anything above.
func (r *room) stand(now clock.Instant) (changed bool) {
	for w := r.head(); w != nil; w = r.head() {
		if w.below != nil && !w.below.open(r.reading(now)) {
			continue
		}
		if wait := r.peek(now, w.n); wait > 0 {
			r.arm(now, wait)
			return r.rise(nil)
		}
		if w.below == nil && !r.seat.queued {
			// What changed above while r held it up has not reached it yet.
			if w.err = r.refusal(now, w, 0); w.err != nil {
				r.quit(now, w)
				close(w.done)
				continue
			}
		}
		r.disarm()
		if r.news != nil {
			r.arm(now, listenAbove)
		}
		return r.rise(w)
	}
	r.behind = 0
	r.disarm()
	return r.rise(nil)
}

// rank is the class of the seat for w: its own, but that of first attempts for background
// work that has its turn while other work waits behind it. Else that would yield above too.
func (r *room) rank(w *waiter) class {
	if w.class.background() && (r.lines[retryClass].head != nil || r.lines[firstClass].head != nil) {
		return firstClass
	}
	return w.class
}

// rise makes the seat above that of w, nobody's if w is nil. Its place in line is the room's:
// it stays whatever w costs.
func (r *room) rise(w *waiter) (changed bool) {
	seat := &r.seat
	if seat.queued {
		if w != nil && seat.class == r.rank(w) {
			changed = seat.n != w.n
			r.up.lines[seat.class].cost += int64(w.n - seat.n)
			seat.n = w.n
			return changed
		}
		r.up.leave(seat)
		changed = true
	}
	if w == nil {
		if changed {
			r.up.deserted(r.up.advance(r.reading(r.timeline.Last)))
		}
		return changed
	}
	seat.n, seat.class = w.n, r.rank(w)
	r.up.push(seat)
	return true
}

// open reports whether r, whose seat is the head of the line above, holds it up
// no more. If it does, the seat is given up, so another one is the head.
func (r *room) open(reading clock.Instant) bool {
	r.stand(r.advance(reading))
	return r.up.head() == &r.seat
}

// passBelow lets the head of the line go, whose seat was just let go above.
func (r *room) passBelow(reading clock.Instant) {
	now := r.advance(reading)
	w := r.head()
	r.seat.queued = true // as it was until now: what the pacer keeps for it may go
	r.pass(now, w.n)
	r.seat.queued = false
	r.letGo(now, w)
	r.stand(now)
}
