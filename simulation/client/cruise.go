package client

import (
	"context"
	"math"
	"time"

	"golang.org/x/time/rate"

	"github.com/a7df5faa/cruise"

	"github.com/a7df5faa/cruise/simulation/engine"
)

// Cruise is this project's own client: one adaptive limiter with the given
// options for each process, and retries without an end. It keeps its retry budget where
// calls arrive by themselves, as the AWS SDK does, and where their attempts are bounded.
func Cruise(name string, opts ...cruise.LimiterOption) engine.Client {
	return engine.Client{
		Name:  name,
		About: "cruise with its adaptive limiter, unlimited attempts, no retry budget but in open loops and where attempts are bounded",
		Own:   true,
		New: func(e engine.Env) engine.Process {
			options := []cruise.Option{cruise.WithLimiter(cruise.Must(cruise.NewAdaptiveLimiter(opts...)))}
			if e.Scenario.Arrivals == 0 && e.Scenario.Attempts == 0 {
				options = append(options, cruise.WithoutBudget())
			}
			return retrier(e, options...)
		},
	}
}

// Told is Cruise with limiters that begin at a part of their fair share, as if they had learnt it
// before. Its lead over Cruise is the price of finding an unknown limit.
func Told() engine.Client {
	return engine.Client{
		Name:      "cruise-told",
		About:     "yardstick: cruise, told 0.8 of its fair share when it begins, and nothing later",
		Yardstick: true,
		Fits:      paced,
		New: func(e engine.Env) engine.Process {
			share := fair(e.Scenario, e.Scenario.Server.Gives(), time.Since(e.Start))
			return Cruise("", cruise.WithInitialRate(rate.Limit(pacerPart*share))).New(e)
		},
	}
}

// retrier is a Retrier with the given options that makes as many attempts as the
// scenario allows and waits as long as the server says, or by default at most where
// it bounds the attempts of callers that wait for each call.
func retrier(e engine.Env, opts ...cruise.Option) engine.Process {
	attempts := math.MaxInt
	if e.Scenario.Attempts > 0 {
		attempts = e.Scenario.Attempts
	}
	opts = append(opts, cruise.WithMaxAttempts(attempts))
	if e.Scenario.Attempts == 0 || e.Scenario.Arrivals > 0 {
		opts = append(opts, cruise.WithMaxServerDelay(time.Duration(math.MaxInt64)))
	}
	r := cruise.Must(cruise.New(opts...))
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
}
