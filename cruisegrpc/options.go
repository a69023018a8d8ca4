package cruisegrpc

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc"

	"github.com/a7df5faa/cruise"
)

// DefaultStreamBuffer is the number of bytes of sent messages that a stream keeps for a retry, as
// grpc-go does for its own retries.
const DefaultStreamBuffer = 256 << 10

// An Option tunes an [Interceptor].
type Option func(*config)

type config struct {
	errs       []error
	retrier    []cruise.Option
	classifier func(error) cruise.Verdict
	strict     bool
	scope      func(ctx context.Context, target, method string) string
	named      map[string]bool
	buffer     int
}

func (c *config) fail(format string, args ...any) {
	c.errs = append(c.errs, fmt.Errorf("cruisegrpc: "+format, args...))
}

// WithRetrierOptions tunes the Retrier: attempts, backoff, a budget, an observer, how many scopes are kept
// and for how long. A [cruise.LimiterOption] tunes the limiter of every scope, and
// [cruise.WithScopeLimiter] replaces it. [cruise.WithLimiter] puts one limiter around all scopes;
// then tune the limiters of scopes by WithScopeLimiter. A throttle that names no scope teaches only
// the innermost limiter. So give a known limit to WithLimiter, such as a [cruise.TokenBucket], and
// a limiter that learns to WithScopeLimiter, such as a shared.Limiter. A classifier given here is
// not used: see [WithClassifier].
func WithRetrierOptions(opts ...cruise.Option) Option {
	return func(c *config) {
		for i, opt := range opts { // cruise.New would count options of ours too
			if opt == nil {
				c.fail("WithRetrierOptions: option %d is nil", i+1)
				continue
			}
			c.retrier = append(c.retrier, opt)
		}
	}
}

// WithScope sets the function that names the scope of a call's limit; calls with the same name
// share a limiter. target is the connection's target, method is "/package.Service/Method". Default:
// [ScopeByMethod].
func WithScope(scope func(ctx context.Context, target, method string) string) Option {
	return func(c *config) {
		if scope == nil {
			c.fail("WithScope(nil): want a function")
		}
		c.scope = scope
	}
}

// ScopeByMethod puts each method in its own scope, for servers that limit each method by itself.
func ScopeByMethod(_ context.Context, target, method string) string { return target + method }

// ScopeByService puts all methods of a service in one scope, for servers that limit them together.
func ScopeByService(_ context.Context, target, method string) string {
	return target + method[:max(0, strings.LastIndexByte(method, '/'))]
}

// ScopeByTarget puts all calls to a target in one scope, for servers that limit all calls together.
func ScopeByTarget(_ context.Context, target, _ string) string { return target }

// WithIdempotent names methods that may be retried after any transient failure, even if the server
// may have done the work: "/package.Service/Method", "/package.Service/*" for all methods of a
// service, or "*". Default: the methods that their proto file declares NO_SIDE_EFFECTS or
// IDEMPOTENT. These are always included. Throttled attempts are retried for every method.
func WithIdempotent(methods ...string) Option {
	return func(c *config) {
		for _, m := range methods {
			c.errs = append(c.errs, checkMethod(m))
			c.named[m] = true
		}
	}
}

// WithClassifier asks f for the verdict on an error before [Classify]. An error that f calls
// transient is retried for every method. If f calls Classify, it must pass on its own error, or one
// that wraps it: that error holds the trailer, and knows whether the method may be called twice.
func WithClassifier(f func(error) cruise.Verdict) Option {
	return func(c *config) {
		if f == nil {
			c.errs = append(c.errs, errors.New("cruisegrpc: WithClassifier(nil): want a function"))
		}
		c.classifier = f
	}
}

// WithStrict makes RESOURCE_EXHAUSTED permanent unless the server asks for a retry, or Envoy
// reports a rate limit: see [ClassifyStrict].
func WithStrict() Option { return func(c *config) { c.strict = true } }

// WithStreamBuffer sets how many bytes of sent messages a stream keeps so that it can be retried: 0
// or more, including the 5 bytes that gRPC puts before each message. A stream that has sent more is
// not retried. A message that is not a [google.golang.org/protobuf/proto.Message] counts as 16 KiB.
// Messages must not be changed after they were sent, as a retry would send the changed messages. So
// give 0 to a proxy that receives all messages into one variable. Default: 256 KiB.
func WithStreamBuffer(bytes int) Option {
	return func(c *config) {
		if bytes < 0 {
			c.fail("WithStreamBuffer(%d): want 0 or more", bytes)
		}
		c.buffer = bytes
	}
}

// Cost returns a call option that sets the call's cost at the limiter, for APIs that count units
// instead of calls: 0 or more, where 0 is free. Default: 1.
func Cost(n int) grpc.CallOption { return costOption{cost: n} }

type costOption struct {
	grpc.EmptyCallOption
	cost int
}
