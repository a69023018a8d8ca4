package cruiseaws

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/cruisehttp/signal"
)

// Classify classifies an error of an SDK call. It calls the same errors throttles or worth a retry
// as the SDK, and in addition:
//
//	429 without a known code                        throttled
//	TransactionCanceledException                    throttled if a reason is, and none
//	                                                is permanent; transient for a conflict
//	SES "Daily message quota exceeded",             quota exhausted
//	Bedrock "Too many tokens per day"
//	429 "Limit Exceeded", and no more words, of     quota exhausted
//	an API Gateway plan
//	an operation that the SDK itself has retried,   permanent: see [SDKAttempts]
//	or would have, had its retry quota not run out
//
// Any other answer of a service is permanent. The wait comes from an x-amz-retry-after header, in
// milliseconds, which the SDK bounds to its own backoff and 5 s more, or else from Retry-After, as
// Lambda sends it. A throttle with a wait above [signal.DefaultLongWait] is a used-up quota. The
// scope is [ScopeTable] or [ScopeIndex], by the first reason that DynamoDB gives for a throttle,
// else "". Classify declines the end of a context and errors that are not the SDK's.
func Classify(err error) cruise.Verdict {
	if retriedBySDK(err) != "" {
		return cruise.Verdict{Outcome: cruise.OutcomePermanent}
	}
	v := classify(err, 1)
	if v.Outcome == cruise.OutcomePermanent && !ofSDK(err) {
		return cruise.Verdict{}
	}
	return v
}

// ofSDK reports whether err comes from an SDK call.
func ofSDK(err error) bool {
	_, answer := errors.AsType[smithy.APIError](err)
	_, response := errors.AsType[*smithyhttp.ResponseError](err)
	_, operation := errors.AsType[*smithy.OperationError](err)
	return answer || response || operation
}

// SDKAttempts returns the number of attempts that the SDK made before it gave up with err, 0 if it
// reports none. More than 1 inside a [cruise.Retrier] means that retries multiply: see
// [WithoutRetries].
func SDKAttempts(err error) int {
	if e, ok := errors.AsType[*retry.MaxAttemptsError](err); ok {
		if inner, ok := errors.AsType[*retry.MaxAttemptsError](within(err)); !ok || inner != e {
			return e.Attempt
		}
	}
	return 0
}

// within returns the error of another operation inside err, such as one for credentials; nil if
// there is none.
func within(err error) error {
	if outer, ok := errors.AsType[*smithy.OperationError](err); ok {
		if inner, ok := errors.AsType[*smithy.OperationError](outer.Err); ok {
			return inner
		}
	}
	return nil
}

// retriedBySDK returns the sign of the SDK's own retries in err, "" if there is none.
func retriedBySDK(err error) string {
	if n := SDKAttempts(err); n > 1 {
		return fmt.Sprintf("made %d attempts", n)
	}
	_, inner := errors.AsType[ratelimit.QuotaExceededError](within(err))
	if _, ok := errors.AsType[ratelimit.QuotaExceededError](err); ok && !inner {
		return "has spent its own retry quota"
	}
	return ""
}

// classify is Classify for the n-th attempt, 1 for the first.
func classify(err error, attempt int) cruise.Verdict {
	if err == nil {
		return cruise.Verdict{Outcome: cruise.OutcomeSuccess}
	}
	if _, ok := errors.AsType[*timeoutError](err); ok {
		return cruise.Verdict{Outcome: cruise.OutcomeTransient}
	}
	if _, ok := errors.AsType[*cruise.Error](err); ok || errors.Is(err, context.Canceled) {
		return cruise.Verdict{}
	}
	v := cruise.Verdict{Outcome: outcomeOf(err), Scope: blamed(err)}
	if v.Outcome == cruise.OutcomePermanent && errors.Is(err, context.DeadlineExceeded) {
		return cruise.Verdict{} // the SDK calls it cancelled
	}
	switch v.Outcome {
	case cruise.OutcomeThrottled, cruise.OutcomeTransient:
		v.RetryAfter = asked(err, v.Outcome, attempt)
	}
	if v.Outcome == cruise.OutcomeThrottled && v.RetryAfter > signal.DefaultLongWait {
		v.Outcome = cruise.OutcomeQuotaExhausted
	}
	return v
}

// Codes of DynamoDB's reasons to cancel a transaction: API_TransactWriteItems.
var (
	throttledReasons = []string{"ThrottlingError", "ProvisionedThroughputExceeded", "RequestLimitExceeded"}
	harmlessReasons  = []string{"", "None", "TransactionConflict"}
)

// outcomeOf returns the outcome of err. It is transient if the methods of err panic, as a
// ResponseError's do without a response.
func outcomeOf(err error) (outcome cruise.Outcome) {
	defer func() {
		if recover() != nil {
			outcome = cruise.OutcomeTransient
		}
	}()
	code, message := "", ""
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		code, message = api.ErrorCode(), api.ErrorMessage()
	}
	status, slowDown := 0, false
	if response, ok := errors.AsType[*smithyhttp.ResponseError](err); ok {
		status = response.HTTPStatusCode()
		// S3 answers a HEAD like this, since there is no body for a code.
		slowDown = status == 503 && strings.HasSuffix(response.Response.Status, " Slow Down")
	}
	_, throttle := retry.DefaultThrottleErrorCodes[code]
	switch {
	case code == "TransactionCanceledException":
		return canceled(err)
	// A plan's message is these words alone: "Rate Limit Exceeded" is a throttle.
	case throttle && (strings.Contains(message, "Daily message quota exceeded") || strings.HasPrefix(message, "Too many tokens per day")),
		status == 429 && strings.EqualFold(strings.TrimSuffix(message, "."), "Limit Exceeded"):
		return cruise.OutcomeQuotaExhausted
	case throttle, status == 429, slowDown:
		return cruise.OutcomeThrottled
	case sdkRetryable.IsErrorRetryable(err) == aws.TrueTernary,
		code == "IDPCommunicationError": // the client of STS retries it, by its own retryer
		return cruise.OutcomeTransient
	}
	return cruise.OutcomePermanent
}

var sdkRetryable = retry.IsErrorRetryables(retry.DefaultRetryables)

// canceled returns the outcome of a cancelled transaction, by its reasons.
func canceled(err error) cruise.Outcome {
	outcome := cruise.OutcomePermanent
	for _, code := range reasons(err, "CancellationReasons", "Code") {
		switch {
		case slices.Contains(throttledReasons, code):
			outcome = cruise.OutcomeThrottled
		case code == "TransactionConflict" && outcome == cruise.OutcomePermanent:
			outcome = cruise.OutcomeTransient
		case !slices.Contains(harmlessReasons, code):
			return cruise.OutcomePermanent
		}
	}
	return outcome
}

// blamed returns the scope that the first of DynamoDB's ThrottlingReasons blames, such as
// "IndexReadProvisionedThroughputExceeded".
func blamed(err error) string {
	for _, reason := range reasons(err, "ThrottlingReasons", "Reason") {
		switch {
		case strings.HasPrefix(reason, "Table"):
			return ScopeTable
		case strings.HasPrefix(reason, "Index"):
			return ScopeIndex
		}
	}
	return ""
}

// reasons reads a field of the reasons that an error of a service lists. It goes by name, since the
// types belong to modules that not every program needs.
func reasons(err error, list, field string) (values []string) {
	api, ok := errors.AsType[smithy.APIError](err)
	if !ok {
		return nil
	}
	v := reflect.Indirect(reflect.ValueOf(api))
	if v.Kind() != reflect.Struct {
		return nil
	}
	all := v.FieldByName(list)
	if all.Kind() != reflect.Slice {
		return nil
	}
	for i := range all.Len() {
		reason := reflect.Indirect(all.Index(i))
		if reason.Kind() != reflect.Struct {
			return nil
		}
		values = append(values, textField(reason, field))
	}
	return values
}

const (
	retryAfterHeader = "X-Amz-Retry-After"
	retryAfterExtra  = 5 * time.Second // above the backoff: aws/retry, 2026
)

// asked returns the wait of x-amz-retry-after, bounded as the SDK does it, or else of Retry-After.
func asked(err error, o cruise.Outcome, attempt int) time.Duration {
	response, ok := errors.AsType[*smithyhttp.ResponseError](err)
	if !ok || response.Response == nil || response.Response.Response == nil {
		return 0
	}
	header := response.Response.Header
	ms, parseErr := strconv.ParseInt(header.Get(retryAfterHeader), 10, 64)
	if parseErr != nil || ms < 0 {
		wait, _ := signal.ParseRetryAfter(header, time.Now())
		return wait
	}
	base := 50 * time.Millisecond
	if o == cruise.OutcomeThrottled {
		base = time.Second
	}
	most := min(base<<min(attempt-1, 10), 20*time.Second) + retryAfterExtra
	return time.Duration(min(ms, most.Milliseconds())) * time.Millisecond
}
