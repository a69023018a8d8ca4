package cruisegrpc

import (
	"context"
	"errors"
	"sync/atomic"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/a7df5faa/cruise"
)

// attemptError is the error of one attempt, with its trailer and further facts.
type attemptError struct {
	err     error
	trailer metadata.MD
	alone   bool        // without an Interceptor: the fields below are unknown
	ended   bool        // the caller's context has
	unsent  bool        // no server has seen the attempt
	unsafe  bool        // the work may be done, and doing it twice may harm
	once    atomic.Bool // the only reason not to retry; an observer may have the error already
}

// answered reports whether a cancellation is known to come from the server: by an Interceptor,
// which knows the caller's cancellations, or by a trailer that came with it.
func (e *attemptError) answered() bool { return e != nil && (!e.alone || len(e.trailer) > 0) }

// Error returns the text for observers, with the reason why the call was not retried.
func (e *attemptError) Error() string {
	if e.once.Load() {
		return e.err.Error() + " (not retried: the method is not idempotent, see cruisegrpc.WithIdempotent)"
	}
	return e.err.Error()
}

func (e *attemptError) Unwrap() error              { return e.err }
func (e *attemptError) GRPCStatus() *status.Status { return status.Convert(e.err) }

// bare returns err without the parts that only classifiers need, of each Interceptor that it came
// through.
func bare(err error) error {
	for {
		a, ok := err.(*attemptError)
		if !ok {
			return err
		}
		err = a.err
	}
}

// shown returns bare(err), unless a Retrier around the call decides on retries: its classifier
// needs the rest.
func shown(ctx context.Context, err error) error {
	if cruise.Nested(ctx) {
		return err
	}
	return bare(err)
}

// givenUp is a [cruise.Error] with a gRPC status, for callers that look at codes.
type givenUp struct {
	why    *cruise.Error
	status *status.Status
}

func (e *givenUp) Error() string              { return e.why.Error() }
func (e *givenUp) Unwrap() error              { return e.why }
func (e *givenUp) GRPCStatus() *status.Status { return e.status }

// surface returns the error for the caller: gRPC's own error if the first attempt failed
// permanently, else the reason why the call was given up. Its status comes from the caller's
// context if it has ended, else from the last attempt, else from the reason.
func surface(ctx context.Context, err error) error {
	e, ok := err.(*cruise.Error)
	if !ok {
		return shown(ctx, err)
	}
	clean := *e // an observer may hold the other one
	clean.Last, clean.Reason = bare(e.Last), bare(e.Reason)
	return &givenUp{why: &clean, status: statusOf(ctx, &clean)}
}

func statusOf(ctx context.Context, e *cruise.Error) *status.Status {
	if err := ctx.Err(); err != nil {
		return status.New(status.FromContextError(err).Code(), e.Error())
	}
	if e.Last != nil {
		s := status.Convert(e.Last).Proto()
		s.Message = e.Error()
		return status.FromProto(s)
	}
	code := codes.Unavailable
	switch {
	case errors.Is(e.Reason, context.DeadlineExceeded), errors.Is(e.Reason, cruise.ErrMaxElapsed):
		code = codes.DeadlineExceeded
	case errors.Is(e.Reason, cruise.ErrCost):
		code = codes.InvalidArgument
	case errors.Is(e.Reason, cruise.ErrServerDelay), errors.Is(e.Reason, cruise.ErrQuotaExhausted), errors.Is(e.Reason, cruise.ErrMaxWait):
		code = codes.ResourceExhausted
	}
	return status.New(code, e.Error())
}
