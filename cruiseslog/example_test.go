package cruiseslog_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/cruisehttp"
	"github.com/a7df5faa/cruise/cruiseslog"
)

func ExampleNewObserver() {
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey || a.Key == "until" {
				return slog.Attr{} // the same at every run
			}
			return a
		},
	})).With("api", "heroku")

	api, err := cruise.New(
		cruise.WithObserver(cruiseslog.NewObserver(logger)),
		cruise.WithInitialRate(100),
	)
	if err != nil {
		logger.Error("cannot call heroku", "error", err)
		return
	}
	calls := 0
	_ = api.Do(context.Background(), func(context.Context) error {
		if calls++; calls == 1 {
			return cruise.Throttled(errors.New("429 Too Many Requests"), cruise.RetryAfter(20*time.Millisecond))
		}
		return nil
	})
	// Output:
	// level=WARN msg="cruise: throttled by the server" api=heroku retry_after=20ms
	// level=WARN msg="cruise: paused" api=heroku for=20ms
	// level=INFO msg="cruise: no longer throttled" api=heroku
}

// The keys of a Transport are hosts, which are no secret: shown as they are, the log says
// which host throttles.
func ExampleWithKeys() {
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey || a.Key == "until" {
				return slog.Attr{} // the same at every run
			}
			return a
		},
	}))
	observer := cruiseslog.NewObserver(logger, cruiseslog.WithKeys(func(_, key string) string { return key }))
	client := &http.Client{Transport: cruise.Must(cruisehttp.NewTransport(
		cruisehttp.WithRoundTripper(busyOnce()),
		cruisehttp.WithRetrierOptions(cruise.WithObserver(observer)),
	))}
	resp, err := client.Get("https://api.example.com/")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(resp.Status, resp.Body.Close())
	// Output:
	// level=WARN msg="cruise: throttled by the server" retry_after=20ms limiter="global api.example.com"
	// level=WARN msg="cruise: paused" for=20ms limiter="global api.example.com"
	// level=INFO msg="cruise: no longer throttled" limiter="global api.example.com"
	// 200 OK <nil>
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// busyOnce throttles the first request.
func busyOnce() http.RoundTripper {
	calls := 0
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		resp := &http.Response{Status: "200 OK", StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody, Request: r}
		if calls++; calls == 1 {
			resp.Status, resp.StatusCode = "429 Too Many Requests", http.StatusTooManyRequests
			resp.Header.Set("Retry-After-Ms", "20")
		}
		return resp, nil
	})
}
