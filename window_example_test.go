package cruise_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/a7df5faa/cruise"
)

// 100 requests per 100 seconds: the 101st waits until the first is 100 s old.
func ExampleSlidingWindow() {
	window, err := cruise.NewSlidingWindow(cruise.Window{N: 100, Per: 100 * time.Second})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for calls := 1; ; calls++ {
		if err := window.WaitN(ctx, 1); err != nil {
			fmt.Println(calls, errors.Is(err, cruise.ErrDeadline))
			return
		}
	}
	// Output:
	// 101 true
}

// 10 a second and 1,000 a day, under a Retrier.
func ExampleNewSlidingWindow() {
	retrier := cruise.Must(cruise.New(cruise.WithLimiter(cruise.Must(cruise.NewSlidingWindow(
		cruise.Window{N: 10, Per: time.Second},
		cruise.Window{N: 1000, Per: 24 * time.Hour},
	)))))
	err := retrier.Do(context.Background(), func(context.Context) error {
		return nil // the call
	})
	fmt.Println(err)
	// Output:
	// <nil>
}

// All that is wrong is reported at once.
func ExampleNewSlidingWindow_errors() {
	_, err := cruise.NewSlidingWindow(cruise.Window{N: 0, Per: time.Second}, cruise.Window{N: 5, Per: time.Second})
	fmt.Println(err)
	// Output:
	// cruise: window 1: N 0: want 1 to 2147483647
	// cruise: windows 1 and 2 are both 1s long: want one
}
