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

// want notes what is wrong, unless ok.
func (c *config) want(ok bool, format string, args ...any) {
	if !ok {
		c.errs = append(c.errs, fmt.Errorf("cruisehttp: "+format, args...))
	}
}

// WithRoundTripper sets what sends the requests, beneath the Transport. Default:
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
//   - Each scope has an adaptive limiter of its own, which each [cruise.LimiterOption]
//     tunes, or one that [cruise.WithScopeLimiter] makes.
//   - [cruise.WithLimiter] puts one limiter around all scopes: its limit is that of all hosts
//     and keys together, and one of each takes WithScopeLimiter. No LimiterOption goes with
//     it: then WithScopeLimiter is how to tune those of scopes. A throttle that names no
//     scope teaches the innermost limiter alone, so give WithLimiter what you know, such as
//     a [cruise.TokenBucket], and share what is to be learnt, such as a
//     shared.Limiter, by WithScopeLimiter.
//   - Each scope has a budget for its retries, unless [cruise.WithBudget] gives one that
//     is for all requests.
//   - [cruise.WithMaxScopes] and [cruise.WithScopeIdle] bound the scopes that are
//     remembered.
//   - A classifier given by [cruise.WithClassifier] sees a [*ResponseError] for each
//     response that is no success, and decides what it means.
//   - With [cruise.WithNestedRetries], requests that are made in the calls of another Retrier,
//     which is [cruise.WithoutLimiter] and makes one attempt, are in the background where
//     those calls are: see [cruise.WithBackground].
//   - Of timeouts prefer those of this package: a [cruise.WithAttemptTimeout] ends with
//     the response's head.
func WithRetrierOptions(opts ...cruise.Option) Option {
	return func(c *config) {
		for i, opt := range opts { // cruise.New would count options of ours too
			if c.want(opt != nil, "WithRetrierOptions: option %d is nil", i+1); opt != nil {
				c.options = append(c.options, opt)
			}
		}
	}
}

// WithScope says which requests the server counts together: those with the same
// key share a limiter and pauses. Given several times, each scope is within the one
// before, and requests obey the limiters of all. Default: [HostKey] in [GlobalScope],
// whose place the first one given takes. To keep a limit of the host around others, give
// that first, as WithScope([GlobalScope], [HostKey]). See [HeaderKey] for limits of a
// token or account.
//
// A throttle concerns the scope whose name the response blames ([signal.Signal.Scope]),
// such as DEVELOPER or ACCOUNT, or else the innermost. key is called for each request,
// so it must be safe for concurrent use; what it returns should hold no secrets. A
// request for which it returns "" is in no scope of that name.
func WithScope(name string, key func(*http.Request) string) Option {
	return func(c *config) {
		c.want(name != "" && key != nil, "WithScope(%q): want a name and a key", name)
		c.levels = append(c.levels, level{name, key})
	}
}

// WithBuckets is for servers that say only in the response which limit a request
// counts towards, by a header such as X-RateLimit-Bucket of Discord or
// X-RateLimit-Resource of GitHub. Within the other scopes, requests of one route
// are in a [BucketScope] of their own until a response names their bucket; from
// then on, all routes of a bucket are in one. A nil route is the method and path of the
// request, which is right where paths hold no identifiers.
//
// Names must tell all that is limited apart. Those of Discord leave out the channel, guild
// or webhook: put a scope of those around, by WithScope([GlobalScope], [HostKey]) and
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

// WithProfile says how responses are read. Default [signal.Generic], which recognises
// providers by itself.
func WithProfile(p signal.Profile) Option {
	return func(c *config) { c.profile = p }
}

// WithLongWait is the wait above which a throttle counts as a quota that is used
// up, above 0. Default [signal.DefaultLongWait], an hour.
func WithLongWait(d time.Duration) Option {
	return func(c *config) {
		if c.want(d > 0, "WithLongWait(%v): want above 0", d); d > 0 {
			c.longWait = d
		}
	}
}

// WithBufferedBodies reads bodies of requests of up to max bytes into memory
// where that is what it takes to send them again: where a request has neither
// GetBody nor a body that can seek. Longer ones are sent once. A request stands in line
// when its body, or max+1 bytes of it, has been read, and keeps it there: so many bodies
// are in memory as requests wait. Its context, or the Timeout of the [http.Client], bounds
// the reading; timeouts of attempts don't. max must be above 0. Default: no body is
// buffered.
func WithBufferedBodies(max int64) Option {
	return func(c *config) {
		c.want(max > 0, "WithBufferedBodies(%d): want bytes above 0", max)
		c.buffer = max
	}
}

// WithHeaderTimeout is how long an attempt may take until the head of its
// response is there, above 0. An attempt that takes longer is a transient failure.
// Nor is the body of an error waited for any longer. The time in the limiter does
// not count. Default: none.
func WithHeaderTimeout(d time.Duration) Option {
	return func(c *config) {
		c.want(d > 0, "WithHeaderTimeout(%v): want above 0", d)
		c.headerTimeout = d
	}
}

// WithAttemptTimeout is how long an attempt may take until the body of its
// response has been read and closed, above 0. Before the response is returned, a
// timeout is a transient failure; afterwards it is an error of reading the body,
// and nothing is retried. The time in the limiter does not count, nor that of a
// connection which the server has upgraded. Default: none.
func WithAttemptTimeout(d time.Duration) Option {
	return func(c *config) {
		c.want(d > 0, "WithAttemptTimeout(%v): want above 0", d)
		c.attemptTimeout = d
	}
}

// WithOnlyIdempotent does not send a request again that is not idempotent if it was
// throttled, or if the server asks for it by a header such as X-Should-Retry. By default
// it is sent again then, since the server has done nothing. What was not sent at all, or
// what HTTP/2 says was not begun with, is sent again all the same.
func WithOnlyIdempotent() Option {
	return func(c *config) { c.onlyIdempotent = true }
}

// WithAnyMethod sends requests of any method again after any failure that is worth it, as
// [AllowRetry] does for those of one context: for APIs in which doing the work twice does no
// harm, or whose clients retry every request by themselves. Default: those of idempotent methods.
func WithAnyMethod() Option {
	return func(c *config) { c.anyMethod = true }
}

// WithIdempotencyHeader names a header by which the server knows a request that it is sent
// twice, beside Idempotency-Key and X-Idempotency-Key: a request that has it is idempotent,
// whatever its method. It may be given more than once.
func WithIdempotencyHeader(name string) Option {
	return func(c *config) {
		c.want(name != "", "WithIdempotencyHeader without the name of a header")
		c.keyHeaders = append(c.keyHeaders, http.CanonicalHeaderKey(name))
	}
}

// WithRetryStatuses retries responses of these statuses, of 400 to 599, that would count as
// permanent, such as a 404 of a store that shows new objects late. They are transient
// failures: nobody slows down for them, and a Retry-After is heeded. What the profile reads
// as a throttle stays one, and a server that forbids retries by X-Should-Retry has its way.
func WithRetryStatuses(statuses ...int) Option {
	return func(c *config) {
		c.want(len(statuses) > 0, "WithRetryStatuses without a status")
		for _, status := range statuses {
			c.want(status >= 400 && status <= 599, "WithRetryStatuses(%d): want 400 to 599", status)
		}
		c.statuses = append(c.statuses, statuses...)
	}
}

// WithQuotaResponses returns the response of a request that met a used-up quota,
// or was asked to wait too long, instead of an error: for clients above that
// read it. Later requests fail at once all the same, and those have no response.
func WithQuotaResponses() Option {
	return func(c *config) { c.quotaResponses = true }
}

// WithoutRetryAfter takes the Retry-After headers out of a failed response that is returned, so
// that a client above, such as client-go, which retries whatever has one, does not multiply the
// attempts of the Transport. Default: responses are returned as they came.
func WithoutRetryAfter() Option {
	return func(c *config) { c.noRetryAfter = true }
}

type callKey struct{}

// CallOptions returns a context whose requests are made with options of their own, such as
// [cruise.WithCost], [cruise.WithBackground] or [cruise.WithMaxAttempts], after those that ctx has
// already. A request with one out of bounds fails with an error that says so, and is not sent.
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
	names := map[string]bool{BucketScope: true}
	for _, l := range c.levels {
		c.want(!names[l.name], "WithScope(%q): there is a scope of that name", l.name)
		names[l.name] = true
	}
	return c, errors.Join(c.errs...)
}
