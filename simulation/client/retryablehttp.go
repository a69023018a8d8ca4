package client

import (
	"context"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/a7df5faa/cruise/simulation/engine"
)

// RetryableHTTP is hashicorp/go-retryablehttp with its defaults, in front of a
// transport that asks the simulated server within the process.
func RetryableHTTP() engine.Client {
	return engine.Client{
		Name:  "retryablehttp",
		About: "hashicorp/go-retryablehttp, default backoff from 1 s to 30 s, heeds Retry-After in whole seconds",
		New: func(e engine.Env) engine.Process {
			client := retryablehttp.NewClient()
			client.Logger = nil
			client.HTTPClient = &http.Client{Transport: transport{}}
			client.RetryMax = math.MaxInt
			if n := e.Scenario.Attempts; n > 0 {
				client.RetryMax = n - 1
			}
			return engine.ProcessFunc(func(ctx context.Context, attempt engine.Attempt) error {
				ctx = context.WithValue(ctx, attemptKey{}, attempt)
				req, err := retryablehttp.NewRequestWithContext(ctx, http.MethodGet, "http://simulated.test/", nil)
				if err != nil {
					return err
				}
				res, err := client.Do(req)
				if err != nil {
					return err
				}
				return res.Body.Close()
			})
		},
	}
}

// attemptKey is that of the attempt in a request's context.
type attemptKey struct{}

// transport turns the simulated server's answers into HTTP.
type transport struct{}

// RoundTrip makes the attempt that the request's context holds.
func (transport) RoundTrip(req *http.Request) (*http.Response, error) {
	attempt := req.Context().Value(attemptKey{}).(engine.Attempt)
	_, err := attempt(req.Context())
	res := &http.Response{
		StatusCode: http.StatusOK,
		Proto:      "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{}, Body: http.NoBody, Request: req,
	}
	switch f := failure(err); {
	case err == nil:
	case f.Throttled:
		res.StatusCode = http.StatusTooManyRequests
		if f.RetryAfter > 0 {
			// The header has whole seconds, and earlier than told would be too early.
			seconds := (f.RetryAfter + time.Second - 1) / time.Second
			res.Header.Set("Retry-After", strconv.FormatInt(int64(seconds), 10))
		}
	case f.Timeout || req.Context().Err() != nil:
		return nil, err
	default:
		res.StatusCode = http.StatusInternalServerError
	}
	return res, nil
}
