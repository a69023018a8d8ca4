package cruise

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/a7df5faa/cruise/internal/clock"
	"github.com/a7df5faa/cruise/internal/signals"
)

// Outcome classifies one attempt of a call. [OutcomeThrottled] cuts a rate. Only answers,
// [OutcomeSuccess] and [OutcomePermanent], raise one.
type Outcome uint8

const (
	// OutcomeUnknown is the zero value: a classifier that returns it declines.
	OutcomeUnknown Outcome = iota
	// OutcomeSuccess: the server did the work.
	OutcomeSuccess
	// OutcomeThrottled: the server asked to slow down. Worth retrying, after a pause.
	OutcomeThrottled
	// OutcomeQuotaExhausted: a long window, such as a day, is used up. Retrying soon is pointless.
	OutcomeQuotaExhausted
	// OutcomeTransient: worth retrying, and the rate is not to blame.
	OutcomeTransient
	// OutcomePermanent: retrying cannot help.
	OutcomePermanent
	// OutcomeDropped: the caller gave the attempt up. No retry follows, and the rate stays.
	OutcomeDropped
)

var outcomeNames = [...]string{"unknown", "success", "throttled", "quota exhausted", "transient", "permanent", "dropped"}

// String returns the outcome in lower-case words.
func (o Outcome) String() string {
	if int(o) < len(outcomeNames) {
		return outcomeNames[o]
	}
	return "invalid"
}

// refused reports whether the server refused a call because there were too many.
func (o Outcome) refused() bool { return o == OutcomeThrottled || o == OutcomeQuotaExhausted }

// Quota is a server's report of a limit: the Limit, Remaining and Reset of the RateLimit header
// family. Without a known Remaining there is no quota to report.
//
// Its numbers are in units of [WithCost]: if the server counts calls, and each costs more than 1
// here, multiply them by that cost.
type Quota struct {
	Limit     int           // size of a whole window; 0 means not reported
	Remaining int           // part left until Reset, 0 or more
	Reset     time.Duration // time until the next window, or a full bucket; 0 means not reported
}

// Feedback tells a [Learner] the result of an attempt that it admitted.
type Feedback struct {
	Outcome Outcome
	// Sent is the time at which the limiter admitted the attempt, zero to count as never sent. A
	// throttle of an attempt sent before an earlier throttle was known says nothing new.
	Sent       time.Time
	Cost       int           // n that the attempt was admitted with
	RetryAfter time.Duration // wait that the server asked for; 0 means none
	Scope      string        // limit that the server blamed, such as "ACCOUNT"; "" means that it named none
	Quota      *Quota        // server's report, on success too; nil means none

	run clock.Instant // the beginning of the run that a throttle is in: see ownThrottles; 0 for none
	own bool          // the throttles of the run have just proved to concern their calls alone
}

// Verdict is the meaning of an error: see [Classify].
type Verdict struct {
	Outcome    Outcome       // OutcomeUnknown declines
	RetryAfter time.Duration // wait that the server asked for; 0 means none
	Scope      string        // limit that the server blamed; "" means that it named none
	NoRetry    bool          // ends the call, and leaves the Outcome to the limiter
}

// valid reports whether a classifier has decided.
func (v Verdict) valid() bool { return v.Outcome != OutcomeUnknown && v.Outcome <= OutcomeDropped }

// Shapes of SDK errors, which need no import of the SDK.
type (
	markedError interface { // a wrapper, an Error, or an error with its own verdict
		error
		Verdict() Verdict
	}
	retryAfterError    interface{ RetryAfter() time.Duration }
	getRetryAfterError interface{ GetRetryAfter() time.Duration } // go-github AbuseRateLimitError
	errorCodeError     interface{ ErrorCode() string }            // aws/smithy-go APIError
	httpStatusError    interface{ HTTPStatusCode() int }          // aws-sdk-go-v2, slack-go
	statusCodeError    interface{ StatusCode() int }
	httpCodeError      interface{ HTTPCode() int } // gax-go, and so googleapi.Error of Google's clients
	timeoutError       interface{ Timeout() bool } // net.Error and context.DeadlineExceeded
)

// transientCodes are the codes that AWS SDKs retry without slowing down.
var transientCodes = []string{"RequestTimeout", "RequestTimeoutException"}

// Classify returns the meaning of an error. It understands the wrappers [Throttled],
// [QuotaExhausted], [Transient] and [Permanent], and errors anywhere in the tree that have one of
// these methods:
//
//	Verdict() cruise.Verdict       decides, for the errors within it too
//	ErrorCode() string             AWS codes: the SDK's 14 throttle codes, request timeouts
//	StatusCode() int               300 or more: by StatusOutcome; HTTPStatusCode and HTTPCode too
//	RetryAfter() time.Duration     alone, a positive wait is a throttle; GetRetryAfter too
//	Timeout() bool                 true is transient
//
// A wrapper without a wait or a scope takes it from the error that it wraps. Of joined errors, in
// any order, a throttle teaches the limiter and a permanent error forbids the retry: both together
// are a throttle with NoRetry.
//
// nil is a success. [context.Canceled] is dropped, since a caller gave up on purpose. An [*Error]
// is permanent: see [Error.Verdict]. Any other error is transient, and one with a method that
// panics is too. If an SDK keeps a throttle in fields, without a method, see [ClassifyAs].
func Classify(err error) Verdict {
	if err == nil {
		return Verdict{Outcome: OutcomeSuccess}
	}
	var all tree
	all.add(err, oneError{})
	return all.verdict()
}

// ClassifyAs returns a function for [WithClassifier] that asks f about the first error of type E in
// a tree. It declines if there is none, if f is nil or panics, and if an error around it or beside it
// is marked by [Permanent] and its like. It suits SDKs whose errors keep in fields the facts that
// [Classify] finds by methods alone:
//
//	cruise.ClassifyAs(func(e *slack.RateLimitedError) cruise.Verdict {
//		return cruise.Verdict{Outcome: cruise.OutcomeThrottled, RetryAfter: e.RetryAfter}
//	})
//	cruise.ClassifyAs(func(e *apierrors.StatusError) cruise.Verdict { // of Kubernetes
//		seconds, _ := apierrors.SuggestsClientDelay(e)
//		wait := time.Duration(seconds) * time.Second
//		return cruise.Verdict{Outcome: cruise.StatusOutcome(int(e.ErrStatus.Code), wait), RetryAfter: wait}
//	})
//
// Package cruisehttp has VerdictOf for errors that keep a response, and there the lines for a dozen
// SDKs. Module cruisegrpc classifies errors of gRPC.
func ClassifyAs[E error](f func(E) Verdict) func(error) Verdict {
	return func(err error) (v Verdict) {
		defer func() {
			if recover() != nil { // an error made by hand, without its response
				v = Verdict{}
			}
		}()
		e, ok := errors.AsType[E](err)
		if !ok || f == nil || markedOutside(err, e) {
			return v
		}
		return f(e)
	}
}

// markedOutside reports whether an error of a tree is marked that is neither e nor within it.
func markedOutside(err, e error) bool {
	if err == nil || err == e {
		return false
	}
	n := inspect(err)
	return n.mark != nil || slices.ContainsFunc(n.within, func(x error) bool { return markedOutside(x, e) })
}

// oneError holds the facts of one error of a tree, apart from the errors within it.
type oneError struct {
	mark      markedError // nil if it is none
	code      Outcome     // by ErrorCode; OutcomeUnknown if it has no known one
	status    int         // 300 or more, or 0
	wait      time.Duration
	timeout   bool
	cancelled bool
	within    []error
}

// inspect reads the facts of err. An error whose methods panic, such as a typed nil, has none.
func inspect(err error) (n oneError) {
	defer func() {
		if recover() != nil {
			n = oneError{}
		}
	}()
	if n.mark, _ = as[markedError](err); n.mark != nil {
		return n
	}
	switch x := err.(type) {
	case interface{ Unwrap() error }:
		n.within = []error{x.Unwrap()}
	case interface{ Unwrap() []error }:
		n.within = x.Unwrap()
	}
	if e, ok := as[retryAfterError](err); ok {
		n.wait = max(0, e.RetryAfter())
	} else if e, ok := as[getRetryAfterError](err); ok {
		n.wait = max(0, e.GetRetryAfter())
	}
	if e, ok := as[errorCodeError](err); ok {
		switch code := e.ErrorCode(); {
		case slices.Contains(signals.AWSThrottles, code):
			n.code = OutcomeThrottled
		case slices.Contains(transientCodes, code):
			n.code = OutcomeTransient
		}
	}
	if e, ok := as[httpStatusError](err); ok {
		n.status = e.HTTPStatusCode()
	} else if e, ok := as[statusCodeError](err); ok {
		n.status = e.StatusCode()
	} else if e, ok := as[httpCodeError](err); ok {
		n.status = e.HTTPCode()
	}
	if n.status < 300 {
		n.status = 0
	}
	if e, ok := as[timeoutError](err); ok {
		n.timeout = e.Timeout()
	}
	n.cancelled = err == context.Canceled
	if x, ok := err.(interface{ Is(error) bool }); ok && !n.cancelled {
		n.cancelled = x.Is(context.Canceled)
	}
	return n
}

// verdictOf returns the verdict of a mark, transient if its method panics.
func verdictOf(mark markedError) (v Verdict) {
	defer func() {
		if recover() != nil || !v.valid() {
			v = Verdict{Outcome: OutcomeTransient}
		}
		v.RetryAfter = max(0, v.RetryAfter)
	}()
	return mark.Verdict()
}

// as is errors.AsType of one error, without the errors within it.
func as[T any](err error) (t T, ok bool) {
	if t, ok = err.(T); ok {
		return t, true
	}
	if x, can := err.(interface{ As(any) bool }); can {
		ok = x.As(&t)
	}
	return t, ok
}

// tree holds the facts of a tree of errors.
type tree struct {
	wait time.Duration // the longest that an unmarked error tells
	ways []oneError    // the facts of each way from the root to a leaf or a mark
}

// add adds the ways through err. above holds the facts of the outer errors.
func (t *tree) add(err error, above oneError) {
	n := inspect(err)
	if n.mark == nil {
		t.wait = max(t.wait, n.wait)
		n.code = cmp.Or(above.code, n.code)
		n.status = cmp.Or(above.status, n.status)
		n.timeout = n.timeout || above.timeout
		n.cancelled = n.cancelled || above.cancelled
		n.wait = max(n.wait, above.wait)
	}
	leaf := true
	for _, e := range n.within {
		if e != nil {
			leaf = false
			t.add(e, n)
		}
	}
	if leaf {
		t.ways = append(t.ways, n)
	}
}

// verdict merges the verdicts of all ways.
func (t *tree) verdict() (v Verdict) {
	best, forbid := -1, false
	for _, n := range t.ways {
		w, rank := n.verdict(t.wait)
		forbid = forbid || w.Outcome == OutcomePermanent || w.NoRetry
		switch {
		case rank > best:
			v, best = w, rank
		case rank == best:
			v.RetryAfter = max(v.RetryAfter, w.RetryAfter)
			v.Scope = cmp.Or(v.Scope, w.Scope)
		}
	}
	v.NoRetry = forbid && v.Outcome != OutcomePermanent && v.Outcome != OutcomeQuotaExhausted // these imply it
	return v
}

// verdict returns the verdict of the errors on one way, and its rank. wait is that of the tree.
func (n *oneError) verdict(wait time.Duration) (v Verdict, rank int) {
	if n.mark != nil {
		v = verdictOf(n.mark)
		return v, v.Outcome.rank()
	}
	v.RetryAfter = wait
	switch {
	case n.code != OutcomeUnknown:
		v.Outcome = n.code
	case n.status > 0:
		v.Outcome = StatusOutcome(n.status, wait)
	case n.wait > 0:
		v.Outcome = OutcomeThrottled
	case n.timeout:
		v.Outcome = OutcomeTransient
	case n.cancelled:
		v.Outcome = OutcomeDropped
	default:
		v.Outcome = OutcomeTransient
		return v, 0 // it says nothing
	}
	return v, v.Outcome.rank()
}

// rank orders outcomes: the limiter learns the one of the highest rank.
func (o Outcome) rank() int {
	return slices.Index([]Outcome{OutcomeUnknown, OutcomeSuccess, OutcomeDropped, OutcomeTransient, OutcomePermanent, OutcomeThrottled, OutcomeQuotaExhausted}, o)
}

// StatusOutcome returns the meaning of an HTTP status alone. retryAfter is the wait that the
// response asked for, 0 if none: with a wait 403, 418, 430 and 503 are a throttle, and 409, 413 and
// 423 a transient failure. A bare 503 is transient: the rate may not be to blame.
//
// Sources: RFC 9110, 6585 (429), 8470 (425), and the common use of 418, 430, 509, 529 and 52x.
func StatusOutcome(status int, retryAfter time.Duration) Outcome {
	if retryAfter > 0 {
		switch status {
		case 403, 418, 430, 503:
			return OutcomeThrottled
		case 409, 413, 423:
			return OutcomeTransient
		}
	}
	switch status {
	case 429, 509, 529:
		return OutcomeThrottled
	case 408, 425:
		return OutcomeTransient
	case 501, 505, 506, 510, 511:
		return OutcomePermanent
	}
	switch status / 100 {
	case 1, 2, 3:
		return OutcomeSuccess
	case 4:
		return OutcomePermanent
	}
	return OutcomeTransient // 5xx, and numbers that are no status
}
