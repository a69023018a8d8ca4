package debug

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/a7df5faa/cruise"
)

// A Report is the content of a [Page], in the form of its JSON. Fields may be added; existing
// fields keep their names and units.
type Report struct {
	At   time.Time `json:"at"`
	APIs []API     `json:"apis"`
}

// API describes the calls that one [Watch] has observed.
type API struct {
	Name     string            `json:"name"`
	State    State             `json:"state"`
	Summary  string            `json:"summary"`         // the state in a sentence
	Next     string            `json:"next"`            // the forecast, in a sentence
	Since    *time.Time        `json:"throttled_since"` // first throttle of the present series; null if none in the last minute
	Last     *time.Time        `json:"last_throttle"`   // null if there was none
	Rate     float64           `json:"rate"`            // attempts per second, over the last 10 s
	Attempts uint64            `json:"attempts"`
	Throttle uint64            `json:"throttles"` // attempts that the server throttled
	Outcomes map[string]uint64 `json:"outcomes"`  // attempts by outcome
	Retries  uint64            `json:"retries"`
	GaveUp   uint64            `json:"gave_up"` // calls
	Waiting  int               `json:"waiting"` // calls, in all limiters
	Pause    float64           `json:"pause"`   // seconds left of the longest pause in force
	Budget   *float64          `json:"budget"`  // retries left, the least of all Retriers and scopes; null without a budget
	Limiters []Limiter         `json:"limiters"`
	Unshown  int               `json:"unshown"` // limiters beyond WithMaxScopes
	History  []Point           `json:"history"` // the last five minutes, every two seconds while there were calls
	Errors   []Note            `json:"errors"`  // the latest first
	Changes  []Note            `json:"changes"` // of rate and pause; the latest first

	retriers      int
	found, paused int // limiters
}

// State describes an API in one word.
type State string

// The states, from bad to good. An API with several limiters has the state of the worst.
const (
	StatePaused    State = "paused"    // no call goes until the pause ends
	StateThrottled State = "throttled" // there was a throttle in the last minute
	StateWaiting   State = "waiting"   // calls wait for the limit
	StateIdle      State = "idle"      // no attempt in the last 10 s
	StateFlowing   State = "flowing"   // none of these
)

// Limiter describes the present state of a limiter.
type Limiter struct {
	Name      string    `json:"name"`  // of the scope, with keys in the form of WithKeys; "all calls" for a Retrier's own limiter
	State     State     `json:"state"` // empty if it would be idle but the limiter does not count
	Limit     *float64  `json:"limit"` // calls per second; null if there is none
	Rate      float64   `json:"rate"`  // attempts per second, over the last 10 s; 0 if the limiter does not count
	Waiting   int       `json:"waiting"`
	Pause     float64   `json:"pause"` // seconds left
	Admitted  uint64    `json:"admitted"`
	Throttles uint64    `json:"throttles"`
	Degraded  bool      `json:"degraded"` // shared with other machines, and the store cannot be reached
	Learns    bool      `json:"learns"`   // its rate adapts to the server
	Quota     *QuotaNow `json:"quota,omitempty"`

	unlimited bool // calls per second are not limited; if false, a null Limit means a limiter without a rate
	past      []Point
}

// closed reports whether the limiter lets no call go: see shared.FallbackClosed.
func (l Limiter) closed() bool { return l.Degraded && l.Limit == nil && !l.unlimited }

// QuotaNow is the last [cruise.Quota] that a server reported.
type QuotaNow struct {
	Limit     int     `json:"limit"` // 0 if not reported
	Remaining int     `json:"remaining"`
	Reset     float64 `json:"reset"` // seconds, when it was reported; 0 if not reported
}

// Point is one moment of the past.
type Point struct {
	At        time.Time `json:"at"`
	Rate      float64   `json:"rate"`      // attempts per second, over the 10 s before
	Throttles uint64    `json:"throttles"` // since the point before
	Limit     float64   `json:"limit"`     // calls per second; 0 if there is none, or several limiters
	Pause     float64   `json:"pause"`     // seconds left
}

// Note is an event, or several of the same kind.
type Note struct {
	First time.Time `json:"first"`
	Last  time.Time `json:"last"`
	What  string    `json:"what"`
	Text  string    `json:"text"` // of the first
	Times int       `json:"times"`
}

// Report returns the present content of the page.
func (p *Page) Report() Report {
	now := time.Now()
	p.mu.Lock()
	watches := slices.Clone(p.watches)
	p.mu.Unlock()
	r := Report{At: now, APIs: []API{}}
	for _, w := range watches {
		w.look(now, w.isDue(now))
		r.APIs = append(r.APIs, w.report(now))
	}
	return r
}

func (w *Watch) report(now time.Time) API {
	budget, retriers := w.budget()
	w.mu.Lock()
	limiters := slices.Clone(w.limiters)
	a := API{
		Name: w.name, Waiting: w.waiting, Pause: w.pause.Seconds(), Unshown: w.unshown, Budget: budget, retriers: retriers, found: w.found, paused: w.paused,
		Limiters: make([]Limiter, 0, len(limiters)),
		Errors:   w.errors.latest(), Changes: w.changes.latest(),
		History: points(w.past.upto(w.point(now))),
	}
	for _, l := range limiters {
		// The lock guards past and id. Keys are shown after it is released, since that runs code of
		// users.
		a.Limiters = append(a.Limiters, Limiter{past: points(l.past.upto(l.point(now)))})
	}
	first, last := w.first, w.last
	w.mu.Unlock()

	a.Attempts, a.Throttle = w.attempts.Load(), w.throttles.Load()
	a.Retries, a.GaveUp = w.retries.Load(), w.gaveUp.Load()
	a.Outcomes = map[string]uint64{}
	for o := range w.outcomes {
		if n := w.outcomes[o].Load(); n > 0 {
			a.Outcomes[cruise.Outcome(o).String()] = n
		}
	}
	if !last.IsZero() {
		a.Last = &last
		if now.Sub(last) <= quiet {
			a.Since = &first
		}
	}
	a.Rate = rateNow(a.History)
	for i, l := range limiters {
		a.Limiters[i] = w.limiterNow(a.Limiters[i], l, now)
	}
	a.judge(now)
	return a
}

// budget returns the retries left in the emptiest budget, including the budgets of scopes, and the
// number of Retriers.
func (w *Watch) budget() (least *float64, retriers int) {
	for _, r := range w.added() {
		retriers++
		b := r.Budget()
		if b == nil {
			continue
		}
		left := b.Left()
		for s := range r.Scopes() {
			left = min(left, s.BudgetLeft)
		}
		if least == nil || left < *least {
			least = &left
		}
	}
	return least, retriers
}

func (w *Watch) limiterNow(r Limiter, l *limiter, now time.Time) Limiter {
	s := l.stats
	r.Name = w.page.label(s.Path)
	r.Waiting, r.Pause, r.Admitted, r.Throttles = s.Waiting, s.PauseLeft.Seconds(), s.Admitted, s.Throttles
	r.Degraded, r.Learns, r.unlimited = s.Degraded, s.Learns, s.Limit == rate.Inf
	if limit := finite(s.Limit); limit > 0 {
		r.Limit = &limit
	}
	if q := s.Quota; q != nil {
		r.Quota = &QuotaNow{q.Limit, q.Remaining, q.Reset.Seconds()}
	}
	r.Rate = rateNow(r.past)
	throttled := false
	for _, p := range r.past {
		throttled = throttled || p.Throttles > 0 && now.Sub(p.At) <= quiet
	}
	r.State = stateOf(r.Pause, throttled, r.Waiting, r.Rate)
	if r.State == StateIdle && !r.Learns {
		r.State = "" // only limiters that learn count their attempts
	}
	return r
}

func stateOf(pause float64, throttled bool, waiting int, rate float64) State {
	switch {
	case pause > 0:
		return StatePaused
	case throttled:
		return StateThrottled
	case waiting > 0:
		return StateWaiting
	case rate == 0:
		return StateIdle
	}
	return StateFlowing
}

// label returns the name of a limiter.
func (p *Page) label(path []cruise.ScopeKey) string {
	if len(path) == 0 {
		return "all calls"
	}
	parts := make([]string, len(path))
	for i, k := range path {
		parts[i] = k.Scope + " " + p.keys(k.Scope, k.Key)
	}
	return strings.Join(parts, " / ")
}

// judge sets the state, the summary and the forecast from the numbers.
func (a *API) judge(now time.Time) {
	a.State = stateOf(a.Pause, a.Since != nil, a.Waiting, a.Rate)
	wait := ""
	if a.Waiting > 0 {
		wait = " " + count(a.Waiting, "call waits", "calls wait") + "."
	}
	lately := a.lately()
	switch a.State {
	case StatePaused:
		where := ""
		if a.paused < a.found {
			where = fmt.Sprintf(", in %d of %d limiters", a.paused, a.found)
		}
		a.Summary = fmt.Sprintf("Paused for %s more%s, as the API asked or was throttling.%s", seconds(a.Pause), where, wait)
	case StateThrottled:
		a.Summary = fmt.Sprintf("Throttled by the API: %s, the last %s ago.%s", lately, ago(now.Sub(*a.Last)), wait)
	case StateWaiting:
		a.Summary = fmt.Sprintf("Held back by the limit, not by throttles now.%s", wait)
	case StateIdle:
		a.Summary = "Idle: no attempt in the last 10 seconds."
	default:
		a.Summary = "Flowing: no throttle in the last minute, and nobody waits."
	}
	switch {
	case slices.ContainsFunc(a.Limiters, Limiter.closed):
		a.Summary += " The store of a shared limit cannot be reached: until it can, nobody goes."
	case slices.ContainsFunc(a.Limiters, func(l Limiter) bool { return l.Degraded }):
		a.Summary += " The store of a shared limit cannot be reached: this process goes on alone."
	}
	if slices.ContainsFunc(a.Errors, func(e Note) bool { return e.What == gaveUp && now.Sub(e.Last) <= recent }) {
		a.Summary += " Calls are given up: see the last errors."
	}
	a.Next = a.next()
}

// lately returns the share of attempts that were throttled in the history.
func (a *API) lately() string {
	throttles := uint64(0)
	for _, p := range a.History {
		throttles += p.Throttles
	}
	return count(int(throttles), "throttle", "throttles") + " in the last 5 minutes"
}

// next returns the forecast for the worst of the limiters.
func (a *API) next() string {
	if len(a.Limiters) == 0 {
		if a.retriers == 0 {
			return "No Retrier was added to this watch, so there is no limiter to tell of."
		}
		if a.State == StateIdle { // as an HTTP client is before its first request
			return "There is no limiter now: that of a scope, such as a host, comes with its next call."
		}
		return "No limiter paces these calls: each one backs off by itself."
	}
	l := a.Limiters[0]
	who := ""
	if len(a.Limiters) > 1 {
		who = " (" + l.Name + ")"
	}
	switch {
	case l.closed():
		return "Lets no call through until its store can be reached" + who + "."
	case l.Pause > 0 && l.Limit != nil:
		return fmt.Sprintf("Calls again in %s, at %s%s.", seconds(l.Pause), perSecond(rate.Limit(*l.Limit)), who)
	case l.Pause > 0 && l.Learns:
		return fmt.Sprintf("Calls again in %s, a few at a time%s.", seconds(l.Pause), who)
	case l.Pause > 0:
		return fmt.Sprintf("Calls again in %s%s.", seconds(l.Pause), who)
	case l.Degraded && l.unlimited:
		return "Goes on without a limit until its store can be reached" + who + "."
	case l.Limit == nil && l.Learns:
		return "Speeds up gently until the API says stop" + who + "."
	case l.unlimited:
		return "Lets all calls through at once" + who + "."
	case l.Limit == nil:
		return "Keeps to a window or a delay of its own" + who + "."
	}
	limit, more := perSecond(rate.Limit(*l.Limit)), ""
	if l.Waiting > 0 {
		if l.Learns {
			more = "; the rate grows with successes"
		}
		return fmt.Sprintf("The calls that wait now are through in about %s at %s%s%s.", seconds(max(1, float64(l.Waiting)/(*l.Limit))), limit, more, who)
	}
	if l.Learns {
		more = ", and looks for more when calls have to wait"
	}
	return fmt.Sprintf("Lets up to %s through%s%s.", limit, more, who)
}

// points turns counters into rates.
func points(list []point) []Point {
	out := make([]Point, 0, len(list))
	from := 0
	for i, p := range list {
		x := Point{At: time.Unix(0, p.at), Limit: p.limit, Pause: p.pause.Seconds()}
		if i > 0 {
			x.Throttles = p.throttles - min(p.throttles, list[i-1].throttles)
			for p.at-list[from].at > int64(recent) && from < i-1 {
				from++
			}
			if dt := time.Duration(p.at - list[from].at).Seconds(); dt > 0 && p.attempts >= list[from].attempts {
				x.Rate = float64(p.attempts-list[from].attempts) / dt
			}
			if p.at-list[i-1].at > int64(recent) { // no sample was taken: one rate for all of the time
				out = append(out, Point{At: time.Unix(0, list[i-1].at+1), Rate: x.Rate, Limit: p.limit, Pause: list[i-1].pause.Seconds()})
			}
		}
		out = append(out, x)
	}
	return out
}

// rateNow returns the rate at the last point, which is now.
func rateNow(past []Point) float64 { return past[len(past)-1].Rate }

func (n *notes) latest() []Note {
	list := make([]Note, 0, len(n.list))
	for _, x := range slices.Backward(n.list) {
		list = append(list, Note{x.at, x.last, x.what, x.text, x.times})
	}
	slices.SortStableFunc(list, func(a, b Note) int { return -cmp.Compare(a.Last.UnixNano(), b.Last.UnixNano()) })
	return list
}

// Texts for people.

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

func seconds(s float64) string { return duration(time.Duration(s * float64(time.Second))) }

// duration returns d as text, rounded up to the units that matter.
func duration(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", int64(math.Ceil(float64(d)/float64(time.Millisecond))))
	case d < time.Minute:
		return fmt.Sprintf("%d s", int64(math.Ceil(d.Seconds())))
	case d < time.Hour:
		return fmt.Sprintf("%d min %d s", int64(d.Minutes()), int64(d.Seconds())%60)
	}
	return fmt.Sprintf("%d h %d min", int64(d.Hours()), int64(d.Minutes())%60)
}

// ago returns the age of an event as text, rounded down.
func ago(d time.Duration) string {
	if d < time.Second {
		return "less than 1 s"
	}
	return duration(d.Truncate(time.Second))
}

func perSecond(l rate.Limit) string {
	switch {
	case l == rate.Inf:
		return "no limit"
	case l >= 100:
		return fmt.Sprintf("%.0f/s", float64(l))
	case l >= 10:
		return fmt.Sprintf("%.1f/s", float64(l))
	case l >= 1:
		return fmt.Sprintf("%.2f/s", float64(l))
	case l >= 1./60:
		return fmt.Sprintf("%.1f/min", float64(l)*60)
	}
	return fmt.Sprintf("%.1f/h", float64(l)*3600)
}
