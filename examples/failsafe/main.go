// Failsafe shows a circuit breaker of failsafe-go around a cruise.Retrier: cruise paces, pauses
// and retries, and the breaker stops calling a broken server.
//
// A 429 must not open the breaker, since the server is only busy. So the breaker is outside, sees
// the result of a whole call with its retries, and counts only the server's own failures.
//
//	go run ./examples/failsafe
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/a7df5faa/cruise"
	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/circuitbreaker"
)

var (
	errThrottled = cruise.Throttled(errors.New("429 Too Many Requests"), cruise.RetryAfter(200*time.Millisecond))
	errBroken    = errors.New("500 Internal Server Error")
)

// A server answers as it is told.
type server struct{ answers []error }

func (s *server) get(context.Context) (err error) {
	if len(s.answers) > 0 {
		err, s.answers = s.answers[0], s.answers[1:]
	}
	return err
}

// failing reports whether the server is to blame: not for the limits of this
// client, nor for throttles, nor for the caller's own cancellation.
func failing(err error) bool {
	if err == nil || errors.Is(err, context.Canceled) {
		return false
	}
	for _, ours := range []error{cruise.ErrDeadline, cruise.ErrMaxElapsed, cruise.ErrMaxWait, cruise.ErrServerDelay, cruise.ErrQuotaExhausted} {
		if errors.Is(err, ours) {
			return false
		}
	}
	if e, ok := errors.AsType[*cruise.Error](err); ok {
		err = e.Last
	}
	return cruise.Classify(err).Outcome == cruise.OutcomeTransient
}

func main() {
	retrier := cruise.Must(cruise.New(
		cruise.WithMaxAttempts(3),
		cruise.WithBackoff(cruise.Must(cruise.NewBackoff(cruise.WithBase(10*time.Millisecond)))),
	))
	breaker := circuitbreaker.NewBuilder[any]().
		HandleIf(func(_ any, err error) bool { return failing(err) }).
		WithFailureThreshold(2).
		WithDelay(300 * time.Millisecond).
		Build()

	s := &server{answers: []error{
		errThrottled, nil, // the first call is throttled, and made again
		errBroken, errBroken, errBroken, // the second and the third fail
		errBroken, errBroken, errBroken,
	}}
	call := func() error {
		return failsafe.With(breaker).Run(func() error { return retrier.Do(context.Background(), s.get) })
	}
	wants := []error{nil, cruise.ErrAttemptsExhausted, cruise.ErrAttemptsExhausted, circuitbreaker.ErrOpen, nil}
	for i, want := range wants {
		if i == len(wants)-1 {
			time.Sleep(400 * time.Millisecond) // until the breaker tries again
		}
		err, result := call(), "done"
		if err != nil {
			result = err.Error()
		}
		fmt.Printf("call %d: %s; the breaker is %v\n", i+1, result, breaker.State())
		if !errors.Is(err, want) {
			fmt.Fprintf(os.Stderr, "want %v\n", want)
			os.Exit(1)
		}
	}
}
