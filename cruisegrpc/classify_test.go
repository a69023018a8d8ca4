package cruisegrpc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/a7df5faa/cruise"
)

// conformanceStatus builds the error that a line of testdata/conformance.txt describes.
func conformanceStatus(t *testing.T, input string) (err error, strict bool) {
	t.Helper()
	parts := strings.Split(input, " ~ ")
	var code codes.Code
	require.NoError(t, code.UnmarshalJSON([]byte(`"`+parts[0]+`"`)))
	a := &attemptError{trailer: metadata.MD{}}
	var (
		message string
		details []protoadapt.MessageV1
		info    *errdetails.ErrorInfo
	)
	for _, part := range parts[1:] {
		kind, rest, _ := strings.Cut(part, " ")
		switch kind {
		case "msg":
			message = rest
		case "retry":
			delay := &durationpb.Duration{}
			if n, _ := fmt.Sscanf(rest, "%ds %dns", &delay.Seconds, &delay.Nanos); n < 2 {
				d, err := time.ParseDuration(rest)
				require.NoError(t, err)
				delay = durationpb.New(d)
			}
			details = append(details, &errdetails.RetryInfo{RetryDelay: delay})
		case "push":
			a.trailer.Append(PushbackKey, rest)
		case "quota":
			details = append(details, &errdetails.QuotaFailure{Violations: []*errdetails.QuotaFailure_Violation{{QuotaId: rest}}})
		case "info":
			reason, limit, _ := strings.Cut(rest, " ")
			info = &errdetails.ErrorInfo{Reason: reason, Metadata: map[string]string{"quota_limit": limit}}
			details = append(details, info)
		case "unit":
			info.Metadata["quota_unit"] = rest
		case "told":
			details = append(details, &errdetails.QuotaFailure{Violations: []*errdetails.QuotaFailure_Violation{{QuotaMetric: "a.googleapis.com/reads", Description: rest}}})
		case "google":
			info.Domain = "googleapis.com"
		case "envoy":
			a.trailer.Append(envoyLimited, "true")
		case "strict":
			strict = true
		case "unsafe":
			a.unsafe = true
		case "ended":
			a.ended = true
		case "alone":
			a.alone = true
		default:
			t.Fatalf("part %q", part)
		}
	}
	if code == codes.OK {
		return nil, strict
	}
	s := status.New(code, message)
	if len(details) > 0 {
		s, err = s.WithDetails(details...)
		require.NoError(t, err)
	}
	a.err = s.Err()
	return a, strict
}

func TestConformance(t *testing.T) {
	now := time.Date(2026, time.November, 20, 12, 0, 0, 0, time.UTC)
	outcomes := map[string]cruise.Outcome{
		"success": cruise.OutcomeSuccess, "throttled": cruise.OutcomeThrottled, "quota": cruise.OutcomeQuotaExhausted,
		"transient": cruise.OutcomeTransient, "permanent": cruise.OutcomePermanent, "dropped": cruise.OutcomeDropped,
		"declined": cruise.OutcomeUnknown,
	}
	text, err := os.ReadFile("testdata/conformance.txt")
	require.NoError(t, err)
	ids := map[string]bool{}
	for n, line := range strings.Split(string(text), "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		cells := strings.Split(line, " | ")
		require.Len(t, cells, 5, "line %d: five columns", n+1)
		id, input, outcome, wait := cells[0], cells[1], cells[2], cells[3]
		require.False(t, ids[id], "%s is there twice", id)
		ids[id] = true
		t.Run(id, func(t *testing.T) {
			require.Contains(t, outcomes, outcome)
			failure, strict := conformanceStatus(t, input)
			v := classify(failure, strict, now)
			assert.Equal(t, outcomes[outcome].String(), v.Outcome.String())
			var want time.Duration
			if wait != "none" {
				want, err = time.ParseDuration(wait)
				require.NoError(t, err)
			}
			assert.Equal(t, want, v.RetryAfter)
		})
	}
}

func TestClassifyFindsTheStatus(t *testing.T) {
	throttled := status.Error(codes.ResourceExhausted, "slow down")
	for name, tc := range map[string]struct {
		err  error
		want cruise.Outcome
	}{
		"bare":               {throttled, cruise.OutcomeThrottled},
		"wrapped":            {fmt.Errorf("listing: %w", throttled), cruise.OutcomeThrottled},
		"marked permanent":   {cruise.Permanent(throttled), cruise.OutcomeUnknown},
		"inside a Retrier's": {&cruise.Error{Reason: cruise.ErrAttemptsExhausted, Last: throttled}, cruise.OutcomeUnknown},
		"no status":          {errors.New("odd"), cruise.OutcomeUnknown},
		"a context's":        {context.DeadlineExceeded, cruise.OutcomeUnknown},
		"anyone's end":       {status.Error(codes.Canceled, "context canceled"), cruise.OutcomeDropped},
		"none":               {nil, cruise.OutcomeSuccess},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, tc.want.String(), Classify(tc.err).Outcome.String())
		})
	}
	pushed := WithTrailer(status.Error(codes.Unavailable, "busy"), metadata.Pairs(PushbackKey, "250"))
	assert.Equal(t, cruise.Verdict{Outcome: cruise.OutcomeThrottled, RetryAfter: 250 * time.Millisecond}, Classify(pushed))
	assert.Equal(t, codes.Unavailable, status.Code(pushed))
	assert.Equal(t, Classify(pushed), ClassifyStrict(pushed))
	assert.Equal(t, cruise.Verdict{Outcome: cruise.OutcomePermanent}, ClassifyStrict(throttled))
	asked := WithTrailer(throttled, metadata.Pairs(PushbackKey, "250"))
	assert.Equal(t, cruise.Verdict{Outcome: cruise.OutcomeThrottled, RetryAfter: 250 * time.Millisecond}, ClassifyStrict(asked))
	assert.NoError(t, WithTrailer(nil, nil))
}

func TestClassifyNamesTheLimit(t *testing.T) {
	s, err := status.New(codes.ResourceExhausted, "quota").WithDetails(
		&errdetails.QuotaFailure{Violations: []*errdetails.QuotaFailure_Violation{
			{QuotaId: "RequestsPerMinute"}, {QuotaId: "RequestsPerDay"}, {Subject: "project:7"},
		}})
	require.NoError(t, err)
	assert.Equal(t, cruise.Verdict{Outcome: cruise.OutcomeQuotaExhausted, Scope: "RequestsPerDay"}, Classify(s.Err()))

	s, err = status.New(codes.ResourceExhausted, "quota").WithDetails(
		&errdetails.QuotaFailure{Violations: []*errdetails.QuotaFailure_Violation{{Subject: "project:7"}}})
	require.NoError(t, err)
	assert.Equal(t, cruise.Verdict{Outcome: cruise.OutcomeThrottled, Scope: "project:7"}, Classify(s.Err()))
}

// A server's waits and names are bounded, since a wait may become a pause for all calls, and a name
// a label of metrics.
func TestClassifyBoundsToldWaits(t *testing.T) {
	s, err := status.New(codes.ResourceExhausted, "quota").WithDetails(
		&errdetails.RetryInfo{RetryDelay: &durationpb.Duration{Seconds: 315_576_000_000}},
		&errdetails.QuotaFailure{Violations: []*errdetails.QuotaFailure_Violation{{QuotaId: strings.Repeat("PerDay", 1<<20)}}})
	require.NoError(t, err)
	v := Classify(s.Err())
	assert.Equal(t, cruise.OutcomeQuotaExhausted, v.Outcome)
	assert.Equal(t, 365*24*time.Hour, v.RetryAfter)
	assert.Len(t, v.Scope, 1024)
}

// An unbounded search of a server's message could take seconds. 64 KiB of a message are searched,
// and as much of all details together.
func TestClassifySearchesNoMoreThan64KiB(t *testing.T) {
	type violation = errdetails.QuotaFailure_Violation
	violations := func(of ...*violation) error {
		s, err := status.New(codes.ResourceExhausted, "quota").WithDetails(&errdetails.QuotaFailure{Violations: of})
		require.NoError(t, err)
		return s.Err()
	}
	long := strings.Repeat("x", 64<<10)
	for _, c := range []struct {
		name, text string
		say        func(a, b string) error
		want       cruise.Outcome
	}{
		{"an oversized message", "received message larger than max", func(a, b string) error {
			return status.Error(codes.ResourceExhausted, a+b)
		}, cruise.OutcomePermanent},
		{"a message", "daily limit exceeded", func(a, b string) error {
			return status.Error(codes.ResourceExhausted, a+b)
		}, cruise.OutcomeQuotaExhausted},
		{"a description", "daily limit exceeded", func(a, b string) error {
			return violations(&violation{Description: a + b})
		}, cruise.OutcomeQuotaExhausted},
		{"descriptions", "daily limit exceeded", func(a, b string) error {
			return violations(&violation{Description: a}, &violation{Description: b})
		}, cruise.OutcomeQuotaExhausted},
		{"a name", "PerDay", func(a, b string) error {
			return violations(&violation{QuotaId: a + b})
		}, cruise.OutcomeQuotaExhausted},
		{"names", "PerDay", func(a, b string) error {
			return violations(&violation{QuotaId: a}, &violation{QuotaId: b})
		}, cruise.OutcomeQuotaExhausted},
	} {
		t.Run(c.name, func(t *testing.T) {
			assert.Equal(t, c.want.String(), Classify(c.say(c.text, long)).Outcome.String(), "in front")
			assert.Equal(t, cruise.OutcomeThrottled.String(), Classify(c.say(long, c.text)).Outcome.String(), "behind")
		})
	}
	t.Run("empty details", func(t *testing.T) {
		day := &violation{QuotaId: "PerDay"}
		empty := make([]*violation, 64<<10)
		for i := range empty {
			empty[i] = &violation{}
		}
		assert.Equal(t, cruise.OutcomeQuotaExhausted, Classify(violations(append([]*violation{day}, empty...)...)).Outcome)
		assert.Equal(t, cruise.OutcomeThrottled, Classify(violations(append(empty, day)...)).Outcome)
	})
}

func TestMethods(t *testing.T) {
	m := methods{named: map[string]bool{"/a.B/Get": true, "/c.D/*": true}}
	for method, want := range map[string]bool{"/a.B/Get": true, "/a.B/Put": false, "/c.D/Any": true, "/x.Y/Z": false, "odd": false} {
		assert.Equal(t, want, m.idempotent(method), method)
	}
	assert.True(t, (&methods{named: map[string]bool{"*": true}}).idempotent("/x.Y/Z"))
	for _, good := range []string{"*", "/a.B/*", "/a.B/Get", "/B/Get"} {
		assert.NoError(t, checkMethod(good), good)
	}
	for _, bad := range []string{"", "/", "a.B/Get", "/a.B", "/a.B/", "//Get", "/a.*/Get", "/a/B/Get"} {
		assert.Error(t, checkMethod(bad), bad)
	}
}

// Servers' texts for a message that is too large, by the language of the server.
func TestOversizedMessagesAreNoThrottle(t *testing.T) {
	for name, said := range map[string]string{
		"Go":                "grpc: received message larger than max (5000000 vs. 4194304)",
		"Go, the reply":     "grpc: trying to send message larger than max (5000000 vs. 4194304)",
		"Go, compressed":    "grpc: received message after decompression larger than max 4194304",
		"Go, 4 GiB":         "grpc: message too large (4294967296 bytes)",
		"C++, Python":       "SERVER: Received message larger than max (5000000 vs. 4194304)",
		"older C++, Python": "Received message larger than max (5000000 vs. 4194304)",
		"C++, the reply":    "SERVER: Sent message larger than max (5000000 vs. 4194304)",
		"C++, metadata":     "received metadata size exceeds soft limit (9000 vs. 8192), rejecting requests with some random probability",
		"Node":              "Received message larger than max (5000000 vs 4194304)",
		"Node, compressed":  "Received message that decompresses to a size larger than 4194304",
		"Node, to be sent":  "Attempted to send message with a size larger than 4194304",
		"Java":              "gRPC message exceeds maximum size 4194304: 5000000",
		"Java, compressed":  "Decompressed gRPC message exceeds maximum size 4194304",
		".NET":              "Received message exceeds the maximum configured message size.",
		".NET, the reply":   "Sending message exceeds the maximum configured message size.",
		"Connect":           "message size 5000000 is larger than configured max 4194304",
		"Connect, a body":   "read message: exceeded 4194304 byte http.MaxBytesReader limit",
		"Connect, reply":    "compressed message size 5000000 exceeds sendMaxBytes 4194304",
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, cruise.OutcomePermanent, Classify(status.Error(codes.ResourceExhausted, said)).Outcome)
		})
	}
}

// A call that was never made has a status too, by the reason.
func TestStatusOfACallThatWasNotSent(t *testing.T) {
	for reason, want := range map[error]codes.Code{
		cruise.ErrDeadline:       codes.DeadlineExceeded,
		cruise.ErrMaxElapsed:     codes.DeadlineExceeded,
		cruise.ErrCost:           codes.InvalidArgument,
		cruise.ErrServerDelay:    codes.ResourceExhausted,
		cruise.ErrQuotaExhausted: codes.ResourceExhausted,
		errors.New("closed"):     codes.Unavailable,
	} {
		assert.Equal(t, want, status.Code(surface(t.Context(), &cruise.Error{Reason: reason})), "%v", reason)
	}
}
