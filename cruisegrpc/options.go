package cruisegrpc

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc"

	"github.com/a7df5faa/cruise"
)

// DefaultStreamBuffer is how many bytes of sent messages a stream keeps for a
// retry: what grpc-go keeps for its own.
const DefaultStreamBuffer = 256 << 10

// An Option tunes an [Interceptor].
type Option func(*config)

type config struct {
	errs       []error
	retrier    []cruise.Option
	classifier cruise.Classifier
	strict     bool
	scope      func(ctx context.Context, target, method string) string
	named      map[string]bool
	buffer     int
}

func (c *config) fail(format string, args ...any) {
	c.errs = append(c.errs, fmt.Errorf("cruisegrpc: "+format, args...))
}

// WithRetrierOptions tunes the Retrier: attempts, backoff, a budget, an observer, how
// many scopes are kept and for how long. A [cruise.LimiterOption] tunes the
// limiter of every scope, [cruise.WithScopeLimiter] replaces it, and a
// [cruise.WithLimiter] is a limit around all of them, beside which WithScopeLimiter does
// the tuning. A throttle that names no scope teaches the innermost limiter alone, so give
// WithLimiter what you know, such as a [cruise.TokenBucket], and share what is to be learnt,
// such as a shared.Limiter, by WithScopeLimiter. A classifier given here is not used:
// see [WithClassifier].
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

// WithScope names what a call's limit belongs to; calls with one name share a
// limiter. target is that of the connection, method is
// "/package.Service/Method". Default [ScopeByMethod].
func WithScope(scope func(ctx context.Context, target, method string) string) Option {
	return func(c *config) {
		if scope == nil {
			c.fail("WithScope(nil): want a function")
		}
		c.scope = scope
	}
}

// ScopeByMethod is for servers that limit each method by itself.
func ScopeByMethod(_ context.Context, target, method string) string { return target + method }

// ScopeByService is for servers that limit all methods of a service together.
func ScopeByService(_ context.Context, target, method string) string {
	return target + method[:max(0, strings.LastIndexByte(method, '/'))]
}

// ScopeByTarget is for servers that limit all calls together.
func ScopeByTarget(_ context.Context, target, _ string) string { return target }

// WithIdempotent names methods that may be retried after any transient failure,
// even if the server may have done the work: "/package.Service/Method",
// "/package.Service/*" for all methods of a service, or "*". Default: those whose
// proto file declares them NO_SIDE_EFFECTS or IDEMPOTENT, which are always
// included. Throttled attempts are retried for every method.
func WithIdempotent(methods ...string) Option {
	return func(c *config) {
		for _, m := range methods {
			c.errs = append(c.errs, checkMethod(m))
			c.named[m] = true
		}
	}
}

// WithClassifier asks f what an error of a call means before [Classify] is
// asked. What it calls transient is retried for every method. An f that asks
// Classify in turn must hand on the error that it got, or one that wraps it: that
// one knows the trailer, and whether the method may be called twice.
func WithClassifier(f cruise.Classifier) Option {
	return func(c *config) {
		if f == nil {
			c.errs = append(c.errs, errors.New("cruisegrpc: WithClassifier(nil): want a Classifier"))
		}
		c.classifier = f
	}
}

// WithStrict makes RESOURCE_EXHAUSTED permanent unless the server says to come again, or
// Envoy that it limits a rate: see [ClassifyStrict].
func WithStrict() Option { return func(c *config) { c.strict = true } }

// WithStreamBuffer is how many bytes of sent messages a stream keeps so that it
// can be retried, 0 or more, with the 5 bytes that gRPC puts before each; a stream
// that has sent more is not retried. A message that is not a
// [google.golang.org/protobuf/proto.Message] counts as 16 KiB. Messages must not be
// changed after they were sent, as a retry would send what they are by then. So give 0
// to a proxy that receives one message after the other into the same. Default 256 KiB.
func WithStreamBuffer(bytes int) Option {
	return func(c *config) {
		if bytes < 0 {
			c.fail("WithStreamBuffer(%d): want 0 or more", bytes)
		}
		c.buffer = bytes
	}
}

// Cost is a call option: what the call costs at the limiter, for APIs that count
// units rather than calls: 0 or more, 0 being free. Default 1.
func Cost(n int) grpc.CallOption { return costOption{cost: n} }

type costOption struct {
	grpc.EmptyCallOption
	cost int
}
