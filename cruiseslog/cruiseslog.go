// Package cruiseslog logs cruise's changes of state to log/slog: one readable line for each change,
// not one for each call.
//
//	api, err := cruise.New(cruise.WithObserver(cruiseslog.NewObserver(logger)))
//
// At warn: throttled, rate cut, paused, gave up, shared store unreachable. At info:
// rate recovered, no longer throttled, goes on after a pause, resumed by hand, rate raised,
// rate lowered, rate set, shared store back. At debug, for each call: attempts, retries, and why a call
// waits.
//
// Throttles, rates and pauses come from a [cruise.AdaptiveLimiter], the default, or a
// shared.Limiter. If you make the limiter yourself, give it the Observer too. Other limiters report
// nothing: behind them a throttle shows only at debug, in the end of an attempt.
//
// Repeated events that change nothing are counted, and reported by the attribute throttles or calls
// of a later line: throttles of one congestion, small extensions of a pause, steps of a growing
// rate, and calls of a scope given up for the same reason. A count that no line follows is lost: a
// call given up is counted in the logs only if another one follows. A change of state always has
// its line, except for the end of a short pause, which the line of its beginning has announced.
package cruiseslog

import (
	"context"
	"log/slog"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/internal/observing"
)

// Observer is a [cruise.Observer] that logs. Make one for each API, with a logger whose attributes
// name the API. It follows the state of the API's limiter and of the limiter of each scope, whose
// lines have the attribute limiter.
//
// An Observer is safe for concurrent use and must not be copied. [NewObserver] makes one.
type Observer struct {
	logger *slog.Logger
	every  time.Duration
	keys   func(scope, key string) string

	mu     sync.Mutex // guards the fields below; nothing is logged under it, and no other lock taken
	own    *track     // of the limiter that is in no scope
	scopes map[string]*track
}

// maxTracks is the highest number of scopes that are followed at once. Beyond it, scopes without
// trouble, or without a limiter any more, are forgotten, and all other new scopes are reported as
// one.
const maxTracks = 1000

// scopeIdle is the time after which a Retrier forgets the limiter of a scope, by default.
const scopeIdle = 30 * time.Minute

// A track holds the known state of a limiter.
type track struct {
	*Observer
	path []cruise.ScopeKey // of the limiter, empty if it is in no scope

	mu        sync.Mutex // guards the fields below; nothing is logged under it
	seen      time.Time  // when something last happened
	throttled bool       // since a throttle or a cut, until the rate has recovered
	cut       bool       // the rate was, since then
	blamed    bool       // the server throttled, since then; else its quota or slowness cut the rate
	throttles int        // not logged yet
	target    rate.Limit // at which the rate has recovered; 0 if that is not known
	told      rate.Limit // rate of the last line about it; 0 if there was none
	toldAt    time.Time
	pausedTo  time.Time
	pauseFor  time.Duration                       // length of the pause that ends at pausedTo
	pauseTold time.Duration                       // length of the pause in the last line about one
	pauseAt   time.Time                           // of that line
	pausedAt  time.Time                           // since when, zero once calls go again
	gaveUp    [len(observing.Reasons) + 1]givenUp // by reason, others last
	gaveUpAt  time.Time                           // of the last line about calls given up
}

// givenUp counts the calls given up for one reason.
type givenUp struct {
	at    time.Time // of the last line
	calls int       // since then
}

var _ cruise.Observer = (*Observer)(nil)

// An Option tunes an [Observer].
type Option func(*Observer)

// DefaultInterval is the default of [WithInterval].
const DefaultInterval = 10 * time.Second

// WithInterval sets the least time between two lines about a growing rate, about calls of a scope
// given up for the same reason, or about another pause no longer than the one before. It is also
// the least length of a pause whose end has a line. Changes of state are logged at once. 0 or less
// means no limit. Default: [DefaultInterval].
func WithInterval(d time.Duration) Option {
	return func(o *Observer) { o.every = d }
}

// WithKeys sets how the keys of scopes are written. The function must be safe for concurrent use.
// Default, and for nil: a digest, since keys may be confidential. Equal keys have the same digest
// while the program runs, and another one in the next run. The keys of a cruisehttp.Transport are
// hosts, unless its options set others.
func WithKeys(text func(scope, key string) string) Option {
	return func(o *Observer) {
		if text != nil {
			o.keys = text
		}
	}
}

// NewObserver returns an Observer that writes to logger. With a nil logger it writes to
// [slog.Default] at the time of each line. Nil options do nothing.
func NewObserver(logger *slog.Logger, opts ...Option) *Observer {
	o := &Observer{logger: logger, every: DefaultInterval, keys: observing.Digest()}
	o.own = &track{Observer: o}
	for _, opt := range opts {
		if opt != nil {
			opt(o)
		}
	}
	return o
}

// change is the share by which a rate or a pause must differ from the last logged value for another
// line.
const change = .1

// Observe logs an event if it is worth a line.
func (o *Observer) Observe(ctx context.Context, event cruise.Event) {
	switch e := event.(type) {
	case cruise.GaveUp:
		o.keep(ctx).callGivenUp(ctx, e.Err)
	case cruise.ThrottleSeen:
		o.keep(ctx).throttle(ctx, e)
	case cruise.RateChanged:
		o.keep(ctx).rateChanged(ctx, e)
	case cruise.Paused:
		o.keep(ctx).pause(ctx, e)
	case cruise.Resumed:
		o.unkept(cruise.ScopeOf(ctx)).resumed(ctx, e)
	case cruise.StoreDegraded:
		o.unkept(cruise.ScopeOf(ctx)).log(ctx, slog.LevelWarn, "cruise: shared store unreachable", failure(e.Err)...)
	case cruise.StoreRecovered:
		o.unkept(cruise.ScopeOf(ctx)).log(ctx, slog.LevelInfo, "cruise: shared store back", slog.Duration("after", e.After))
	default:
		// A call passes the limiters of all scopes around it.
		path := cruise.ScopeOf(ctx)
		for depth := range len(path) + 1 {
			if t := o.known(path[:depth]); t != nil {
				t.passed(ctx, event)
			}
		}
		if o.debugs(ctx) {
			o.unkept(path).debug(ctx, event)
		}
	}
}

// passed updates the limiter's state by the event of a call.
func (o *track) passed(ctx context.Context, event cruise.Event) {
	switch e := event.(type) {
	case cruise.AttemptStarted:
		o.pauseOver(ctx)
	case cruise.AttemptEnded:
		o.attemptEnded(ctx, e)
	}
}

// debug logs an event of a call.
func (o *track) debug(ctx context.Context, event cruise.Event) {
	switch e := event.(type) {
	case cruise.Waiting:
		o.waiting(ctx, e)
	case cruise.AttemptStarted:
		o.attemptStarted(ctx, e)
	case cruise.AttemptEnded:
		o.log(ctx, slog.LevelDebug, "cruise: attempt ended",
			append([]slog.Attr{slog.Int("attempt", e.Attempt), slog.String("outcome", e.Outcome.String()),
				slog.Duration("took", e.Took)}, failure(e.Err)...)...)
	case cruise.RetryScheduled:
		o.log(ctx, slog.LevelDebug, "cruise: will retry",
			append([]slog.Attr{slog.Int("attempt", e.Attempt), slog.String("reason", e.Reason.String()),
				slog.Duration("delay", e.Delay)}, failure(e.Err)...)...)
	}
}

// known returns the track of a limiter, nil if nothing has happened there.
func (o *Observer) known(path []cruise.ScopeKey) *track {
	if len(path) == 0 {
		return o.own
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.scopes[pathID(path)]
}

// unkept returns the known track, or an empty one for a line that changes nothing.
func (o *Observer) unkept(path []cruise.ScopeKey) *track {
	if t := o.known(path); t != nil {
		return t
	}
	return &track{Observer: o, path: path}
}

// keep returns the track of the limiter that a context is about, a new one if need be.
func (o *Observer) keep(ctx context.Context) *track {
	path := cruise.ScopeOf(ctx)
	if t := o.known(path); t != nil {
		return t
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	id := pathID(path)
	if t := o.scopes[id]; t != nil {
		return t
	}
	if len(o.scopes) >= maxTracks && !o.forget() {
		return o.own
	}
	if o.scopes == nil {
		o.scopes = make(map[string]*track)
	}
	t := &track{Observer: o, path: path}
	o.scopes[id] = t
	return t
}

func pathID(path []cruise.ScopeKey) string {
	var id strings.Builder
	for _, p := range path {
		id.WriteString(p.Scope + "\x00" + p.Key + "\x01")
	}
	return id.String()
}

// forget drops a track of a limiter where all is well, and reports whether there was
// one; o.mu must be held.
func (o *Observer) forget() bool {
	now := time.Now()
	for id, t := range o.scopes {
		if t.mu.TryLock() { // a track in use most likely has trouble
			well := !now.Before(t.pausedTo) && now.Sub(t.gaveUpAt) >= o.every &&
				(!t.throttled && t.pausedAt.IsZero() || now.Sub(t.seen) >= scopeIdle)
			t.mu.Unlock()
			if well {
				delete(o.scopes, id)
				return true
			}
		}
	}
	return false
}

// log adds the limiter's name, such as ACCOUNT #1f3a9c02/TABLE #77ab0d13, if it has one.
func (o *track) log(ctx context.Context, level slog.Level, message string, attrs ...slog.Attr) {
	if len(o.path) > 0 {
		parts := make([]string, len(o.path))
		for i, p := range o.path {
			parts[i] = p.Scope + " " + o.keys(p.Scope, p.Key)
		}
		attrs = append(attrs, slog.String("limiter", strings.Join(parts, "/")))
	}
	o.to().LogAttrs(ctx, level, message, attrs...)
}

func (o *Observer) to() *slog.Logger {
	if o.logger == nil {
		return slog.Default()
	}
	return o.logger
}

func (o *Observer) debugs(ctx context.Context) bool { return o.to().Enabled(ctx, slog.LevelDebug) }

// waiting logs why a call waits.
func (o *track) waiting(ctx context.Context, e cruise.Waiting) {
	attrs := []slog.Attr{slog.Duration("at_least", round(e.AtLeast))}
	if e.Paused > 0 {
		attrs = append(attrs, slog.Duration("paused", round(e.Paused)))
	}
	if e.Ahead > 0 {
		attrs = append(attrs, slog.Int("ahead", e.Ahead))
	}
	o.mu.Lock()
	told := o.told
	o.mu.Unlock()
	if told != 0 {
		attrs = append(attrs, limit("rate", told))
	}
	o.log(ctx, slog.LevelDebug, "cruise: waiting", attrs...)
}

// pauseOver notices that a pause has ended: calls go again.
func (o *track) pauseOver(ctx context.Context) {
	o.mu.Lock()
	began, now := o.pausedAt, time.Now()
	if began.IsZero() || now.Before(o.pausedTo) {
		o.mu.Unlock()
		return
	}
	long := o.pausedTo.Sub(began) >= o.every
	o.pausedAt = time.Time{}
	o.mu.Unlock()
	if !long {
		return
	}
	o.changed(ctx, slog.LevelInfo, "cruise: goes on after a pause", slog.Duration("after", round(now.Sub(began))))
}

// attemptStarted logs why a call had to wait, if it had to.
func (o *track) attemptStarted(ctx context.Context, e cruise.AttemptStarted) {
	attempt := slog.Int("attempt", e.Attempt)
	if e.Waited < observing.NoWait {
		o.log(ctx, slog.LevelDebug, "cruise: attempt started", attempt)
		return
	}
	o.mu.Lock()
	came := time.Now().Add(-e.Waited)
	why := "the rate, and calls that came before"
	if came.Before(o.pausedTo) {
		why = "a pause"
	}
	told := o.told
	o.mu.Unlock()
	attrs := []slog.Attr{attempt, slog.Duration("waited", e.Waited), slog.String("for", why)}
	if told != 0 {
		attrs = append(attrs, limit("rate", told))
	}
	o.log(ctx, slog.LevelDebug, "cruise: attempt started after a wait", attrs...)
}

// attemptEnded notices the end of throttling if no change of rate shows it: as long as no call gets
// through, throttles only pause.
func (o *track) attemptEnded(ctx context.Context, e cruise.AttemptEnded) {
	if e.Outcome != cruise.OutcomeSuccess {
		return
	}
	o.mu.Lock()
	// No call goes within a pause, so half of it is left for events that come late.
	over := o.throttled && !o.cut && time.Since(o.pausedTo)+o.pauseFor/2 >= e.Took
	if over {
		o.throttled = false
	}
	o.mu.Unlock()
	if over {
		o.changed(ctx, slog.LevelInfo, "cruise: no longer throttled")
	}
}

// throttle logs the first throttle since all was well, and counts the others.
func (o *track) throttle(ctx context.Context, e cruise.ThrottleSeen) {
	o.mu.Lock()
	o.seen = time.Now()
	if !o.throttled {
		o.throttled, o.cut, o.blamed, o.target = true, false, false, 0
	}
	first := !o.blamed
	o.blamed = true
	if first {
		o.pauseAt = time.Time{} // its pause is news
	} else {
		o.throttles++
	}
	o.mu.Unlock()
	if !first {
		return
	}
	var attrs []slog.Attr
	if e.RetryAfter > 0 {
		attrs = append(attrs, slog.Duration("retry_after", e.RetryAfter))
	}
	if e.Scope != "" {
		attrs = append(attrs, slog.String("scope", e.Scope))
	}
	o.log(ctx, slog.LevelWarn, "cruise: throttled by the server", attrs...)
}

func (o *track) rateChanged(ctx context.Context, e cruise.RateChanged) {
	now := time.Now()
	o.mu.Lock()
	o.seen = now
	level, message, from := o.judge(now, e)
	if message != "" {
		o.told, o.toldAt = e.To, now
	}
	o.mu.Unlock()
	if message != "" {
		was, is := limits(from, e.To)
		o.changed(ctx, level, message, was, is, slog.String("why", string(e.Why)))
	}
}

// judge returns the line for a new rate, if it is worth one, and the rate to compare it with: the
// rate of the last line if steps are summed up. mu must be held.
func (o *track) judge(now time.Time, e cruise.RateChanged) (level slog.Level, message string, from rate.Limit) {
	if o.told == 0 && e.From != rate.Inf {
		o.told = e.From
	}
	switch {
	case e.Why == cruise.CauseSet:
		o.throttled, o.target = false, 0
		return slog.LevelInfo, "cruise: rate set", e.From
	case e.To < e.From && (e.Why == cruise.CauseThrottle || !o.throttled || e.From == rate.Inf):
		o.throttled, o.cut, o.blamed, o.target = true, true, o.throttled && o.blamed, e.From
		o.pauseAt = time.Time{}
		if e.From == rate.Inf {
			o.target = 0
		}
		return slog.LevelWarn, "cruise: rate cut", e.From
	case o.throttled && o.target > 0 && e.To >= o.target:
		o.throttled, o.target = false, 0
		return slog.LevelInfo, "cruise: rate recovered", o.told
	case math.Abs(float64(e.To-o.told)) <= change*float64(o.told) || now.Sub(o.toldAt) < o.every:
		return 0, "", 0
	case e.To < o.told:
		return slog.LevelInfo, "cruise: rate lowered", o.told
	}
	if o.target == 0 {
		o.throttled = false // there was no rate before the cut to go back to
	}
	return slog.LevelInfo, "cruise: rate raised", o.told
}

// changed logs a change of state, with the number of throttles that had no line. If that level is
// not logged, they are left for a line of another level.
func (o *track) changed(ctx context.Context, level slog.Level, message string, attrs ...slog.Attr) {
	if !o.to().Enabled(ctx, level) {
		return
	}
	o.mu.Lock()
	throttles := o.throttles
	o.throttles = 0
	o.mu.Unlock()
	if throttles > 0 {
		attrs = append(attrs, slog.Int("throttles", throttles))
	}
	o.log(ctx, level, message, attrs...)
}

func (o *track) pause(ctx context.Context, e cruise.Paused) {
	now := time.Now()
	o.mu.Lock()
	o.seen = now
	left := max(0, o.pausedTo.Sub(now))
	longer := float64(e.For) > (1+change)*float64(left)
	if longer {
		if o.pausedAt.IsZero() || left == 0 && o.pausedTo.Sub(o.pausedAt) < o.every {
			o.pausedAt = now
		}
		o.pausedTo, o.pauseFor = e.Until, e.For
	}
	// Pauses in a row, none longer than the logged one, change nothing.
	tell := longer && (o.pauseAt.IsZero() || now.Sub(o.pauseAt) >= o.every || float64(e.For) > (1+change)*float64(o.pauseTold))
	if tell {
		o.pauseTold, o.pauseAt = e.For, now
	}
	o.mu.Unlock()
	if tell {
		o.changed(ctx, slog.LevelWarn, "cruise: paused", slog.Duration("for", round(e.For)), slog.Time("until", e.Until))
	}
}

func (o *track) resumed(ctx context.Context, e cruise.Resumed) {
	o.mu.Lock()
	o.pausedTo, o.pausedAt, o.pauseAt = time.Now(), time.Time{}, time.Time{}
	o.mu.Unlock()
	o.changed(ctx, slog.LevelInfo, "cruise: resumed", slog.Duration("left", round(e.Left)))
}

func (o *track) callGivenUp(ctx context.Context, err *cruise.Error) {
	now := time.Now()
	o.mu.Lock()
	g := &o.gaveUp[observing.ReasonIndex(err.Reason)]
	if !g.at.IsZero() && now.Sub(g.at) < o.every {
		g.calls++
		o.mu.Unlock()
		return
	}
	more := g.calls
	g.at, g.calls, o.gaveUpAt = now, 0, now
	o.mu.Unlock()
	attrs := []slog.Attr{
		slog.Any("reason", err.Reason), slog.Int("attempts", err.Attempts), slog.Duration("elapsed", round(err.Elapsed)),
	}
	if err.Paused > 0 {
		attrs = append(attrs, slog.Duration("paused", round(err.Paused)))
	}
	if err.Ahead > 0 {
		attrs = append(attrs, slog.Int("ahead", err.Ahead))
	}
	if err.RetryAfter > 0 {
		attrs = append(attrs, slog.Duration("retry_after", round(err.RetryAfter)))
	}
	if more > 0 {
		attrs = append(attrs, slog.Int("calls", more+1)) // since the last line
	}
	o.log(ctx, slog.LevelWarn, "cruise: gave up", append(attrs, failure(err.Last)...)...)
}

// limit returns a rate in calls per second, to four digits.
func limit(key string, l rate.Limit) slog.Attr { return digits(key, l, 4) }

// limits returns two rates, with as many digits as they need to differ.
func limits(from, to rate.Limit) (slog.Attr, slog.Attr) {
	n := 4
	for n < 17 && from != to && digits("", from, n).Equal(digits("", to, n)) {
		n++
	}
	return digits("from", from, n), digits("to", to, n)
}

// digits returns a rate to n digits. Rounding by way of text is exact, and never gives NaN.
func digits(key string, l rate.Limit, n int) slog.Attr {
	if l == rate.Inf {
		return slog.String(key, "unlimited")
	}
	short, _ := strconv.ParseFloat(strconv.FormatFloat(float64(l), 'g', n, 64), 64)
	return slog.Float64(key, short)
}

// round rounds a time for people.
func round(d time.Duration) time.Duration {
	if d < time.Second {
		return d.Round(time.Microsecond)
	}
	return d.Round(time.Millisecond)
}

func failure(err error) []slog.Attr {
	if err == nil {
		return nil
	}
	return []slog.Attr{slog.Any("error", err)}
}
