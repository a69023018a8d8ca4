package client

import (
	"context"
	"time"

	"github.com/sethvargo/go-retry"

	"github.com/a7df5faa/cruise/simulation/engine"
)

// Sethvargo is sethvargo/go-retry: exponential from 0.2 s to 20 s, full jitter.
func Sethvargo() engine.Client {
	return engine.Client{
		Name:  "sethvargo",
		About: "sethvargo/go-retry, exponential from 0.2 s to 20 s, full jitter, heeds Retry-After",
		New: func(e engine.Env) engine.Process {
			return engine.ProcessFunc(func(ctx context.Context, attempt engine.Attempt) error {
				// A backoff keeps state and does not see the error: so each call has its own, and a
				// variable between the two holds the server's wait.
				var after time.Duration
				usual := retry.WithFullJitter(retry.WithCappedDuration(20*time.Second, retry.NewExponential(200*time.Millisecond)))
				var backoff retry.Backoff = retry.BackoffFunc(func() (time.Duration, bool) {
					d, stop := usual.Next()
					if after > 0 {
						d = after
					}
					return d, stop
				})
				if n := e.Scenario.Attempts; n > 0 {
					backoff = retry.WithMaxRetries(uint64(n-1), backoff)
				}
				return retry.Do(ctx, backoff, func(ctx context.Context) error {
					_, err := attempt(ctx)
					after = failure(err).RetryAfter
					return retry.RetryableError(err)
				})
			})
		},
	}
}
