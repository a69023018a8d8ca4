package cruisegoogle_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/googleapis/gax-go/v2/apierror"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/api/googleapi"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/cruisegoogle"
	"github.com/a7df5faa/cruise/cruisegrpc"
	"github.com/a7df5faa/cruise/cruisehttp"
	"github.com/a7df5faa/cruise/cruisehttp/signal"
)

func rest(code int, body string, header ...string) error {
	h := http.Header{}
	for i := 0; i < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	return &googleapi.Error{Code: code, Body: body, Header: h}
}

func TestClassify(t *testing.T) {
	wrapped, ok := apierror.FromError(rest(429, exhausted))
	require.True(t, ok)
	for name, tc := range map[string]struct {
		err  error
		want cruise.Verdict
	}{
		"a user's rate":      {rest(403, userRate), cruise.Verdict{Outcome: cruise.OutcomeThrottled}},
		"Retry-After":        {rest(403, userRate, "Retry-After", "30"), cruise.Verdict{Outcome: cruise.OutcomeThrottled, RetryAfter: 30 * time.Second}},
		"RetryInfo":          {rest(429, exhausted), cruise.Verdict{Outcome: cruise.OutcomeThrottled, RetryAfter: 700 * time.Millisecond, Scope: "ReadRequestsPerMinutePerUser"}},
		"within gax's error": {wrapped, cruise.Verdict{Outcome: cruise.OutcomeThrottled, RetryAfter: 700 * time.Millisecond, Scope: "ReadRequestsPerMinutePerUser"}},
		"wrapped":            {fmt.Errorf("listing: %w", rest(403, rateLimit)), cruise.Verdict{Outcome: cruise.OutcomeThrottled}},
		"permission":         {rest(403, forbidden), cruise.Verdict{Outcome: cruise.OutcomePermanent}},
		"backend":            {rest(503, unavailable), cruise.Verdict{Outcome: cruise.OutcomeTransient}},
		"gRPC":               {status.Error(codes.ResourceExhausted, "slow down"), cruise.Verdict{Outcome: cruise.OutcomeThrottled}},
		"marked":             {cruise.Permanent(rest(429, exhausted)), cruise.Verdict{}},
		"a context's":        {context.DeadlineExceeded, cruise.Verdict{}},
		"a foreign error":    {errors.New("odd"), cruise.Verdict{}},
		"none":               {nil, cruise.Verdict{Outcome: cruise.OutcomeSuccess}},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, tc.want, cruisegoogle.Classify(tc.err))
		})
	}
	v := cruisegoogle.Classify(rest(403, daily))
	assert.Equal(t, cruise.OutcomeQuotaExhausted, v.Outcome)
	assert.WithinDuration(t, signal.NextPacificDay(time.Now()), time.Now().Add(v.RetryAfter), time.Minute)
}

// A quota is the same whichever way the service tells of it.
func TestRestAndGRPCAgree(t *testing.T) {
	limit := func(name, unit string) *errdetails.ErrorInfo {
		return &errdetails.ErrorInfo{Reason: "RATE_LIMIT_EXCEEDED", Domain: "googleapis.com", Metadata: map[string]string{
			"quota_limit": name, "quota_unit": unit, "service": "x.googleapis.com"}}
	}
	violation := func(v *errdetails.QuotaFailure_Violation) *errdetails.QuotaFailure {
		return &errdetails.QuotaFailure{Violations: []*errdetails.QuotaFailure_Violation{v}}
	}
	const tooMany = "Too many requests."
	inSeconds := &errdetails.RetryInfo{RetryDelay: durationpb.New(3 * time.Second)}
	now := time.Now()
	day, month := signal.NextPacificDay(now).Sub(now), signal.NextPacificMonth(now).Sub(now)
	for name, tc := range map[string]struct {
		message string
		details []protoadapt.MessageV1
		outcome cruise.Outcome
		wait    time.Duration
	}{
		"per day":            {tooMany, []protoadapt.MessageV1{limit("ReadsPerDay", "")}, cruise.OutcomeQuotaExhausted, day},
		"per-day":            {tooMany, []protoadapt.MessageV1{limit("reads-per-day", "")}, cruise.OutcomeQuotaExhausted, day},
		"per_day":            {tooMany, []protoadapt.MessageV1{limit("queries_per_day", "")}, cruise.OutcomeQuotaExhausted, day},
		"in words":           {tooMany, []protoadapt.MessageV1{limit("Queries per day", ""), inSeconds}, cruise.OutcomeQuotaExhausted, day},
		"daily":              {tooMany, []protoadapt.MessageV1{limit("DailyLimit", "")}, cruise.OutcomeQuotaExhausted, day},
		"of a violation":     {tooMany, []protoadapt.MessageV1{violation(&errdetails.QuotaFailure_Violation{QuotaId: "Reads_Per_Day", QuotaMetric: "x.googleapis.com/reads"})}, cruise.OutcomeQuotaExhausted, day},
		"a unit of a day":    {tooMany, []protoadapt.MessageV1{limit("DefaultLimit", "1/d/{project}")}, cruise.OutcomeQuotaExhausted, day},
		"a unit of a minute": {tooMany, []protoadapt.MessageV1{limit("DefaultLimit", "1/min/{project}"), inSeconds}, cruise.OutcomeThrottled, 3 * time.Second},
		"per month":          {tooMany, []protoadapt.MessageV1{limit("queries per_month", "")}, cruise.OutcomeQuotaExhausted, month},
		"monthly":            {tooMany, []protoadapt.MessageV1{limit("MonthlyLimit", "")}, cruise.OutcomeQuotaExhausted, month},
		"a unit of a month":  {tooMany, []protoadapt.MessageV1{limit("DefaultLimit", "1/mo/{project}")}, cruise.OutcomeQuotaExhausted, month},
		"as text alone":      {"Quota exceeded for quota metric 'Queries' and limit 'Queries per day' of service 'x.googleapis.com'.", nil, cruise.OutcomeQuotaExhausted, day},
		"as text, monthly":   {"Quota exceeded for limit 'Queries per day'", []protoadapt.MessageV1{limit("MonthlyLimit", "")}, cruise.OutcomeQuotaExhausted, month},
		"as text, a minute":  {"Quota exceeded for quota metric 'Queries' and limit 'Queries per minute' of service 'x.googleapis.com'.", nil, cruise.OutcomeThrottled, 0},
		"as a description": {tooMany, []protoadapt.MessageV1{violation(&errdetails.QuotaFailure_Violation{
			ApiService: "x.googleapis.com", Description: "Daily Limit for read operations exceeded"})}, cruise.OutcomeQuotaExhausted, day},
		"an allocation": {tooMany, []protoadapt.MessageV1{&errdetails.ErrorInfo{Reason: "RESOURCE_QUOTA_EXCEEDED", Domain: "googleapis.com",
			Metadata: map[string]string{"quota_limit": "DiskSnapshotsPerDay"}}}, cruise.OutcomePermanent, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := status.New(codes.ResourceExhausted, tc.message).WithDetails(tc.details...)
			require.NoError(t, err)
			var details []string
			for _, d := range s.Proto().GetDetails() {
				details = append(details, protojson.Format(d))
			}
			body := fmt.Sprintf(`{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","message":%q,"details":[%s]}}`, tc.message, strings.Join(details, ","))
			byREST, byGRPC := cruisegoogle.Classify(rest(429, body)), cruisegoogle.Classify(s.Err())
			for _, v := range []cruise.Verdict{byREST, byGRPC} {
				assert.Equal(t, tc.outcome.String(), v.Outcome.String())
				assert.InDelta(t, tc.wait.Seconds(), v.RetryAfter.Seconds(), 60)
			}
			if tc.outcome != cruise.OutcomePermanent { // which pauses no scope
				assert.Equal(t, byREST.Scope, byGRPC.Scope)
			}
		})
	}
}

// Answers of AdWords and Google Ads.
const (
	soapFault = `<soap:Envelope xmlns:soap="http://schemas.xmlsoap.org/soap/envelope/"><soap:Body><soap:Fault><faultcode>soap:Server</faultcode>` +
		`<faultstring>[RateExceededError]</faultstring><detail><ApiExceptionFault><errors><errorString>RateExceededError.RATE_EXCEEDED</errorString>` +
		`<ApiError.Type>RateExceededError</ApiError.Type><rateName>RequestsPerMinute</rateName><rateScope>ACCOUNT</rateScope>` +
		`<retryAfterSeconds>30</retryAfterSeconds></errors></ApiExceptionFault></detail></soap:Fault></soap:Body></soap:Envelope>`
	adsQuota = `{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","details":[{"errors":[{"errorCode":{"quotaError":"RESOURCE_TEMPORARILY_EXHAUSTED"},` +
		`"details":{"quotaErrorDetails":{"rateScope":"DEVELOPER","rateName":"x","retryDelay":"5s"}}}]}]}}`
)

// adsStatus is a status of the Google Ads API, written as errors.proto says: with a
// quota_error, and quota_error_details with a rate_scope and a retry_delay.
func adsStatus(t *testing.T, quota, scope uint64, delay time.Duration) error {
	t.Helper()
	message := func(field protowire.Number, content []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, field, protowire.BytesType), content)
	}
	varint := func(field protowire.Number, value uint64) []byte {
		return protowire.AppendVarint(protowire.AppendTag(nil, field, protowire.VarintType), value)
	}
	wait, err := proto.Marshal(durationpb.New(delay))
	require.NoError(t, err)
	details := slices.Concat(varint(1, scope), message(2, []byte("Requests per account")), message(3, wait))
	failure := slices.Concat(message(1, varint(11, quota)), message(2, []byte("Too many requests.")), message(5, message(4, details)))
	return status.FromProto(&spb.Status{Code: int32(codes.ResourceExhausted), Message: "Resource has been exhausted", Details: []*anypb.Any{
		{TypeUrl: "type.googleapis.com/google.ads.googleads.v17.errors.GoogleAdsFailure", Value: message(1, failure)},
	}}).Err()
}

// together is one status with the details of all.
func together(errs ...error) error {
	all := &spb.Status{Code: int32(codes.ResourceExhausted)}
	for _, err := range errs {
		all.Details = append(all.Details, status.Convert(err).Proto().GetDetails()...)
	}
	return status.FromProto(all).Err()
}

func FuzzAdsFailure(f *testing.F) {
	f.Add([]byte{0x0a, 0x04, 0x0a, 0x02, 0x58, 0x04})
	f.Fuzz(func(t *testing.T, failure []byte) {
		v := cruisegoogle.ClassifyAds(status.FromProto(&spb.Status{Code: int32(codes.ResourceExhausted), Details: []*anypb.Any{
			{TypeUrl: "type.googleapis.com/google.ads.googleads.v17.errors.GoogleAdsFailure", Value: failure},
		}}).Err())
		if v.RetryAfter < 0 || v.Outcome == cruise.OutcomeUnknown {
			t.Errorf("%+v", v)
		}
	})
}

// For any text of an error or a body, waits are bounded and scopes are ours.
func FuzzAdsText(f *testing.F) {
	f.Add("[RateExceededError <rateName=RequestsPerMinute, rateKey=null, rateScope=ACCOUNT, retryAfterSeconds=30>]", 429)
	f.Add("RateExceededError rateScope='DEVELOPER' retryAfterSeconds=9999999999", 500)
	f.Add(soapFault, 500)
	f.Add(adsQuota, 429)
	f.Fuzz(func(t *testing.T, text string, status int) {
		verdicts := []cruise.Verdict{cruisegoogle.ClassifyAds(errors.New(text)), {}}
		if known := strings.Contains(text, "RateExceededError"); known != (verdicts[0].Outcome != cruise.OutcomeUnknown) {
			t.Errorf("%+v", verdicts[0])
		}
		resp := &http.Response{StatusCode: status, Header: http.Header{}}
		verdicts[1] = cruise.Classify(cruisegoogle.AdsError(resp, []byte(text)))
		for _, v := range verdicts {
			if v.RetryAfter < 0 || v.RetryAfter > 365*24*time.Hour || len(v.Scope) > 1<<10 {
				t.Errorf("%+v", v)
			}
		}
		if s := verdicts[0].Scope; s != "" && s != cruisegoogle.ScopeAccount && s != cruisegoogle.ScopeDeveloper {
			t.Errorf("scope %q", s)
		}
	})
}

func TestClassifyAds(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		want cruise.Verdict
	}{
		"as text": {
			errors.New("[RateExceededError <rateName=RequestsPerMinute, rateKey=null, rateScope=ACCOUNT, retryAfterSeconds=30>]"),
			cruise.Verdict{Outcome: cruise.OutcomeThrottled, RetryAfter: 30 * time.Second, Scope: "ACCOUNT"},
		},
		"as a SOAP client's": {
			errors.New(soapFault),
			cruise.Verdict{Outcome: cruise.OutcomeThrottled, RetryAfter: 30 * time.Second, Scope: "ACCOUNT"},
		},
		"as JSON": {
			errors.New(`{"errorString":"RateExceededError.RATE_EXCEEDED","rateScope":"DEVELOPER","retryAfterSeconds":60}`),
			cruise.Verdict{Outcome: cruise.OutcomeThrottled, RetryAfter: time.Minute, Scope: "DEVELOPER"},
		},
		"without particulars": {errors.New("RateExceededError.RATE_EXCEEDED"), cruise.Verdict{Outcome: cruise.OutcomeThrottled}},
		"for a day": {
			errors.New("RateExceededError <rateScope=DEVELOPER, retryAfterSeconds=86400>"),
			cruise.Verdict{Outcome: cruise.OutcomeQuotaExhausted, RetryAfter: 24 * time.Hour, Scope: "DEVELOPER"},
		},
		"for 31 years": {
			errors.New("RateExceededError <rateScope=DEVELOPER, retryAfterSeconds=999999999>"),
			cruise.Verdict{Outcome: cruise.OutcomeQuotaExhausted, RetryAfter: 365 * 24 * time.Hour, Scope: "DEVELOPER"},
		},
		"Google Ads":         {rest(429, adsQuota), cruise.Verdict{Outcome: cruise.OutcomeThrottled, RetryAfter: 5 * time.Second, Scope: "DEVELOPER"}},
		"Google Ads by gRPC": {adsStatus(t, 4, 2, 5*time.Second), cruise.Verdict{Outcome: cruise.OutcomeThrottled, RetryAfter: 5 * time.Second, Scope: "ACCOUNT"}},
		"of the developer":   {adsStatus(t, 5, 3, 0), cruise.Verdict{Outcome: cruise.OutcomeThrottled, Scope: "DEVELOPER"}},
		"of a day":           {adsStatus(t, 2, 3, 0), cruise.Verdict{Outcome: cruise.OutcomeQuotaExhausted, Scope: "DEVELOPER"}},
		"of a long time":     {adsStatus(t, 6, 0, 0), cruise.Verdict{Outcome: cruise.OutcomeQuotaExhausted}},
		"of a week":          {adsStatus(t, 7, 0, 0), cruise.Verdict{Outcome: cruise.OutcomeQuotaExhausted, RetryAfter: 7 * 24 * time.Hour}},
		"a long wait":        {adsStatus(t, 4, 2, 2*time.Hour), cruise.Verdict{Outcome: cruise.OutcomeQuotaExhausted, RetryAfter: 2 * time.Hour, Scope: "ACCOUNT"}},
		"without an end":     {adsStatus(t, 4, 2, math.MaxInt64), cruise.Verdict{Outcome: cruise.OutcomeQuotaExhausted, RetryAfter: 365 * 24 * time.Hour, Scope: "ACCOUNT"}},
		"a day's, and another": {
			together(adsStatus(t, 2, 3, 0), adsStatus(t, 4, 2, 5*time.Second)),
			cruise.Verdict{Outcome: cruise.OutcomeQuotaExhausted, Scope: "DEVELOPER"},
		},
		"two waits": {
			together(adsStatus(t, 4, 3, time.Minute), adsStatus(t, 4, 2, 5*time.Second)),
			cruise.Verdict{Outcome: cruise.OutcomeThrottled, RetryAfter: time.Minute, Scope: "DEVELOPER"},
		},
		"prohibited":     {adsStatus(t, 3, 0, 0), cruise.Verdict{Outcome: cruise.OutcomePermanent}},
		"no quota":       {adsStatus(t, 0, 0, 0), cruise.Verdict{Outcome: cruise.OutcomeThrottled}}, // by its code
		"marked by gRPC": {cruise.Permanent(adsStatus(t, 4, 2, 0)), cruise.Verdict{}},
		"marked":         {cruise.Permanent(errors.New("RateExceededError")), cruise.Verdict{}},
		"another":        {errors.New("AuthenticationError.CUSTOMER_NOT_FOUND"), cruise.Verdict{}},
		"none":           {nil, cruise.Verdict{Outcome: cruise.OutcomeSuccess}},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, tc.want, cruisegoogle.ClassifyAds(tc.err))
		})
	}
}

// Within an interceptor, a mutation that may be done is not repeated, and a limit is
// that of its scope.
func TestClassifyAdsWithinAnInterceptor(t *testing.T) {
	const method = "/google.ads.googleads.v17.services.CampaignService/MutateCampaigns"
	for name, tc := range map[string]struct {
		err  error
		want []string
	}{
		"in passing": {status.Error(codes.Unavailable, "gone"), []string{"permanent"}},
		"a limit":    {adsStatus(t, 4, 2, time.Millisecond), []string{"throttled", "success"}},
	} {
		t.Run(name, func(t *testing.T) {
			seen := &log{}
			i, err := cruisegoogle.NewInterceptor(cruisegrpc.WithClassifier(cruisegoogle.ClassifyAds), cruisegrpc.WithRetrierOptions(cruise.WithObserver(seen)))
			require.NoError(t, err)
			calls := 0
			_ = i.Unary()(t.Context(), method, nil, nil, nil, func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error {
				if calls++; calls == 1 {
					return tc.err
				}
				return nil
			})
			assert.Equal(t, tc.want, seen.outcomes())
		})
	}
}

func TestAdsError(t *testing.T) {
	response := func(status int) *http.Response {
		return &http.Response{StatusCode: status, Status: http.StatusText(status), Header: http.Header{}}
	}
	err := cruisegoogle.AdsError(response(500), []byte(soapFault))
	assert.Equal(t, cruise.Verdict{Outcome: cruise.OutcomeThrottled, RetryAfter: 30 * time.Second, Scope: "ACCOUNT"}, cruise.Classify(err))
	assert.ErrorContains(t, err, `limit "ACCOUNT"`)
	e, ok := errors.AsType[*cruisehttp.ResponseError](err)
	require.True(t, ok)
	assert.Equal(t, soapFault, string(e.Body))

	for name, tc := range map[string]struct {
		status int
		body   string
		want   cruise.Outcome
	}{
		"answered":   {200, "", cruise.OutcomeSuccess},
		"no server":  {502, "", cruise.OutcomeTransient},
		"not found":  {404, "", cruise.OutcomePermanent},
		"used up":    {429, `{"error":{"status":"RESOURCE_EXHAUSTED","details":[{"errors":[{"errorCode":{"quotaError":"RESOURCE_EXHAUSTED"}}]}]}}`, cruise.OutcomeQuotaExhausted},
		"prohibited": {403, `{"error":{"details":[{"errors":[{"errorCode":{"quotaError":"ACCESS_PROHIBITED"}}]}]}}`, cruise.OutcomePermanent},
	} {
		assert.Equal(t, tc.want.String(), cruise.Classify(cruisegoogle.AdsError(response(tc.status), []byte(tc.body))).Outcome.String(), name)
	}
}

// The error says until when, if the response says for how long.
func TestAdsErrorSaysUntilWhen(t *testing.T) {
	for name, tc := range map[string]struct {
		status int
		header string // Retry-After
		body   string
		want   time.Duration // 0: unknown
	}{
		"of the body":     {500, "", soapFault, 30 * time.Second},
		"of Google Ads":   {429, "", adsQuota, 5 * time.Second},
		"of the header":   {503, "7", "", 7 * time.Second},
		"none":            {503, "", "", 0},
		"none, permanent": {404, "", "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				resp := &http.Response{StatusCode: tc.status, Header: http.Header{}}
				if tc.header != "" {
					resp.Header.Set("Retry-After", tc.header)
				}
				var want time.Time
				if tc.want > 0 {
					want = time.Now().Add(tc.want)
				}
				e, ok := errors.AsType[*cruisehttp.ResponseError](cruisegoogle.AdsError(resp, []byte(tc.body)))
				require.True(t, ok)
				assert.Equal(t, want, e.Until)
			})
		})
	}
}

// The options of NewInterceptor itself come last, so that an error counts as its caller does.
func TestInterceptorCountsOptionsAsItsCallerDoes(t *testing.T) {
	_, err := cruisegoogle.NewInterceptor(nil)
	assert.ErrorContains(t, err, "option 1 is nil")
}
