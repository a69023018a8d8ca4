package client

import (
	"context"

	"golang.org/x/time/rate"

	"github.com/a7df5faa/cruise/simulation/engine"
)

// Oracle is x/time/rate told the server's true rate, split equally among the processes: the best of
// a client that knows the answer from the beginning.
func Oracle() engine.Client {
	return engine.Client{
		Name:      "oracle",
		About:     "yardstick: x/time/rate told its equal share of the true rate, burst 1; processes that begin together go in phase",
		Yardstick: true,
		Fits:      steady,
		New: func(e engine.Env) engine.Process {
			lim := rate.NewLimiter(rate.Limit(share(e.Scenario)), 1)
			return engine.ProcessFunc(func(ctx context.Context, attempt engine.Attempt) error {
				for n := 1; ; n++ {
					if err := lim.Wait(ctx); err != nil {
						return err
					}
					_, err := attempt(ctx)
					if err == nil || ctx.Err() != nil || n == e.Scenario.Attempts {
						return err
					}
				}
			})
		},
	}
}
