package cruiseotel

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/internal/nils"
	"github.com/a7df5faa/cruise/internal/observing"
)

// ScopeName is the name of the instrumentation scope.
const ScopeName = "github.com/a7df5faa/cruise/cruiseotel"

// DefaultMaxScopes is the default of [WithMaxScopes].
const DefaultMaxScopes = 10

// An Observer is a [cruise.Observer] that records metrics and span events. Make one
// for each API.
//
// An Observer is safe for concurrent use and must not be copied. It is made by [New].
type Observer struct {
	attempts  counters
	retries   counters
	gaveUp    counters
	throttles metric.Int64Counter
	cuts      metric.Int64Counter
	pauses    metric.Int64Counter
	wait      metric.Float64Histogram
	record    []metric.RecordOption

	limit, pause, budget metric.Float64ObservableGauge
	queue, scopes, alone metric.Int64ObservableGauge
	registration         metric.Registration

	api           attribute.KeyValue
	apiOnly       metric.MeasurementOption
	gaugeScopes   names
	counterScopes names
	counterLimits names
	keys          func(scope, key string) string // nil: not told

	begun     sync.Once                         // the counters have
	throttled atomic.Pointer[trace.SpanContext] // the last

	mu       sync.Mutex // guards the field below
	retriers []*cruise.Retrier
}

var _ cruise.Observer = (*Observer)(nil)

// An Option tunes an [Observer].
type Option func(*config)

type config struct {
	meters    metric.MeterProvider
	errs      []error
	maxScopes int
	keys      func(scope, key string) string
}

// WithMeterProvider sets the provider that gets the metrics. Default, and for nil: the provider of
// [otel.GetMeterProvider] when the Observer is made, which forwards to a provider that
// [otel.SetMeterProvider] sets later.
func WithMeterProvider(p metric.MeterProvider) Option {
	return func(c *config) { c.meters = p }
}

// WithMaxScopes sets how many values cruise.scope, and cruise.limit, may have in addition to
// "other": 1 or more. "all" is one of them. Default: [DefaultMaxScopes], 10.
func WithMaxScopes(n int) Option {
	return func(c *config) {
		c.maxScopes = n
		if n < 1 {
			c.errs = append(c.errs, fmt.Errorf("cruiseotel: WithMaxScopes(%d): want 1 or more", n))
		}
	}
}

// WithKeys adds the keys of scopes to cruise.scope, as text returns them: the key itself, or a
// digest. The function must be safe for concurrent use. Default, and for nil: keys are left out.
func WithKeys(text func(scope, key string) string) Option {
	return func(c *config) { c.keys = text }
}

// New returns an Observer of an API. Its name, such as "heroku", becomes the attribute cruise.api.
// The error names every option that is out of bounds, or comes from the MeterProvider.
func New(api string, opts ...Option) (*Observer, error) {
	c := config{maxScopes: DefaultMaxScopes}
	if api == "" {
		c.errs = append(c.errs, errors.New(`cruiseotel: New(""): want the name of an API`))
	}
	for i, opt := range opts {
		if opt == nil {
			c.errs = append(c.errs, fmt.Errorf("cruiseotel: option %d is nil", i+1))
			continue
		}
		opt(&c)
	}
	if len(c.errs) > 0 {
		return nil, errors.Join(c.errs...)
	}
	if nils.Is(c.meters) {
		c.meters = otel.GetMeterProvider()
	}
	o := &Observer{
		api: attribute.String("cruise.api", api), keys: c.keys,
		gaugeScopes:   names{most: c.maxScopes},
		counterScopes: names{most: c.maxScopes, stay: true}, counterLimits: names{most: c.maxScopes, stay: true},
	}
	o.apiOnly = metric.WithAttributeSet(attribute.NewSet(o.api))
	o.record = []metric.RecordOption{o.apiOnly}
	return o, o.instruments(c.meters.Meter(ScopeName))
}

func (o *Observer) instruments(m metric.Meter) error {
	var errs []error
	counter := func(name, unit, about string) metric.Int64Counter {
		c, err := m.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(about))
		errs = append(errs, err)
		return c
	}
	floats := func(name, unit, about string) metric.Float64ObservableGauge {
		g, err := m.Float64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(about))
		errs = append(errs, err)
		return g
	}
	ints := func(name, unit, about string) metric.Int64ObservableGauge {
		g, err := m.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(about))
		errs = append(errs, err)
		return g
	}
	o.attempts = o.counters(counter("cruise.attempts", "{attempt}", "Attempts of calls, by what they ended with."), "cruise.outcome", outcomeNames[:])
	o.retries = o.counters(counter("cruise.retries", "{retry}", "Retries, by what the attempt before ended with."), "cruise.reason", outcomeNames[:])
	o.gaveUp = o.counters(counter("cruise.give_ups", "{call}", "Calls given up, by reason."), "cruise.reason", reasonNames[:])
	o.throttles = counter("cruise.throttles", "{throttle}", "Throttles of the server that limiters learned of.")
	o.cuts = counter("cruise.rate_cuts", "{cut}", "Cuts of the rate limit, by cause.")
	o.pauses = counter("cruise.pauses", "{pause}", "Pauses begun or extended.")
	for _, n := range []*names{&o.gaugeScopes, &o.counterScopes} {
		n.of(everything, false, time.Now()) // the first to have a place
	}
	var err error
	o.wait, err = m.Float64Histogram("cruise.wait.duration", metric.WithUnit("s"), metric.WithDescription("Time that attempts waited in the limiter."),
		metric.WithExplicitBucketBoundaries(.001, .01, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300))
	errs = append(errs, err)
	o.limit = floats("cruise.rate_limit", "{call}/s", "Rate that a limiter keeps to; not reported while it has none.")
	o.pause = floats("cruise.pause.remaining", "s", "Time for which nobody is let go.")
	o.budget = floats("cruise.budget.remaining", "{retry}", "Retries left in the budget, the least of all scopes.")
	o.queue = ints("cruise.queue.length", "{call}", "Calls that wait in a limiter.")
	o.scopes = ints("cruise.scopes", "{scope}", "Limiters of scopes that are kept.")
	o.alone = ints("cruise.store.degraded", "{limiter}", "Shared limiters that cannot reach their store.")
	o.registration, err = m.RegisterCallback(o.collect, o.limit, o.pause, o.budget, o.queue, o.scopes, o.alone)
	return errors.Join(append(errs, err)...)
}

// zeros starts the counters at 0, so that the first count is a rise: a counter that begins at 1 has
// not risen. It waits for the first collection, since counts before there is an SDK are lost.
func (o *Observer) zeros(ctx context.Context) {
	for _, c := range []counters{o.attempts, o.retries, o.gaveUp} {
		for _, with := range c.by {
			c.Add(ctx, 0, with...)
		}
	}
	all := attribute.String("cruise.scope", o.counterScopes.of(everything, false, time.Now()))
	o.throttles.Add(ctx, 0, metric.WithAttributes(o.api, all))
	o.cuts.Add(ctx, 0, metric.WithAttributes(o.api, all, attribute.String("cruise.cause", causeName(cruise.CauseThrottle))))
	o.pauses.Add(ctx, 0, metric.WithAttributes(o.api, all))
}

// Add reports the limiters of a Retrier, its own and those of its scopes, and its budget. An
// adapter's Retrier comes from its method Retrier. A limiter that several Retriers share is
// reported once. A nil Retrier is ignored.
func (o *Observer) Add(r *cruise.Retrier) {
	if r == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.retriers = append(o.retriers, r)
}

// Close ends the reports of gauges; counters go on. Until Close the MeterProvider keeps o and the
// Retriers given to [Observer.Add], so call it if they are needed for less than the program's life.
// The error comes from the meter.
func (o *Observer) Close() error { return o.registration.Unregister() }

// counters is a counter with a prepared set of attributes for each of a few values, so that
// counting allocates none.
type counters struct {
	metric.Int64Counter
	by [][]metric.AddOption
}

func (o *Observer) counters(c metric.Int64Counter, key string, values []string) counters {
	by := make([][]metric.AddOption, len(values))
	for i, v := range values {
		by[i] = []metric.AddOption{metric.WithAttributeSet(attribute.NewSet(o.api, attribute.String(key, v)))}
	}
	return counters{c, by}
}

// add counts one for the i-th value, or for the last if there is no i-th.
func (c *counters) add(ctx context.Context, i int) {
	c.Add(ctx, 1, c.by[min(i, len(c.by)-1)]...)
}

// Observe records an event.
func (o *Observer) Observe(ctx context.Context, event cruise.Event) {
	switch e := event.(type) {
	case cruise.Waiting:
		o.spanWaits(ctx, e)
	case cruise.AttemptStarted:
		o.wait.Record(ctx, e.Waited.Seconds(), o.record...)
		if span := trace.SpanFromContext(ctx); e.Waited >= observing.NoWait && span.IsRecording() {
			span.AddEvent("cruise.go", trace.WithAttributes(attribute.Int("cruise.attempt", e.Attempt),
				attribute.Float64("cruise.waited", e.Waited.Seconds())))
		}
	case cruise.AttemptEnded:
		o.attempts.add(ctx, int(e.Outcome))
		if e.Outcome == cruise.OutcomeThrottled {
			o.spanThrottled(ctx, e)
		}
	case cruise.RetryScheduled:
		o.retries.add(ctx, int(e.Reason))
		if span := trace.SpanFromContext(ctx); span.IsRecording() {
			span.AddEvent("cruise.retry", trace.WithAttributes(attribute.Int("cruise.attempt", e.Attempt),
				attribute.String("cruise.reason", nameOf(outcomeNames[:], int(e.Reason))), attribute.Float64("cruise.delay", e.Delay.Seconds())))
		}
	case cruise.GaveUp:
		o.gaveUp.add(ctx, observing.ReasonIndex(e.Err.Reason))
		if span := trace.SpanFromContext(ctx); span.IsRecording() {
			span.AddEvent("cruise.give_up", trace.WithAttributes(attribute.String("cruise.reason", reasonNames[observing.ReasonIndex(e.Err.Reason)]),
				attribute.Int("cruise.attempts", e.Err.Attempts), attribute.Float64("cruise.retry_after", e.Err.RetryAfter.Seconds())))
		}
	case cruise.ThrottleSeen:
		if e.Scope == "" {
			o.troubled(ctx, o.throttles)
		} else {
			o.troubled(ctx, o.throttles, attribute.String("cruise.limit", o.counterLimits.of(e.Scope, true, time.Now())))
		}
	case cruise.RateChanged:
		if e.To < e.From {
			o.troubled(ctx, o.cuts, attribute.String("cruise.cause", causeName(e.Why)))
		}
	case cruise.Paused:
		o.troubled(ctx, o.pauses)
	}
}

// troubled counts an event of a limiter, with its scope.
func (o *Observer) troubled(ctx context.Context, c metric.Int64Counter, attrs ...attribute.KeyValue) {
	name, now := o.pathName(cruise.ScopeOf(ctx)), time.Now()
	o.gaugeScopes.of(name, true, now)
	attrs = append(attrs, o.api, attribute.String("cruise.scope", o.counterScopes.of(name, true, now)))
	c.Add(ctx, 1, metric.WithAttributeSet(attribute.NewSet(attrs...)))
}

// spanWaits adds an event to a span whose call has to wait, with the calls ahead of it.
func (o *Observer) spanWaits(ctx context.Context, e cruise.Waiting) {
	span := trace.SpanFromContext(ctx)
	if !span.IsRecording() {
		return
	}
	span.AddEvent("cruise.wait", trace.WithAttributes(attribute.Float64("cruise.at_least", e.AtLeast.Seconds()),
		attribute.Float64("cruise.paused", e.Paused.Seconds()), attribute.Int("cruise.ahead", e.Ahead)))
	if by := o.throttled.Load(); e.Paused > 0 && by != nil && by.SpanID() != span.SpanContext().SpanID() {
		span.AddLink(trace.Link{SpanContext: *by, Attributes: []attribute.KeyValue{attribute.String("cruise.link", "throttled_call")}})
	}
}

func (o *Observer) spanThrottled(ctx context.Context, e cruise.AttemptEnded) {
	span := trace.SpanFromContext(ctx)
	if c := span.SpanContext(); c.IsValid() {
		o.throttled.Store(&c)
	}
	if span.IsRecording() {
		span.AddEvent("cruise.throttle", trace.WithAttributes(attribute.Int("cruise.attempt", e.Attempt)))
	}
}
