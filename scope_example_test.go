package cruise_test

import (
	"context"
	"errors"
	"fmt"
	"time"

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

// Every customer may make 10 calls a second, and all together what the server
// gives.
func ExampleWithScopeLimiter() {
	retrier := cruise.Must(cruise.New(
		cruise.WithScopeLimiter(func(scope, key string) (cruise.Limiter, error) {
			return cruise.NewTokenBucket(10, 1)
		}),
		cruise.WithMaxScopes(1000),
	))
	err := retrier.Scope("CUSTOMER", "acme").Do(context.Background(), func(context.Context) error { return nil })
	fmt.Println(err)
	// Output:
	// <nil>
}

// A nightly job yields to what users wait for.
func ExampleWithBackground() {
	retrier := cruise.Must(cruise.New())
	err := retrier.Do(context.Background(), func(context.Context) error { return nil }, cruise.WithBackground())
	fmt.Println(err)
	// Output:
	// <nil>
}
