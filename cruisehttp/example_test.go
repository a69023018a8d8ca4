package cruisehttp_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/cruisehttp"
	"github.com/a7df5faa/cruise/cruisehttp/signal"
)

// throttleOnce answers the first request with a header that asks for a wait.
func throttleOnce(status int, header, value string) *httptest.Server {
	throttled := false
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !throttled {
			throttled = true
			w.Header().Set(header, value)
			w.WriteHeader(status)
		}
	}))
}

func ExampleNewTransport() {
	api := throttleOnce(http.StatusTooManyRequests, "Retry-After", "1")
	defer api.Close()

	transport, err := cruisehttp.NewTransport()
	if err != nil {
		fmt.Println(err)
		return
	}
	client := &http.Client{Transport: transport}

	begin := time.Now()
	resp, err := client.Get(api.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	fmt.Println(resp.Status, "after", time.Since(begin).Round(time.Second))
	// Output: 200 OK after 1s
}

func ExampleNewTransport_options() {
	api := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer api.Close()

	transport := cruise.Must(cruisehttp.NewTransport(
		cruisehttp.WithScope("account", cruisehttp.HeaderKey("Authorization")), // limits belong to accounts
		cruisehttp.WithHeaderTimeout(10*time.Second),
		cruisehttp.WithRetrierOptions(
			cruise.WithMaxRate(50), // calls per second, even if the server gives more
			cruise.WithMaxElapsed(time.Minute),
		),
	))
	client := &http.Client{Transport: transport}

	resp, err := client.Get(api.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	fmt.Println(resp.Status)
	// Output: 200 OK
}

func ExampleAllowRetry() {
	api := throttleOnce(http.StatusBadGateway, "X-Reason", "restarting")
	defer api.Close()
	client := &http.Client{Transport: cruise.Must(cruisehttp.NewTransport())}

	// A search is a POST here, but it changes nothing.
	ctx := cruisehttp.AllowRetry(context.Background())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, api.URL+"/search", strings.NewReader("q=gopher"))
	if err != nil {
		fmt.Println(err)
		return
	}
	resp, err := client.Do(req)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	fmt.Println(resp.Status)
	// Output: 200 OK
}

// authorized is a base that needs a token for each request, such as that of an
// oauth2.TokenSource. Without one nothing is sent.
type authorized struct {
	http.RoundTripper
	token func() (string, error)
}

func (a authorized) RoundTrip(req *http.Request) (*http.Response, error) {
	token, err := a.token()
	if err != nil {
		if req.Body != nil {
			_ = req.Body.Close()
		}
		return nil, cruisehttp.Unsent(err)
	}
	req = req.Clone(req.Context())
	req.Header.Set("Authorization", "Bearer "+token)
	return a.RoundTripper.RoundTrip(req)
}

func ExampleUnsent() {
	api := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer api.Close()

	asked := 0
	token := func() (string, error) {
		if asked++; asked == 1 {
			return "", errors.New("503 Service Unavailable")
		}
		return "secret", nil
	}
	client := &http.Client{Transport: cruise.Must(cruisehttp.NewTransport(
		cruisehttp.WithRoundTripper(authorized{http.DefaultTransport, token})))}

	resp, err := client.Post(api.URL, "text/plain", strings.NewReader("hello"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	fmt.Println(resp.Status)
	// Output: 200 OK
}

func ExampleResponseError() {
	api := throttleOnce(http.StatusTooManyRequests, "Retry-After", "86400")
	defer api.Close()
	client := &http.Client{Transport: cruise.Must(cruisehttp.NewTransport())}

	for range 2 { // the second request is not even sent
		_, err := client.Get(api.URL)
		if answer, ok := errors.AsType[*cruisehttp.ResponseError](err); ok && errors.Is(err, cruise.ErrQuotaExhausted) {
			fmt.Println(answer.Status, "- try again in", time.Until(answer.Until).Round(time.Hour))
		}
	}
	// Output:
	// 429 Too Many Requests - try again in 24h0m0s
	// 429 Too Many Requests - try again in 24h0m0s
}

func ExampleWithProfile() {
	// A server of your own that answers 420, with the wait in its own header.
	mine := signal.Profile{
		Name:  "mine",
		Hosts: []string{"127.0.0.1"},
		Waits: []signal.WaitHeader{{Name: "X-Wait-Ms", Unit: signal.Milliseconds}},
		Rules: []signal.Rule{{Status: []int{420}, Outcome: cruise.OutcomeThrottled}},
	}
	profile := signal.Generic()
	profile.Providers = append([]signal.Profile{mine}, profile.Providers...)

	api := throttleOnce(420, "X-Wait-Ms", "1000")
	defer api.Close()
	client := &http.Client{Transport: cruise.Must(cruisehttp.NewTransport(cruisehttp.WithProfile(profile)))}
	begin := time.Now()
	resp, err := client.Get(api.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	fmt.Println(resp.Status, "after", time.Since(begin).Round(time.Second))
	// Output: 200 OK after 1s
}

// A service that answers 529 at random, whatever the rate, as language models do: no reason to slow
// down. Another request may go at once, this one waits for its backoff.
func ExampleResponseError_Verdict() {
	overload := cruise.ClassifyAs(func(e *cruisehttp.ResponseError) cruise.Verdict {
		v := e.Verdict()
		if e.StatusCode == 529 {
			v.Outcome = cruise.OutcomeTransient
		}
		return v
	})
	transport := cruise.Must(cruisehttp.NewTransport(
		cruisehttp.WithRetrierOptions(cruise.WithClassifier(overload)),
		cruisehttp.WithAnyMethod(), // a transient failure of a POST is not sent again by default
	))
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked++; asked == 1 {
			w.WriteHeader(529)
		}
	}))
	defer server.Close()

	client := &http.Client{Transport: transport}
	resp, err := client.Post(server.URL, "application/json", strings.NewReader("{}"))
	if err != nil {
		fmt.Println(err)
		return
	}
	resp.Body.Close()
	fmt.Println(resp.StatusCode, asked)
	for s := range transport.Retrier().Scopes() {
		fmt.Println(s.Throttles, "throttles")
	}
	// Output:
	// 200 2
	// 0 throttles
}
