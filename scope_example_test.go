package cruise_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/a7df5faa/cruise"
)

// A server that limits each account and, over all of them, the developer.
func ExampleRetrier_Scope() {
	developer := cruise.Must(cruise.New(cruise.WithMaxAttempts(1)))
	throttled := func(scope string) func(context.Context) error {
		return func(context.Context) error {
			return cruise.Throttled(errors.New("RateExceededError"), cruise.InScope(scope), cruise.RetryAfter(30*time.Second))
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	show := func() {
		for _, id := range []string{"123", "456"} {
			err := developer.Scope("ACCOUNT", id).Do(ctx, func(context.Context) error { return nil })
			fmt.Println(id, "may go:", !errors.Is(err, cruise.ErrDeadline))
		}
	}
	_ = developer.Scope("ACCOUNT", "123").Do(ctx, throttled("ACCOUNT"))
	show()
	_ = developer.Scope("ACCOUNT", "456").Do(ctx, throttled("DEVELOPER"))
	show()
	// Output:
	// 123 may go: false
	// 456 may go: true
	// 123 may go: false
	// 456 may go: false
}

// Every customer may make a call an hour, and all together what the server gives.
func ExampleWithScopeLimiter() {
	retrier := cruise.Must(cruise.New(
		cruise.WithScopeLimiter(func(scope, key string) (cruise.Limiter, error) {
			return cruise.NewTokenBucket(rate.Every(time.Hour), 1)
		}),
		cruise.WithMaxScopes(1000),
	))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, customer := range []string{"acme", "acme", "zenith"} {
		err := retrier.Scope("CUSTOMER", customer).Do(ctx, func(context.Context) error { return nil })
		fmt.Println(customer, "would wait too long:", errors.Is(err, cruise.ErrDeadline))
	}
	// Output:
	// acme would wait too long: false
	// acme would wait too long: true
	// zenith would wait too long: false
}

// A nightly job yields to what users wait for.
func ExampleWithBackground() {
	limiter := cruise.Must(cruise.NewTokenBucket(5, 1))
	retrier := cruise.Must(cruise.New(cruise.WithLimiter(limiter)))
	limiter.Pause(time.Minute)
	var calls sync.WaitGroup
	call := func(name string, opts ...cruise.CallOption) {
		before := limiter.Waiting()
		calls.Go(func() {
			_ = retrier.Do(context.Background(), func(context.Context) error { fmt.Println(name); return nil }, opts...)
		})
		for limiter.Waiting() == before {
			time.Sleep(time.Millisecond)
		}
	}
	call("nightly job", cruise.WithBackground())
	call("user")
	limiter.Resume()
	calls.Wait()
	// Output:
	// user
	// nightly job
}
