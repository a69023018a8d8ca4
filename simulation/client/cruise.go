package client

import (
	"context"
	"math"
	"time"

	"github.com/a7df5faa/cruise"

	"github.com/a7df5faa/cruise/simulation/engine"
)

// Cruise is this project's own client: one adaptive limiter with the given
// options for each process, and retries without an end.
func Cruise(name string, opts ...cruise.LimiterOption) engine.Client {
	return engine.Client{
		Name:  name,
		About: "cruise with its adaptive limiter, unlimited attempts",
		Own:   true,
		New: func(e engine.Env) engine.Process {
			attempts := cruise.Unlimited
			if e.Scenario.Attempts > 0 {
				attempts = e.Scenario.Attempts
			}
			options := []cruise.Option{
				cruise.WithLimiter(cruise.Must(cruise.NewAdaptiveLimiter(opts...))),
				cruise.WithMaxAttempts(attempts),
				cruise.WithMaxServerDelay(time.Duration(math.MaxInt64)),
			}
			if e.Scenario.Arrivals == 0 {
				options = append(options, cruise.WithoutBudget())
			}
			r := cruise.Must(cruise.New(options...))
			return engine.ProcessFunc(func(ctx context.Context, attempt engine.Attempt) error {
				return r.Do(ctx, func(ctx context.Context) error {
					quota, err := attempt(ctx)
					if quota.Known || quota.Reset > 0 {
						cruise.Report(ctx, cruise.Quota{Limit: quota.Limit, Remaining: quota.Remaining, Reset: quota.Reset})
					}
					switch f := failure(err); {
					case f.Throttled && f.RetryAfter > 0:
						return cruise.Throttled(err, cruise.RetryAfter(f.RetryAfter))
					case f.Throttled, f.Timeout: // a user of an overloaded queue would classify its timeouts so
						return cruise.Throttled(err)
					case err != nil && ctx.Err() == nil:
						return cruise.Transient(err)
					}
					return err
				})
			})
		},
	}
}
