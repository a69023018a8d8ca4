//go:build !race

// Package sdktest plugs the Transport into SDKs of others, by the lines that the documentation of
// cruisehttp gives for them.
package sdktest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/anthropics/anthropic-sdk-go"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/option"
	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/google/go-github/v92/github"
	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/slack-go/slack"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v82"
	"google.golang.org/api/drive/v3"
	"google.golang.org/api/googleapi"
	googleoption "google.golang.org/api/option"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/cruisehttp"
)

// quick makes the waits of a Transport short.
func quick() cruisehttp.Option {
	short := cruise.Must(cruise.ConstantBackoff(time.Millisecond))
	return cruisehttp.WithRetrierOptions(cruise.WithBackoff(short), cruise.WithTuning(cruise.Tuning{PauseBackoff: short}), cruise.WithInitialRate(1000))
}

// An sdk makes one call through a Transport, and tells the status that its typed error holds.
type sdk struct {
	name string
	opts []cruisehttp.Option
	call func(ctx context.Context, transport *cruisehttp.Transport, url string) error
	// plugged is for an SDK that hands over its own base.
	plugged func(ctx context.Context, plug func(http.RoundTripper) http.RoundTripper, url string) error
	// typed returns 0 for an error that is not the SDK's own.
	typed func(error) int
}

var sdks = []sdk{
	{
		name: "go-github",
		call: func(ctx context.Context, transport *cruisehttp.Transport, url string) error {
			url += "/"
			client, err := github.NewClient(github.WithTransport(transport), github.WithURLs(&url, &url))
			if err != nil {
				return err
			}
			_, _, err = client.Repositories.Get(ctx, "a", "b")
			return err
		},
		typed: func(err error) int {
			if e, ok := errors.AsType[*github.ErrorResponse](err); ok {
				return e.Response.StatusCode
			}
			if _, ok := errors.AsType[*github.AbuseRateLimitError](err); ok {
				return http.StatusTooManyRequests
			}
			return 0
		},
	},
	{
		name: "stripe-go", // POST, with an Idempotency-Key of its own
		call: func(ctx context.Context, transport *cruisehttp.Transport, url string) error {
			backends := stripe.NewBackendsWithConfig(&stripe.BackendConfig{HTTPClient: &http.Client{Transport: transport}, MaxNetworkRetries: stripe.Int64(0), URL: &url, LeveledLogger: &stripe.LeveledLogger{}})
			client := stripe.NewClient("key", stripe.WithBackends(backends))
			_, err := client.V1Customers.Create(ctx, &stripe.CustomerCreateParams{})
			return err
		},
		typed: func(err error) int {
			if e, ok := errors.AsType[*stripe.Error](err); ok {
				return e.HTTPStatusCode
			}
			return 0
		},
	},
	{
		name: "slack-go",
		opts: []cruisehttp.Option{cruisehttp.WithAnyMethod()},
		call: func(ctx context.Context, transport *cruisehttp.Transport, url string) error {
			client := slack.New("token", slack.OptionHTTPClient(&http.Client{Transport: transport}), slack.OptionAPIURL(url+"/"))
			_, err := client.AuthTestContext(ctx)
			return err
		},
		typed: func(err error) int {
			if e, ok := errors.AsType[slack.StatusCodeError](err); ok {
				return e.Code
			}
			if _, ok := errors.AsType[*slack.RateLimitedError](err); ok {
				return http.StatusTooManyRequests
			}
			return 0
		},
	},
	{
		name: "openai-go",
		opts: []cruisehttp.Option{cruisehttp.WithAnyMethod()},
		call: func(ctx context.Context, transport *cruisehttp.Transport, url string) error {
			client := openai.NewClient(option.WithHTTPClient(&http.Client{Transport: transport}), option.WithMaxRetries(0), option.WithBaseURL(url), option.WithAPIKey("key"))
			_, err := client.Chat.Completions.New(ctx, openai.ChatCompletionNewParams{Model: openai.ChatModelGPT4o})
			return err
		},
		typed: func(err error) int {
			if e, ok := errors.AsType[*openai.Error](err); ok {
				return e.StatusCode
			}
			return 0
		},
	},
	{
		name: "anthropic-sdk-go",
		opts: []cruisehttp.Option{cruisehttp.WithAnyMethod()},
		call: func(ctx context.Context, transport *cruisehttp.Transport, url string) error {
			client := anthropic.NewClient(anthropicoption.WithHTTPClient(&http.Client{Transport: transport}), anthropicoption.WithMaxRetries(0), anthropicoption.WithBaseURL(url), anthropicoption.WithAPIKey("key"))
			_, err := client.Messages.New(ctx, anthropic.MessageNewParams{MaxTokens: 1, Model: "claude"})
			return err
		},
		typed: func(err error) int {
			if e, ok := errors.AsType[*anthropic.Error](err); ok {
				return e.StatusCode
			}
			return 0
		},
	},
	{
		name: "azcore",
		call: func(ctx context.Context, transport *cruisehttp.Transport, url string) error {
			options := policy.ClientOptions{Transport: &http.Client{Transport: transport}, Retry: policy.RetryOptions{MaxRetries: -1}}
			client, err := azcore.NewClient("sdktest", "v1.0.0", runtime.PipelineOptions{}, &options)
			if err != nil {
				return err
			}
			req, err := runtime.NewRequest(ctx, http.MethodGet, url)
			if err != nil {
				return err
			}
			resp, err := client.Pipeline().Do(req)
			if err != nil {
				return err
			}
			return runtime.NewResponseError(resp)
		},
		typed: func(err error) int {
			if e, ok := errors.AsType[*azcore.ResponseError](err); ok {
				return e.StatusCode
			}
			return 0
		},
	},
	{
		name: "client-go",
		opts: []cruisehttp.Option{cruisehttp.WithoutRetryAfter()},
		plugged: func(ctx context.Context, plug func(http.RoundTripper) http.RoundTripper, url string) error {
			config := &rest.Config{Host: url}
			config.QPS = -1
			config.Wrap(plug)
			config.APIPath, config.GroupVersion = "/api", &schema.GroupVersion{Version: "v1"}
			config.NegotiatedSerializer = serializer.NewCodecFactory(kruntime.NewScheme()).WithoutConversion()
			client, err := rest.RESTClientFor(config)
			if err != nil {
				return err
			}
			return client.Get().Resource("pods").Do(ctx).Error()
		},
		typed: func(err error) int {
			if e, ok := errors.AsType[*apierrors.StatusError](err); ok {
				return int(e.ErrStatus.Code)
			}
			return 0
		},
	},
	{
		name: "google-api-go-client",
		call: func(ctx context.Context, transport *cruisehttp.Transport, url string) error {
			service, err := drive.NewService(ctx, googleoption.WithHTTPClient(&http.Client{Transport: transport}), googleoption.WithEndpoint(url))
			if err != nil {
				return err
			}
			_, err = service.Files.List().Context(ctx).Do()
			return err
		},
		typed: func(err error) int {
			if e, ok := errors.AsType[*googleapi.Error](err); ok {
				return e.Code
			}
			return 0
		},
	},
	{
		name: "minio-go",
		call: func(ctx context.Context, transport *cruisehttp.Transport, url string) error {
			endpoint := strings.TrimPrefix(url, "http://")
			client, err := minio.New(endpoint, &minio.Options{Transport: transport, MaxRetries: 1, Creds: credentials.NewStaticV4("key", "secret", ""), Region: "us-east-1"})
			if err != nil {
				return err
			}
			_, err = client.ListBuckets(ctx)
			return err
		},
		typed: func(err error) int { return minio.ToErrorResponse(err).StatusCode },
	},
	{
		name: "aws-sdk-go-v2",
		call: func(ctx context.Context, transport *cruisehttp.Transport, url string) error {
			config := aws.Config{HTTPClient: &http.Client{Transport: transport}, Retryer: func() aws.Retryer { return aws.NopRetryer{} }}
			config.Region, config.Credentials, config.BaseEndpoint = "us-east-1", aws.AnonymousCredentials{}, &url
			_, err := s3.NewFromConfig(config).ListBuckets(ctx, &s3.ListBucketsInput{})
			return err
		},
		typed: func(err error) int {
			if e, ok := errors.AsType[*awshttp.ResponseError](err); ok {
				return e.HTTPStatusCode()
			}
			return 0
		},
	},
}

// Each SDK makes five attempts at most, of a server that never gets well, and tells of it by its
// own error. A Retry-After of 0 asks for nothing, but makes some SDKs retry.
func TestAttemptsAndErrors(t *testing.T) {
	for _, s := range sdks {
		for _, status := range []int{429, 500, 503} {
			for _, header := range []string{"", "0"} {
				t.Run(fmt.Sprintf("%s/%d/Retry-After=%s", s.name, status, header), func(t *testing.T) {
					var attempts atomic.Int64
					server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
						attempts.Add(1)
						if header != "" {
							w.Header().Set("Retry-After", header)
						}
						w.Header().Set("Content-Type", "application/json")
						w.WriteHeader(status)
						fmt.Fprint(w, `{"error":{"message":"no","code":"x"}}`)
					}))
					defer server.Close()
					opts := slices.Concat(s.opts, []cruisehttp.Option{cruisehttp.WithQuotaResponses(), quick()})
					ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
					defer cancel()
					began := time.Now()
					var err error
					if s.plugged != nil {
						err = s.plugged(ctx, func(base http.RoundTripper) http.RoundTripper {
							return cruise.Must(cruisehttp.NewTransport(append(opts, cruisehttp.WithRoundTripper(base))...))
						}, server.URL)
					} else {
						err = s.call(ctx, cruise.Must(cruisehttp.NewTransport(opts...)), server.URL)
					}
					require.Error(t, err)
					assert.Equal(t, status, s.typed(err), "%T: %v", err, err)
					assert.EqualValues(t, 5, attempts.Load(), "attempts")
					assert.Less(t, time.Since(began), 20*time.Second)
				})
			}
		}
	}
}

// The documentation has the same lines as this test.
func TestTheDocumentedLines(t *testing.T) {
	doc, err := os.ReadFile("../../doc.go")
	require.NoError(t, err)
	code, err := os.ReadFile("sdk_test.go")
	require.NoError(t, err)
	_, table, ok := strings.Cut(string(doc), "// # SDKs\n")
	require.True(t, ok)
	table, _, _ = strings.Cut(table, "// # ")
	names := strings.NewReplacer("anthropicoption.", "option.", "googleoption.", "option.") // imported together only here
	lines := 0
	for line := range strings.Lines(table) {
		snippet, ok := strings.CutPrefix(strings.TrimSpace(line), "//\t")
		if !ok || strings.HasPrefix(snippet, "transport := ") {
			continue
		}
		lines++
		snippet, _, _ = strings.Cut(snippet, "…")
		assert.Contains(t, names.Replace(string(code)), snippet)
	}
	assert.GreaterOrEqual(t, lines, len(sdks))
}
