package cruiseaws

import (
	"net/http"
	"testing"
	"time"

	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/cruisehttp/signal"
)

// saidReason and saidError have the form of DynamoDB's errors.
type saidReason struct{ Code, Reason *string }

type saidError struct {
	smithy.GenericAPIError
	CancellationReasons, ThrottlingReasons []saidReason
}

// For any answer of a service, the wait is bounded, and the blamed scope is one of ours.
func FuzzClassify(f *testing.F) {
	f.Add("ThrottlingException", "Rate exceeded", "", 400, "400 Bad Request", "1500", "", 0)
	f.Add("Throttling", "Daily message quota exceeded.", "", 454, "", "-1", "7200", 1)
	f.Add("TransactionCanceledException", "", "ThrottlingError", 400, "", "9223372036854775808", "x", 2)
	f.Add("ProvisionedThroughputExceededException", "", "IndexReadProvisionedThroughputExceeded", 400, "", "", "0.5", 63)
	f.Add("", "Limit Exceeded.", "", 429, "", "9223372036854775807", "", -1)
	f.Add("", "", "None", 503, "503 Slow Down", "", "Fri, 31 Dec 9999 23:59:59 GMT", 0)
	f.Fuzz(func(t *testing.T, code, message, reason string, status int, phrase, amzRetryAfter, retryAfter string, retry int) {
		header := http.Header{}
		if amzRetryAfter != "" {
			header.Set(retryAfterHeader, amzRetryAfter)
		}
		if retryAfter != "" {
			header.Set("Retry-After", retryAfter)
		}
		list := []saidReason{{}, {&reason, &reason}}
		err := &smithy.OperationError{Err: &smithyhttp.ResponseError{
			Response: &smithyhttp.Response{Response: &http.Response{StatusCode: status, Status: phrase, Header: header}},
			Err:      &saidError{smithy.GenericAPIError{Code: code, Message: message}, list, list},
		}}
		v := Classify(err)
		if v.RetryAfter < 0 || v.RetryAfter > 365*24*time.Hour {
			t.Errorf("a wait of %v", v.RetryAfter)
		}
		switch v.Outcome {
		case cruise.OutcomeThrottled, cruise.OutcomeTransient, cruise.OutcomePermanent:
			if v.RetryAfter > signal.DefaultLongWait && v.Outcome == cruise.OutcomeThrottled {
				t.Errorf("a throttle of %v", v.RetryAfter)
			}
		case cruise.OutcomeQuotaExhausted:
		default:
			t.Errorf("outcome %v", v.Outcome)
		}
		if v.Scope != "" && v.Scope != ScopeTable && v.Scope != ScopeIndex {
			t.Errorf("scope %q", v.Scope)
		}
		// The SDK's bound of a wait holds for each of its attempts.
		header.Del("Retry-After")
		if v := classify(err, retry&63+1); v.RetryAfter < 0 || v.RetryAfter > 20*time.Second+retryAfterExtra {
			t.Errorf("attempt %d: a wait of %v", retry&63+1, v.RetryAfter)
		}
	})
}
