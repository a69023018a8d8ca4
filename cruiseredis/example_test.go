package cruiseredis_test

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/cruiseredis"
)

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
