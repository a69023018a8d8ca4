//go:build !race

package sdktest

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/anthropics/anthropic-sdk-go"
	"github.com/bwmarrin/discordgo"
	"github.com/google/go-github/v92/github"
	"github.com/googleapis/gax-go/v2/apierror"
	vault "github.com/hashicorp/vault/api"
	"github.com/minio/minio-go/v7"
	"github.com/openai/openai-go/v3"
	"github.com/segmentio/kafka-go"
	"github.com/slack-go/slack"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v82"
	"github.com/twitchtv/twirp"
	"google.golang.org/api/googleapi"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/cruisehttp"
)

// classifiers are the classifiers in the documentation.
var classifiers = map[string]func(error) cruise.Verdict{
	"googleapi": cruise.ClassifyAs(func(e *googleapi.Error) cruise.Verdict { return cruisehttp.VerdictOf(e.Code, e.Header) }),
	"azcore": cruise.ClassifyAs(func(e *azcore.ResponseError) cruise.Verdict {
		return cruisehttp.VerdictOf(e.StatusCode, e.RawResponse.Header)
	}),
	"github": cruise.ClassifyAs(func(e *github.RateLimitError) cruise.Verdict {
		return cruisehttp.VerdictOf(e.Response.StatusCode, e.Response.Header)
	}),
	"github secondary": cruise.ClassifyAs(func(e *github.AbuseRateLimitError) cruise.Verdict {
		return cruisehttp.VerdictOf(429, e.Response.Header)
	}),
	"github other": cruise.ClassifyAs(func(e *github.ErrorResponse) cruise.Verdict {
		return cruisehttp.VerdictOf(e.Response.StatusCode, e.Response.Header)
	}),
	"stripe": cruise.ClassifyAs(func(e *stripe.Error) cruise.Verdict {
		return cruisehttp.VerdictOf(e.HTTPStatusCode, e.LastResponse.Header)
	}),
	"openai":    cruise.ClassifyAs(func(e *openai.Error) cruise.Verdict { return cruisehttp.VerdictOf(e.StatusCode, e.Response.Header) }),
	"anthropic": cruise.ClassifyAs(func(e *anthropic.Error) cruise.Verdict { return cruisehttp.VerdictOf(e.StatusCode, e.Response.Header) }),
	"minio":     cruise.ClassifyAs(func(e minio.ErrorResponse) cruise.Verdict { return cruisehttp.VerdictOf(e.StatusCode, nil) }),
	"discord": cruise.ClassifyAs(func(e *discordgo.RESTError) cruise.Verdict {
		return cruisehttp.VerdictOf(e.Response.StatusCode, e.Response.Header)
	}),
	"vault": cruise.ClassifyAs(func(e *vault.ResponseError) cruise.Verdict { return cruisehttp.VerdictOf(e.StatusCode, nil) }),
	"twirp": cruise.ClassifyAs(func(e twirp.Error) cruise.Verdict {
		return cruisehttp.VerdictOf(twirp.ServerHTTPStatusFromErrorCode(e.Code()), nil)
	}),
	"slack": cruise.ClassifyAs(func(e *slack.RateLimitedError) cruise.Verdict {
		return cruise.Verdict{Outcome: cruise.OutcomeThrottled, RetryAfter: e.RetryAfter}
	}),
	"discord limit": cruise.ClassifyAs(func(e *discordgo.RateLimitError) cruise.Verdict {
		return cruise.Verdict{Outcome: cruise.OutcomeThrottled, RetryAfter: e.RetryAfter}
	}),
	"kubernetes": cruise.ClassifyAs(func(e *apierrors.StatusError) cruise.Verdict { // of Kubernetes
		seconds, _ := apierrors.SuggestsClientDelay(e)
		wait := time.Duration(seconds) * time.Second
		return cruise.Verdict{Outcome: cruise.StatusOutcome(int(e.ErrStatus.Code), wait), RetryAfter: wait}
	}),
	"connect": cruise.ClassifyAs(func(e *connect.Error) (v cruise.Verdict) {
		if e.Code() == connect.CodeResourceExhausted {
			v.Outcome = cruise.OutcomeThrottled
		}
		return v
	}),
	"kafka": cruise.ClassifyAs(func(e kafka.Error) (v cruise.Verdict) {
		if e == kafka.ThrottlingQuotaExceeded {
			v.Outcome = cruise.OutcomeThrottled
		}
		return v
	}),
}

func TestErrorsOfSDKs(t *testing.T) {
	seven := http.Header{"Retry-After": {"7"}}
	response := func(status int) *http.Response {
		return &http.Response{StatusCode: status, Header: seven, Request: &http.Request{Method: "GET", URL: &url.URL{Host: "x"}}}
	}
	wrapped := &googleapi.Error{Code: 429, Header: seven}
	wrapped.Wrap(apierrorOf(t, &googleapi.Error{Code: 429, Header: seven}))
	seconds := 7 * time.Second
	kubernetes := apierrors.NewTooManyRequests("slow down", 7)
	throttled, permanent := cruise.OutcomeThrottled, cruise.OutcomePermanent
	for _, tt := range []struct {
		name string
		err  error
		want cruise.Verdict
	}{
		{"googleapi", &googleapi.Error{Code: 429, Header: seven}, cruise.Verdict{Outcome: throttled, RetryAfter: seconds}},
		{"googleapi", &googleapi.Error{Code: 404}, cruise.Verdict{Outcome: permanent}},
		{"", wrapped, cruise.Verdict{Outcome: throttled}}, // as generated clients return it, without any classifier
		{"azcore", &azcore.ResponseError{StatusCode: 503, RawResponse: response(503)}, cruise.Verdict{Outcome: throttled, RetryAfter: seconds}},
		{"azcore", &azcore.ResponseError{StatusCode: 429}, cruise.Verdict{}}, // made without a response
		{"github", &github.RateLimitError{Response: response(403)}, cruise.Verdict{Outcome: throttled, RetryAfter: seconds}},
		{"github secondary", &github.AbuseRateLimitError{Response: response(403)}, cruise.Verdict{Outcome: throttled, RetryAfter: seconds}},
		{"", &github.AbuseRateLimitError{RetryAfter: &seconds, Response: response(403)}, cruise.Verdict{Outcome: throttled, RetryAfter: seconds}},
		{"github other", &github.ErrorResponse{Response: &http.Response{StatusCode: 404}}, cruise.Verdict{Outcome: permanent}},
		{"stripe", &stripe.Error{HTTPStatusCode: 429, APIResource: stripe.APIResource{LastResponse: &stripe.APIResponse{Header: seven}}}, cruise.Verdict{Outcome: throttled, RetryAfter: seconds}},
		{"openai", &openai.Error{StatusCode: 429, Response: response(429)}, cruise.Verdict{Outcome: throttled, RetryAfter: seconds}},
		{"anthropic", &anthropic.Error{StatusCode: 529, Response: response(529)}, cruise.Verdict{Outcome: throttled, RetryAfter: seconds}},
		{"minio", minio.ErrorResponse{StatusCode: 429, Code: "x"}, cruise.Verdict{Outcome: throttled}},
		{"discord", &discordgo.RESTError{Response: response(429)}, cruise.Verdict{Outcome: throttled, RetryAfter: seconds}},
		{"discord limit", &discordgo.RateLimitError{RateLimit: &discordgo.RateLimit{TooManyRequests: &discordgo.TooManyRequests{RetryAfter: seconds}}}, cruise.Verdict{Outcome: throttled, RetryAfter: seconds}},
		{"vault", &vault.ResponseError{StatusCode: 429}, cruise.Verdict{Outcome: throttled}},
		{"twirp", twirp.NewError(twirp.ResourceExhausted, "slow down"), cruise.Verdict{Outcome: throttled}},
		{"slack", &slack.RateLimitedError{RetryAfter: seconds}, cruise.Verdict{Outcome: throttled, RetryAfter: seconds}},
		{"", slack.StatusCodeError{Code: 429}, cruise.Verdict{Outcome: throttled}},
		{"kubernetes", kubernetes, cruise.Verdict{Outcome: throttled, RetryAfter: seconds}},
		{"connect", connect.NewError(connect.CodeResourceExhausted, errors.New("slow down")), cruise.Verdict{Outcome: throttled}},
		{"kafka", kafka.ThrottlingQuotaExceeded, cruise.Verdict{Outcome: throttled}},
	} {
		t.Run(fmt.Sprintf("%T", tt.err), func(t *testing.T) {
			if tt.name == "" {
				assert.Equal(t, tt.want, cruise.Classify(tt.err))
				return
			}
			classify := classifiers[tt.name]
			assert.Equal(t, tt.want, classify(tt.err))
			assert.Equal(t, tt.want, classify(fmt.Errorf("list: %w", tt.err)))
			assert.Zero(t, classify(cruise.Permanent(tt.err)), "marked")
			assert.Zero(t, classify(errors.New("another")))
		})
	}
}

func apierrorOf(t *testing.T, err error) error {
	e, ok := apierror.FromError(err)
	require.True(t, ok)
	return e
}

// The documentation has the same lines as this test.
func TestTheDocumentedClassifiers(t *testing.T) {
	code, err := os.ReadFile("classify_test.go")
	require.NoError(t, err)
	squeezed := squeeze(string(code)) // gofmt breaks lines that a comment does not
	lines := 0
	for _, file := range []string{"../../classify.go", "../../../outcome.go"} {
		doc, err := os.ReadFile(file)
		require.NoError(t, err)
		in := false
		for line := range strings.Lines(string(doc)) {
			snippet, comment := strings.CutPrefix(line, "//\t")
			in = comment && (in || strings.HasPrefix(snippet, "cruise.ClassifyAs("))
			if in && strings.TrimSpace(snippet) != "})" {
				lines++
				assert.True(t, strings.Contains(squeezed, strings.TrimSuffix(squeeze(snippet), ")")), snippet)
			}
		}
	}
	assert.GreaterOrEqual(t, lines, 25)
}

func squeeze(code string) string { return strings.Join(strings.Fields(code), "") }
