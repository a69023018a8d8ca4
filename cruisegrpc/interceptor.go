package cruisegrpc

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/a7df5faa/cruise"
)

// An Interceptor paces the calls of gRPC clients by limiters, learns from the server's answers, and
// retries calls if that is safe. Each method of each target has its own limiter and retry budget,
// unless [WithScope] sets another scope.
//
// An Interceptor is safe for concurrent use and may serve many connections. [New] makes one; every
// call of the zero value fails. It must not be copied.
type Interceptor struct {
	config
	base    *cruise.Retrier
	methods methods
}

// ScopeMethod is the name of the scope with [WithScope]'s keys: see [cruise.Retrier.Scope].
const ScopeMethod = "METHOD"

// New returns an Interceptor. The error names every option that is out of
// bounds.
func New(opts ...Option) (*Interceptor, error) {
	i := &Interceptor{config: config{scope: ScopeByMethod, buffer: DefaultStreamBuffer, named: map[string]bool{}}}
	for n, opt := range opts {
		if opt == nil {
			i.fail("option %d is nil", n+1)
			continue
		}
		opt(&i.config)
	}
	retrier := append([]cruise.Option{cruise.WithoutLimiter()}, i.retrier...)
	base, err := cruise.New(append(retrier, cruise.WithClassifier(i.classify))...)
	if err = errors.Join(append(i.errs, err)...); err != nil {
		return nil, err
	}
	i.base, i.methods.named = base, i.named
	return i, nil
}

// classify asks the caller's classifier, if there is one, and then ours. The scope in the verdict
// is a limit of the server, not a scope of the call. So it is reported to observers, unless that
// would move the throttle from the method's limiter to the limiter around it.
func (i *Interceptor) classify(err error) cruise.Verdict {
	if i.classifier != nil {
		if v := i.classifier(err); v.Outcome != cruise.OutcomeUnknown {
			return v
		}
	}
	v := classify(err, i.strict, time.Now())
	if i.base.Limiter() != nil {
		v.Scope = ""
	}
	return v
}

// DialOptions returns the options for a client: both interceptors, after the client's own ones, and
// an option that switches off gRPC's retries by service config, so that attempts do not multiply.
func (i *Interceptor) DialOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(i.Unary()),
		grpc.WithChainStreamInterceptor(i.Stream()),
		grpc.WithDisableRetry(),
	}
}

// Retrier returns the Retrier of the calls to which [WithScope]'s function gives that key. Use it
// to inspect its limiter, or to make other calls share it. Its method Scopes returns the state of
// all limiters of i.
func (i *Interceptor) Retrier(key string) *cruise.Retrier {
	if i == nil {
		return nil // Do will say so
	}
	return i.base.Scope(ScopeMethod, key)
}

// errZeroInterceptor is the error of each call with the zero value.
var errZeroInterceptor = errors.New("cruisegrpc: Interceptor not made by New")

func (i *Interceptor) isZero() bool { return i == nil || i.base == nil }

// Unary returns the interceptor of unary calls.
//
// It returns gRPC's own error if the first attempt failed permanently, else an error that wraps a
// [cruise.Error] with the reason for giving up. Both have a gRPC status: the status of the last
// attempt, or of the caller's context if it has ended. The error of a bad [Cost] has no status.
func (i *Interceptor) Unary() grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		if i.isZero() {
			return errZeroInterceptor
		}
		var (
			trailer metadata.MD
			from    peer.Peer
		)
		c := i.call(ctx, method, cc, opts)
		c.opts = append(c.opts, grpc.Trailer(&trailer), grpc.Peer(&from))
		err := c.retrier.Do(ctx, func(ctx context.Context) error {
			trailer, from = nil, peer.Peer{}
			err := invoker(c.begin(ctx), method, req, reply, cc, c.opts...)
			if err == nil {
				return nil
			}
			return c.failed(err, trailer, from.Addr != nil)
		}, c.cost)
		return surface(ctx, err)
	}
}

// call is the state of a call between its attempts.
type call struct {
	ctx      context.Context // the caller's
	retrier  *cruise.Retrier
	safe     bool // to do twice
	opts     []grpc.CallOption
	cost     cruise.CallOption
	attempts int
	over     atomic.Bool // gRPC itself has seen the attempt, and its end
}

func (i *Interceptor) call(ctx context.Context, method string, cc *grpc.ClientConn, opts []grpc.CallOption) *call {
	target := ""
	if cc != nil {
		target = cc.Target()
	}
	c := &call{ctx: ctx, retrier: i.Retrier(i.scope(ctx, target, method)), safe: i.methods.idempotent(method), cost: cruise.WithCost(1)}
	c.opts = append(opts[:len(opts):len(opts)], grpc.OnFinish(func(error) { c.over.Store(true) }))
	for _, o := range opts {
		if o, ok := o.(costOption); ok {
			c.cost = cruise.WithCost(o.cost)
		}
	}
	return c
}

// begin counts an attempt and tells the server how many came before (gRFC A6).
func (c *call) begin(ctx context.Context) context.Context {
	c.over.Store(false)
	if c.attempts++; c.attempts == 1 {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, "grpc-previous-rpc-attempts", strconv.Itoa(c.attempts-1))
}

// failed returns an attempt's error for the classifier. sent means that there was a connection to
// send the attempt on. Without one the attempt still counts as sent if gRPC never saw the call
// options that would report it.
func (c *call) failed(err error, trailer metadata.MD, sent bool) error {
	unsent := !sent && c.over.Load()
	return &attemptError{err: err, trailer: trailer, ended: c.ctx.Err() != nil, unsent: unsent, unsafe: !c.safe && !unsent}
}
