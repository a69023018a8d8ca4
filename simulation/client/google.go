package client

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/a7df5faa/cruise/simulation/engine"
)

// Google is the flow that Google's API guides describe: wait 2^n seconds plus
// up to a second at random, at most a minute. There is no module of it to run.
func Google() engine.Client {
	return engine.Client{
		Name:  "google-flow",
		About: "truncated exponential backoff as in Google's guides, 2^n s plus up to 1 s, at most 64 s, whatever Retry-After says; a loop written for this board",
		New: func(e engine.Env) engine.Process {
			return engine.ProcessFunc(func(ctx context.Context, attempt engine.Attempt) error {
				for n := 0; ; n++ {
					_, err := attempt(ctx)
					if err == nil || ctx.Err() != nil || n+1 == e.Scenario.Attempts {
						return err
					}
					delay := time.Second<<min(n, 6) + rand.N(time.Second)
					if err := engine.Sleep(ctx, min(delay, 64*time.Second)); err != nil {
						return err
					}
				}
			})
		},
	}
}
