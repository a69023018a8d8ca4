package cruiseotel_test

import (
	"context"
	"fmt"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/cruiseotel"
)

func Example() {
	reader := sdkmetric.NewManualReader() // in a program, an exporter
	meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))

	heroku, err := cruiseotel.New("heroku", cruiseotel.WithMeterProvider(meters))
	if err != nil {
		panic(err)
	}
	api, err := cruise.New(cruise.WithObserver(heroku))
	if err != nil {
		panic(err)
	}
	heroku.Add(api)

	_ = api.Do(context.Background(), func(context.Context) error { return nil })
	var all metricdata.ResourceMetrics
	_ = reader.Collect(context.Background(), &all)
	for _, m := range all.ScopeMetrics[0].Metrics {
		fmt.Println(m.Name, m.Unit)
	}
	// Output:
	// cruise.attempts {attempt}
	// cruise.retries {retry}
	// cruise.give_ups {call}
	// cruise.throttles {throttle}
	// cruise.rate_cuts {cut}
	// cruise.pauses {pause}
	// cruise.wait.duration s
	// cruise.pause.remaining s
	// cruise.budget.remaining {retry}
	// cruise.queue.length {call}
	// cruise.scopes {scope}
	// cruise.store.degraded {limiter}
}
