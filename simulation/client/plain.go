package client

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/a7df5faa/cruise/simulation/engine"
	"github.com/a7df5faa/cruise/simulation/scenario"
)

// Plain is the simplest patient client for a job: every worker sends, and each throttled call waits
// by itself, as long as the server says, or else by exponential backoff. The time of a job with it
// is the measure for other clients.
func Plain() engine.Client {
	const least, most = 100 * time.Millisecond, 20 * time.Second
	return engine.Client{
		Name:      "plain",
		About:     "yardstick for jobs: each call waits for itself alone, for Retry-After or else 0.1 s, doubled to 20 s, full jitter, and gives up never",
		Yardstick: true,
		Fits:      func(s *scenario.Scenario) bool { return s.Finite() > 0 },
		New: func(e engine.Env) engine.Process {
			return engine.ProcessFunc(func(ctx context.Context, attempt engine.Attempt) error {
				for backoff := least; ; backoff = min(2*backoff, most) {
					_, err := attempt(ctx)
					if err == nil || ctx.Err() != nil {
						return err
					}
					wait := failure(err).RetryAfter
					if wait == 0 {
						wait = rand.N(backoff)
					}
					if err := engine.Sleep(ctx, wait); err != nil {
						return err
					}
				}
			})
		},
	}
}
