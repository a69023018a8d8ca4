package cruise

import (
	"context"
	"errors"
	"math"
	"sort"
	"time"

	"github.com/a7df5faa/cruise/internal/check"
	"github.com/a7df5faa/cruise/internal/clock"
)

// A Window is a limit of N calls in any time of length Per.
type Window struct {
	N   int           // calls, 1 to math.MaxInt32
	Per time.Duration // above 0, at most 100 years
}

// ExactCalls is the highest N of a [Window] that is kept exactly.
const ExactCalls = 10_000

// SlidingWindow is a limiter that lets at most N calls go in any window of a
// given length, wherever that window begins: it counts what went, and makes a
// call wait just long enough for the oldest to be out of the window. Of two
// calls exactly one length apart, only one is in a window. Several windows hold
// at once: 10 calls a second and 1,000 a day.
//
// A window of N up to [ExactCalls] is exact. For a larger one, calls that went
// within a ten thousandth of its length count as if all had gone with the last
// of them: still no window ever holds more than N, and a call may wait longer
// than it had to, by that ten thousandth at most. Memory grows with the calls that
// are in a window, to 256 KiB at most for each.
//
// It keeps to its windows whatever the server says, but pauses when the server
// throttles: for its Retry-After, longer where one of less than a second was not enough;
// else for 0.15 to 0.3 s, doubled with each throttle up to a minute and halved with every ten
// calls that are not throttled, but no longer than half of the time since the last throttle if
// calls got through since. After a pause, the calls of the shortest window are spread over it,
// or over a minute if it is longer, so that nobody goes as a herd.
//
// It counts what this process sends from now on: after a restart each window is empty, and
// another process has its own. A call waits for room without end, a day if need be, unless its
// context or [WithMaxElapsed] ends that.
//
// Prefer a [TokenBucket] where the server refills a bucket, and the
// [AdaptiveLimiter] where the limit is unknown or shared: a window that this
// process fills says nothing about the calls of others.
//
// A SlidingWindow is safe for concurrent use and must not be copied. The zero
// value admits nothing, with an error that says so.
type SlidingWindow struct {
	housing // whose lock guards the fields below too
	spans   spans
	brake   roomBrake
}

var _ Learner = (*SlidingWindow)(nil)

// NewSlidingWindow returns a limiter that keeps to every one of the windows. The
// error names each window that is out of bounds, or as long as another.
func NewSlidingWindow(windows ...Window) (*SlidingWindow, error) {
	if err := checkWindows(windows); err != nil {
		return nil, err
	}
	s := &SlidingWindow{spans: newSpans(windows), brake: roomBrake{brake: newBrake()}}
	s.room.pacer = &s.spans
	return s, nil
}

func checkWindows(windows []Window) error {
	var f check.Errors
	f.Check(len(windows) > 0, "no window: want one or more")
	seen := make(map[time.Duration]int)
	for i, w := range windows {
		f.Check(w.N >= 1 && w.N <= math.MaxInt32, "window %d: N %d: want 1 to %d", i+1, w.N, math.MaxInt32)
		f.Check(w.Per > 0 && w.Per <= clock.Farthest, "window %d: Per %v: want above 0, at most %v", i+1, w.Per, clock.Farthest)
		at := seen[w.Per]
		f.Check(at == 0, "windows %d and %d are both %v long: want one", at, i+1, w.Per)
		seen[w.Per] = i + 1
	}
	return errors.Join(f...)
}

// WaitN waits until a call of cost n may go, and counts it n times. n above the
// smallest N of the windows is refused at once with [ErrCost], a negative n with
// an error; n of 0 does not wait. It returns the context's error and cause if
// that ends first, and an [*Error] with [ErrDeadline] at once if the wait could
// not end in time.
func (s *SlidingWindow) WaitN(ctx context.Context, n int) error {
	_, _, err := s.admit(ctx, n)
	return err
}

// Learn pauses the window if the attempt was throttled, or if a quota is
// exhausted for a known time. A Feedback of Cost 0 or less is of an attempt that was
// never admitted, and is ignored.
func (s *SlidingWindow) Learn(f Feedback) {
	s.learn(f.ending())
	s.room.teachAbove(f.ending())
}

func (s *SlidingWindow) learn(e ending) { s.brake.stop(&s.room, e) }

// Pause lets nobody go for d, unless a longer pause is in force already. d of 0
// or less does nothing.
func (s *SlidingWindow) Pause(d time.Duration) { s.room.pauseFor(d) }

// Resume ends a pause. Those who waited go spread over the shortest window, a minute at
// most.
func (s *SlidingWindow) Resume() { s.room.resumeNow() }

// PauseLeft returns how long a pause still lasts, 0 unless there is one.
func (s *SlidingWindow) PauseLeft() time.Duration { return s.room.pauseLeft() }

// Waiting returns how many calls wait.
func (s *SlidingWindow) Waiting() int {
	s.room.mu.Lock()
	defer s.room.mu.Unlock()
	return s.room.waiting
}

// Free returns how many calls of cost 1 the windows would let go now, pauses
// apart.
func (s *SlidingWindow) Free() int {
	s.room.mu.Lock()
	defer s.room.mu.Unlock()
	now := s.room.advance(clock.Now())
	free := s.spans.most
	for i := range s.spans.all {
		w := &s.spans.all[i]
		w.expire(now)
		free = min(free, w.n-w.used())
	}
	return free
}

// spans is the pacer of several windows at once.
type spans struct {
	all  []span // the shortest first
	most int    // smallest N

	// After a pause:
	resuming bool
	resumed  clock.Instant
	since    int // calls since then
}

func newSpans(windows []Window) spans {
	s := spans{most: math.MaxInt32}
	for _, w := range windows {
		x := span{n: w.N, per: w.Per}
		if w.N > ExactCalls {
			x.grain = (w.Per + ExactCalls - 1) / ExactCalls
		}
		s.all = append(s.all, x)
		s.most = min(s.most, w.N)
	}
	sort.Slice(s.all, func(i, j int) bool { return s.all[i].per < s.all[j].per })
	return s
}

func (s *spans) pass(now clock.Instant, n int) time.Duration {
	if wait := s.peek(now, n); wait > 0 {
		return wait
	}
	for i := range s.all {
		s.all[i].add(now, n)
	}
	if s.resuming {
		s.since += n
	}
	return 0
}

// peek is pass for a call that does not go yet.
func (s *spans) peek(now clock.Instant, n int) time.Duration {
	for i := range s.all {
		s.all[i].expire(now)
	}
	if s.resuming && now.Sub(s.resumed) >= s.over() {
		s.resuming = false
	}
	return s.atLeast(now, 0, n)
}

// over is how long calls are spread after a pause.
func (s *spans) over() time.Duration { return min(s.all[0].per, herdOver) }

func (s *spans) atLeast(now clock.Instant, ahead int64, n int) time.Duration {
	var wait time.Duration
	for _, w := range s.all { // copies: a pause that ends by then may be lifted before
		w.expire(now)
		wait = max(wait, w.wait(now, ahead+int64(n)))
	}
	if s.resuming {
		spread := s.over()
		if first, before := s.all[0].n, int64(s.since)+ahead; before < int64(first) {
			spread = min(spread, clock.CeilSeconds(spread.Seconds()*float64(before)/float64(first)))
		}
		wait = max(wait, spread-now.Sub(s.resumed))
	}
	return wait
}

func (s *spans) maxCost() int { return s.most }

func (s *spans) counts(now clock.Instant) bool {
	for i := range s.all {
		s.all[i].expire(now)
		if s.all[i].size > 0 {
			return true
		}
	}
	return false
}

// herdOver is the longest time over which calls are spread after a pause.
const herdOver = time.Minute

// hold spreads what comes after a pause over the shortest window, or herdOver.
func (s *spans) hold(_, until clock.Instant) {
	s.resuming, s.resumed, s.since = true, until, 0
}

// span is one window: the calls that went within its length, oldest first.
type span struct {
	n     int
	per   time.Duration
	grain time.Duration // calls this close count as one entry; 0: only those of one moment

	ring  []entry // grows as needed
	head  int     // the oldest
	size  int
	gone  int64         // calls that left the window
	begun clock.Instant // first call of the newest entry
}

// entry is calls that count as gone at one moment.
type entry struct {
	at   clock.Instant
	upto int64 // calls ever, with these
}

// oldest returns the i-th oldest entry.
func (w *span) oldest(i int) *entry {
	i += w.head
	if i >= len(w.ring) {
		i -= len(w.ring)
	}
	return &w.ring[i]
}

// upto is the number of calls ever.
func (w *span) upto() int64 {
	if w.size == 0 {
		return w.gone
	}
	return w.oldest(w.size - 1).upto
}

// used is the number of calls in the window.
func (w *span) used() int { return int(w.upto() - w.gone) }

// expire forgets what left the window: of calls that follow each other little, but all of it
// for each who waits when a pause comes. So it looks for the oldest that stays in steps that
// double, and between the last two.
func (w *span) expire(at clock.Instant) {
	stays := func(i int) bool { return at.Sub(w.oldest(i).at) < w.per }
	n := 1
	for n <= w.size && !stays(n-1) {
		n *= 2
	}
	if n = sort.Search(min(n-1, w.size), stays); n == 0 {
		return
	}
	w.gone = w.oldest(n - 1).upto
	if w.head += n; w.head >= len(w.ring) {
		w.head -= len(w.ring)
	}
	w.size -= n
}

// add counts n calls.
func (w *span) add(at clock.Instant, n int) {
	upto := w.upto() + int64(n)
	if w.size > 0 {
		if e := w.oldest(w.size - 1); at == e.at || at.Sub(w.begun) < w.grain {
			e.at, e.upto = at, upto
			return
		}
	}
	if w.size == len(w.ring) {
		ring := make([]entry, max(4, 2*len(w.ring)))
		for i := range w.size {
			ring[i] = *w.oldest(i)
		}
		w.ring, w.head = ring, 0
	}
	w.size++
	*w.oldest(w.size - 1) = entry{at, upto}
	w.begun = at
}

// wait is the least time until n more calls have gone; it is exact if they may
// all go at once. Call m waits for the one n before it, which may be one that is
// still to come itself.
func (w *span) wait(at clock.Instant, n int64) time.Duration {
	m := int64(w.used()) + n
	rounds := (m - 1) / int64(w.n)
	if rounds == 0 {
		return 0
	}
	m -= rounds * int64(w.n)
	from := at
	if m <= int64(w.used()) {
		i := sort.Search(w.size, func(i int) bool { return w.oldest(i).upto-w.gone >= m })
		from = w.oldest(i).at
	}
	if rounds > int64(clock.Never/w.per) {
		return clock.Never
	}
	return time.Duration(rounds)*w.per - at.Sub(from) // less than per
}
