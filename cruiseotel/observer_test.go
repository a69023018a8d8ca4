package cruiseotel_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/cruiseotel"
	"github.com/a7df5faa/cruise/shared"
)

var errBoom = errors.New("boom")

// meters is an SDK that returns its metrics as lines of text.
type meters struct {
	*sdkmetric.MeterProvider
	reader *sdkmetric.ManualReader
}

func newMeters() meters {
	reader := sdkmetric.NewManualReader()
	return meters{sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)), reader}
}

func (m meters) observer(t *testing.T, opts ...cruiseotel.Option) *cruiseotel.Observer {
	t.Helper()
	o, err := cruiseotel.New("api", append(opts, cruiseotel.WithMeterProvider(m))...)
	require.NoError(t, err)
	return o
}

// read returns "name{attributes} value" of all metrics with one of the prefixes.
func (m meters) read(t *testing.T, prefixes ...string) []string {
	t.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(t, m.reader.Collect(t.Context(), &all))
	var lines []string
	add := func(name string, set attribute.Set, value any) {
		if !slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) }) {
			return
		}
		var attrs []string
		for _, kv := range set.ToSlice() {
			if kv.Key == "cruise.api" {
				assert.Equal(t, "api", kv.Value.AsString())
				continue
			}
			attrs = append(attrs, fmt.Sprint(kv.Value.AsInterface()))
		}
		lines = append(lines, fmt.Sprintf("%s{%s} %v", strings.TrimPrefix(name, "cruise."), strings.Join(attrs, ","), value))
	}
	for _, scope := range all.ScopeMetrics {
		assert.Equal(t, cruiseotel.ScopeName, scope.Scope.Name)
		for _, metric := range scope.Metrics {
			assert.NotEmpty(t, metric.Description, metric.Name)
			assert.NotEmpty(t, metric.Unit, metric.Name)
			switch data := metric.Data.(type) {
			case metricdata.Sum[int64]:
				assert.True(t, data.IsMonotonic)
				for _, p := range data.DataPoints {
					add(metric.Name, p.Attributes, p.Value)
				}
			case metricdata.Gauge[int64]:
				for _, p := range data.DataPoints {
					add(metric.Name, p.Attributes, p.Value)
				}
			case metricdata.Gauge[float64]:
				for _, p := range data.DataPoints {
					add(metric.Name, p.Attributes, p.Value)
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					add(metric.Name, p.Attributes, fmt.Sprint(p.Count, " in ", p.Sum))
				}
			}
		}
	}
	slices.Sort(lines)
	return lines
}

func TestEventsAreCounted(t *testing.T) {
	m := newMeters()
	o := m.observer(t)
	for _, e := range []cruise.Event{
		cruise.AttemptStarted{Attempt: 1}, cruise.AttemptStarted{Attempt: 2, Waited: 2 * time.Second},
		cruise.AttemptEnded{Outcome: cruise.OutcomeThrottled, Err: errBoom}, cruise.AttemptEnded{Outcome: cruise.OutcomeSuccess},
		cruise.AttemptEnded{Outcome: cruise.OutcomeQuotaExhausted}, cruise.AttemptEnded{Outcome: cruise.Outcome(77)},
		cruise.RetryScheduled{Attempt: 2, Reason: cruise.OutcomeThrottled}, cruise.RetryScheduled{Attempt: 2, Reason: cruise.OutcomeTransient},
		cruise.GaveUp{Err: &cruise.Error{Reason: cruise.ErrDeadline}}, cruise.GaveUp{Err: &cruise.Error{Reason: context.DeadlineExceeded}},
		cruise.GaveUp{Err: &cruise.Error{Reason: fmt.Errorf("%w: shutdown", context.Canceled)}}, cruise.GaveUp{Err: &cruise.Error{}},
		cruise.GaveUp{Err: &cruise.Error{Reason: cruise.ErrBudgetExhausted}},
		cruise.ThrottleSeen{}, cruise.ThrottleSeen{Scope: "ACCOUNT"}, cruise.ThrottleSeen{Scope: "ACCOUNT", Late: true},
		cruise.RateChanged{From: 4, To: 2, Why: cruise.CauseThrottle}, cruise.RateChanged{From: 2, To: 3, Why: cruise.CauseSuccess},
		cruise.RateChanged{From: 3, To: 2, Why: cruise.CauseQuota}, cruise.RateChanged{From: 2, To: 1, Why: "a new one"},
		cruise.Paused{For: time.Second},
	} {
		o.Observe(t.Context(), e)
	}
	assert.Contains(t, m.read(t, "cruise.give_ups"), "give_ups{cost} 0", "all are there from the beginning")
	lines := slices.DeleteFunc(m.read(t, "cruise."), func(line string) bool { return strings.HasSuffix(line, "} 0") })
	assert.Equal(t, []string{
		"attempts{other} 1", "attempts{quota_exhausted} 1", "attempts{success} 1", "attempts{throttled} 1",
		"give_ups{budget_exhausted} 1", "give_ups{canceled} 1", "give_ups{context_deadline} 1", "give_ups{deadline} 1", "give_ups{other} 1",
		"pauses{all} 1",
		"rate_cuts{other,all} 1", "rate_cuts{quota,all} 1", "rate_cuts{throttle,all} 1",
		"retries{throttled} 1", "retries{transient} 1",
		"throttles{ACCOUNT,all} 2", "throttles{all} 1",
		"wait.duration{} 2 in 2",
	}, lines)
}

func TestGaugesShowThePresent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMeters()
		o := m.observer(t)
		api := cruise.Must(cruise.New(cruise.WithObserver(o), cruise.WithMaxRate(10)))
		o.Add(api)
		o.Add(nil)
		gauges := func() []string {
			return m.read(t, "cruise.rate_limit", "cruise.pause.", "cruise.queue", "cruise.budget", "cruise.scopes")
		}
		assert.Equal(t, []string{"budget.remaining{} 100", "pause.remaining{all} 0", "queue.length{all} 0", "rate_limit{all} 10", "scopes{} 0"}, gauges())

		ctx, cancel := context.WithCancel(t.Context())
		for _, key := range []string{"1", "2"} {
			account := api.Scope("ACCOUNT", key)
			require.NoError(t, account.Scope("TABLE", "t").Do(ctx, func(context.Context) error { return nil }))
			if key == "2" {
				account.Limiter().(*cruise.AdaptiveLimiter).Pause(5 * time.Second)
			}
			go func() { _ = account.Do(ctx, func(context.Context) error { return nil }) }()
		}
		require.NoError(t, api.Scope("ACCOUNT", "1").Limiter().(*cruise.AdaptiveLimiter).SetLimit(3))
		synctest.Wait()
		assert.Equal(t, []string{
			"budget.remaining{} 100",
			"pause.remaining{ACCOUNT/TABLE} 0", "pause.remaining{ACCOUNT} 5", "pause.remaining{all} 0",
			"queue.length{ACCOUNT/TABLE} 0", "queue.length{ACCOUNT} 1", "queue.length{all} 1",
			"rate_limit{ACCOUNT/TABLE} 10", "rate_limit{ACCOUNT} 3", "rate_limit{all} 10",
			"scopes{} 4",
		}, gauges())
		cancel()
		synctest.Wait()

		require.NoError(t, o.Close())
		assert.Empty(t, gauges())
	})
}

func TestALimiterOfSeveralRetriersIsReportedOnce(t *testing.T) {
	adaptive := cruise.Must(cruise.NewAdaptiveLimiter(cruise.WithMaxRate(1)))
	scoped := func(l cruise.Limiter) (a, b *cruise.Retrier) {
		api := cruise.Must(cruise.New(cruise.WithoutLimiter(), cruise.WithoutBudget(), cruise.WithScopeLimiter(func(string, string) (cruise.Limiter, error) {
			if l == nil {
				return cruise.NewTokenBucket(1, 1)
			}
			return l, nil
		})))
		return api.Scope("S", "1"), api.Scope("S", "2")
	}
	plain := func(l cruise.Limiter) *cruise.Retrier {
		return cruise.Must(cruise.New(cruise.WithLimiter(l), cruise.WithoutBudget()))
	}
	for name, tt := range map[string]struct {
		retriers func() (a, b *cruise.Retrier)
		want     []string
	}{
		"shared":                  {func() (a, b *cruise.Retrier) { return plain(adaptive), plain(adaptive) }, []string{"queue.length{all} 3", "scopes{} 0"}},
		"scopes of one Retrier":   {func() (a, b *cruise.Retrier) { return scoped(nil) }, []string{"queue.length{S} 2", "scopes{} 2"}},
		"of others, in scopes":    {func() (a, b *cruise.Retrier) { return scoped(turnstile{}) }, []string{"queue.length{S} 0", "scopes{} 2"}},
		"that cannot be compared": {func() (a, b *cruise.Retrier) { return plain(turnstiles{{}}), plain(turnstiles{{}}) }, []string{"queue.length{all} 0", "scopes{} 0"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMeters()
				o := m.observer(t)
				a, b := tt.retriers()
				for _, r := range []*cruise.Retrier{a, b} {
					o.Add(r)
					for range 2 {
						go func() { _ = r.Do(t.Context(), func(context.Context) error { return nil }) }()
					}
				}
				synctest.Wait()
				assert.Equal(t, tt.want, m.read(t, "cruise.queue", "cruise.scopes"))
				time.Sleep(time.Minute)
			})
		})
	}
}

// The limiter is reported once, but each Retrier has its own budget.
func TestBudgetsBesideASharedLimiterAreAllLookedAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMeters()
		o := m.observer(t)
		for _, err := range []error{nil, errBoom} {
			api := cruise.Must(cruise.New(cruise.WithoutLimiter(), cruise.WithBackoff(cruise.Backoff{}),
				cruise.WithScopeLimiter(func(string, string) (cruise.Limiter, error) { return turnstile{}, nil })))
			o.Add(api)
			assert.ErrorIs(t, api.Scope("S", "1").Do(t.Context(), func(context.Context) error { return err }), err)
		}
		assert.Equal(t, []string{"budget.remaining{} 96"}, m.read(t, "cruise.budget"))
	})
}

// turnstile is a limiter that lets all calls through.
type turnstile struct{}

func (turnstile) WaitN(context.Context, int) error { return nil }

type turnstiles []turnstile

func (turnstiles) WaitN(context.Context, int) error { return nil }

// away is a store that cannot be reached.
type away struct{}

func (away) Sync(context.Context, shared.Request) (shared.Reply, error) {
	return shared.Reply{}, errors.New("connection refused")
}

func TestASharedLimiterWithoutItsStoreIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMeters()
		o := m.observer(t)
		for _, store := range []shared.Store{shared.NewMemoryStore(), away{}} {
			api := cruise.Must(cruise.New(cruise.WithLimiter(cruise.Must(shared.New(store)))))
			o.Add(api)
			require.NoError(t, api.Do(t.Context(), func(context.Context) error { return nil }))
		}
		assert.Equal(t, []string{"store.degraded{} 1"}, m.read(t, "cruise.store"))
		require.NoError(t, o.Close())
	})
}

func TestTheBudgetReportedIsTheLeastOfAllScopes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMeters()
		o := m.observer(t)
		api := cruise.Must(cruise.New(cruise.WithoutLimiter(), cruise.WithMaxAttempts(3), cruise.WithBackoff(cruise.Backoff{})))
		o.Add(api)
		o.Add(cruise.Must(cruise.New(cruise.WithoutBudget())))
		for key, err := range map[string]error{"up": nil, "down": errors.New("down")} {
			_ = api.Scope("HOST", key).Do(t.Context(), func(context.Context) error { return err })
		}
		assert.Equal(t, []string{"budget.remaining{} 98"}, m.read(t, "cruise.budget"))
		require.NoError(t, o.Close())
	})
}

func TestARetrierWithoutLimitsReportsNone(t *testing.T) {
	m := newMeters()
	o := m.observer(t)
	o.Add(cruise.Must(cruise.New(cruise.WithoutBudget())))
	o.Add(cruise.Must(cruise.New(cruise.WithoutBudget(), cruise.WithoutLimiter())))
	o.Add(cruise.Must(cruise.New(cruise.WithoutBudget(), cruise.WithLimiter(cruise.Must(cruise.NewSlidingWindow(cruise.Window{Calls: 1, Per: time.Second}))))))
	assert.Empty(t, m.read(t, "cruise.rate_limit", "cruise.budget"))
}

func TestScopesAreFewAndIncludeScopesInTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMeters()
		o := m.observer(t, cruiseotel.WithMaxScopes(3), cruiseotel.WithKeys(func(_, key string) string { return key }))
		api := cruise.Must(cruise.New(cruise.WithObserver(o), cruise.WithoutLimiter(), cruise.WithScopeLimiter(func(string, string) (cruise.Limiter, error) {
			return cruise.NewAdaptiveLimiter(cruise.WithMaxRate(10))
		})))
		o.Add(api)
		limiter := func(key string) *cruise.AdaptiveLimiter {
			return api.Scope("S", key).Limiter().(*cruise.AdaptiveLimiter)
		}
		pauses := func() []string { return m.read(t, "cruise.pause.remaining") }
		limiter("a")
		assert.Equal(t, []string{"pause.remaining{S:a} 0"}, pauses())
		limiter("b")
		for i := range 20 {
			limiter(fmt.Sprint(i))
		}
		time.Sleep(time.Second)
		limiter("c").Pause(time.Minute)
		assert.Equal(t, []string{"pause.remaining{S:a} 0", "pause.remaining{S:c} 60", "pause.remaining{other} 0"}, pauses(), "c came with a free place")
		limiter("d").Pause(2 * time.Minute)
		assert.Equal(t, []string{"pause.remaining{S:a} 0", "pause.remaining{S:c} 60", "pause.remaining{other} 120"}, pauses(), "too soon for another change")

		time.Sleep(10 * time.Minute)
		assert.Equal(t, []string{"pause.remaining{S:a} 0", "pause.remaining{S:c} 0", "pause.remaining{other} 0"}, pauses(), "without trouble the places stay")
		limiter("d").Pause(time.Minute)
		assert.Equal(t, []string{"pause.remaining{S:c} 0", "pause.remaining{S:d} 60", "pause.remaining{other} 0"}, pauses(), "a had trouble never, c once")
	})
}

// The limiter of all calls is reported by its name, however many scopes are in trouble, and for
// however long.
func TestTheLimiterOfAllCallsKeepsItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMeters()
		o := m.observer(t, cruiseotel.WithMaxScopes(2), cruiseotel.WithKeys(func(_, key string) string { return key }))
		api := cruise.Must(cruise.New(cruise.WithObserver(o), cruise.WithMaxRate(10)))
		o.Add(api)
		for i := range 3 {
			api.Scope("S", fmt.Sprint(i)).Limiter().(*cruise.AdaptiveLimiter).Pause(time.Minute)
		}
		assert.Equal(t, []string{"queue.length{S:0} 0", "queue.length{all} 0", "queue.length{other} 0"}, m.read(t, "cruise.queue"))
		time.Sleep(time.Hour)
		api.Scope("S", "3").Limiter().(*cruise.AdaptiveLimiter).Pause(time.Minute)
		api.Scope("S", "4").Limiter().(*cruise.AdaptiveLimiter).Pause(time.Minute)
		assert.Equal(t, []string{"queue.length{S:3} 0", "queue.length{all} 0", "queue.length{other} 0"}, m.read(t, "cruise.queue"))
	})
}

// Here the function wants longer keys.
func TestAPanicOfWithKeysIsAnErrorOfTheCollection(t *testing.T) {
	m := newMeters()
	o := m.observer(t, cruiseotel.WithKeys(func(_, key string) string { return key[:4] }))
	api := cruise.Must(cruise.New(cruise.WithObserver(o)))
	o.Add(api)
	require.NoError(t, api.Scope("S", "key").Do(t.Context(), func(context.Context) error { return nil }))
	var all metricdata.ResourceMetrics
	assert.ErrorContains(t, m.reader.Collect(t.Context(), &all), "cruiseotel: panic while metrics are collected: runtime error: slice bounds out of range")
}

func TestTroubleIsCountedByScope(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMeters()
		o := m.observer(t)
		api := cruise.Must(cruise.New(cruise.WithObserver(o)))
		n := 0
		require.NoError(t, api.Scope("ACCOUNT", "1").Do(t.Context(), func(context.Context) error {
			if n++; n == 1 {
				return cruise.Throttled(errBoom)
			}
			return nil
		}))
		assert.Equal(t, []string{
			"pauses{ACCOUNT} 1", "pauses{all} 0", "throttles{ACCOUNT} 1", "throttles{all} 0",
		}, m.read(t, "cruise.throttles", "cruise.pauses"))
	})
}

func TestOptionsAreChecked(t *testing.T) {
	o, err := cruiseotel.New("", cruiseotel.WithMaxScopes(0), nil)
	assert.EqualError(t, err, `cruiseotel: New(""): want the name of an API
cruiseotel: WithMaxScopes(0): want 1 or more
cruiseotel: option 2 is nil`)
	assert.Nil(t, o)
	for _, none := range []metric.MeterProvider{nil, (*sdkmetric.MeterProvider)(nil)} {
		_, err := cruiseotel.New("api", cruiseotel.WithMeterProvider(none))
		assert.NoError(t, err, "the global one")
	}
}

func TestManyNamedLimitsBecomeOther(t *testing.T) {
	m := newMeters()
	o := m.observer(t, cruiseotel.WithMaxScopes(1))
	for i := range 5 {
		o.Observe(t.Context(), cruise.ThrottleSeen{Scope: fmt.Sprint("limit ", i)})
	}
	assert.Equal(t, []string{"throttles{all} 0", "throttles{limit 0,all} 1", "throttles{other,all} 4"}, m.read(t, "cruise.throttles"))
}

// Servers and customers choose names, and exporters drop all data because of one invalid text:
// Prometheus gets an error instead of metrics.
func TestNamesThatAreNoTextAreMadeText(t *testing.T) {
	registry := prometheus.NewRegistry()
	exporter, err := otelprom.New(otelprom.WithRegisterer(registry))
	require.NoError(t, err)
	o, err := cruiseotel.New("api", cruiseotel.WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter))),
		cruiseotel.WithKeys(func(_, key string) string { return key }))
	require.NoError(t, err)
	api := cruise.Must(cruise.New(cruise.WithObserver(o), cruise.WithMaxAttempts(1)))
	o.Add(api)
	for _, key := range []string{"m\xfcller", "m\xf6ller"} {
		_ = api.Scope("S", key).Do(t.Context(), func(context.Context) error { return cruise.Throttled(errBoom, cruise.InScope("cut \xc3")) })
	}
	families, err := registry.Gather()
	require.NoError(t, err)
	text := fmt.Sprint(families)
	assert.Contains(t, text, `value:"cut �"`)
	assert.Contains(t, text, `value:"S:m�ller"`)
}

// The series of a counter stay for as long as the program runs, so names that come after the first
// are "other" at any later time. The series of gauges don't.
func TestCountersKeepTheirFirstNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMeters()
		o := m.observer(t, cruiseotel.WithMaxScopes(2), cruiseotel.WithKeys(func(_, key string) string { return key }))
		api := cruise.Must(cruise.New(cruise.WithObserver(o), cruise.WithoutLimiter(), cruise.WithMaxAttempts(1)))
		o.Add(api)
		for i := range 5 {
			_ = api.Scope("S", fmt.Sprint(i)).Do(t.Context(), func(context.Context) error {
				return cruise.Throttled(errBoom, cruise.RetryAfter(time.Minute))
			})
			o.Observe(t.Context(), cruise.ThrottleSeen{Scope: fmt.Sprint("limit ", i)})
			assert.Contains(t, m.read(t, "cruise.pause.remaining"), fmt.Sprintf("pause.remaining{S:%d} 60", i))
			time.Sleep(time.Hour)
		}
		assert.Equal(t, []string{
			"pauses{S:0} 1", "pauses{all} 0", "pauses{other} 4",
			"throttles{S:0} 1", "throttles{all} 0", "throttles{limit 0,all} 1", "throttles{limit 1,all} 1", "throttles{other,all} 3", "throttles{other} 4",
		}, m.read(t, "cruise.throttles", "cruise.pauses"))
	})
}

func TestSpansTellTheStoryOfACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spans := tracetest.NewSpanRecorder()
		tracer := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)).Tracer("test")
		o := newMeters().observer(t)
		api := cruise.Must(cruise.New(cruise.WithObserver(o), cruise.WithInitialRate(100), cruise.WithMaxAttempts(2)))
		do := func(name string, err ...error) {
			ctx, span := tracer.Start(t.Context(), name)
			defer span.End()
			_ = api.Do(ctx, func(context.Context) error {
				time.Sleep(10 * time.Millisecond)
				e := err[0]
				err = err[1:]
				return e
			})
		}
		do("first", nil)
		throttled := cruise.Throttled(errBoom, cruise.RetryAfter(3*time.Second))
		var all sync.WaitGroup
		all.Go(func() { do("throttled", throttled, throttled) })
		time.Sleep(10 * time.Millisecond)
		synctest.Wait()
		all.Go(func() { do("behind", nil) })
		all.Wait()

		told := map[string][]string{}
		byName := map[string]sdktrace.ReadOnlySpan{}
		for _, span := range spans.Ended() {
			byName[span.Name()] = span
			for _, e := range span.Events() {
				text := e.Name
				for _, a := range e.Attributes {
					value := a.Value.AsInterface()
					if seconds, ok := value.(float64); ok {
						value = math.Round(seconds*1000) / 1000
					}
					text += " " + fmt.Sprint(value)
				}
				told[span.Name()] = append(told[span.Name()], text)
			}
		}
		assert.Empty(t, told["first"])
		assert.Equal(t, []string{
			"cruise.throttle 1",
			"cruise.retry 2 throttled 0",
			"cruise.wait 3 3 0",
			"cruise.go 2 3",
			"cruise.throttle 2",
			"cruise.give_up attempts_exhausted 2 3",
		}, told["throttled"])
		require.Len(t, told["behind"], 2)
		assert.Contains(t, told["behind"][1], "cruise.go 1 ")
		assert.Empty(t, byName["throttled"].Links(), "not to itself")
		links := byName["behind"].Links()
		require.Len(t, links, 1)
		assert.Equal(t, byName["throttled"].SpanContext().SpanID(), links[0].SpanContext.SpanID())
	})
}

func TestConcurrentUse(t *testing.T) {
	m := newMeters()
	o := m.observer(t)
	api := cruise.Must(cruise.New(cruise.WithObserver(o), cruise.WithMaxAttempts(1)))
	o.Add(api)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for range 100 {
				_ = api.Scope(fmt.Sprint("S", i), "").Do(t.Context(), func(context.Context) error { return nil })
			}
			o.Observe(t.Context(), cruise.ThrottleSeen{Scope: fmt.Sprint(i)})
			m.read(t, "cruise.")
		})
	}
	all.Wait()
	assert.Contains(t, m.read(t, "cruise.attempts"), "attempts{success} 800")
}

// The price of a call without an observer, without an SDK, and with an SDK.
func BenchmarkDo(b *testing.B) {
	reader := sdkmetric.NewManualReader()
	sdk := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	spanned := trace.ContextWithSpan(context.Background(), trace.SpanFromContext(context.Background()))
	for _, bb := range []struct {
		name string
		opts []cruise.Option
	}{
		{"unobserved", nil},
		{"empty observer", []cruise.Option{cruise.WithObserver(cruise.ObserverFunc(func(context.Context, cruise.Event) {}))}},
		{"no SDK", []cruise.Option{cruise.WithObserver(cruise.Must(cruiseotel.New("api", cruiseotel.WithMeterProvider(noop.NewMeterProvider()))))}},
		{"SDK", []cruise.Option{cruise.WithObserver(cruise.Must(cruiseotel.New("api", cruiseotel.WithMeterProvider(sdk))))}},
	} {
		b.Run(bb.name, func(b *testing.B) {
			api := cruise.Must(cruise.New(bb.opts...))
			call := func(context.Context) error { return nil }
			b.ReportAllocs()
			for b.Loop() {
				_ = api.Do(spanned, call)
			}
		})
	}
}

// An Observer may be made before the program's provider of meters. Its counters begin at 0
// all the same.
func TestCountersBeginAtZero(t *testing.T) {
	o, err := cruiseotel.New("early")
	require.NoError(t, err)
	defer o.Close()
	m := newMeters()
	otel.SetMeterProvider(m)
	var all metricdata.ResourceMetrics
	require.NoError(t, m.reader.Collect(t.Context(), &all))
	var names []string
	for _, s := range all.ScopeMetrics {
		for _, m := range s.Metrics {
			names = append(names, m.Name)
		}
	}
	for _, name := range []string{"cruise.attempts", "cruise.retries", "cruise.give_ups", "cruise.throttles", "cruise.rate_cuts", "cruise.pauses"} {
		assert.Contains(t, names, name)
	}
}
