package cruisegoogle

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"cloud.google.com/go/auth"
	"golang.org/x/oauth2"
	"google.golang.org/api/option"
	htransport "google.golang.org/api/transport/http"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/cruisehttp"
	"github.com/a7df5faa/cruise/cruisehttp/signal"
)

// NewHTTPClient returns a client for [option.WithHTTPClient]. It authenticates by auth, which takes
// the same options as a service: scopes, credentials, a token source, an API key or an HTTP client.
// Without any it uses the credentials of the environment. A service adds its default scopes only to
// a client that it makes by itself, so add [option.WithScopes] if the service needs scopes.
//
// Every attempt passes the limiter of its host. A request that can be sent twice without harm is
// retried, with a token that is valid then: see [cruisehttp.Transport]. Responses are read by
// [signal.Google] or, at the hosts of Google Ads, by [signal.GoogleAds]. Bodies of up to 1 MiB are
// buffered if they cannot be sent again otherwise. opts tune all of this; a base in opts is not
// used.
//
// Refused credentials, by 400 or 401 to the request for a token, fail the call at once, unless a
// classifier in opts decides otherwise. After any other error of the token server a call of any
// method is retried, since nothing was sent.
//
// A client's Timeout would include the time in the limiter: use a context, or
// [cruisehttp.WithAttemptTimeout].
//
// Some clients retry REST calls by themselves. Resumable uploads and cloud.google.com/go/storage
// mark their retries: such a retry is paced, and sent once, so that attempts add up and do not
// multiply. Clients with constructors like NewTopicAdminRESTClient do not mark theirs: switch them
// off by [DisableRetries]. To cloud.google.com/go/bigquery leave all retries, by
// cruisehttp.WithRetrierOptions(cruise.WithMaxAttempts(1)).
//
// The error comes from the credentials, or names the options that are out of bounds.
func NewHTTPClient(ctx context.Context, auth []option.ClientOption, opts ...cruisehttp.Option) (*http.Client, error) {
	if i := slices.IndexFunc(opts, func(o cruisehttp.Option) bool { return o == nil }); i >= 0 {
		return nil, fmt.Errorf("cruisegoogle: option %d is nil", i+1) // NewTransport would count options of ours too
	}
	own, _, err := htransport.NewClient(ctx, auth...)
	if err != nil {
		return nil, err
	}
	base := own.Transport
	if base == nil {
		base = http.DefaultTransport
	}
	all := append([]cruisehttp.Option{
		cruisehttp.WithProfile(profile()),
		cruisehttp.WithBufferedBodies(bufferedBodies),
		cruisehttp.WithRetrierOptions(cruise.WithClassifier(refusedToken)),
	}, opts...)
	paced, err := cruisehttp.NewTransport(append(all, cruisehttp.WithRoundTripper(authenticated{base}))...)
	if err != nil {
		return nil, err
	}
	client := *own
	client.Transport = &Transport{paced}
	return &client, nil
}

// AdsScopes returns options of [NewHTTPClient] for the Google Ads API: its requests are in the
// scopes [ScopeDeveloper], by their developer-token, and within it [ScopeAccount], by the customer
// in their path. So each limit slows only the requests that it concerns.
func AdsScopes() []cruisehttp.Option {
	return []cruisehttp.Option{
		cruisehttp.WithScope(ScopeDeveloper, cruisehttp.HeaderKey("developer-token")),
		cruisehttp.WithScope(ScopeAccount, func(req *http.Request) string {
			if m := customer.FindStringSubmatch(req.URL.Path); m != nil {
				return m[1]
			}
			return ""
		}),
	}
}

var customer = regexp.MustCompile(`/customers/(\d+)`)

// profile reads the responses of all of Google's APIs, behind any host name.
func profile() signal.Profile {
	google := signal.Google()
	google.Hosts = []string{"*"}
	p := signal.Generic()
	p.Providers = []signal.Profile{signal.GoogleAds(), google}
	return p
}

// noToken reports whether err comes from a request for a token, and returns the answer to that
// request, nil if there was none.
func noToken(err error) (resp *http.Response, ok bool) {
	if e, ok := errors.AsType[*oauth2.RetrieveError](err); ok {
		return e.Response, true
	}
	if e, ok := errors.AsType[*auth.Error](err); ok {
		return e.Response, true
	}
	return nil, false
}

// authenticated is the transport of a client. It sends no request without a token.
type authenticated struct{ http.RoundTripper }

func (a authenticated) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := a.RoundTripper.RoundTrip(req)
	if _, ok := noToken(err); ok {
		err = cruisehttp.Unsent(err)
	}
	return resp, err
}

func (a authenticated) CloseIdleConnections() {
	if base, ok := a.RoundTripper.(interface{ CloseIdleConnections() }); ok {
		base.CloseIdleConnections()
	}
}

// refusedToken classifies credentials that the token server refuses as permanent. It declines all
// other errors.
func refusedToken(err error) cruise.Verdict {
	if resp, _ := noToken(err); resp != nil && (resp.StatusCode == http.StatusBadRequest || resp.StatusCode == http.StatusUnauthorized) {
		return cruise.Verdict{Outcome: cruise.OutcomePermanent}
	}
	return cruise.Verdict{}
}

// The clients don't always keep a copy of a call's body. Media are longer and have copies, or are
// sent in chunks.
const bufferedBodies = 1 << 20

// A Transport is the transport of a client made by [NewHTTPClient]. Its Retrier shows the learned
// rate:
//
//	retrier := client.Transport.(*cruisegoogle.Transport).Retrier()
//	limiter := retrier.Scope(cruisehttp.GlobalScope, "www.googleapis.com").Limiter()
//
// It is safe for concurrent use. Only NewHTTPClient makes one.
type Transport struct{ *cruisehttp.Transport }

// RoundTrip is [cruisehttp.Transport.RoundTrip], but leaves retries to a client that already
// retries.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if retried(req.Header) {
		req = req.WithContext(cruisehttp.ForbidRetry(req.Context()))
	}
	return t.Transport.RoundTrip(req)
}

// retried reports whether a client library has sent the request before. They
// count from 1.
func retried(h http.Header) bool {
	for _, value := range h.Values("X-Goog-Api-Client") {
		for field := range strings.FieldsSeq(value) {
			if n, ok := strings.CutPrefix(field, "gccl-attempt-count/"); ok && n != "1" {
				return true
			}
		}
	}
	return false
}
