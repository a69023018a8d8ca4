package clienttest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	ddb "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/emr"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/cruiseaws"
)

// modes runs a test in both of the SDK's retry modes.
func modes(t *testing.T, test func(*testing.T)) {
	for _, mode := range []string{"", "true"} {
		t.Run("AWS_NEW_RETRIES_2026="+mode, func(t *testing.T) {
			t.Setenv("AWS_NEW_RETRIES_2026", mode)
			test(t)
		})
	}
}

func TestThrottledOperationsAreRetried(t *testing.T) {
	want := []string{"throttled", "throttled", "success"}
	modes(t, func(t *testing.T) {
		t.Run("emr", func(t *testing.T) {
			s := serve(t, first(2, 400, emrThrottled, emrFound))
			cfg, seen := throttled(t, s)
			require.NoError(t, describe(t.Context(), emr.NewFromConfig(cfg)))
			assert.Equal(t, want, seen.outcomes())
		})
		t.Run("dynamodb", func(t *testing.T) {
			s := serve(t, first(2, 400, dynamoThrottled, `{}`))
			cfg, seen := throttled(t, s)
			_, err := dynamodb.NewFromConfig(cfg).PutItem(t.Context(), &dynamodb.PutItemInput{
				TableName: aws.String("orders"), Item: map[string]ddb.AttributeValue{"id": &ddb.AttributeValueMemberS{Value: "1"}}})
			require.NoError(t, err)
			assert.Equal(t, want, seen.outcomes())
			assert.Equal(t, "TABLE", seen.scopes()[0])
		})
		t.Run("s3", func(t *testing.T) {
			var bodies []string
			answer := first(2, 503, s3SlowDown, "")
			s := serve(t, func(n int64, w http.ResponseWriter, r *http.Request) {
				body := make([]byte, 5)
				k, _ := r.Body.Read(body)
				bodies = append(bodies, string(body[:k]))
				answer(n, w, r)
			})
			cfg, seen := throttled(t, s)
			_, err := newS3(cfg).PutObject(t.Context(), &s3.PutObjectInput{
				Bucket: aws.String("b"), Key: aws.String("k"), Body: strings.NewReader("hello")})
			require.NoError(t, err)
			assert.Equal(t, want, seen.outcomes())
			assert.Equal(t, []string{"hello", "hello", "hello"}, bodies, "rewound")
		})
	})
}

// Errors that the SDK would not retry, or not as a throttle.
func TestBeyondTheSDK(t *testing.T) {
	for name, tc := range map[string]struct {
		status int
		body   string
		want   []string
	}{
		"429 without a code": {429, `{}`, []string{"throttled", "success"}},
		"a day's quota":      {400, `{"__type":"ThrottlingException","message":"Daily message quota exceeded."}`, []string{"quota exhausted"}},
		"a plan's quota":     {429, `{"__type":"LimitExceededException","message":"Limit Exceeded"}`, []string{"quota exhausted"}},
		"a second's rate":    {400, `{"__type":"ThrottlingException","message":"Maximum sending rate exceeded."}`, []string{"throttled", "success"}},
	} {
		t.Run(name, func(t *testing.T) {
			modes(t, func(t *testing.T) {
				s := serve(t, first(1, tc.status, tc.body, emrFound))
				cfg, seen := throttled(t, s)
				err := describe(t.Context(), emr.NewFromConfig(cfg))
				assert.Equal(t, tc.want, seen.outcomes())
				if len(tc.want) == 1 {
					assert.ErrorIs(t, err, cruise.ErrQuotaExhausted)
				} else {
					assert.NoError(t, err)
				}
			})
		})
	}
}

// For all calls, for the calls of a client, and for one call.
func TestRetryerPerClientAndCall(t *testing.T) {
	retryer := cruise.Must(cruiseaws.New()).Retryer()
	per := func(o *emr.Options) { o.Retryer = retryer }
	for name, describe := range map[string]func(aws.Config) error{
		"client": func(cfg aws.Config) error { return describe(t.Context(), emr.NewFromConfig(cfg, per)) },
		"call": func(cfg aws.Config) error {
			_, err := emr.NewFromConfig(cfg).DescribeCluster(t.Context(), &emr.DescribeClusterInput{ClusterId: aws.String("j-1")}, per)
			return err
		},
	} {
		// The SDK's own retryer would not make an attempt after a bare 429.
		s := serve(t, first(1, 429, `{}`, emrFound))
		require.NoError(t, describe(config(s.URL)), name)
		assert.EqualValues(t, 2, s.seen.Load(), name)
	}
}

func TestPermanentErrorsAreTheSDKsOwn(t *testing.T) {
	modes(t, func(t *testing.T) {
		s := serve(t, first(9, 400, `{"__type":"InvalidRequestException","message":"no such cluster"}`, ""))
		cfg, seen := throttled(t, s)
		err := describe(t.Context(), emr.NewFromConfig(cfg))
		assert.ErrorContains(t, err, "no such cluster")
		_, gaveUp := errors.AsType[*cruise.Error](err)
		assert.False(t, gaveUp)
		assert.Equal(t, []string{"permanent"}, seen.outcomes())
	})
}

func TestGivingUp(t *testing.T) {
	modes(t, func(t *testing.T) {
		s := serve(t, first(99, 400, emrThrottled, ""))
		cfg, seen := throttled(t, s, cruiseaws.WithRetrierOptions(cruise.WithMaxAttempts(2)))
		client := emr.NewFromConfig(cfg)
		err := describe(t.Context(), client)
		assert.ErrorIs(t, err, cruise.ErrAttemptsExhausted)
		assert.Equal(t, 1, strings.Count(err.Error(), "Rate exceeded"), "said once: %v", err)
		gaveUp, ok := errors.AsType[*cruise.Error](err)
		require.True(t, ok)
		assert.Equal(t, 2, gaveUp.Attempts)
		assert.NotContains(t, fmt.Sprintf("%T", gaveUp.Last), "cruiseaws.", "it is the SDK's own")
		assert.Equal(t, []string{"throttled", "throttled"}, seen.outcomes())

		// No attempt could be made in time, so none is made.
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		err = describe(ctx, client)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.EqualValues(t, 2, s.seen.Load())
	})
}

// Other retry options of a client have no effect.
func TestRetryerOfTheClientGivesWay(t *testing.T) {
	s := serve(t, first(1, 400, emrThrottled, emrFound))
	cfg, seen := throttled(t, s)
	cfg.Retryer = func() aws.Retryer { return aws.NopRetryer{} }
	require.NoError(t, describe(t.Context(), emr.NewFromConfig(cfg)))
	assert.Equal(t, []string{"throttled", "success"}, seen.outcomes())
}

func TestRetryAfterHeader(t *testing.T) {
	for header, want := range map[string]struct{ least, most time.Duration }{
		"700":     {700 * time.Millisecond, 700 * time.Millisecond},
		"invalid": {0, 100 * time.Millisecond}, // the backoff
		"-5":      {0, 100 * time.Millisecond},
		"1.5":     {0, 100 * time.Millisecond},
	} {
		modes(t, func(t *testing.T) {
			answer := first(1, 500, `{}`, emrFound)
			s := serve(t, func(n int64, w http.ResponseWriter, r *http.Request) {
				w.Header().Set("X-Amz-Retry-After", header)
				answer(n, w, r)
			})
			cfg, seen := throttled(t, s)
			began := time.Now()
			require.NoError(t, describe(t.Context(), emr.NewFromConfig(cfg)))
			assert.GreaterOrEqual(t, time.Since(began), want.least, header)
			delays := seen.delays()
			require.Len(t, delays, 1)
			assert.GreaterOrEqual(t, delays[0], want.least, header)
			assert.LessOrEqual(t, delays[0], want.most, header)
		})
	}
}

// An error that the caller gets has the service's wait in it still, and the SDK
// sleeps no second time for one that is retried.
func TestRetryAfterHeaderIsKept(t *testing.T) {
	const asked = 700 * time.Millisecond
	for name, tc := range map[string]struct {
		status int
		body   string
		do     func(context.Context, *emr.Client) error
		took   time.Duration
	}{
		"given up":  {500, `{}`, describe, 2 * asked},
		"permanent": {400, `{"__type":"InvalidRequestException"}`, describe, 0},
		"nested": {500, `{}`, func(ctx context.Context, c *emr.Client) error {
			outer := cruise.Must(cruise.New(cruise.WithClassifier(cruiseaws.Classify), cruise.WithMaxAttempts(3)))
			return outer.Do(ctx, func(ctx context.Context) error { return describe(ctx, c) })
		}, 2 * asked},
	} {
		t.Run(name, func(t *testing.T) {
			modes(t, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					cfg := config("http://emr.test")
					cfg.HTTPClient = answers(func(r *http.Request) *http.Response {
						resp := answer(r, tc.status, tc.body)
						resp.Header.Set("X-Amz-Retry-After", "700")
						return resp
					})
					cruise.Must(cruiseaws.New(cruiseaws.WithRetrierOptions(cruise.WithMaxAttempts(3)))).Configure(&cfg)
					began := time.Now()
					err := tc.do(t.Context(), emr.NewFromConfig(cfg))
					assert.Equal(t, tc.took, time.Since(began))
					response, ok := errors.AsType[*smithyhttp.ResponseError](err)
					require.True(t, ok, err)
					assert.Equal(t, "700", response.Response.Header.Get("X-Amz-Retry-After"))
				})
			})
		})
	}
}

// answers is an HTTP client without a network, for virtual time.
type answers func(*http.Request) *http.Response

func (a answers) Do(r *http.Request) (*http.Response, error) { return a(r), nil }

func answer(r *http.Request, status int, body string) *http.Response {
	return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {"application/x-amz-json-1.1"}},
		Body: io.NopCloser(strings.NewReader(body)), Request: r}
}

func TestConfigureClientAndCall(t *testing.T) {
	s := serve(t, first(1, 400, emrThrottled, emrFound))
	seen := &log{}
	throttle := cruise.Must(cruiseaws.New(cruiseaws.WithRetrierOptions(cruise.WithObserver(seen))))
	per := func(o *emr.Options) { o.APIOptions = append(o.APIOptions, throttle.APIOption) }
	client := emr.NewFromConfig(config(s.URL), per)
	_, err := client.DescribeCluster(t.Context(), &emr.DescribeClusterInput{ClusterId: aws.String("j-1")}, per)
	require.NoError(t, err)
	assert.Equal(t, []string{"throttled", "success"}, seen.outcomes(), "once, though given twice")
}

// Presigning sends nothing, so it neither waits nor fails.
func TestPresigning(t *testing.T) {
	s := serve(t, first(0, 0, "", ""))
	cfg, seen := throttled(t, s)
	without := config(s.URL)
	without.APIOptions = []func(*middleware.Stack) error{cruiseaws.WithoutRetries}
	for name, cfg := range map[string]aws.Config{"throttled": cfg, "without retries": without} {
		presign := s3.NewPresignClient(newS3(cfg))
		got, err := presign.PresignGetObject(t.Context(), &s3.GetObjectInput{Bucket: aws.String("b"), Key: aws.String("k")})
		require.NoError(t, err, name)
		assert.Contains(t, got.URL, "X-Amz-Signature=", name)
		form, err := presign.PresignPostObject(t.Context(), &s3.PutObjectInput{Bucket: aws.String("b"), Key: aws.String("k")})
		require.NoError(t, err, name)
		assert.NotEmpty(t, form.Values["X-Amz-Signature"], name)
	}
	assert.Zero(t, s.seen.Load())
	assert.Empty(t, seen.events)
}

func TestCancelledCallsTeachNothing(t *testing.T) {
	modes(t, func(t *testing.T) {
		s := serve(t, func(int64, http.ResponseWriter, *http.Request) { time.Sleep(200 * time.Millisecond) })
		cfg, seen := throttled(t, s)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		assert.ErrorIs(t, describe(ctx, emr.NewFromConfig(cfg)), context.DeadlineExceeded)
		assert.Equal(t, []string{"dropped"}, seen.outcomes())
	})
}

// The context may end when an attempt has been let go, and is not sent yet.
func TestCancelledBeforeARetryIsSent(t *testing.T) {
	modes(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		s := serve(t, first(9, 500, `{}`, ""))
		cfg, seen := throttled(t, s, cruiseaws.WithRetrierOptions(cruise.WithObserver(cruise.ObserverFunc(func(_ context.Context, e cruise.Event) {
			if e, ok := e.(cruise.AttemptStarted); ok && e.Attempt == 2 {
				cancel()
			}
		}))))
		err := describe(ctx, emr.NewFromConfig(cfg))
		assert.ErrorIs(t, err, context.Canceled)
		gaveUp, ok := errors.AsType[*cruise.Error](err)
		require.True(t, ok, err)
		assert.ErrorContains(t, gaveUp.Last, "StatusCode: 500", "what the server said last")
		assert.Equal(t, []string{"transient", "dropped"}, seen.outcomes())
		assert.EqualValues(t, 1, s.seen.Load())
	})
}

// The shared retryer learns of every attempt in both modes.
func TestRetryerLearnsOfEveryAttempt(t *testing.T) {
	modes(t, func(t *testing.T) {
		s := serve(t, first(2, 400, emrThrottled, emrFound))
		var limiter *cruise.AdaptiveLimiter
		throttle := cruise.Must(cruiseaws.New(cruiseaws.WithRetrierOptions(cruise.WithScopeLimiter(func(_, key string) (cruise.Limiter, error) {
			assert.Equal(t, "eu-central-1/EMR/DescribeCluster", key)
			assert.Nil(t, limiter, "made once")
			limiter = cruise.Must(cruise.NewAdaptiveLimiter())
			return limiter, nil
		}))))
		cfg := config(s.URL)
		cfg.Retryer = func() aws.Retryer { return throttle.Retryer() }
		require.NoError(t, describe(t.Context(), emr.NewFromConfig(cfg)))
		stats := limiter.Stats()
		assert.EqualValues(t, 3, stats.Admitted)
		assert.EqualValues(t, 2, stats.Throttles)
		assert.EqualValues(t, 1, stats.Successes)
	})
}

// A Retryer leaves the wait for a throttle to the limiter, if that pauses, and never
// waits for less than the service asks for.
func TestRetryerDelays(t *testing.T) {
	asks := func(status int, code, ms string) error {
		err := answered(status, &smithy.GenericAPIError{Code: code})
		err.(*smithyhttp.ResponseError).Response.Header.Set("X-Amz-Retry-After", ms)
		return err
	}
	modes(t, func(t *testing.T) {
		for name, tc := range map[string]struct {
			limiter func(string, string) (cruise.Limiter, error)
			err     error
			want    time.Duration
		}{
			"a failure":                 {nil, asks(500, "InternalError", "700"), 700 * time.Millisecond},
			"a throttle":                {nil, asks(400, "Throttling", "5500"), 0},
			"a throttle, nobody pauses": {func(string, string) (cruise.Limiter, error) { return rate.NewLimiter(100, 1), nil }, asks(400, "Throttling", "5500"), 5500 * time.Millisecond},
			"a failure, nobody pauses":  {func(string, string) (cruise.Limiter, error) { return rate.NewLimiter(100, 1), nil }, asks(500, "InternalError", "700"), 700 * time.Millisecond},
		} {
			t.Run(name, func(t *testing.T) {
				var opts []cruiseaws.Option
				if tc.limiter != nil {
					opts = append(opts, cruiseaws.WithRetrierOptions(cruise.WithScopeLimiter(tc.limiter)))
				}
				retryer := cruise.Must(cruiseaws.New(opts...)).Retryer()
				cfg := config(serve(t, first(0, 0, "", emrFound)).URL)
				cfg.Retryer = func() aws.Retryer { return retryer }
				require.NoError(t, describe(t.Context(), emr.NewFromConfig(cfg)))
				got, err := retryer.RetryDelay(1, tc.err)
				require.NoError(t, err)
				assert.Equal(t, tc.want, got)
			})
		}
	})
}

func TestDoAroundACall(t *testing.T) {
	call := func(c *emr.Client) error {
		retrier := cruise.Must(cruise.New(cruise.WithClassifier(cruiseaws.Classify)))
		_, err := cruiseaws.Do(t.Context(), retrier, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, describe(ctx, c)
		})
		return err
	}
	modes(t, func(t *testing.T) {
		s := serve(t, first(2, 400, emrThrottled, emrFound))
		cfg := config(s.URL)
		cfg.APIOptions = []func(*middleware.Stack) error{cruiseaws.WithoutRetries}
		require.NoError(t, call(emr.NewFromConfig(cfg)))
		assert.EqualValues(t, 3, s.seen.Load())

		// The SDK's retries are on.
		s = serve(t, first(99, 400, `{"__type":"RequestTimeoutException"}`, ""))
		err := call(emr.NewFromConfig(config(s.URL)))
		assert.ErrorContains(t, err, "the SDK made 3 attempts inside a Retrier: add WithoutRetries")
		assert.EqualValues(t, 3, s.seen.Load(), "and no more")
		assert.Equal(t, 3, cruiseaws.SDKAttempts(err))
		assert.Zero(t, cruiseaws.SDKAttempts(errors.New("not the SDK's")))

		// They are on, and the SDK's retry quota is spent.
		s = serve(t, first(99, 400, emrThrottled, ""))
		cfg = config(s.URL)
		cfg.Retryer = func() aws.Retryer {
			return retry.NewStandard(func(o *retry.StandardOptions) { o.RateLimiter = ratelimit.NewTokenRateLimit(1) })
		}
		err = call(emr.NewFromConfig(cfg))
		assert.ErrorContains(t, err, "the SDK has spent its own retry quota inside a Retrier: add WithoutRetries")
		assert.EqualValues(t, 1, s.seen.Load(), "and no more")

		// A client that has a Throttle leaves retries to the one outside.
		s = serve(t, first(2, 400, emrThrottled, emrFound))
		cfg, seen := throttled(t, s)
		require.NoError(t, call(emr.NewFromConfig(cfg)))
		assert.Len(t, seen.outcomes(), 3)
	})
}

func TestTransactions(t *testing.T) {
	s := serve(t, first(1, 400, dynamoCanceled, `{}`))
	cfg, seen := throttled(t, s)
	_, err := dynamodb.NewFromConfig(cfg).TransactWriteItems(t.Context(), &dynamodb.TransactWriteItemsInput{
		TransactItems: []ddb.TransactWriteItem{{ConditionCheck: &ddb.ConditionCheck{TableName: aws.String("orders"),
			ConditionExpression: aws.String("attribute_exists(id)"), Key: map[string]ddb.AttributeValue{"id": &ddb.AttributeValueMemberS{Value: "1"}}}}}})
	require.NoError(t, err)
	assert.Equal(t, []string{"throttled", "success"}, seen.outcomes())
}

// The caller's classifier is asked first, and may decline.
func TestClassifierOfTheCaller(t *testing.T) {
	const odd = `{"__type":"OddException","message":"odd"}`
	s := serve(t, first(1, 400, odd, emrFound))
	outcome := cruise.OutcomeThrottled
	cfg, seen := throttled(t, s, cruiseaws.WithClassifier(func(err error) cruise.Verdict {
		assert.NotContains(t, fmt.Sprintf("%T", err), "cruiseaws.", "it is the SDK's own")
		return cruise.Verdict{Outcome: outcome}
	}))
	require.NoError(t, describe(t.Context(), emr.NewFromConfig(cfg)))
	assert.Equal(t, []string{"throttled", "success"}, seen.outcomes())

	s = serve(t, first(1, 400, odd, emrFound))
	outcome = cruise.OutcomeUnknown
	cfg, seen = throttled(t, s, cruiseaws.WithClassifier(func(error) cruise.Verdict { return cruise.Verdict{Outcome: outcome} }))
	require.Error(t, describe(t.Context(), emr.NewFromConfig(cfg)))
	assert.Equal(t, []string{"permanent"}, seen.outcomes())
}

// It is not asked about successes, which are none of its business.
func TestClassifierIsNotAskedAboutSuccesses(t *testing.T) {
	for name, use := range map[string]func(*aws.Config, *cruiseaws.Throttle){
		"Configure": func(cfg *aws.Config, throttle *cruiseaws.Throttle) { throttle.Configure(cfg) },
		"Retryer": func(cfg *aws.Config, throttle *cruiseaws.Throttle) {
			cfg.Retryer = func() aws.Retryer { return throttle.Retryer() }
		},
	} {
		t.Run(name, func(t *testing.T) {
			modes(t, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					limiter := cruise.Must(cruise.NewAdaptiveLimiter())
					throttle := cruise.Must(cruiseaws.New(
						cruiseaws.WithRetrierOptions(cruise.WithScopeLimiter(func(string, string) (cruise.Limiter, error) { return limiter, nil })),
						cruiseaws.WithClassifier(func(err error) cruise.Verdict {
							assert.Error(t, err)
							return cruise.Verdict{Outcome: cruise.OutcomeThrottled}
						})))
					cfg := config("http://emr.test")
					odd := true
					cfg.HTTPClient = answers(func(r *http.Request) *http.Response {
						if !odd {
							return answer(r, 200, emrFound)
						}
						odd = false
						return answer(r, 400, `{"__type":"OddException","message":"odd"}`)
					})
					use(&cfg, throttle)
					require.NoError(t, describe(t.Context(), emr.NewFromConfig(cfg)))
					stats := limiter.Stats()
					assert.EqualValues(t, 1, stats.Throttles)
					assert.EqualValues(t, 1, stats.Successes)
				})
			})
		})
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for want, opt := range map[string]cruiseaws.Option{
		"cruiseaws: option 1 is nil":                     nil,
		"cruiseaws: WithScope(nil)":                      cruiseaws.WithScope(nil),
		"cruiseaws: WithClassifier(nil)":                 cruiseaws.WithClassifier(nil),
		"cruise: WithMaxAttempts(0)":                     cruiseaws.WithRetrierOptions(cruise.WithMaxAttempts(0)),
		"cruiseaws: WithRetrierOptions: option 2 is nil": cruiseaws.WithRetrierOptions(cruise.WithMaxAttempts(1), nil),
	} {
		_, err := cruiseaws.New(opt)
		assert.ErrorContains(t, err, want)
	}
}

func TestZeroThrottleSaysSo(t *testing.T) {
	cfg, _ := throttled(t, serve(t, first(0, 0, "", "")))
	cfg.APIOptions = nil
	new(cruiseaws.Throttle).Configure(&cfg)
	_, err := newS3(cfg).HeadObject(t.Context(), &s3.HeadObjectInput{Bucket: aws.String("b"), Key: aws.String("k")})
	assert.ErrorContains(t, err, "cruiseaws: Throttle not made by New")

	for _, throttle := range []*cruiseaws.Throttle{nil, {}} {
		_, err := throttle.Retryer().GetAttemptToken(t.Context())
		assert.EqualError(t, err, "cruiseaws: Throttle not made by New")
		assert.Nil(t, throttle.Retrier(cruiseaws.Operation{}))
	}
}

// slowDown answers as S3 does to a HEAD when it throttles: without a body, so without a code.
type slowDown struct{ left int }

func (s *slowDown) Do(r *http.Request) (*http.Response, error) {
	resp := &http.Response{StatusCode: 200, Status: "200 OK", Header: http.Header{}, Body: http.NoBody, Request: r}
	if s.left--; s.left >= 0 {
		resp.StatusCode, resp.Status = 503, "503 Slow Down"
	}
	return resp, nil
}

func TestHeadOfS3IsThrottled(t *testing.T) {
	cfg, seen := throttled(t, serve(t, first(0, 0, "", "")))
	cfg.HTTPClient = &slowDown{left: 2}
	_, err := newS3(cfg).HeadObject(t.Context(), &s3.HeadObjectInput{Bucket: aws.String("b"), Key: aws.String("k")})
	require.NoError(t, err)
	assert.Equal(t, []string{"throttled", "throttled", "success"}, seen.outcomes())
}

// credentials come by a call to another service, as those of STS do.
func credentials(s *service) aws.CredentialsProvider {
	sts := dynamodb.NewFromConfig(config(s.URL), func(o *dynamodb.Options) {
		o.RetryMaxAttempts = 3 // as of STS: newer clients of DynamoDB make 4
	})
	return aws.NewCredentialsCache(aws.CredentialsProviderFunc(func(ctx context.Context) (aws.Credentials, error) {
		if _, err := sts.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: aws.String("role")}); err != nil {
			return aws.Credentials{}, fmt.Errorf("assume role: %w", err)
		}
		return aws.Credentials{AccessKeyID: "id", SecretAccessKey: "secret"}, nil
	}))
}

// A body that cannot seek is sent once, and the call does not wait for an impossible retry.
func TestBodyThatCannotBeRewound(t *testing.T) {
	modes(t, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			cfg, seen := config("http://s3.test"), &log{}
			cfg.HTTPClient = answers(func(r *http.Request) *http.Response {
				resp := answer(r, 503, s3SlowDown)
				resp.Header.Set("X-Amz-Retry-After", "3000")
				return resp
			})
			throttle := cruise.Must(cruiseaws.New(cruiseaws.WithRetrierOptions(cruise.WithObserver(seen))))
			throttle.Configure(&cfg)
			began := time.Now()
			_, err := newS3(cfg).PutObject(t.Context(), &s3.PutObjectInput{
				Bucket: aws.String("b"), Key: aws.String("k"), Body: io.MultiReader(strings.NewReader("hello")), ContentLength: aws.Int64(5),
			}, s3.WithAPIOptions(v4.SwapComputePayloadSHA256ForUnsignedPayloadMiddleware))
			assert.Zero(t, time.Since(began))
			api, ok := errors.AsType[smithy.APIError](err)
			require.True(t, ok, err)
			assert.Equal(t, "SlowDown", api.ErrorCode())
			assert.ErrorContains(t, err, "body cannot seek")
			assert.Equal(t, []string{"throttled"}, seen.outcomes())
			assert.Len(t, seen.scopes(), 1, "the limiter learns all the same")
		})
	})
}

// Its own deadline ends a call, and not that its body cannot seek.
func TestBodyThatCannotBeRewoundAtTheDeadline(t *testing.T) {
	modes(t, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			cfg := config("http://s3.test")
			cfg.HTTPClient = hanging{}
			cruise.Must(cruiseaws.New()).Configure(&cfg)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := newS3(cfg).PutObject(ctx, &s3.PutObjectInput{
				Bucket: aws.String("b"), Key: aws.String("k"), Body: io.MultiReader(strings.NewReader("hello")), ContentLength: aws.Int64(5),
			}, s3.WithAPIOptions(v4.SwapComputePayloadSHA256ForUnsignedPayloadMiddleware))
			assert.ErrorIs(t, err, context.DeadlineExceeded)
			assert.NotContains(t, err.Error(), "cannot seek")
		})
	})
}

// A failure of credentials is no failure of the operation that needs them.
func TestFailuresOfCredentials(t *testing.T) {
	t.Run("throttled", func(t *testing.T) {
		sts := serve(t, first(3, 400, `{"__type":"ThrottlingException","message":"Rate exceeded"}`, `{}`))
		cfg, seen := throttled(t, serve(t, first(0, 0, "", emrFound)))
		cfg.Credentials = credentials(sts)
		require.NoError(t, describe(t.Context(), emr.NewFromConfig(cfg)))
		assert.Equal(t, []string{"transient", "success"}, seen.outcomes(), "EMR has throttled nothing")
	})
	t.Run("down, in Do", func(t *testing.T) {
		sts, s := serve(t, first(3, 500, `{}`, `{}`)), serve(t, first(0, 0, "", emrFound))
		cfg := config(s.URL)
		cfg.APIOptions = append(cfg.APIOptions, cruiseaws.WithoutRetries)
		cfg.Credentials = credentials(sts)
		r := cruise.Must(cruise.New(cruise.WithClassifier(cruiseaws.Classify)))
		_, err := cruiseaws.Do(t.Context(), r, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, describe(ctx, emr.NewFromConfig(cfg))
		})
		require.NoError(t, err)
	})
}

// A middleware around the SDK's loop may send an operation again, with other credentials
// say: that is an operation of its own.
func TestOperationThatIsSentAgain(t *testing.T) {
	expired := `{"__type":"ExpiredTokenException","message":"expired"}`
	for name, tc := range map[string]struct {
		failures int64
		failure  string
		want     []string
	}{
		"after a failure":       {1, expired, []string{"permanent", "success"}},
		"after a success":       {0, "", []string{"success", "success"}},
		"after it was given up": {2, emrThrottled, []string{"throttled", "throttled", "success"}},
	} {
		t.Run(name, func(t *testing.T) {
			modes(t, func(t *testing.T) {
				cfg, seen := throttled(t, serve(t, first(tc.failures, 400, tc.failure, emrFound)), cruiseaws.WithRetrierOptions(
					cruise.WithMaxAttempts(2), cruise.WithTuning(cruise.Tuning{PauseBackoff: cruise.Must(cruise.ConstantBackoff(time.Millisecond))})))
				var firstErr error
				cfg.APIOptions = append(cfg.APIOptions, func(stack *middleware.Stack) error {
					return stack.Initialize.Add(middleware.InitializeMiddlewareFunc("Again", func(ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler) (middleware.InitializeOutput, middleware.Metadata, error) {
						_, _, firstErr = next.HandleInitialize(ctx, in)
						return next.HandleInitialize(ctx, in)
					}), middleware.Before)
				})
				require.NoError(t, describe(t.Context(), emr.NewFromConfig(cfg)))
				assert.Equal(t, tc.failures > 0, firstErr != nil, firstErr)
				assert.Equal(t, tc.want, seen.outcomes())
			})
		})
	}
}

// Of two Throttles that of the client counts, and not that of the configuration.
func TestThrottleOfAClient(t *testing.T) {
	general, own := &log{}, &log{}
	cfg := config(serve(t, first(0, 0, "", "")).URL)
	cruise.Must(cruiseaws.New(cruiseaws.WithRetrierOptions(cruise.WithObserver(general)))).Configure(&cfg)
	mine := cruise.Must(cruiseaws.New(cruiseaws.WithRetrierOptions(cruise.WithObserver(own))))
	client := s3.NewFromConfig(cfg, func(o *s3.Options) {
		o.UsePathStyle = true
		o.APIOptions = append(o.APIOptions, mine.APIOption)
	})
	_, err := client.HeadObject(t.Context(), &s3.HeadObjectInput{Bucket: aws.String("b"), Key: aws.String("k")})
	require.NoError(t, err)
	assert.Equal(t, []string{"success"}, own.outcomes())
	assert.Empty(t, general.outcomes())
}

// A client that wants no retries is paced all the same.
func TestWithoutRetriesOfAThrottle(t *testing.T) {
	for failures, want := range map[int64]string{0: "success", 9: "transient"} {
		t.Run(want, func(t *testing.T) {
			cfg, seen := throttled(t, serve(t, first(failures, 500, `{}`, emrFound)))
			cfg.APIOptions = append(cfg.APIOptions, cruiseaws.WithoutRetries)
			err := describe(t.Context(), emr.NewFromConfig(cfg))
			assert.Equal(t, failures == 0, err == nil, err)
			assert.Equal(t, []string{want}, seen.outcomes())
		})
	}
}
