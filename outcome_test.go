package cruise_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/url"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/a7df5faa/cruise"
)

// The shapes of errors of SDKs.
type (
	codeError   string
	statusError int
	awsStatus   int
	waitError   time.Duration
	slowError   bool
	sdkError    struct { // all of them
		code   string
		status int
		wait   time.Duration
		slow   bool
	}
	grumpyError struct{} // whose every method panics
	typedNil    struct{ status int }
)

func (e codeError) Error() string             { return string(e) }
func (e codeError) ErrorCode() string         { return string(e) }
func (e statusError) Error() string           { return fmt.Sprint(int(e)) }
func (e statusError) StatusCode() int         { return int(e) }
func (e awsStatus) Error() string             { return fmt.Sprint(int(e)) }
func (e awsStatus) HTTPStatusCode() int       { return int(e) }
func (e waitError) Error() string             { return "wait" }
func (e waitError) RetryAfter() time.Duration { return time.Duration(e) }
func (e slowError) Error() string             { return "slow" }
func (e slowError) Timeout() bool             { return bool(e) }
func (e *sdkError) Error() string             { return e.code }
func (e *sdkError) ErrorCode() string         { return e.code }
func (e *sdkError) HTTPStatusCode() int       { return e.status }
func (e *sdkError) RetryAfter() time.Duration { return e.wait }
func (e *sdkError) Timeout() bool             { return e.slow }
func (grumpyError) Error() string             { panic("Error") }
func (grumpyError) Is(error) bool             { panic("Is") }
func (grumpyError) As(any) bool               { panic("As") }
func (grumpyError) Unwrap() error             { panic("Unwrap") }
func (e *typedNil) Error() string             { return fmt.Sprint(e.status) }
func (e *typedNil) StatusCode() int           { return e.status }

func TestClassify(t *testing.T) {
	const (
		throttled = cruise.OutcomeThrottled
		transient = cruise.OutcomeTransient
		permanent = cruise.OutcomePermanent
		quota     = cruise.OutcomeQuotaExhausted
		dropped   = cruise.OutcomeDropped
		s         = time.Second
	)
	timeout, cancel := context.WithTimeout(t.Context(), -1)
	defer cancel()
	exhausted := &cruise.Error{Reason: cruise.ErrAttemptsExhausted, Attempts: 5, Last: cruise.Throttled(errBoom, cruise.RetryAfter(s))}
	for _, tt := range []struct {
		name string
		err  error
		want cruise.Verdict
	}{
		{"nil", nil, cruise.Verdict{Outcome: cruise.OutcomeSuccess}},
		{"anything", errBoom, cruise.Verdict{Outcome: transient}},
		{"end of the stream", io.ErrUnexpectedEOF, cruise.Verdict{Outcome: transient}},

		{"throttled", cruise.Throttled(errBoom), cruise.Verdict{Outcome: throttled}},
		{"throttled, hints", cruise.Throttled(errBoom, cruise.RetryAfter(s), cruise.InScope("ACCOUNT")), cruise.Verdict{Outcome: throttled, RetryAfter: s, Scope: "ACCOUNT"}},
		{"throttled, nil hint", cruise.Throttled(errBoom, nil), cruise.Verdict{Outcome: throttled}},
		{"throttled, negative wait", cruise.Throttled(errBoom, cruise.RetryAfter(math.MinInt64)), cruise.Verdict{Outcome: throttled}},
		{"throttled, negative wait", cruise.Throttled(errBoom, cruise.RetryAfter(-s)), cruise.Verdict{Outcome: throttled}},
		{"throttled, the outer scope counts", cruise.Throttled(cruise.Transient(errBoom, cruise.InScope("inner")), cruise.InScope("outer")), cruise.Verdict{Outcome: throttled, Scope: "outer"}},
		{"throttled, hint of one's own", cruise.Throttled(errBoom, func(v *cruise.Verdict) { *v = cruise.Verdict{RetryAfter: -1} }), cruise.Verdict{Outcome: throttled}},
		{"quota", cruise.QuotaExhausted(errBoom, cruise.RetryAfter(s)), cruise.Verdict{Outcome: quota, RetryAfter: s}},
		{"transient", cruise.Transient(statusError(404)), cruise.Verdict{Outcome: transient}},
		{"permanent", cruise.Permanent(statusError(429)), cruise.Verdict{Outcome: permanent}},
		{"wrapped deeply", fmt.Errorf("list: %w", errors.Join(io.EOF, cruise.Throttled(errBoom))), cruise.Verdict{Outcome: throttled}},
		{"outermost wrapper decides", cruise.Permanent(fmt.Errorf("gone: %w", cruise.Throttled(errBoom))), cruise.Verdict{Outcome: permanent}},
		{"hints of an inner wrapper stay", cruise.Transient(cruise.Throttled(errBoom, cruise.RetryAfter(s), cruise.InScope("host"))), cruise.Verdict{Outcome: transient, RetryAfter: s, Scope: "host"}},
		{"hints of the outer wrapper win", cruise.Throttled(cruise.Throttled(errBoom, cruise.RetryAfter(s)), cruise.RetryAfter(9*s)), cruise.Verdict{Outcome: throttled, RetryAfter: 9 * s}},
		{"the wait of a wrapped error stays", cruise.Throttled(waitError(3 * s)), cruise.Verdict{Outcome: throttled, RetryAfter: 3 * s}},

		{"given up", exhausted, cruise.Verdict{Outcome: permanent}},
		{"given up, wrapped", fmt.Errorf("inner: %w", exhausted), cruise.Verdict{Outcome: permanent}},
		{"given up, with a wait", &cruise.Error{RetryAfter: s, Last: waitError(9 * s)}, cruise.Verdict{Outcome: permanent, RetryAfter: s}},
		{"given up, negative wait", &cruise.Error{RetryAfter: math.MinInt64}, cruise.Verdict{Outcome: permanent}},
		{"given up, marked anew", cruise.Transient(exhausted), cruise.Verdict{Outcome: transient}},
		{"given up, marked anew, its wait stays", cruise.Throttled(fmt.Errorf("inner: %w", &cruise.Error{RetryAfter: s})), cruise.Verdict{Outcome: throttled, RetryAfter: s}},
		{"given up, marked anew, the outer wait wins", cruise.Transient(&cruise.Error{RetryAfter: s}, cruise.RetryAfter(9*s)), cruise.Verdict{Outcome: transient, RetryAfter: 9 * s}},

		{"code of a timeout", codeError("RequestTimeout"), cruise.Verdict{Outcome: transient}},
		{"code outranks status", &sdkError{code: "ThrottlingException", status: 400}, cruise.Verdict{Outcome: throttled}},
		{"code with a wait", &sdkError{code: "SlowDown", status: 503, wait: s}, cruise.Verdict{Outcome: throttled, RetryAfter: s}},
		{"code unknown, status decides", &sdkError{code: "ValidationException", status: 400}, cruise.Verdict{Outcome: permanent}},
		{"code in other letters", codeError("throttling"), cruise.Verdict{Outcome: transient}},

		{"status", statusError(429), cruise.Verdict{Outcome: throttled}},
		{"status, AWS", awsStatus(404), cruise.Verdict{Outcome: permanent}},
		{"status, wrapped", fmt.Errorf("get: %w", statusError(403)), cruise.Verdict{Outcome: permanent}},
		{"status and wait", &sdkError{status: 503, wait: s}, cruise.Verdict{Outcome: throttled, RetryAfter: s}},
		{"status and negative wait", &sdkError{status: 503, wait: -s}, cruise.Verdict{Outcome: transient}},
		{"status from one error, wait from another", errors.Join(statusError(403), waitError(s)), cruise.Verdict{Outcome: throttled, RetryAfter: s}},
		{"status 200, and an error all the same", statusError(200), cruise.Verdict{Outcome: transient}},
		{"status 299, AWS", awsStatus(299), cruise.Verdict{Outcome: transient}},
		{"status 299", statusError(299), cruise.Verdict{Outcome: transient}},
		{"status 300", statusError(300), cruise.Verdict{Outcome: cruise.OutcomeSuccess}},
		{"status 300, AWS", awsStatus(300), cruise.Verdict{Outcome: cruise.OutcomeSuccess}},
		{"status not modified", awsStatus(304), cruise.Verdict{Outcome: cruise.OutcomeSuccess}},
		{"status 0, cancelled", errors.Join(awsStatus(0), context.Canceled), cruise.Verdict{Outcome: dropped}},
		{"status that is none", statusError(-1), cruise.Verdict{Outcome: transient}},

		{"wait alone", waitError(s), cruise.Verdict{Outcome: throttled, RetryAfter: s}},
		{"longest wait", waitError(math.MaxInt64), cruise.Verdict{Outcome: throttled, RetryAfter: math.MaxInt64}},
		{"no wait", waitError(0), cruise.Verdict{Outcome: transient}},
		{"negative wait", waitError(math.MinInt64), cruise.Verdict{Outcome: transient}},

		{"timeout", slowError(true), cruise.Verdict{Outcome: transient}},
		{"timeout of a context", timeout.Err(), cruise.Verdict{Outcome: transient}},
		{"timeout of a file", os.ErrDeadlineExceeded, cruise.Verdict{Outcome: transient}},
		{"timeout of a dialler", &net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}, cruise.Verdict{Outcome: transient}},
		{"cancelled", context.Canceled, cruise.Verdict{Outcome: dropped}},
		{"cancelled, by a client of HTTP", &url.Error{Op: "Get", Err: context.Canceled}, cruise.Verdict{Outcome: dropped}},

		{"methods panic", grumpyError{}, cruise.Verdict{Outcome: transient}},
		{"methods panic, wrapped", fmt.Errorf("call: %w", grumpyError{}), cruise.Verdict{Outcome: transient}},
		{"methods panic, marked", cruise.Throttled(grumpyError{}, cruise.RetryAfter(s)), cruise.Verdict{Outcome: throttled, RetryAfter: s}},
		{"typed nil", (*typedNil)(nil), cruise.Verdict{Outcome: transient}},
		{"typed nil, given up", (*cruise.Error)(nil), cruise.Verdict{Outcome: permanent}},
		{"typed nil, given up, marked", cruise.Throttled((*cruise.Error)(nil)), cruise.Verdict{Outcome: throttled}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			assert.Equal(t, tt.want, cruise.Classify(tt.err))
		})
	}
}

func TestClassifyKnowsTheThrottleCodesOfAWS(t *testing.T) {
	for _, code := range []string{
		"BandwidthLimitExceeded", "EC2ThrottledException", "LimitExceededException", "PriorRequestNotComplete",
		"ProvisionedThroughputExceededException", "RequestLimitExceeded", "RequestThrottled", "RequestThrottledException",
		"SlowDown", "ThrottledException", "Throttling", "ThrottlingException", "TooManyRequestsException",
		"TransactionInProgressException",
	} {
		assert.Equal(t, cruise.OutcomeThrottled, cruise.Classify(codeError(code)).Outcome, code)
		assert.Equal(t, cruise.OutcomeThrottled, cruise.Classify(&sdkError{code: code, status: 400}).Outcome, code)
	}
}

func TestWrappersOfNil(t *testing.T) {
	assert.True(t, cruise.Throttled(nil) == nil)
	assert.True(t, cruise.QuotaExhausted(nil, cruise.RetryAfter(1)) == nil)
	assert.True(t, cruise.Transient(nil) == nil)
	assert.True(t, cruise.Permanent(nil) == nil)
}

func TestWrappersAreTransparent(t *testing.T) {
	err := cruise.Throttled(fmt.Errorf("get: %w", statusError(429)))
	assert.EqualError(t, err, "get: 429")
	assert.ErrorIs(t, err, statusError(429))
	_, ok := errors.AsType[statusError](err)
	assert.True(t, ok)
}

// Every status that there can be, without and with a wait.
func TestStatusOutcome(t *testing.T) {
	const (
		ok        = cruise.OutcomeSuccess
		throttled = cruise.OutcomeThrottled
		transient = cruise.OutcomeTransient
		permanent = cruise.OutcomePermanent
	)
	type pair struct{ bare, asked cruise.Outcome }
	special := map[int]pair{
		403: {permanent, throttled}, 418: {permanent, throttled}, 430: {permanent, throttled},
		409: {permanent, transient}, 413: {permanent, transient}, 423: {permanent, transient},
		408: {transient, transient}, 425: {transient, transient},
		429: {throttled, throttled}, 509: {throttled, throttled}, 529: {throttled, throttled},
		501: {permanent, permanent}, 505: {permanent, permanent}, 506: {permanent, permanent},
		510: {permanent, permanent}, 511: {permanent, permanent},
		503: {transient, throttled},
	}
	for status := -1; status <= 1000; status++ {
		want, found := special[status]
		switch {
		case found:
		case status >= 100 && status < 400:
			want = pair{ok, ok}
		case status >= 400 && status < 500:
			want = pair{permanent, permanent}
		default:
			want = pair{transient, transient}
		}
		got := pair{cruise.StatusOutcome(status, 0), cruise.StatusOutcome(status, time.Second)}
		assert.Equal(t, want, got, "status %d", status)
		assert.Equal(t, want.bare, cruise.StatusOutcome(status, -time.Second), "status %d", status)
	}
}

func TestOutcomeNames(t *testing.T) {
	for o, want := range map[cruise.Outcome]string{
		cruise.OutcomeUnknown: "unknown", cruise.OutcomeSuccess: "success", cruise.OutcomeThrottled: "throttled",
		cruise.OutcomeQuotaExhausted: "quota exhausted", cruise.OutcomeTransient: "transient",
		cruise.OutcomePermanent: "permanent", cruise.OutcomeDropped: "dropped", cruise.OutcomeDropped + 1: "invalid", 99: "invalid",
	} {
		assert.Equal(t, want, o.String())
	}
}

func FuzzClassify(f *testing.F) {
	f.Add("Throttling", 400, int64(0), false, uint8(0))
	f.Add("", 503, int64(math.MaxInt64), true, uint8(1))
	f.Add("SlowDown", -1, int64(math.MinInt64), true, uint8(2))
	f.Fuzz(func(t *testing.T, code string, status int, wait int64, slow bool, wrap uint8) {
		var err error = &sdkError{code, status, time.Duration(wait), slow}
		switch wrap % 6 {
		case 1:
			err = fmt.Errorf("call: %w", err)
		case 2:
			err = errors.Join(grumpyError{}, err)
		case 3:
			err = cruise.Throttled(err)
		case 4:
			err = cruise.Transient(err, cruise.RetryAfter(time.Duration(wait)))
		case 5:
			err = &cruise.Error{RetryAfter: time.Duration(wait), Last: err}
		}
		v := cruise.Classify(err)
		if v.RetryAfter < 0 {
			t.Errorf("negative wait %v", v.RetryAfter)
		}
		if v.Outcome == cruise.OutcomeUnknown || v.Outcome > cruise.OutcomeDropped {
			t.Errorf("no outcome: %v", v.Outcome)
		}
		if o := cruise.StatusOutcome(status, time.Duration(wait)); v.Outcome == cruise.OutcomeSuccess && o != v.Outcome {
			t.Errorf("an error with status %d is a success", status)
		}
	})
}
