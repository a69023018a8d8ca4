package cruiseslog_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"time"

	"github.com/a7df5faa/cruise"
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
