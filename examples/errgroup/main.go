// Errgroup shows a pool of 20 workers that describes 1,000 clusters through one cruise.Retrier.
// The server on this machine admits 4 calls a second and 10 at once, and answers Throttling to
// the rest. At that rate the work takes 250 seconds, so everything is 20 times as fast.
//
//	go run ./examples/errgroup
//	go run ./examples/errgroup -speed 1
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/a7df5faa/cruise"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
)

// throttling is an error as the cloud's SDK has it; cruise knows its code.
type throttling struct{}

func (throttling) Error() string     { return "ThrottlingException: Rate exceeded" }
func (throttling) ErrorCode() string { return "ThrottlingException" }

// A cloud answers as many calls as its limit allows.
type cloud struct {
	limit     *rate.Limiter
	throttled atomic.Int64
}

func (c *cloud) DescribeCluster(_ context.Context, name string) (string, error) {
	time.Sleep(5 * time.Millisecond) // the network
	if !c.limit.Allow() {
		c.throttled.Add(1)
		return "", throttling{}
	}
	return name + " is ACTIVE", nil
}

func check(clusters, workers int, speed float64) error {
	switch {
	case flag.NArg() > 0:
		return fmt.Errorf("unexpected argument %q: all options are flags, see -h", flag.Arg(0))
	case clusters < 1 || clusters > 1_000_000:
		return fmt.Errorf("-clusters %d: want 1 to 1000000", clusters)
	case workers < 1 || workers > 1000:
		return fmt.Errorf("-workers %d: want 1 to 1000", workers)
	case !(speed >= .01 && speed <= 1000):
		return fmt.Errorf("-speed %v: want 0.01 to 1000", speed)
	}
	return nil
}

func main() {
	clusters := flag.Int("clusters", 1000, "how many to describe")
	workers := flag.Int("workers", 20, "how many calls at once")
	speed := flag.Float64("speed", 20, "how many times as fast as 4 calls a second")
	flag.Parse()
	if err := check(*clusters, *workers, *speed); err != nil {
		fmt.Fprintln(os.Stderr, "errgroup:", err)
		os.Exit(2)
	}

	perSecond := rate.Limit(4 * *speed)
	server := &cloud{limit: rate.NewLimiter(perSecond, 10)}

	// Bulk work has time: throttles are waited out, however many there are.
	retrier := cruise.Must(cruise.New(cruise.WithUncountedThrottles()))

	start := time.Now()
	var active atomic.Int64
	group, ctx := errgroup.WithContext(context.Background())
	group.SetLimit(*workers)
	for i := range *clusters {
		group.Go(func() error {
			_, err := cruise.DoValue(ctx, retrier, func(ctx context.Context) (string, error) {
				return server.DescribeCluster(ctx, fmt.Sprintf("cluster-%d", i))
			})
			if err == nil {
				active.Add(1)
			}
			return err
		})
	}
	err := group.Wait()
	took := time.Since(start).Seconds()
	fmt.Printf("described %d clusters in %.1f s, %.0f %% of the time that the limit needs; %d calls were throttled\n",
		active.Load(), took, 100*took*float64(perSecond)/float64(*clusters), server.throttled.Load())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
