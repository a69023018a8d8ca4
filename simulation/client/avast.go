package client

import (
	"context"
	"time"

	"github.com/avast/retry-go/v5"

	"github.com/a7df5faa/cruise/simulation/engine"
)

// Avast is avast/retry-go with its default delays, which have no maximum of
// their own: without one, a call of many attempts would sleep for days.
func Avast() engine.Client {
	return engine.Client{
		Name:  "avast",
		About: "avast/retry-go v5, default delays up to 20 s, heeds Retry-After",
		New: func(e engine.Env) engine.Process {
			usual := retry.CombineDelay(retry.BackOffDelay, retry.RandomDelay)
			delay := func(n uint, err error, c retry.DelayContext) time.Duration {
				if after := failure(err).RetryAfter; after > 0 {
					return after
				}
				return min(usual(n, err, c), 20*time.Second)
			}
			return engine.ProcessFunc(func(ctx context.Context, attempt engine.Attempt) error {
				return retry.New(
					retry.Context(ctx),
					retry.Attempts(uint(e.Scenario.Attempts)), // 0 is without an end here too
					retry.LastErrorOnly(true),
					retry.DelayType(delay),
				).Do(func() error {
					_, err := attempt(ctx)
					return err
				})
			})
		},
	}
}
