package pacer

import (
	"math"
	"sort"
	"time"

	"github.com/a7df5faa/cruise/internal/clock"
)

// ExactCalls is the highest Calls of a [Window] that is kept exactly.
const ExactCalls = 10_000

// herdOver is the longest time over which calls are spread after a pause.
const herdOver = time.Minute

// A Window limits calls to Calls in any time of length Per.
type Window struct {
	Calls int
	Per   time.Duration
}

// Windows keeps to several windows at once.
type Windows struct {
	all     []window // the shortest first
	maxCost int      // the smallest Calls

	// After a pause calls are spread:
	spreading   bool
	pausedUntil clock.Instant
	passed      int // calls since the pause
}

// NewWindows returns empty windows. There must be at least one.
func NewWindows(windows []Window) Windows {
	s := Windows{maxCost: math.MaxInt32}
	for _, w := range windows {
		x := window{n: w.Calls, per: w.Per}
		if w.Calls > ExactCalls {
			x.grain = (w.Per + ExactCalls - 1) / ExactCalls
		}
		s.all = append(s.all, x)
		s.maxCost = min(s.maxCost, w.Calls)
	}
	sort.Slice(s.all, func(i, j int) bool { return s.all[i].per < s.all[j].per })
	return s
}

// Set changes the windows. Calls that went count in the new ones as far as the old ones
// remember them: for the length of the longest.
func (s *Windows) Set(now clock.Instant, windows []Window) {
	was := s.all
	is := NewWindows(windows)
	s.all, s.maxCost = is.all, is.maxCost
	for i := range s.all {
		w := &s.all[i]
		// Copy the shortest window that is long enough, the most exact one, else the longest, which
		// knows most.
		from := &was[min(sort.Search(len(was), func(i int) bool { return was[i].per >= w.per }), len(was)-1)]
		before := from.expired
		for _, e := range from.calls {
			w.add(e.at, int(e.total-before))
			before = e.total
		}
		w.expire(now)
	}
}

// Charge counts n more calls now, whether there is room for them or not. If n is below 0, it
// takes calls out that went at sent, or before.
func (s *Windows) Charge(now, sent clock.Instant, n int) {
	for i := range s.all {
		w := &s.all[i]
		w.expire(now)
		if n > 0 {
			w.add(now, n)
		} else if now.Sub(sent) < w.per {
			w.remove(sent, -n)
		}
	}
	if s.spreading {
		s.passed = max(0, s.passed+n)
	}
}

// MaxCost returns the smallest Calls: a call that costs more never goes.
func (s *Windows) MaxCost() int { return s.maxCost }

// Take counts a call of cost n.
func (s *Windows) Take(now clock.Instant, n int) {
	for i := range s.all {
		s.all[i].add(now, n)
	}
	if s.spreading {
		s.passed += n
	}
}

// Peek returns how long a call of cost n must wait.
func (s *Windows) Peek(now clock.Instant, n int) time.Duration {
	for i := range s.all {
		s.all[i].expire(now)
	}
	if s.spreading && now.Sub(s.pausedUntil) >= s.spreadOver() {
		s.spreading = false
	}
	return s.AtLeast(now, 0, n)
}

// spreadOver returns the time over which calls are spread after a pause.
func (s *Windows) spreadOver() time.Duration { return min(s.all[0].per, herdOver) }

// AtLeast returns a lower bound of the wait of a call of cost n behind others of a total cost.
// It changes nothing, as now may lie in the future: at the end of a pause that may be lifted
// before.
func (s *Windows) AtLeast(now clock.Instant, ahead int64, n int) time.Duration {
	var wait time.Duration
	for _, w := range s.all { // copies
		w.expire(now)
		wait = max(wait, w.wait(now, ahead+int64(n)))
	}
	if s.spreading {
		spread := s.spreadOver()
		if first, before := s.all[0].n, int64(s.passed)+ahead; before < int64(first) {
			spread = min(spread, clock.CeilSeconds(spread.Seconds()*float64(before)/float64(first)))
		}
		wait = max(wait, spread-now.Sub(s.pausedUntil))
	}
	return wait
}

// Counts reports whether a window holds calls: new windows would let more calls go.
func (s *Windows) Counts(now clock.Instant) bool {
	for i := range s.all {
		s.all[i].expire(now)
		if len(s.all[i].calls) > 0 {
			return true
		}
	}
	return false
}

// Free returns the highest cost of a call that all windows have room for. Pauses make no
// difference.
func (s *Windows) Free(now clock.Instant) int {
	free := s.maxCost
	for i := range s.all {
		w := &s.all[i]
		w.expire(now)
		free = min(free, w.n-w.used())
	}
	return max(0, free)
}

// Pause sets the end of the pause, after which calls are spread over the shortest window, or
// over a minute if that is shorter.
func (s *Windows) Pause(_, until clock.Instant) {
	s.spreading, s.pausedUntil, s.passed = true, until, 0
}

// Abandoned does nothing: windows keep nothing for a call that waits.
func (*Windows) Abandoned(clock.Instant) {}

// A window holds the calls of one Window that are within its length, oldest first.
type window struct {
	n     int
	per   time.Duration
	grain time.Duration // calls this close share an entry; 0: only calls of one moment do

	calls   []entry
	expired int64         // how many left the window
	began   clock.Instant // the first call of the newest entry
}

// An entry stands for calls that count as gone at one moment.
type entry struct {
	at    clock.Instant
	total int64 // calls ever, up to these
}

// total returns the number of calls ever.
func (w *window) total() int64 {
	if len(w.calls) == 0 {
		return w.expired
	}
	return w.calls[len(w.calls)-1].total
}

// used returns the number of calls in the window.
func (w *window) used() int { return int(w.total() - w.expired) }

// expire drops the entries that left the window. Between two calls these are few; for a
// waiter at a pause they may be all. So the search doubles its steps until it finds an entry
// that stays, and then bisects the last step.
func (w *window) expire(at clock.Instant) {
	stays := func(i int) bool { return at.Sub(w.calls[i].at) < w.per }
	n := 1
	for n <= len(w.calls) && !stays(n-1) {
		n *= 2
	}
	if n = sort.Search(min(n-1, len(w.calls)), stays); n == 0 {
		return
	}
	w.expired, w.calls = w.calls[n-1].total, w.calls[n:]
}

// add counts n calls.
func (w *window) add(at clock.Instant, n int) {
	total := w.total() + int64(n)
	if last := len(w.calls) - 1; last >= 0 {
		if e := &w.calls[last]; at == e.at || at.Sub(w.began) < w.grain {
			e.at, e.total = at, total
			return
		}
	}
	w.calls = append(w.calls, entry{at, total})
	w.began = at
}

// remove takes out n calls that went at a time, and earlier calls if there are fewer than n. So no
// call that stays leaves the window too soon.
func (w *window) remove(sent clock.Instant, n int) {
	i := min(sort.Search(len(w.calls), func(i int) bool { return w.calls[i].at >= sent }), len(w.calls)-1)
	for ; i >= 0 && n > 0; i-- {
		before := w.expired
		if i > 0 {
			before = w.calls[i-1].total
		}
		k := min(int64(n), w.calls[i].total-before)
		for j := i; j < len(w.calls); j++ {
			w.calls[j].total -= k
		}
		n -= int(k)
	}
}

// wait returns the least time until n more calls have gone. It is exact if they may all go at
// once. Call m waits for call m-Calls, which may itself be still to come. A window whose Calls was lowered
// may hold more calls.
func (w *window) wait(at clock.Instant, n int64) time.Duration {
	rounds := (n-1)/int64(w.n) + 1
	m := int64(w.used()) + n - rounds*int64(w.n) // the number of the call that has gone
	from := at
	if m > 0 {
		i := sort.Search(len(w.calls), func(i int) bool { return w.calls[i].total-w.expired >= m })
		from = w.calls[i].at
	} else {
		rounds-- // the first of them need not wait
	}
	if rounds > int64(clock.Never/w.per) {
		return clock.Never
	}
	return time.Duration(rounds)*w.per - at.Sub(from) // less than per
}
