package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/cruisehttp/signal"
	"github.com/a7df5faa/cruise/cruiseredis"
)

// work makes calls as fast as they go, until the input ends.
func work() error {
	callers, err := strconv.Atoi(os.Getenv("CALLERS"))
	if err != nil {
		return err
	}
	options := []cruise.Option{cruise.WithUncountedThrottles()}
	degraded := func() bool { return false }
	if addr := os.Getenv("REDIS"); addr != "" {
		client := redis.NewClient(&redis.Options{Addr: addr})
		defer client.Close()
		limiter, err := cruiseredis.NewLimiter(client, "workers example")
		if err != nil {
			return err
		}
		options = append(options, cruise.WithLimiter(limiter))
		degraded = func() bool { return limiter.Stats().Degraded }
	}
	api, err := cruise.New(options...)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	web := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: callers}}
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for ctx.Err() == nil {
				_ = api.Do(ctx, func(ctx context.Context) error { return get(ctx, web, degraded()) })
			}
		})
	}
	wg.Wait()
	return nil
}

// get is one attempt of a call.
func get(ctx context.Context, web *http.Client, degraded bool) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, os.Getenv("URL"), nil)
	if err != nil {
		return cruise.Permanent(err)
	}
	req.Header.Set("Worker", os.Getenv("WORKER"))
	if degraded {
		req.Header.Set("Degraded", "1")
	}
	resp, err := web.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	wait, _ := signal.ParseRetryAfter(resp.Header, time.Now())
	switch err := errors.New(resp.Status); cruise.StatusOutcome(resp.StatusCode, wait) {
	case cruise.OutcomeSuccess:
		return nil
	case cruise.OutcomeThrottled:
		return cruise.Throttled(err, cruise.RetryAfter(wait))
	case cruise.OutcomeTransient:
		return cruise.Transient(err, cruise.RetryAfter(wait))
	default:
		return cruise.Permanent(err)
	}
}
