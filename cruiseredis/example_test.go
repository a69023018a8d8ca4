package cruiseredis_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/cruisehttp"
	"github.com/a7df5faa/cruise/cruiseredis"
)

// Each host has a limiter, which learns from its throttles: that is the one to share.
func ExampleNewLimiter_http() {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, DialerRetries: 1})
	defer func() { _ = client.Close() }()

	transport, err := cruisehttp.NewTransport(cruisehttp.WithRetrierOptions(
		cruise.WithScopeLimiter(func(scope, key string) (cruise.Limiter, error) {
			return cruiseredis.NewLimiter(client, scope+" "+key, cruise.WithInitialRate(100))
		})))
	if err != nil {
		fmt.Println(err)
		return
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }))
	defer server.Close()
	resp, err := (&http.Client{Transport: transport, Timeout: time.Minute}).Get(server.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = resp.Body.Close() }()
	fmt.Println(resp.Status)
	// Output:
	// 200 OK
}

// The same on every machine: workers of one scope share one rate and every pause. Where
// Redis cannot be reached, as here, calls go on at this worker's share.
func ExampleNewLimiter() {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, DialerRetries: 1})
	defer func() { _ = client.Close() }()

	limiter, err := cruiseredis.NewLimiter(client, "example.com ACCOUNT 4711", cruise.WithInitialRate(100))
	if err != nil {
		fmt.Println(err)
		return
	}
	api := cruise.Must(cruise.New(cruise.WithLimiter(limiter)))

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err = api.Do(ctx, func(context.Context) error { return nil })
	fmt.Println(err, limiter.Stats().Degraded)
	// Output:
	// <nil> true
}
