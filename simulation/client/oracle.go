package client

import (
	"context"

	"golang.org/x/time/rate"

	"github.com/a7df5faa/cruise/simulation/engine"
	"github.com/a7df5faa/cruise/simulation/scenario"
)

// Oracle is x/time/rate told the server's true rate, split equally among the
// processes: what a client could do that knew the answer from the beginning.
func Oracle() engine.Client {
	return engine.Client{
		Name:  "oracle",
		About: "yardstick: x/time/rate told its equal share of the true rate, burst 1",
		New: func(e engine.Env) engine.Process {
			share := e.Scenario.Server.Rate.At(0) / float64(e.Scenario.Processes)
			lim := rate.NewLimiter(rate.Limit(share), 1)
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
		Fits: func(s *scenario.Scenario) bool {
			return len(s.Server.Rate) == 1 && paced(s)
		},
	}
}
