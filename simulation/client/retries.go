package client

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/cenkalti/backoff/v7"

	"github.com/a7df5faa/cruise/simulation/engine"
	"github.com/a7df5faa/cruise/simulation/server"
)

// failure is what the simulated server said with err; the zero Error if err is something else.
func failure(err error) server.Error {
	if e, ok := errors.AsType[*server.Error](err); ok {
		return *e
	}
	return server.Error{}
}

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

// Google is the flow that Google's API guides describe: wait 2^n seconds plus
// up to a second at random, at most a minute.
func Google() engine.Client {
	return engine.Client{
		Name:  "google-flow",
		About: "truncated exponential backoff as in Google's guides, 2^n s plus up to 1 s, at most 64 s",
		New: func(e engine.Env) engine.Process {
			return engine.ProcessFunc(func(ctx context.Context, attempt engine.Attempt) error {
				for n := 0; ; n++ {
					_, err := attempt(ctx)
					if err == nil || ctx.Err() != nil || n+1 == e.Scenario.Attempts {
						return err
					}
					delay := time.Second<<min(n, 6) + rand.N(time.Second)
					if err := sleep(ctx, min(delay, 64*time.Second)); err != nil {
						return err
					}
				}
			})
		},
	}
}
