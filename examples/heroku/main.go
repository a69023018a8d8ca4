// Heroku shows [cruisehttp.Transport] at an API that tells little: a server on this machine that
// limits like Heroku's Platform API, by a bucket that refills steadily. Its responses name the
// remaining requests and nothing else: no limit, no reset, no Retry-After.
//
// A client with the Transport and a plain one, which backs off exponentially with jitter, send the
// same requests to a server of their own each.
//
//	go run ./examples/heroku
//	go run ./examples/heroku -rate 50 -bucket 100 -workers 20 -requests 1000
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"time"

	"github.com/a7df5faa/cruise/cruisehttp"
)

func main() {
	rate := flag.Float64("rate", 25, "requests per second that the server gives")
	bucket := flag.Int("bucket", 50, "requests that it gives at once after a quiet time")
	workers := flag.Int("workers", 10, "that send requests at the same time")
	requests := flag.Int("requests", 300, "to be sent")
	flag.Parse()
	if err := check(*rate, *bucket, *workers, *requests); err != nil {
		fmt.Fprintln(os.Stderr, "heroku:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program the hard way
	if err := compare(ctx, *rate, *bucket, *workers, *requests); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func check(rate float64, bucket, workers, requests int) error {
	switch {
	case flag.NArg() > 0:
		return fmt.Errorf("unexpected argument %q: all options are flags, see -h", flag.Arg(0))
	case !(rate >= .01 && rate <= 10_000):
		return fmt.Errorf("-rate %v: want 0.01 to 10000 requests per second", rate)
	case bucket < 1 || bucket > 1_000_000:
		return fmt.Errorf("-bucket %d: want 1 to 1000000", bucket)
	case workers < 1 || workers > 1000:
		return fmt.Errorf("-workers %d: want 1 to 1000", workers)
	case requests < 1 || requests > 1_000_000:
		return fmt.Errorf("-requests %d: want 1 to 1000000", requests)
	}
	return nil
}

func compare(ctx context.Context, rate float64, bucket, workers, requests int) error {
	transport, err := cruisehttp.NewTransport()
	if err != nil {
		return err
	}
	fmt.Printf("%d requests by %d workers; the server gives %g a second and %d at once: %.1f s at best\n\n",
		requests, workers, rate, bucket, max(0, float64(requests-bucket)/rate))
	clients := []struct {
		name string
		send func(ctx context.Context, url string) error
	}{
		{"cruise", func(ctx context.Context, url string) error {
			return get(ctx, &http.Client{Transport: transport}, url)
		}},
		{"plain", func(ctx context.Context, url string) error { return plain(ctx, http.DefaultClient, url) }},
	}
	var group sync.WaitGroup
	for _, c := range clients {
		group.Go(func() {
			api := &api{perToken: time.Duration(float64(time.Second) / rate), bucket: bucket}
			server := httptest.NewServer(api)
			defer server.Close()
			begin := time.Now()
			done, failed := crowd(ctx, workers, requests, func() error { return c.send(ctx, server.URL) })
			fmt.Printf("%-7s %5.1f s   %3d of %3d attempts throttled, %4.1f %%   %d requests done, %d failed\n", c.name,
				time.Since(begin).Seconds(), api.throttled.Load(), api.attempts.Load(), 100*api.share(), done, failed)
		})
	}
	group.Wait()
	return context.Cause(ctx)
}

// crowd has workers do a number of things until ctx ends, and returns how many were done,
// and how many failed before that.
func crowd(ctx context.Context, workers, things int, do func() error) (done, failed int64) {
	var next, good, bad atomic.Int64
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for next.Add(1) <= int64(things) && ctx.Err() == nil {
				switch err := do(); {
				case err == nil:
					good.Add(1)
				case ctx.Err() == nil:
					bad.Add(1)
				}
			}
		})
	}
	group.Wait()
	return good.Load(), bad.Load()
}

func get(ctx context.Context, client *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("status %s", resp.Status)
	}
	return nil
}

// plain sleeps and retries, as many programs do.
func plain(ctx context.Context, client *http.Client, url string) (err error) {
	for backoff := 100 * time.Millisecond; backoff < time.Minute; backoff *= 2 {
		if err = get(ctx, client, url); err == nil || ctx.Err() != nil {
			return err
		}
		select {
		case <-time.After(rand.N(backoff)):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return err
}

// api is a server with a bucket, by the generic cell rate algorithm: it keeps the
// time at which the bucket would be full.
type api struct {
	perToken            time.Duration
	bucket              int
	attempts, throttled atomic.Int64

	mu   sync.Mutex
	full time.Time
}

func (a *api) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	a.attempts.Add(1)
	remaining, ok := a.take(time.Now())
	w.Header().Set("RateLimit-Remaining", fmt.Sprint(remaining))
	w.Header().Set("Content-Type", "application/json")
	if !ok {
		a.throttled.Add(1)
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = io.WriteString(w, `{"id":"rate_limit","message":"Your account reached the API rate limit"}`)
		return
	}
	_, _ = io.WriteString(w, `{"name":"example"}`)
}

func (a *api) take(now time.Time) (remaining int, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.full.Before(now) {
		a.full = now
	}
	missing := a.full.Sub(now) + a.perToken
	if missing > time.Duration(a.bucket)*a.perToken {
		return 0, false
	}
	a.full = a.full.Add(a.perToken)
	return a.bucket - int((missing+a.perToken-1)/a.perToken), true
}

func (a *api) share() float64 {
	return float64(a.throttled.Load()) / float64(max(1, a.attempts.Load()))
}
