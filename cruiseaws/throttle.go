package cruiseaws

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/a7df5faa/cruise"
)

// A Throttle makes the operations of SDK clients pass a limiter, learn from the
// service's answers, and be retried where that is worth it. It has a
// [cruise.Retrier], and so a limiter and a budget, for each scope: by default
// each operation of each service in each region.
//
// A Throttle is safe for concurrent use and may serve many clients. It is made
// by [New] and must not be copied.
type Throttle struct {
	config
	retriers *retriers
}

// DefaultMaxScopes is how many scopes a [Throttle] keeps.
const DefaultMaxScopes = 1000

// An Option tunes a [Throttle].
type Option func(*config)

type config struct {
	errs       []error
	retrier    []cruise.Option
	classifier cruise.Classifier
	scope      func(Operation) string
	maxScopes  int
}

// Operation is what a call's scope is made of.
type Operation struct {
	Region  string // "eu-central-1"
	Service string // the SDK's service ID, "DynamoDB"
	Name    string // "PutItem"
	Table   string // the TableName of the input, "" if it has none
}

// ScopeByOperation is for services that limit each operation by itself: most.
func ScopeByOperation(o Operation) string { return o.Region + "/" + o.Service + "/" + o.Name }

// ScopeByService is for services that limit all operations together.
func ScopeByService(o Operation) string { return o.Region + "/" + o.Service }

// ScopeByTable is for DynamoDB, where a table's capacity is the limit: it is
// [ScopeByOperation] with the table's name, where the input has one.
func ScopeByTable(o Operation) string {
	if o.Table == "" {
		return ScopeByOperation(o)
	}
	return ScopeByOperation(o) + "/" + o.Table
}

// WithRetrier tunes the Retrier of every scope: attempts, backoff, limits of
// rates, an observer. A limiter or a budget given here is shared by all scopes;
// by default each scope has its own. A classifier given here is not used: see
// [WithClassifier].
func WithRetrier(opts ...cruise.Option) Option {
	return func(c *config) { c.retrier = append(c.retrier, opts...) }
}

// WithScope names what a call's limit belongs to; calls of one scope share a
// limiter and a budget. Default [ScopeByOperation].
func WithScope(scope func(Operation) string) Option {
	return func(c *config) {
		if scope == nil {
			c.errs = append(c.errs, errors.New("cruiseaws: WithScope(nil): want a function"))
		}
		c.scope = scope
	}
}

// WithMaxScopes is how many scopes are kept, 1 or more; beyond that the one not
// used for longest is forgotten with what it has learned. Default 1000.
func WithMaxScopes(n int) Option {
	return func(c *config) {
		if n < 1 {
			c.errs = append(c.errs, fmt.Errorf("cruiseaws: WithMaxScopes(%d): want 1 or more", n))
		}
		c.maxScopes = n
	}
}

// WithClassifier asks f what an error means before [Classify] is asked.
func WithClassifier(f cruise.Classifier) Option {
	return func(c *config) {
		if f == nil {
			c.errs = append(c.errs, errors.New("cruiseaws: WithClassifier(nil): want a Classifier"))
		}
		c.classifier = f
	}
}

// New returns a Throttle. The error names every option that is out of bounds.
func New(opts ...Option) (*Throttle, error) {
	t := &Throttle{config: config{scope: ScopeByOperation, maxScopes: DefaultMaxScopes}}
	for _, opt := range opts {
		if opt == nil {
			t.errs = append(t.errs, errors.New("cruiseaws: nil option"))
			continue
		}
		opt(&t.config)
	}
	var err error
	t.retriers, err = newRetriers(t.maxScopes, append(t.retrier, cruise.WithClassifier(t.classify)))
	if err = errors.Join(append(t.errs, err)...); err != nil {
		return nil, err
	}
	return t, nil
}

// Configure makes every client that is made of cfg from now on use t. A retry
// mode or a retryer that cfg names is without effect then.
func (t *Throttle) Configure(cfg *aws.Config) {
	cfg.APIOptions = append(cfg.APIOptions[:len(cfg.APIOptions):len(cfg.APIOptions)], t.APIOption)
}

// Retrier returns the Retrier of a scope, to look at its limiter or to make
// other calls share it.
func (t *Throttle) Retrier(scope string) *cruise.Retrier { return t.retriers.get(scope) }

// verdict is what an error of the n-th attempt means.
func (t *Throttle) verdict(err error, attempt int) cruise.Verdict {
	if t.classifier != nil {
		if v := t.classifier(err); v.Outcome != cruise.OutcomeUnknown {
			return v
		}
	}
	return classify(err, attempt)
}

// classify is for the Retriers: the errors of operations have their verdict.
func (t *Throttle) classify(err error) cruise.Verdict {
	if j, ok := errors.AsType[*judged](err); ok {
		return j.verdict
	}
	return t.verdict(err, 1)
}

// judged is the error of an attempt with its verdict.
type judged struct {
	err     error
	verdict cruise.Verdict
}

func (j *judged) Error() string { return j.err.Error() }
func (j *judged) Unwrap() error { return j.err }

const (
	retryID    = "Retry" // of the SDK's own middleware
	wholeID    = "CruiseOperation"
	attemptID  = "CruiseAttempt"
	captureID  = "CruiseInput"
	tableField = "TableName"
)

// APIOption makes operations use t: give it to the APIOptions of
// [aws.Config], of a client's options, or of the options of one call.
//
// It takes the place of the SDK's retryer, whichever that is. The error of an
// operation that was given up has a [cruise.Error] in it.
func (t *Throttle) APIOption(stack *middleware.Stack) error {
	if _, ok := stack.Finalize.Get(wholeID); ok {
		return nil // for the client and for the call, say
	}
	c := &operation{throttle: t}
	if err := swapRetryer(stack, c); err != nil {
		return err
	}
	return errors.Join(
		stack.Initialize.Add(middleware.InitializeMiddlewareFunc(captureID, c.capture), middleware.Before),
		stack.Finalize.Insert(middleware.FinalizeMiddlewareFunc(wholeID, c.whole), retryID, middleware.Before),
		stack.Finalize.Insert(middleware.FinalizeMiddlewareFunc(attemptID, c.send), retryID, middleware.After))
}

// WithoutRetries is an API option that switches the SDK's retries off, for calls
// inside [cruise.Retrier.Do]: see [Do].
func WithoutRetries(stack *middleware.Stack) error { return swapRetryer(stack, aws.NopRetryer{}) }

// swapRetryer gives the SDK's retry loop another retryer, and leaves the rest of
// it as the client set it up.
func swapRetryer(stack *middleware.Stack, r aws.Retryer) error {
	old, ok := stack.Finalize.Get(retryID)
	if !ok {
		return errors.New(`cruiseaws: the operation has no "Retry" middleware to take over`)
	}
	loop := retry.NewAttemptMiddleware(r, smithyhttp.RequestCloner, func(a *retry.Attempt) {
		if old, ok := old.(*retry.Attempt); ok {
			a.LogAttempts, a.OperationMeter = old.LogAttempts, old.OperationMeter
			a.ClientSkew, a.DisableClockSkewCorrection = old.ClientSkew, old.DisableClockSkewCorrection
		}
	})
	_, err := stack.Finalize.Swap(retryID, loop)
	return err
}

// operationOf is the operation that ctx belongs to.
func operationOf(ctx context.Context, input any) Operation {
	o := Operation{
		Region:  awsmiddleware.GetRegion(ctx),
		Service: awsmiddleware.GetServiceID(ctx),
		Name:    awsmiddleware.GetOperationName(ctx),
	}
	if v := reflect.Indirect(reflect.ValueOf(input)); v.Kind() == reflect.Struct {
		if f := v.FieldByName(tableField); f.IsValid() && f.CanInterface() {
			if name, ok := f.Interface().(*string); ok {
				o.Table = aws.ToString(name)
			}
		}
	}
	return o
}
