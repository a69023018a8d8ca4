package cruise

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/a7df5faa/cruise/internal/signals"
)

// Outcome says what one attempt of a call tells about the server. [OutcomeThrottled] cuts
// a rate, and only [OutcomeSuccess] and [OutcomePermanent], which are answers, grow one.
// Successes cut it too where the quota that they [Report] is nearly used up, or where they
// take ever longer.
type Outcome uint8

const (
	// OutcomeUnknown is the zero value: a classifier that returns it declines,
	// and the next one is asked.
	OutcomeUnknown Outcome = iota
	// OutcomeSuccess: the server did the work.
	OutcomeSuccess
	// OutcomeThrottled: the server said slow down. Worth retrying, after a pause.
	OutcomeThrottled
	// OutcomeQuotaExhausted: a long window (a day, a month, a bill) is used up,
	// so retrying soon is pointless and slowing down does not help.
	OutcomeQuotaExhausted
	// OutcomeTransient: worth retrying, and the rate is not to blame.
	OutcomeTransient
	// OutcomePermanent: retrying cannot help.
	OutcomePermanent
	// OutcomeDropped: the attempt says nothing about the server, because the
	// caller gave it up. It is not retried, and neither cuts nor grows a rate.
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

// stops reports whether the server refused a call because of how many there were.
func (o Outcome) stops() bool { return o == OutcomeThrottled || o == OutcomeQuotaExhausted }

// Quota is what a server reported of a limit it keeps: the Limit, Remaining and
// Reset of the RateLimit header family. Whoever knows no Remaining has no
// quota to report.
//
// Calls count in it by what they cost here: see [WithCost]. If the server counts calls, and
// each costs more than 1 here, multiply its numbers by that.
type Quota struct {
	// Limit is what a whole window admits; 0 means not reported.
	Limit int
	// Remaining is what is left until Reset, 0 or more.
	Remaining int
	// Reset is the time from now until Remaining is whole again, for a window,
	// or until the bucket is full; 0 means not reported.
	Reset time.Duration
}

// Feedback tells a [Learner] how an attempt that it let go has ended.
type Feedback struct {
	// Outcome of the attempt.
	Outcome Outcome
	// Sent is when the limiter let the attempt go. A throttle of an attempt sent
	// before an earlier throttle was known is old news.
	Sent time.Time
	// Cost is the n that the attempt was admitted with.
	Cost int
	// RetryAfter is the wait that the server asked for; 0 means none.
	RetryAfter time.Duration
	// Scope is the limit that the server blamed, such as "ACCOUNT"; "" means
	// that it named none.
	Scope string
	// Quota is what the server reported, on success too; nil means nothing.
	Quota *Quota
}

// Verdict is what a [Classifier] makes of an error.
type Verdict struct {
	// Outcome of the attempt; OutcomeUnknown declines.
	Outcome Outcome
	// RetryAfter is the wait that the server asked for; 0 means none.
	RetryAfter time.Duration
	// Scope is the limit that the server blamed, if it named one.
	Scope string
}

// Classifier tells what an error of a call means. It is never asked about nil,
// nor about the end of the caller's own context, nor about an [*Error], which
// has been retried already. A Classifier that returns the zero Verdict, or an
// Outcome that does not exist, declines, and [Classify] decides.
type Classifier func(error) Verdict

// The shapes by which errors of SDKs are understood without importing them.
type (
	markedError interface { // a wrapper or an Error of this package
		error
		means() Verdict
	}
	retryAfterError interface {
		error
		RetryAfter() time.Duration
	}
	errorCodeError interface { // aws/smithy-go APIError
		error
		ErrorCode() string
	}
	httpStatusCodeError interface { // aws-sdk-go-v2 ResponseError
		error
		HTTPStatusCode() int
	}
	statusCodeError interface {
		error
		StatusCode() int
	}
	timeoutError interface { // net.Error and context.DeadlineExceeded
		error
		Timeout() bool
	}
)

// transientCodes are the codes that AWS SDKs retry without slowing down.
var transientCodes = []string{"RequestTimeout", "RequestTimeoutException"}

// Classify tells what an error means, without any adapter: it understands the
// wrappers [Throttled], [QuotaExhausted], [Transient] and [Permanent], and
// errors anywhere in the tree that have one of these methods:
//
//	ErrorCode() string          AWS codes: the SDK's 14 throttle codes, request timeouts
//	HTTPStatusCode() int        300 or more: by StatusOutcome
//	StatusCode() int            300 or more: by StatusOutcome
//	RetryAfter() time.Duration  alone, a positive wait is a throttle
//	Timeout() bool              true is transient
//
// A wrapper without a wait or a scope takes that of the error that it wraps.
//
// nil is a success. An [*Error] is permanent, because whoever made it has
// already retried, with the wait that it tells; that of a call which was to have one
// attempt only means what its last error does. [context.Canceled] is dropped:
// something was given up on purpose. Any other error is transient.
//
// An error whose own methods panic is transient.
func Classify(err error) (v Verdict) {
	if err == nil {
		return Verdict{Outcome: OutcomeSuccess}
	}
	// A typed nil error panics in its methods. It must not take the caller's
	// goroutine with it only because we were curious.
	defer func() {
		if recover() != nil {
			v = Verdict{Outcome: OutcomeTransient}
		}
	}()
	if m, ok := errors.AsType[markedError](err); ok {
		v := m.means()
		if w, ok := m.(*wrapper); ok {
			inner := Classify(w.err)
			v.RetryAfter = cmp.Or(v.RetryAfter, inner.RetryAfter)
			v.Scope = cmp.Or(v.Scope, inner.Scope)
		}
		return v
	}
	if e, ok := errors.AsType[retryAfterError](err); ok {
		v.RetryAfter = max(0, e.RetryAfter())
	}
	v.Outcome = outcomeOf(err, v.RetryAfter)
	return v
}

func outcomeOf(err error, retryAfter time.Duration) Outcome {
	if e, ok := errors.AsType[errorCodeError](err); ok {
		switch code := e.ErrorCode(); {
		case slices.Contains(signals.AWSThrottles, code):
			return OutcomeThrottled
		case slices.Contains(transientCodes, code):
			return OutcomeTransient
		}
	}
	if e, ok := errors.AsType[httpStatusCodeError](err); ok && e.HTTPStatusCode() >= 300 {
		return StatusOutcome(e.HTTPStatusCode(), retryAfter)
	}
	if e, ok := errors.AsType[statusCodeError](err); ok && e.StatusCode() >= 300 {
		return StatusOutcome(e.StatusCode(), retryAfter)
	}
	if retryAfter > 0 {
		return OutcomeThrottled
	}
	if e, ok := errors.AsType[timeoutError](err); ok && e.Timeout() {
		return OutcomeTransient
	}
	if errors.Is(err, context.Canceled) {
		return OutcomeDropped
	}
	return OutcomeTransient
}

// StatusOutcome is what an HTTP status means when nothing else is known of the
// response. retryAfter is the wait that the response asked for, 0 if none: it
// makes a throttle of 403, 418, 430 and 503, and a transient failure of 409, 413 and
// 423. A bare 503 is transient: the server failed, and whether the rate is to
// blame is unknown.
//
// Sources: RFC 9110, RFC 6585 section 4 (429), RFC 8470 (425), and the common
// use of 418, 430, 509, 529 and 52x.
func StatusOutcome(status int, retryAfter time.Duration) Outcome {
	asked := retryAfter > 0
	switch status {
	case 429, 509, 529:
		return OutcomeThrottled
	case 403, 418, 430:
		if asked {
			return OutcomeThrottled
		}
		return OutcomePermanent
	case 409, 413, 423:
		if asked {
			return OutcomeTransient
		}
		return OutcomePermanent
	case 503:
		if asked {
			return OutcomeThrottled
		}
		return OutcomeTransient
	case 408, 425:
		return OutcomeTransient
	case 501, 505, 506, 510, 511:
		return OutcomePermanent
	}
	switch {
	case status >= 100 && status < 400:
		return OutcomeSuccess
	case status >= 400 && status < 500:
		return OutcomePermanent
	default: // 5xx, and what is no status at all
		return OutcomeTransient
	}
}
