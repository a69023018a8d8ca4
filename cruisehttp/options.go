package cruisehttp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/cruisehttp/signal"
	"github.com/a7df5faa/cruise/internal/nils"
)

// An Option tunes a [Transport].
type Option func(*config)

type config struct {
	errs           []error
	base           http.RoundTripper
	options        []cruise.Option
	levels         []level
	bucketHeader   string
	bucketRoute    func(*http.Request) string
	profile        signal.Profile
	longWait       time.Duration
	buffer         int64
	headerTimeout  time.Duration
	attemptTimeout time.Duration
	onlyIdempotent bool
	anyMethod      bool
	keyHeaders     []string // that make a request idempotent
	statuses       []int    // that are retried, though they look permanent
	quotaResponses bool
	noRetryAfter   bool
}

// want adds an error unless ok holds.
func (c *config) want(ok bool, format string, args ...any) {
	if !ok {
		c.errs = append(c.errs, fmt.Errorf("cruisehttp: "+format, args...))
	}
}

// WithRoundTripper sets the RoundTripper that sends the requests, beneath the Transport. Default:
// [http.DefaultTransport]. nil is an error.
func WithRoundTripper(base http.RoundTripper) Option {
	return func(c *config) {
		c.want(base != nil, "WithRoundTripper(nil): want a RoundTripper")
		c.want(base == nil || !nils.Is(base), "WithRoundTripper(nil %T): want a RoundTripper", base)
		c.base = base
	}
}

// WithRetrierOptions tunes the [cruise.Retrier] around all scopes, with everything that
// [cruise.New] takes:
//
//   - Each scope has its own adaptive limiter, tuned by any [cruise.LimiterOption], or a limiter
//     made by [cruise.WithScopeLimiter].
//   - [cruise.WithLimiter] puts one limiter around all scopes: it limits all hosts and keys
//     together. To limit each of them, use WithScopeLimiter. A LimiterOption cannot be combined
//     with WithLimiter; tune the limiters of scopes by WithScopeLimiter. A throttle that names no
//     scope teaches only the innermost limiter. So give a known limit to WithLimiter, such as a
//     [cruise.TokenBucket], and a limiter that learns to WithScopeLimiter, such as a
//     shared.Limiter.
//   - Each scope has its own retry budget, unless [cruise.WithBudget] sets one for all requests.
//   - [cruise.WithMaxScopes] and [cruise.WithScopeIdle] bound the scopes that are
//     remembered.
//   - A classifier given by [cruise.WithClassifier] sees a [*ResponseError] for each response that
//     is no success, and decides its outcome.
//   - With [cruise.WithNestedRetries], requests within a background call of another Retrier are
//     background work too ([cruise.WithBackground]). The other Retrier must be
//     [cruise.WithoutLimiter] and make one attempt.
//   - Prefer the timeouts of this package: a [cruise.WithAttemptTimeout] ends with the response's
//     head.
func WithRetrierOptions(opts ...cruise.Option) Option {
	return func(c *config) {
		for i, opt := range opts { // cruise.New would count options of ours too
			if c.want(opt != nil, "WithRetrierOptions: option %d is nil", i+1); opt != nil {
				c.options = append(c.options, opt)
			}
		}
	}
}

// WithScope groups the requests that the server counts together: requests with the same key share a
// limiter and its pauses. Given several times, each scope is within the one before, and requests
// obey the limiters of all. Default: [HostKey] in [GlobalScope], whose place the first one given
// takes. To keep a limit of the host around others, give that first, as WithScope([GlobalScope],
// [HostKey]). See [HeaderKey] for limits of a token or account.
//
// A throttle concerns the scope whose name the response blames ([signal.Signal.Scope]), such as
// DEVELOPER or ACCOUNT, or else the innermost. key is called for each request, so it must be safe
// for concurrent use; keys should hold no secrets. A request for which it returns "" is in no scope
// of that name.
func WithScope(name string, key func(*http.Request) string) Option {
	return func(c *config) {
		c.want(name != "" && key != nil, "WithScope(%q): want a name and a key", name)
		c.levels = append(c.levels, level{name, key})
	}
}

// WithBuckets groups requests by a header of the response that names their limit, such as
// X-RateLimit-Bucket of Discord or X-RateLimit-Resource of GitHub. Within the other scopes, each
// route has its own [BucketScope] until a response names its bucket; from then on, all routes of a
// bucket share one. A nil route is the method and path of the request, which is right if paths hold
// no identifiers.
//
// Different limits must have different names. Discord's names leave out the channel, guild or
// webhook: put a scope for it around, by WithScope([GlobalScope], [HostKey]) and
// WithScope("channel", …).
func WithBuckets(header string, route func(*http.Request) string) Option {
	return func(c *config) {
		c.want(header != "", "WithBuckets without the name of a header")
		if route == nil {
			route = methodAndPath
		}
		c.bucketHeader, c.bucketRoute = header, route
	}
}

func methodAndPath(req *http.Request) string {
	if req.URL == nil {
		return req.Method
	}
	return req.Method + " " + req.URL.Path
}

// WithProfile sets the profile by which responses are read. Default: [signal.Generic], which
// recognises providers by itself.
func WithProfile(p signal.Profile) Option {
	return func(c *config) { c.profile = p }
}

// WithLongWait sets the wait above which a throttle counts as a used-up quota. It must be above 0.
// Default: [signal.DefaultLongWait], an hour.
func WithLongWait(d time.Duration) Option {
	return func(c *config) {
		if c.want(d > 0, "WithLongWait(%v): want above 0", d); d > 0 {
			c.longWait = d
		}
	}
}

// WithBufferedBodies reads request bodies of up to max bytes into memory, so that they can be sent
// again. It does so only for a request that has neither GetBody nor a body that can seek. Requests
// with longer bodies are sent once. The body, or max+1 bytes of it, is read before the request
// enters the queue, and stays in memory while the request waits. The request's context, or the
// Timeout of the [http.Client], bounds the reading; timeouts of attempts don't. max must be above
// 0. Default: no body is buffered.
func WithBufferedBodies(max int64) Option {
	return func(c *config) {
		c.want(max > 0, "WithBufferedBodies(%d): want bytes above 0", max)
		c.buffer = max
	}
}

// WithHeaderTimeout bounds the time from the start of an attempt to the head of its response. It
// must be above 0. An attempt that takes longer is a transient failure. The same time bounds the
// wait for the body of an error. The time in the limiter does not count. Default: none.
func WithHeaderTimeout(d time.Duration) Option {
	return func(c *config) {
		c.want(d > 0, "WithHeaderTimeout(%v): want above 0", d)
		c.headerTimeout = d
	}
}

// WithAttemptTimeout bounds the time of an attempt until the body of its response has been read and
// closed. It must be above 0. Before the response is returned, a timeout is a transient failure.
// Afterwards it is an error of reading the body, and is not retried. The time in the limiter does
// not count, nor the time of an upgraded connection. Default: none.
func WithAttemptTimeout(d time.Duration) Option {
	return func(c *config) {
		c.want(d > 0, "WithAttemptTimeout(%v): want above 0", d)
		c.attemptTimeout = d
	}
}

// WithOnlyIdempotent sends a request that is not idempotent only once, even if it was throttled, or
// if the server asks for a retry by a header such as X-Should-Retry. Default: such a request is
// sent again then, since the server has done nothing. A request that was not sent at all, or that
// the server has not begun by the rules of HTTP/2, is sent again all the same.
func WithOnlyIdempotent() Option {
	return func(c *config) { c.onlyIdempotent = true }
}

// WithAnyMethod sends requests of any method again after any failure worth a retry, as [AllowRetry]
// does for one context. Use it for APIs in which doing the work twice does no harm, or whose
// clients retry every request by themselves. It is an error beside [WithOnlyIdempotent]. Default: only
// requests of idempotent methods.
func WithAnyMethod() Option {
	return func(c *config) { c.anyMethod = true }
}

// WithIdempotencyHeader names a header by which the server recognises a repeated request, in
// addition to Idempotency-Key and X-Idempotency-Key. A request with that header is idempotent, of
// any method. The option may be given more than once.
func WithIdempotencyHeader(name string) Option {
	return func(c *config) {
		c.want(name != "", "WithIdempotencyHeader without the name of a header")
		c.keyHeaders = append(c.keyHeaders, http.CanonicalHeaderKey(name))
	}
}

// WithRetryStatuses retries responses of these statuses, of 400 to 599, that would count as
// permanent, such as a 404 of a store that shows new objects late. They are transient failures:
// they slow down no other request, and a Retry-After is obeyed. A throttle by the profile stays a
// throttle, and a server can still forbid retries by X-Should-Retry.
func WithRetryStatuses(statuses ...int) Option {
	return func(c *config) {
		c.want(len(statuses) > 0, "WithRetryStatuses without a status")
		for _, status := range statuses {
			c.want(status >= 400 && status <= 599, "WithRetryStatuses(%d): want 400 to 599", status)
		}
		c.statuses = append(c.statuses, statuses...)
	}
}

// WithQuotaResponses returns the response, instead of an error, if a quota is used up or the server
// asks for too long a wait. It is for clients above that read the response. Later requests still
// fail at once, without a response.
func WithQuotaResponses() Option {
	return func(c *config) { c.quotaResponses = true }
}

// WithoutRetryAfter takes the Retry-After headers out of a failed response that is returned. Use it
// if a client above retries every response with that header, as client-go does, and would multiply
// the attempts of the Transport. Default: responses are returned as they came.
func WithoutRetryAfter() Option {
	return func(c *config) { c.noRetryAfter = true }
}

type callKey struct{}

// CallOptions returns a context that adds call options to its requests, such as [cruise.WithCost],
// [cruise.WithBackground] or [cruise.WithMaxAttempts], after the options that ctx has already. A
// request with an option out of bounds is not sent and fails with an error that names the option.
// For all requests of a Transport, give the same options to [WithRetrierOptions].
func CallOptions(ctx context.Context, opts ...cruise.CallOption) context.Context {
	return context.WithValue(ctx, callKey{}, slices.Concat(optionsOf(ctx), opts))
}

func optionsOf(ctx context.Context) []cruise.CallOption {
	opts, _ := ctx.Value(callKey{}).([]cruise.CallOption)
	return opts
}

func newConfig(opts []Option) (*config, error) {
	c := &config{
		base: http.DefaultTransport, profile: signal.Generic(), longWait: signal.DefaultLongWait,
	}
	for i, opt := range opts {
		if c.want(opt != nil, "option %d is nil", i+1); opt != nil {
			opt(c)
		}
	}
	if c.levels == nil {
		c.levels = []level{{GlobalScope, HostKey}}
	}
	c.want(!c.anyMethod || !c.onlyIdempotent, "WithAnyMethod beside WithOnlyIdempotent: want one of them")
	names := map[string]bool{BucketScope: true}
	for _, l := range c.levels {
		c.want(!names[l.name], "WithScope(%q): there is a scope of that name", l.name)
		names[l.name] = true
	}
	return c, errors.Join(c.errs...)
}
