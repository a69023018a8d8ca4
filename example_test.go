package cruise_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/a7df5faa/cruise"
)

// server stands for an API that throttles the first calls.
type server struct{ throttles int }

var errTooMany = errors.New("429 Too Many Requests")

func (s *server) Get(_ context.Context, name string) (string, error) {
	if s.throttles > 0 {
		s.throttles--
		return "", cruise.Throttled(errTooMany, cruise.RetryAfter(5*time.Millisecond))
	}
	return "all about " + name, nil
}

// Make one Retrier for each API, and pass every call through it.
func ExampleRetrier_Do() {
	api := &server{throttles: 2}
	retrier, err := cruise.New()
	if err != nil {
		fmt.Println(err)
		return
	}

	err = retrier.Do(context.Background(), func(ctx context.Context) error {
		text, err := api.Get(ctx, "gophers")
		if err != nil {
			fmt.Println(err)
			return err
		}
		fmt.Println(text)
		return nil
	})
	if err != nil {
		fmt.Println("gave up:", err)
	}
	// Output:
	// 429 Too Many Requests
	// 429 Too Many Requests
	// all about gophers
}

func ExampleDoValue() {
	api := &server{throttles: 2}
	retrier := cruise.Must(cruise.New())

	text, err := cruise.DoValue(context.Background(), retrier, func(ctx context.Context) (string, error) {
		return api.Get(ctx, "gophers")
	})
	fmt.Println(text, err)
	// Output:
	// all about gophers <nil>
}

// A loop, for code that does not fit in a function.
func ExampleRetrier_Attempts() {
	api := &server{throttles: 2}
	retrier := cruise.Must(cruise.New())

	for attempt, err := range retrier.Attempts(context.Background()) {
		if err != nil {
			fmt.Println("gave up:", err)
			return
		}
		text, err := api.Get(attempt.Context(), "gophers")
		attempt.Done(err)
		fmt.Printf("attempt %d: %q, %v\n", attempt.Number(), text, err)
	}
	// Output:
	// attempt 1: "", 429 Too Many Requests
	// attempt 2: "", 429 Too Many Requests
	// attempt 3: "all about gophers", <nil>
}

// Say that the server throttled the call, and what it said about it: everyone
// behind the same limiter pauses.
func ExampleThrottled() {
	retrier := cruise.Must(cruise.New(cruise.WithInitialRate(1000)))

	begun := time.Now()
	attempts := 0
	err := retrier.Do(context.Background(), func(context.Context) error {
		if attempts++; attempts == 1 {
			return cruise.Throttled(errTooMany, cruise.RetryAfter(20*time.Millisecond), cruise.InScope("ACCOUNT"))
		}
		return nil
	})
	fmt.Println(attempts, "attempts:", err)
	fmt.Println("waited as asked:", time.Since(begun) >= 20*time.Millisecond)
	// Output:
	// 2 attempts: <nil>
	// waited as asked: true
}

// Tell the limiter what is left of a quota, and it slows down before that is used up,
// so that the server need not throttle.
func ExampleReport() {
	limiter := cruise.Must(cruise.NewAdaptiveLimiter())
	retrier := cruise.Must(cruise.New(cruise.WithLimiter(limiter)))

	_ = retrier.Do(context.Background(), func(ctx context.Context) error {
		// RateLimit-Limit: 5000, RateLimit-Remaining: 4321, RateLimit-Reset: 60
		cruise.Report(ctx, cruise.Quota{Limit: 5000, Remaining: 4321, Reset: time.Minute})
		return nil
	})
	fmt.Println(limiter.Stats().Quota.Remaining, "calls left")
	// Output:
	// 4321 calls left
}

// An Error tells why the call was given up, and keeps what the server said.
func ExampleError() {
	retrier := cruise.Must(cruise.New())

	err := retrier.Do(context.Background(), func(context.Context) error {
		return cruise.Throttled(errTooMany, cruise.RetryAfter(time.Hour))
	})
	fmt.Println(errors.Is(err, errTooMany), errors.Is(err, cruise.ErrServerDelay))
	if e, ok := errors.AsType[*cruise.Error](err); ok {
		fmt.Println("why:", e.Reason)
		fmt.Println("attempts:", e.Attempts)
		fmt.Println("come back in:", e.RetryAfter)
	}
	// Output:
	// true true
	// why: cruise: told to wait for longer than WithMaxServerDelay allows
	// attempts: 1
	// come back in: 1h0m0s
}

// A classifier tells what the errors of an API mean. For those that it does not
// know, it returns the zero Verdict.
func ExampleWithClassifier() {
	errLocked := errors.New("database is locked")
	errNoTable := errors.New("no such table")

	retrier := cruise.Must(cruise.New(
		cruise.WithoutLimiter(),
		cruise.WithBackoff(cruise.Must(cruise.ConstantBackoff(time.Millisecond))),
		cruise.WithClassifier(func(err error) cruise.Verdict {
			switch {
			case errors.Is(err, errLocked):
				return cruise.Verdict{Outcome: cruise.OutcomeTransient}
			case errors.Is(err, errNoTable):
				return cruise.Verdict{Outcome: cruise.OutcomePermanent}
			}
			return cruise.Verdict{}
		}),
	))

	for _, answer := range []error{errLocked, errNoTable} {
		attempts := 0
		_ = retrier.Do(context.Background(), func(context.Context) error { attempts++; return answer })
		fmt.Printf("%v: attempts: %d\n", answer, attempts)
	}
	// Output:
	// database is locked: attempts: 5
	// no such table: attempts: 1
}

// A budget bounds what retries add to the load of a server in trouble, over all
// calls that share it.
func ExampleNewBudget() {
	// 3 retries at first; then one for every 10 successes, or every 100 s.
	budget := cruise.Must(cruise.NewBudget(3, 0.1, 0.01))
	retrier := cruise.Must(cruise.New(
		cruise.WithoutLimiter(),
		cruise.WithBudget(budget),
		cruise.WithBackoff(cruise.Must(cruise.ConstantBackoff(time.Millisecond))),
	))

	attempts := 0
	for range 100 {
		_ = retrier.Do(context.Background(), func(context.Context) error {
			attempts++
			return errors.New("connection refused")
		})
	}
	fmt.Println(attempts, "attempts of 100 calls")
	// Output:
	// 103 attempts of 100 calls
}

// An observer is told of every event; a type switch picks those of interest.
func ExampleWithObserver() {
	api := cruise.Must(cruise.New(
		cruise.WithMaxAttempts(2),
		cruise.WithObserver(cruise.ObserverFunc(func(_ context.Context, event cruise.Event) {
			switch e := event.(type) {
			case cruise.AttemptEnded:
				fmt.Printf("attempt %d: %v\n", e.Attempt, e.Outcome)
			case cruise.GaveUp:
				fmt.Println("gave up:", e.Err.Reason)
			}
		})),
	))

	_ = api.Do(context.Background(), func(context.Context) error { return errors.New("connection reset") })
	// Output:
	// attempt 1: transient
	// attempt 2: transient
	// gave up: cruise: attempts exhausted
}
