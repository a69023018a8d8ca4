package debug

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/internal/observing"
)

// The length and the resolution of the history.
const (
	period  = 2 * time.Second
	history = 5 * time.Minute
	samples = int(history / period)
	recent  = 10 * time.Second // the present rate is taken over this time
	quiet   = time.Minute      // throttling is over after this time without a throttle
)

// The number of errors and changes that are kept.
const (
	maxErrors  = 10
	maxChanges = 10
)

// A Watch is the part of a [Page] for one API. It is the [cruise.Observer] of the Retriers that
// call the API.
//
// A Watch is safe for concurrent use and must not be copied. [Page.Watch] makes one.
type Watch struct {
	page *Page
	name string
	due  atomic.Int64 // when the next sample is, in nanoseconds of the wall clock

	attempts, retries, gaveUp, throttles atomic.Uint64
	outcomes                             [outcomes]atomic.Uint64

	mu       sync.Mutex // guards the fields below; no foreign code runs under it
	retriers []*cruise.Retrier
	first    time.Time // throttle since it was quiet
	last     time.Time // throttle
	past     ring      // of all attempts and throttles
	root     point     // limit and pause of the one limiter that all pass, if there is one
	limiters []*limiter
	looked   int64         // time of the last look that kept all limiters, in nanoseconds of the wall clock; 0 if some were left out
	unshown  int           // limiters that were left out
	found    int           // limiters in all
	paused   int           // paused, or held up by a paused one
	waiting  int           // calls, in all limiters
	pause    time.Duration // the longest of all limiters
	errors   notes
	changes  notes
}

// gaveUp begins the note of a call that was given up.
const gaveUp = "gave up"

const outcomes = int(cruise.OutcomeDropped) + 1

var _ cruise.Observer = (*Watch)(nil)

// Watch returns a new part of the page under a name, which should be the name of the API. Give the
// Watch to [cruise.WithObserver], and the Retrier to [Watch.Add].
func (p *Page) Watch(name string) *Watch {
	w := &Watch{page: p, name: name, errors: notes{most: maxErrors}, changes: notes{most: maxChanges}}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watches = append(p.watches, w)
	return w
}

// Remove takes a part off the page.
func (p *Page) Remove(w *Watch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watches = slices.DeleteFunc(p.watches, func(x *Watch) bool { return x == w })
}

// Add shows the limiters of a Retrier, its own and its scopes', and its budget. An adapter's
// Retrier comes from its method Retrier. A limiter that several Retriers share is shown once. A nil
// Retrier is ignored.
func (w *Watch) Add(r *cruise.Retrier) {
	if r == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.retriers = append(w.retriers, r)
	w.looked = 0
}

// Observe counts an event.
func (w *Watch) Observe(ctx context.Context, event cruise.Event) {
	now := time.Now()
	switch e := event.(type) {
	case cruise.AttemptStarted:
		w.attempts.Add(1)
	case cruise.AttemptEnded:
		if int(e.Outcome) < outcomes {
			w.outcomes[e.Outcome].Add(1)
		}
		if e.Err != nil {
			w.note(&w.errors, now, e.Outcome.String(), func() string { return w.page.text(e.Err) })
		}
		if e.Outcome == cruise.OutcomeThrottled {
			w.throttled(now)
		}
	case cruise.RetryScheduled:
		w.retries.Add(1)
	case cruise.GaveUp:
		w.gaveUp.Add(1)
		w.note(&w.errors, now, gaveUp, func() string { return w.page.text(e.Err) })
	case cruise.RateChanged:
		if e.Why == cruise.CauseSuccess {
			break // at nearly every call
		}
		what := "rate cut"
		switch {
		case e.Why == cruise.CauseSet:
			what = "rate set"
		case e.To > e.From:
			what = "rate raised"
		}
		w.note(&w.changes, now, w.about(ctx, what), func() string {
			return perSecond(e.From) + " → " + perSecond(e.To) + map[cruise.Cause]string{
				cruise.CauseQuota:   ", as the API reports its quota",
				cruise.CauseLatency: ", as calls queue at the API",
			}[e.Why]
		})
	case cruise.Paused:
		w.note(&w.changes, now, w.about(ctx, "paused"), func() string { return "for " + duration(e.For) })
	case cruise.Resumed:
		w.note(&w.changes, now, w.about(ctx, "resumed"), func() string { return duration(e.Left) + " early" })
	}
	if w.isDue(now) {
		w.look(now, true)
	}
}

// about returns the text of an event, with its scope.
func (w *Watch) about(ctx context.Context, what string) string {
	if path := cruise.ScopeOf(ctx); len(path) > 0 {
		return w.page.label(path) + " " + what
	}
	return what
}

// isDue reports whether it is time for another point. Only one caller gets true. A point is also
// due if the next one is too far away, because the clock was set back.
func (w *Watch) isDue(now time.Time) bool {
	due := w.due.Load()
	left := due - now.UnixNano()
	return (left <= 0 || left > int64(period)) && w.due.CompareAndSwap(due, now.Add(period).UnixNano())
}

func (w *Watch) throttled(now time.Time) {
	w.throttles.Add(1)
	w.mu.Lock()
	defer w.mu.Unlock()
	if now.Sub(w.last) > quiet {
		w.first = now
	}
	w.last = now
}

// A noted is an event that happened once or several times within a second.
type noted struct {
	at    time.Time // first
	last  time.Time
	what  string
	text  string
	times int
}

// notes are the last few things that happened, of each kind, the latest last.
type notes struct {
	most int
	list []noted
}

// note adds an event to the notes. Further events of a kind within a second are only counted, so
// that their text, which may take long to make, is made at most once a second for each kind.
func (w *Watch) note(n *notes, now time.Time, what string, text func() string) {
	if w.repeated(n, now, what) {
		return
	}
	s := text()
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, x := range n.list {
		if x.what == what && x.text == s {
			x.last, x.times = now, x.times+1
			n.list = append(slices.Delete(n.list, i, i+1), x)
			return
		}
	}
	if len(n.list) == n.most {
		i := n.least()
		n.list = slices.Delete(n.list, i, i+1)
	}
	n.list = append(n.list, noted{at: now, last: now, what: what, text: s, times: 1})
}

// least returns the index of the least useful note: the oldest of the kind with the most notes, so
// that no kind hides the others.
func (n *notes) least() (oldest int) {
	most := 0
	for i, x := range n.list {
		alike := 0
		for _, y := range n.list {
			if y.what == x.what {
				alike++
			}
		}
		if alike > most {
			most, oldest = alike, i
		}
	}
	return oldest
}

func (w *Watch) repeated(n *notes, now time.Time, what string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := len(n.list) - 1; i >= 0; i-- {
		if x := &n.list[i]; x.what == what {
			if now.Sub(x.last) >= time.Second {
				return false
			}
			x.times++
			return true
		}
	}
	return false
}

// A point is a sample of one moment. Counters count from the start.
type point struct {
	at        int64 // nanoseconds of the wall clock
	attempts  uint64
	throttles uint64
	limit     float64       // calls per second; 0 if unlimited or not known
	pause     time.Duration // left
}

// ring keeps the points of the last minutes.
type ring struct {
	points [samples]point
	size   int
	next   int
}

func (r *ring) add(p point) {
	r.points[r.next] = p
	r.next = (r.next + 1) % samples
	r.size = min(r.size+1, samples)
}

// upto returns the points that are young enough, the oldest first, followed by now.
func (r *ring) upto(now point) []point {
	var list []point
	for i := range r.size {
		if p := r.points[(r.next-r.size+i+samples)%samples]; p.at >= now.at-int64(history) && p.at < now.at {
			list = append(list, p)
		}
	}
	return append(list, now)
}

// A limiter is a limiter that the page shows.
type limiter struct {
	id    string
	stats cruise.Stats
	past  *ring
}

// look samples all limiters and keeps the most important ones. If keep is set, it adds a point to
// their history.
func (w *Watch) look(now time.Time, keep bool) {
	found, seen := map[string]bool{}, observing.Seen{}
	var order []*limiter
	var root *limiter // if there is exactly one
	roots, paused, waiting, pause := 0, 0, 0, time.Duration(0)
	for i, retrier := range w.added() {
		for s := range retrier.Scopes() {
			if seen.Before(s.Limiter, i) {
				continue
			}
			l := &limiter{id: id(i, s.Path), stats: s}
			if !found[l.id] {
				found[l.id] = true
				order = append(order, l)
				waiting, pause = waiting+s.Waiting, max(pause, s.PauseLeft)
				if s.PauseLeft > 0 {
					paused++
				}
			}
			if len(s.Path) == 0 {
				root, roots = l, roots+1
			}
		}
	}
	// Stable: the most recently used come first among equals.
	slices.SortStableFunc(order, func(a, b *limiter) int {
		return cmp.Or(
			-cmp.Compare(a.stats.PauseLeft, b.stats.PauseLeft), // as the summary names the longest pause
			-cmp.Compare(min(a.stats.Waiting, 1), min(b.stats.Waiting, 1)),
			-cmp.Compare(a.stats.Throttles, b.stats.Throttles))
	})
	shown := order[:min(len(order), w.page.maxScopes)]

	w.mu.Lock()
	defer w.mu.Unlock()
	old := map[string]*limiter{}
	for _, l := range w.limiters {
		old[l.id] = l
	}
	for _, l := range shown {
		if was := old[l.id]; was != nil {
			l.past = was.past
		} else {
			l.past = &ring{}
			if w.looked > 0 { // the limiter has begun since
				l.past.add(point{at: w.looked})
			}
		}
		if keep {
			l.past.add(l.point(now))
		}
	}
	w.limiters, w.unshown = shown, len(order)-len(shown)
	if w.looked = 0; w.unshown == 0 {
		w.looked = now.UnixNano()
	}
	w.waiting, w.pause = waiting, pause
	w.found, w.paused = len(order), paused
	w.root = point{}
	if roots == 1 {
		w.root = root.point(now)
		if w.root.pause > 0 {
			w.paused = w.found
		}
	}
	if keep {
		w.past.add(w.point(now))
	}
}

// point returns a sample of all attempts. The caller must hold mu.
func (w *Watch) point(now time.Time) point {
	return point{now.UnixNano(), w.attempts.Load(), w.throttles.Load(), w.root.limit, w.root.pause}
}

func (l *limiter) point(now time.Time) point {
	s := l.stats
	return point{now.UnixNano(), s.Admitted, s.Throttles, finite(s.Limit), s.PauseLeft}
}

func id(retrier int, path []cruise.ScopeKey) string {
	var b strings.Builder
	b.WriteString(strconv.Itoa(retrier))
	for _, k := range path {
		b.WriteString("\x00" + k.Scope + "\x01" + k.Key)
	}
	return b.String()
}

// added returns the Retriers to look at.
func (w *Watch) added() []*cruise.Retrier {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.retriers)
}

// finite returns a limit as a number, 0 if there is none or it is NaN.
func finite(l rate.Limit) float64 {
	if l == rate.Inf || math.IsNaN(float64(l)) {
		return 0
	}
	return float64(l)
}
