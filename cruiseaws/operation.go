package cruiseaws

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"time"

	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/a7df5faa/cruise"
)

// operation is one call of an operation, and its retryer. The SDK uses it from one goroutine.
//
// In all of its modes the SDK calls GetAttemptToken for each attempt and, if the attempt failed,
// IsErrorRetryable and then GetRetryToken and RetryDelay. It calls the function from
// GetAttemptToken after every attempt in the older mode and from v1.48.0 on, and after the first
// attempt in the newer mode. It calls the function from GetRetryToken after each later attempt in
// all modes.
type operation struct {
	throttle *Throttle
	once     bool // not to be retried
	input    any
	name     Operation

	ctx      context.Context                       // of the operation; nil before HandleFinalize
	next     func() (*cruise.Attempt, error, bool) // nil before the first attempt
	stop     func()
	attempt  *cruise.Attempt // nil when all is over
	admitted bool            // for an attempt that has not begun
	release  func()          // releases the timer of an attempt; nil if the body does so
	fixed    bool            // the request's body cannot seek, so it is sent once
	gaveUp   error
}

// capture remembers the input.
func (o *operation) capture(ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler) (middleware.InitializeOutput, middleware.Metadata, error) {
	o.input = in.Parameters
	return next.HandleInitialize(ctx, in)
}

// ID returns the ID of the middleware around the SDK's retry loop.
func (o *operation) ID() string { return wholeID }

// HandleFinalize runs around the SDK's retry loop.
func (o *operation) HandleFinalize(ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler) (middleware.FinalizeOutput, middleware.Metadata, error) {
	defer func() {
		if o.next != nil {
			o.stop()
		}
		// A middleware around may send the operation once more, with other credentials say.
		*o = operation{throttle: o.throttle, once: o.once, input: o.input}
	}()
	o.ctx = ctx
	out, metadata, err := next.HandleFinalize(ctx, in)
	if err != nil && o.attempt != nil && ctx.Err() != nil { // which ended before the attempt was sent
		o.attempt.Done(err)
		_ = o.advance()
	}
	if err != nil && o.gaveUp != nil {
		err = o.gaveUp // which has the last error in it
	}
	return out, metadata, err
}

// send runs around each attempt.
func (o *operation) send(ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler) (middleware.FinalizeOutput, middleware.Metadata, error) {
	if o.attempt == nil {
		return next.HandleFinalize(ctx, in)
	}
	if r, ok := in.Request.(*smithyhttp.Request); ok {
		o.fixed = r.GetStream() != nil && !r.IsStreamSeekable()
	}
	attempt := o.attempt.Context()
	deadline, ok := attempt.Deadline()
	if whole, has := ctx.Deadline(); !ok || has && !whole.After(deadline) {
		return next.HandleFinalize(extended{ctx, attempt}, in)
	}
	// The attempt has a timeout, and a body may be read after its end.
	bounded, cancel := context.WithCancel(extended{ctx, attempt})
	detach := context.AfterFunc(attempt, cancel)
	o.release = cancel
	out, metadata, err := next.HandleFinalize(bounded, in)
	detach()
	if err != nil || o.release != nil {
		cancel()
	}
	o.release = nil
	if errors.Is(err, context.Canceled) && errors.Is(attempt.Err(), context.DeadlineExceeded) {
		err = &timeoutError{err} // the caller has not cancelled it
	}
	return out, metadata, err
}

// receive runs around each exchange. It sees bodies of both kinds: bodies that the SDK reads and
// closes itself, and bodies that an output streams to the caller.
func (o *operation) receive(ctx context.Context, in middleware.DeserializeInput, next middleware.DeserializeHandler) (middleware.DeserializeOutput, middleware.Metadata, error) {
	out, metadata, err := next.HandleDeserialize(ctx, in)
	r, ok := out.RawResponse.(*smithyhttp.Response)
	if ok && err == nil && o.release != nil && r.Response != nil && r.Body != nil && r.Body != http.NoBody {
		r.Body = &heldBody{r.Body, o.release}
		o.release = nil
	}
	return out, metadata, err
}

// heldBody releases its attempt at its end.
type heldBody struct {
	io.ReadCloser
	release func()
}

func (b *heldBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.release()
	}
	return n, err
}

func (b *heldBody) Close() error {
	defer b.release()
	return b.ReadCloser.Close()
}

// extended is a context with the values of another one behind its own.
type extended struct {
	context.Context
	values context.Context
}

func (e extended) Value(key any) any {
	if v := e.Context.Value(key); v != nil {
		return v
	}
	return e.values.Value(key)
}

// timeoutError is the error of an attempt whose time is over. The SDK reports a cancellation, and
// the caller would take it for its own.
type timeoutError struct{ err error }

func (e *timeoutError) Error() string { return "cruiseaws: attempt timed out: " + e.err.Error() }
func (e *timeoutError) Unwrap() error { return context.DeadlineExceeded }
func (e *timeoutError) Timeout() bool { return true }

// MaxAttempts leaves the number to the Retrier.
func (o *operation) MaxAttempts() int { return 0 }

// GetInitialToken is not used by the SDK any more.
func (o *operation) GetInitialToken() func(error) error { return o.ended }

// GetAttemptToken waits for the limiter before the first attempt. GetRetryToken has already waited
// for and admitted a later attempt.
func (o *operation) GetAttemptToken(ctx context.Context) (func(error) error, error) {
	if o.next == nil {
		o.name = operationOf(ctx, o.input)
		if o.ctx != nil {
			ctx = o.ctx // the other has the span of the first attempt, which ends with it
		}
		o.next, o.stop = iter.Pull2(o.throttle.Retrier(o.name).Attempts(ctx))
		if err := o.advance(); err != nil {
			return o.ended, err
		}
	}
	if !o.admitted {
		return o.ended, errors.New("cruiseaws: attempt that nobody asked for")
	}
	o.admitted = false
	return o.ended, nil
}

// ended gets the result of an attempt, once or twice. After a failure the SDK calls
// IsErrorRetryable next, with an error that it may have wrapped.
func (o *operation) ended(err error) error {
	if err == nil && o.attempt != nil {
		o.attempt.Done(nil)
		_ = o.advance()
	}
	return nil
}

// IsErrorRetryable judges the error of the attempt.
func (o *operation) IsErrorRetryable(err error) bool {
	if o.attempt == nil {
		return false
	}
	v := o.throttle.ofAttempt(err, o.attempt.Number())
	if v.Outcome == cruise.OutcomeUnknown {
		v = o.attempt.Done(err)
	} else {
		v.Scope = o.name.within(v.Scope)
		o.attempt.Done(&judged{err, v})
	}
	again := !v.NoRetry && (v.Outcome == cruise.OutcomeThrottled || v.Outcome == cruise.OutcomeTransient)
	if o.once || again && o.fixed && o.ctx.Err() == nil { // the attempt was the only one
		if !o.once { // the SDK would find out after the wait
			o.gaveUp = fmt.Errorf("cruiseaws: not retried: the request's body cannot seek: %w", err)
		}
		o.attempt = nil
		o.stop()
		return false
	}
	if again {
		return true
	}
	o.gaveUp = o.advance()
	return false
}

// GetRetryToken waits for the backoff and the limiter before another attempt.
func (o *operation) GetRetryToken(_ context.Context, err error) (func(error) error, error) {
	if o.attempt == nil {
		return o.ended, err
	}
	if err := o.advance(); err != nil {
		return o.ended, err
	}
	return o.ended, nil
}

// RetryDelay returns no delay: GetRetryToken has waited. Otherwise the SDK would sleep for the
// service's wait once more, after the limiter has let the attempt go. The SDK also asks for the
// delay of a long poll that was given up: then an error stops it.
func (o *operation) RetryDelay(_ int, err error) (time.Duration, error) {
	if o.attempt == nil {
		return 0, err
	}
	if r, ok := errors.AsType[*smithyhttp.ResponseError](err); ok && r.Response != nil && r.Response.Response != nil {
		r.Response.Header.Del(retryAfterHeader)
	}
	return 0, nil
}

// advance ends an attempt and waits for the next one, if there is one. Otherwise it returns the
// reason, nil after a success.
func (o *operation) advance() error {
	attempt, err, ok := o.next()
	if err != nil || !ok {
		o.attempt = nil
		if err != nil {
			o.gaveUp = surface(err)
		}
		return o.gaveUp
	}
	o.attempt, o.admitted = attempt, true
	return nil
}

// surface returns the error for the caller.
func surface(err error) error {
	if j, ok := err.(*judged); ok {
		return j.err
	}
	e, ok := err.(*cruise.Error)
	if !ok {
		return err
	}
	clean := *e // an observer may hold the other one
	if j, ok := e.Last.(*judged); ok {
		clean.Last = j.err
	}
	if j, ok := e.Reason.(*judged); ok {
		clean.Reason = j.err
	}
	return &clean
}
