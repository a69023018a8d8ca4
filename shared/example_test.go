package shared_test

import (
	"context"
	"fmt"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/shared"
)

// Two workers share a limit. On two machines, each would make its own store of the
// same scope, such as that of module cruiseredis.
func ExampleNew() {
	store := shared.NewMemoryStore()
	for range 2 {
		limiter, err := shared.New(store, cruise.WithInitialRate(100))
		if err != nil {
			fmt.Println(err)
			return
		}
		worker := cruise.Must(cruise.New(cruise.WithLimiter(limiter)))
		err = worker.Do(context.Background(), func(context.Context) error { return nil })
		stats := limiter.Stats()
		fmt.Println(err, stats.Limit, stats.Workers, stats.Degraded)
	}
	// Output:
	// <nil> 100 1 false
	// <nil> 100 2 false
}
