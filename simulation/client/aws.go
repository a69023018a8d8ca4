package client

import (
	"context"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/aws/retry"

	"github.com/a7df5faa/cruise/simulation/engine"
)

// AWS is the adaptive retry mode of the AWS SDK, with unlimited attempts and
// without its retry quota, which adaptive mode never refills. Its own wait for
// a token is cut to whole nanoseconds and never ends under virtual time, so
// it is told to fail instead and asked again after a short while.
func AWS() engine.Client {
	return engine.Client{
		Name:  "aws-adaptive",
		About: "aws-sdk-go-v2 adaptive mode, unlimited attempts, no retry quota",
		New: func(e engine.Env) engine.Process {
			throttled := retry.IsErrorThrottleFunc(func(err error) aws.Ternary {
				return aws.BoolTernary(failure(err).Throttled)
			})
			mode := retry.NewAdaptiveMode(func(o *retry.AdaptiveModeOptions) {
				o.FailOnNoAttemptTokens = true
				o.Throttles = append(o.Throttles, throttled)
				o.StandardOptions = append(o.StandardOptions, func(o *retry.StandardOptions) {
					o.RateLimiter = ratelimit.None
				})
			})
			poll := max(2*time.Millisecond, time.Duration(.05/e.Scenario.Server.Rate.Highest(e.Scenario.Duration)*float64(time.Second)))
			if e.Scenario.Server.Rate.Highest(e.Scenario.Duration) == 0 {
				poll = 40 * time.Millisecond
			}
			return &awsAdaptive{mode: mode, poll: poll, attempts: e.Scenario.Attempts}
		},
	}
}

type awsAdaptive struct {
	mode     *retry.AdaptiveMode
	poll     time.Duration
	attempts int
}

// Call is the loop of the SDK's retry middleware.
func (a *awsAdaptive) Call(ctx context.Context, attempt engine.Attempt) error {
	for n := 1; ; n++ {
		release, err := a.mode.GetAttemptToken(ctx)
		for err != nil {
			if err := sleep(ctx, a.poll); err != nil {
				return err
			}
			release, err = a.mode.GetAttemptToken(ctx)
		}
		_, err = attempt(ctx)
		release(err)
		if err == nil || ctx.Err() != nil || n == a.attempts {
			return err
		}
		delay, e := a.mode.RetryDelay(n, err)
		if e != nil {
			return e
		}
		if e := sleep(ctx, delay); e != nil {
			return e
		}
	}
}
