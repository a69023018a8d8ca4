package client

import (
	"context"

	"github.com/cenkalti/backoff/v7"

	"github.com/a7df5faa/cruise/simulation/engine"
)

// Cenkalti is cenkalti/backoff with its default intervals.
func Cenkalti() engine.Client {
	return engine.Client{
		Name:  "cenkalti",
		About: "cenkalti/backoff v7, default intervals, heeds Retry-After",
		New: func(e engine.Env) engine.Process {
			limits := []backoff.RetryOption{
				backoff.WithMaxElapsedTime(0),
				backoff.WithMaxTries(uint(e.Scenario.Attempts)),
			}
			return engine.ProcessFunc(func(ctx context.Context, attempt engine.Attempt) error {
				_, err := backoff.Retry(ctx, func() (struct{}, error) {
					_, err := attempt(ctx)
					if after := failure(err).RetryAfter; after > 0 {
						return struct{}{}, backoff.RetryAfter(after, err)
					}
					return struct{}{}, err
				}, limits...)
				return err
			})
		},
	}
}
