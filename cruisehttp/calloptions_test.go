package cruisehttp_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/cruisehttp"
)

type tripper func(*http.Request) (*http.Response, error)

func (f tripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

func TestCallOptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sent, status := 0, http.StatusInternalServerError
		transport := cruise.Must(cruisehttp.NewTransport(
			cruisehttp.WithRoundTripper(tripper(func(*http.Request) (*http.Response, error) {
				sent++
				return &http.Response{StatusCode: status, Body: http.NoBody}, nil
			})),
			cruisehttp.WithRetrierOptions(cruise.WithScopeLimiter(func(string, string) (cruise.Limiter, error) {
				return cruise.NewTokenBucket(1, 10)
			}), cruise.WithBackoff(cruise.Backoff{}))))
		get := func(ctx context.Context) error {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://x/", nil)
			require.NoError(t, err)
			resp, err := transport.RoundTrip(req)
			if err == nil {
				err = resp.Body.Close()
			}
			return err
		}
		two := cruisehttp.CallOptions(t.Context(), cruise.WithMaxAttempts(2))
		assert.NoError(t, get(two))
		assert.Equal(t, 2, sent)
		assert.NoError(t, get(cruisehttp.CallOptions(two, cruise.WithMaxAttempts(3))), "the last counts")
		assert.Equal(t, 5, sent)
		status = http.StatusOK
		began := time.Now()
		assert.NoError(t, get(cruisehttp.CallOptions(t.Context(), cruise.WithCost(7)))) // 5 are left
		assert.Equal(t, 2*time.Second, time.Since(began))
		err := get(cruisehttp.CallOptions(t.Context(), cruise.WithCost(-1)))
		assert.EqualError(t, err, "cruise: WithCost(-1): want 0 or more")
		assert.NoError(t, get(cruisehttp.CallOptions(t.Context())))
		assert.Equal(t, 7, sent)
	})
}

func ExampleCallOptions() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "report") }))
	defer server.Close()
	client := &http.Client{Transport: cruise.Must(cruisehttp.NewTransport())}

	// A report costs ten units, and yields to requests for which users wait.
	ctx := cruisehttp.CallOptions(context.Background(), cruise.WithCost(10), cruise.WithBackground())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
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

// A request that may not wait goes at once or not at all.
func TestMaxWaitOfARequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := cruise.Must(cruisehttp.NewTransport(
			cruisehttp.WithRoundTripper(tripper(func(*http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
			})),
			cruisehttp.WithRetrierOptions(cruise.WithScopeLimiter(func(string, string) (cruise.Limiter, error) {
				return cruise.NewTokenBucket(1, 1)
			}))))
		req, err := http.NewRequestWithContext(cruisehttp.CallOptions(t.Context(), cruise.WithMaxWait(0)), http.MethodGet, "http://x/", nil)
		require.NoError(t, err)
		resp, err := transport.RoundTrip(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		began := time.Now()
		_, err = transport.RoundTrip(req) //nolint:bodyclose // there is none
		assert.ErrorIs(t, err, cruise.ErrMaxWait)
		assert.Zero(t, time.Since(began))
	})
}
