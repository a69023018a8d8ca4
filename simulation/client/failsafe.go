package client

import (
	"context"
	"math"
	"time"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/adaptivelimiter"
	"github.com/failsafe-go/failsafe-go/ratelimiter"
	"github.com/failsafe-go/failsafe-go/retrypolicy"

	"github.com/a7df5faa/cruise/simulation/engine"
)

// FailsafeAdaptive is failsafe-go's limiter of concurrent calls, which learns
// from latency, behind its retries.
func FailsafeAdaptive() engine.Client {
	return engine.Client{
		Name:  "failsafe-adaptive",
		About: "failsafe-go, retries from 1 s to 30 s that heed Retry-After, which its jitter shortens by up to a tenth, adaptive limiter of concurrency that waits",
		New: func(e engine.Env) engine.Process {
			// By default it never waits, and would reject most calls.
			limiter := adaptivelimiter.NewBuilder[any]().WithMaxWaitTime(-1).Build()
			return failsafeProcess(failsafe.With(failsafeRetries(e), limiter))
		},
	}
}

// FailsafeRate is failsafe-go's rate limiter behind its retries. It cannot
// learn, so it is told its share of the true rate.
func FailsafeRate() engine.Client {
	return engine.Client{
		Name:      "failsafe-rate",
		About:     "yardstick: failsafe-go, the retries of failsafe-adaptive and a smooth rate limiter told its equal share of the true rate; processes that begin together go in phase",
		Yardstick: true,
		Fits:      steady,
		New: func(e engine.Env) engine.Process {
			gap := time.Duration(float64(time.Second) / share(e.Scenario))
			limiter := ratelimiter.NewSmoothBuilderWithMaxRate[any](gap).WithMaxWaitTime(math.MaxInt64).Build()
			return failsafeProcess(failsafe.With(failsafeRetries(e), limiter))
		},
	}
}

// failsafeRetries are retries with the delays of its documentation, failsafe-go.dev/retry. Its
// jitter goes up and down, also over a wait from the delay function.
func failsafeRetries(e engine.Env) retrypolicy.RetryPolicy[any] {
	attempts := -1
	if e.Scenario.Attempts > 0 {
		attempts = e.Scenario.Attempts
	}
	return retrypolicy.NewBuilder[any]().
		WithBackoff(time.Second, 30*time.Second).WithJitterFactor(.1).
		WithMaxAttempts(attempts).
		WithDelayFunc(func(x failsafe.ExecutionAttempt[any]) time.Duration {
			if after := failure(x.LastError()).RetryAfter; after > 0 {
				return after
			}
			return -1
		}).Build()
}

func failsafeProcess(executor failsafe.Executor[any]) engine.Process {
	return engine.ProcessFunc(func(ctx context.Context, attempt engine.Attempt) error {
		return executor.WithContext(ctx).RunWithExecution(func(x failsafe.Execution[any]) error {
			_, err := attempt(x.Context())
			return err
		})
	})
}
