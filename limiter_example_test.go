package cruise_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/time/rate"

	"github.com/a7df5faa/cruise"
)

func ExampleTokenBucket() {
	bucket, err := cruise.NewTokenBucket(rate.Every(time.Minute), 2)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for range 3 {
		err := bucket.WaitN(ctx, 1)
		fmt.Println(err == nil, errors.Is(err, cruise.ErrDeadline), errors.Is(err, context.DeadlineExceeded))
	}
	// Output:
	// true false false
	// true false false
	// false true true
}

// A limiter can be driven by hand, where calls are not made by a Retrier.
func ExampleAdaptiveLimiter() {
	limiter, err := cruise.NewAdaptiveLimiter(cruise.WithInitialRate(1000))
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := limiter.WaitN(context.Background(), 1); err != nil {
		fmt.Println(err)
		return
	}
	sent := time.Now()
	// The server says: 429, Retry-After: 60.
	limiter.Learn(cruise.Feedback{Outcome: cruise.OutcomeThrottled, Sent: sent, Cost: 1, RetryAfter: time.Minute})
	stats := limiter.Stats()
	fmt.Println(stats.Throttles, stats.PauseLeft.Round(time.Second))

	// Everyone behind the limiter pauses; who cannot wait so long is told at once.
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	fmt.Println(errors.Is(limiter.WaitN(ctx, 1), cruise.ErrDeadline))
	// Output:
	// 1 1m0s
	// true
}
