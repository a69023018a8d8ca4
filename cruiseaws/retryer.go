package cruiseaws

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/smithy-go/middleware"

	"github.com/a7df5faa/cruise"
)

// Retryer returns t as a retryer, for places that accept only a retryer, such as
// config.WithRetryer:
//
//	config.WithRetryer(func() aws.Retryer { return throttle.Retryer() })
//
// Prefer [Throttle.Configure]. A shared retryer cannot tell which call an attempt belongs to:
//
//   - A call has at most 5 attempts, cruise's default backoff and the SDK's own retry quota (500
//     tokens; 14 for a retry, 5 after a throttle; in the older mode, up to v1.47, 5, or 10 after a
//     timeout). It has no retry after an answer that asks for a longer wait than
//     5 minutes.
//   - Its table is unknown, and a limit around all operations does not hold for it.
//   - The limiters, one for each operation, belong to this Retryer alone. They learn of every
//     attempt that is sent. An attempt that the SDK gives up before it is sent, since its body
//     cannot seek, counts as in flight from then on.
func (t *Throttle) Retryer() aws.RetryerV2 {
	if t == nil {
		t = &Throttle{}
	}
	opts := append([]cruise.Option{}, t.retrier...)
	return &sharedRetryer{
		throttle: t,
		base:     cruise.Must(cruise.New(append(opts, cruise.WithoutLimiter())...)), // it was good before
		quota:    retry.NewStandard(),
		newer:    newRetries(),
	}
}

type sharedRetryer struct {
	throttle *Throttle
	base     *cruise.Retrier
	quota    *retry.Standard
	newer    bool        // the SDK's mode
	pauses   atomic.Bool // the limiters do
}

// Defaults of a [cruise.Retrier].
const (
	maxAttempts    = 5
	maxServerDelay = 5 * time.Minute
)

var (
	sharedBackoff         = cruise.Must(cruise.NewBackoff())
	sharedThrottleBackoff = cruise.Must(cruise.NewBackoff(cruise.WithBase(time.Second)))
)

func (s *sharedRetryer) IsErrorRetryable(err error) bool {
	v := s.throttle.ofAttempt(err, 1)
	again := !v.NoRetry && (v.Outcome == cruise.OutcomeThrottled || v.Outcome == cruise.OutcomeTransient)
	return again && v.RetryAfter <= maxServerDelay
}

func (s *sharedRetryer) MaxAttempts() int { return maxAttempts }

func (s *sharedRetryer) GetInitialToken() func(error) error { return func(error) error { return nil } }

func (s *sharedRetryer) RetryDelay(attempt int, err error) (time.Duration, error) {
	v := s.throttle.ofAttempt(err, max(1, attempt))
	if !s.newer {
		attempt-- // the older mode counts from 1
	}
	if v.Outcome != cruise.OutcomeThrottled {
		return max(v.RetryAfter, sharedBackoff.Delay(attempt+1, 0)), nil
	}
	if s.pauses.Load() {
		return 0, nil // for all calls
	}
	return max(v.RetryAfter, sharedThrottleBackoff.Delay(attempt+1, 0)), nil
}

var errNoLimiter = errors.New("cruiseaws: WithScopeLimiter's function failed")

func (s *sharedRetryer) GetAttemptToken(ctx context.Context) (func(error) error, error) {
	if s.throttle.base == nil {
		return nil, errZeroThrottle
	}
	limiter := s.limiter(ctx)
	if limiter == nil {
		return nil, errNoLimiter
	}
	_, learns := limiter.(cruise.Learner)
	s.pauses.Store(learns)
	if err := limiter.WaitN(ctx, 1); err != nil {
		return nil, err
	}
	refund, err := s.quota.GetAttemptToken(ctx)
	if err != nil {
		return nil, err
	}
	sent := time.Now()
	return func(err error) error {
		s.learn(ctx, limiter, sent, err)
		return refund(err)
	}, nil
}

// GetRetryToken returns the function that the SDK calls at the end of the next attempt. In the
// newer mode nothing else reports that end. The moment at which the attempt was let go is unknown
// then, so it counts as sent now: at worst its throttle is ignored as outdated.
func (s *sharedRetryer) GetRetryToken(ctx context.Context, err error) (func(error) error, error) {
	refund, err := s.quota.GetRetryToken(ctx, err)
	limiter := s.limiter(ctx)
	if err != nil || !s.newer {
		return refund, err
	}
	asked := time.Now()
	return func(err error) error {
		s.learn(ctx, limiter, asked, err)
		return refund(err)
	}, nil
}

func (s *sharedRetryer) limiter(ctx context.Context) cruise.Limiter {
	return s.base.Scope(ScopeOperation, s.throttle.scope(operationOf(ctx, nil))).Limiter()
}

func (s *sharedRetryer) learn(ctx context.Context, l cruise.Limiter, sent time.Time, err error) {
	learner, ok := l.(cruise.Learner)
	if !ok {
		return
	}
	v := s.throttle.ofAttempt(err, 1)
	switch {
	case err != nil && ctx.Err() != nil:
		v = cruise.Verdict{Outcome: cruise.OutcomeDropped}
	case v.Outcome == cruise.OutcomeUnknown:
		v = cruise.Classify(err)
	}
	learner.Learn(cruise.Feedback{Outcome: v.Outcome, Sent: sent, Cost: 1, RetryAfter: v.RetryAfter, Scope: v.Scope})
}

// newRetries finds out the SDK's mode by a try: the newer mode counts retries from 0.
// AWS_NEW_RETRIES_2026 alone doesn't show it, as v1.48.0 no longer reads it.
func newRetries() bool {
	var t try
	loop := retry.NewAttemptMiddleware(&t, func(request any) any { return request })
	_, _, _ = loop.HandleFinalize(context.Background(), middleware.FinalizeInput{}, middleware.FinalizeHandlerFunc(
		func(context.Context, middleware.FinalizeInput) (out middleware.FinalizeOutput, metadata middleware.Metadata, err error) {
			return out, metadata, errTry
		}))
	return t.newer
}

var errTry = errors.New("cruiseaws: try of the SDK's loop")

// try is a retryer that never retries.
type try struct {
	aws.NopRetryer
	newer bool
}

func (*try) IsErrorRetryable(error) bool { return true }
func (*try) MaxAttempts() int            { return 0 }

func (t *try) RetryDelay(attempt int, err error) (time.Duration, error) {
	t.newer = attempt == 0
	return 0, err
}
