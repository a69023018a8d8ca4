package client

import (
	"context"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/aws/retry"

	"github.com/a7df5faa/cruise/simulation/engine"
)

// AWS is the adaptive retry mode of the AWS SDK, with unlimited attempts. Where calls
// have to be done it has no retry quota, which adaptive mode never refills up to v1.47;
// where they arrive by themselves it keeps its own, as the others do there. Its own wait for
// a token is cut to whole nanoseconds and never ends under virtual time, so
// it is told to fail instead and asked again after a short while.
func AWS() engine.Client {
	return engine.Client{
		Name:  "aws-adaptive",
		About: "aws-sdk-go-v2 adaptive mode, unlimited attempts, no retry quota but in open loops; it knows no Retry-After",
		New: func(e engine.Env) engine.Process {
			throttled := retry.IsErrorThrottleFunc(func(err error) aws.Ternary {
				f := failure(err)
				return aws.BoolTernary(f.Throttled || f.Timeout) // as retrier classifies them
			})
			mode := retry.NewAdaptiveMode(func(o *retry.AdaptiveModeOptions) {
				o.FailOnNoAttemptTokens = true
				o.Throttles = append(o.Throttles, throttled)
				if e.Scenario.Arrivals == 0 {
					o.StandardOptions = append(o.StandardOptions, func(o *retry.StandardOptions) {
						o.RateLimiter = ratelimit.None
					})
				}
			})
			return &awsAdaptive{mode: mode, env: e}
		},
	}
}

type awsAdaptive struct {
	mode *retry.AdaptiveMode
	env  engine.Env
}

// slowest is the time between tokens at the least rate that the SDK's limiter sets.
const slowest = 2 * time.Second

// poll is how long a caller waits before it asks again: such that all callers of a
// process together ask fifty times for each token, which delays them by a hundredth on
// average, if tokens come at the process's share of the server's rate, or at the least
// rate. A call that arrives by itself asks ten times in the time for which it waits for
// an answer.
func (a *awsAdaptive) poll() time.Duration {
	s := a.env.Scenario
	if s.Arrivals > 0 {
		return max(2*time.Millisecond, s.Timeout/10)
	}
	each := s.Latency / time.Duration(s.Callers) // between two tokens
	if rate := s.Server.Rate.At(time.Since(a.env.Start)); rate > 0 {
		each = time.Duration(min(slowest.Seconds(), float64(s.Processes)/rate) * float64(time.Second))
	}
	return max(2*time.Millisecond, time.Duration(s.Callers)*each/50)
}

// Call is the loop of the SDK's retry middleware.
func (a *awsAdaptive) Call(ctx context.Context, attempt engine.Attempt) error {
	retried := func(error) error { return nil }
	for n := 1; ; n++ {
		release, err := a.mode.GetAttemptToken(ctx)
		for err != nil {
			if err := ctx.Err(); err != nil {
				return err
			}
			time.Sleep(a.poll())
			release, err = a.mode.GetAttemptToken(ctx)
		}
		_, err = attempt(ctx)
		release(err)
		retried(err)
		if err == nil || ctx.Err() != nil || n == a.env.Scenario.Attempts {
			return err
		}
		var e error
		if retried, e = a.mode.GetRetryToken(ctx, err); e != nil {
			return err
		}
		delay, e := a.mode.RetryDelay(n, err)
		if e != nil {
			return e
		}
		if e := engine.Sleep(ctx, delay); e != nil {
			return e
		}
	}
}
