package cruiseaws

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/a7df5faa/cruise"
)

// A Throttle paces the operations of SDK clients by limiters, learns from the service's answers,
// and retries failed operations if that is worth it. Each operation of each service in each region
// has its own limiter, unless [WithScope] sets another scope. Within it each table of DynamoDB has
// one, and each index of a table that is used by name. A throttle cuts and pauses the limiter that
// DynamoDB blames: see [Classify]. Retries are paid from the budget of the innermost scope.
//
// A Throttle is safe for concurrent use and may serve many clients. [New] makes one. It must not be
// copied.
type Throttle struct {
	_ noCopy
	config
	base *cruise.Retrier
}

type noCopy struct{}

func (*noCopy) Lock()   {}
func (*noCopy) Unlock() {}

// Names of the scopes of a [Throttle], from the outermost to the innermost: see
// [cruise.Retrier.Scope].
const (
	ScopeOperation = "OPERATION" // by the key of WithScope
	ScopeTable     = "TABLE"     // of DynamoDB, by name or ARN as the input has it
	ScopeIndex     = "INDEX"     // of a table of DynamoDB, by name
)

// An Option tunes a [Throttle].
type Option func(*config)

type config struct {
	errs       []error
	retrier    []cruise.Option
	classifier func(error) cruise.Verdict
	scope      func(Operation) string
}

// Operation describes a call, to choose its scope.
type Operation struct {
	Region  string // "eu-central-1"
	Service string // the SDK's service ID, "DynamoDB"
	Name    string // "PutItem"
	Table   string // of DynamoDB: the TableName of the input; "" if it has none, and for other services
	Index   string // of DynamoDB: the IndexName of the input; "" if it has none, and for other services
}

// ScopeByOperation puts each operation in its own scope, as most services limit each operation by
// itself.
func ScopeByOperation(o Operation) string { return o.Region + "/" + o.Service + "/" + o.Name }

// ScopeByService puts all operations of a service in one scope, for services that limit them
// together.
func ScopeByService(o Operation) string { return o.Region + "/" + o.Service }

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
				c.errs = append(c.errs, fmt.Errorf("cruiseaws: WithRetrierOptions: option %d is nil", i+1))
				continue
			}
			c.retrier = append(c.retrier, opt)
		}
	}
}

// WithScope sets the function that names the scope of a call's limit; calls with the same name
// share a limiter. DynamoDB's tables and indices have their own limiters within it. Default:
// [ScopeByOperation].
func WithScope(scope func(Operation) string) Option {
	return func(c *config) {
		if scope == nil {
			c.errs = append(c.errs, errors.New("cruiseaws: WithScope(nil): want a function"))
		}
		c.scope = scope
	}
}

// WithClassifier asks f for the verdict on an error before [Classify].
func WithClassifier(f func(error) cruise.Verdict) Option {
	return func(c *config) {
		if f == nil {
			c.errs = append(c.errs, errors.New("cruiseaws: WithClassifier(nil): want a function"))
		}
		c.classifier = f
	}
}

// New returns a Throttle. The error names every option that is out of bounds.
func New(opts ...Option) (*Throttle, error) {
	t := &Throttle{config: config{scope: ScopeByOperation}}
	for i, opt := range opts {
		if opt == nil {
			t.errs = append(t.errs, fmt.Errorf("cruiseaws: option %d is nil", i+1))
			continue
		}
		opt(&t.config)
	}
	retrier := append([]cruise.Option{cruise.WithoutLimiter()}, t.retrier...)
	base, err := cruise.New(append(retrier, cruise.WithClassifier(t.classify))...)
	if err = errors.Join(append(t.errs, err)...); err != nil {
		return nil, err
	}
	t.base = base
	return t, nil
}

// Configure makes all clients that are made from cfg later use t. A retry mode or a retryer in cfg
// has no effect then.
func (t *Throttle) Configure(cfg *aws.Config) {
	cfg.APIOptions = append(cfg.APIOptions[:len(cfg.APIOptions):len(cfg.APIOptions)], t.APIOption)
}

// Retrier returns the Retrier of an operation. Use it to inspect its limiter, or to make other
// calls share it; it classifies their errors by [Classify], or else by [cruise.Classify]. Its
// method Scopes returns the state of all limiters of t.
func (t *Throttle) Retrier(o Operation) *cruise.Retrier {
	if t == nil || t.base == nil {
		return nil // Do will say so
	}
	r := t.base.Scope(ScopeOperation, t.scope(o))
	if o.Table != "" {
		r = r.Scope(ScopeTable, o.Table)
		if o.Index != "" {
			r = r.Scope(ScopeIndex, o.Index)
		}
	}
	return r
}

// within returns the blamed scope, or else the scope around it that the operation passes: an index
// may throttle a write, and any table a batch, which do not pass its limiter.
func (o Operation) within(scope string) string {
	if scope == ScopeIndex && o.Index == "" {
		scope = ScopeTable
	}
	if scope == ScopeTable && o.Table == "" {
		scope = ScopeOperation
	}
	return scope
}

// asked returns the verdict of the caller's classifier, unknown if there is none or it declines.
func (t *Throttle) asked(err error) (v cruise.Verdict) {
	if t.classifier != nil && err != nil {
		v = t.classifier(err)
	}
	return v
}

// ofAttempt returns the verdict on the error of the n-th attempt. The error is not yet an
// operation's error: an operation's error within it belongs to another call, such as one for
// credentials.
func (t *Throttle) ofAttempt(err error, attempt int) cruise.Verdict {
	if v := t.asked(err); v.Outcome != cruise.OutcomeUnknown {
		return v
	}
	v := classify(err, attempt)
	if _, other := errors.AsType[*smithy.OperationError](err); other && v.Outcome == cruise.OutcomeThrottled {
		v.Outcome, v.Scope = cruise.OutcomeTransient, ""
	}
	return v
}

// classify is the Retriers' classifier. The errors of operations already have their verdict.
func (t *Throttle) classify(err error) cruise.Verdict {
	if j, ok := errors.AsType[*judged](err); ok {
		return j.verdict
	}
	if v := t.asked(err); v.Outcome != cruise.OutcomeUnknown {
		return v
	}
	return Classify(err) // of other calls
}

// judged is the error of an attempt with its verdict.
type judged struct {
	err     error
	verdict cruise.Verdict
}

func (j *judged) Error() string { return j.err.Error() }
func (j *judged) Unwrap() error { return j.err }

const (
	retryID   = "Retry" // of the SDK's own middleware
	wholeID   = "CruiseOperation"
	attemptID = "CruiseAttempt"
	bodyID    = "CruiseBody"
	captureID = "CruiseInput"
)

// errZeroThrottle is the error of each operation with the zero value.
var errZeroThrottle = errors.New("cruiseaws: Throttle not made by New")

// APIOption makes operations use t: give it to the APIOptions of
// [aws.Config], of a client's options, or of the options of one call.
//
// It takes the place of the SDK's retryer, whichever that is. The error of an
// operation that was given up has a [cruise.Error] in it. Presigning sends nothing
// and is left alone. Every operation fails if t was not made by [New].
func (t *Throttle) APIOption(stack *middleware.Stack) error {
	if t == nil || t.base == nil {
		return errZeroThrottle
	}
	if m, ok := stack.Finalize.Get(wholeID); ok {
		m.(*operation).throttle = t // options nearer to the call come later, and win
		return nil
	}
	if _, ok := stack.Finalize.Get(retryID); !ok {
		return nil // presigned
	}
	c := &operation{throttle: t}
	if err := swapRetryer(stack, c); err != nil {
		return err
	}
	return errors.Join(
		stack.Initialize.Add(middleware.InitializeMiddlewareFunc(captureID, c.capture), middleware.Before),
		stack.Finalize.Insert(c, retryID, middleware.Before),
		stack.Finalize.Insert(middleware.FinalizeMiddlewareFunc(attemptID, c.send), retryID, middleware.After),
		stack.Deserialize.Add(middleware.DeserializeMiddlewareFunc(bodyID, c.receive), middleware.After))
}

// WithoutRetries switches the SDK's retries off, for calls inside [cruise.Retrier.Do]: see [Do]. It
// is an API option.
func WithoutRetries(stack *middleware.Stack) error {
	if m, ok := stack.Finalize.Get(wholeID); ok {
		m.(*operation).once = true // paced still
		return nil
	}
	return swapRetryer(stack, aws.NopRetryer{})
}

// swapRetryer gives the SDK's retry loop, if there is one, another retryer, and
// leaves the rest of it as the client set it up.
func swapRetryer(stack *middleware.Stack, r aws.Retryer) error {
	old, ok := stack.Finalize.Get(retryID)
	if !ok {
		return nil
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

// operationOf returns the operation of ctx.
func operationOf(ctx context.Context, input any) Operation {
	o := Operation{
		Region:  awsmiddleware.GetRegion(ctx),
		Service: awsmiddleware.GetServiceID(ctx),
		Name:    awsmiddleware.GetOperationName(ctx),
	}
	// Inputs of other services name tables too, but their tables share one limit.
	if v := reflect.Indirect(reflect.ValueOf(input)); o.Service == "DynamoDB" && v.Kind() == reflect.Struct {
		o.Table, o.Index = textField(v, "TableName"), textField(v, "IndexName")
	}
	return o
}

// textField returns the text that a field of a struct points to, "" if there is none.
func textField(v reflect.Value, name string) string {
	if f := v.FieldByName(name); f.IsValid() && f.CanInterface() {
		if p, ok := f.Interface().(*string); ok {
			return aws.ToString(p)
		}
	}
	return ""
}
