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
	window, err := cruise.NewSlidingWindow(cruise.Window{Calls: 100, Per: 100 * time.Second})
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

// 10 a second and 3 a day, under a Retrier: the fourth call would wait for a day.
func ExampleNewSlidingWindow() {
	retrier := cruise.Must(cruise.New(cruise.WithLimiter(cruise.Must(cruise.NewSlidingWindow(
		cruise.Window{Calls: 10, Per: time.Second},
		cruise.Window{Calls: 3, Per: 24 * time.Hour},
	)))))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for call := range 4 {
		err := retrier.Do(ctx, func(context.Context) error {
			return nil // the call
		})
		fmt.Println(call+1, errors.Is(err, cruise.ErrDeadline))
	}
	// Output:
	// 1 false
	// 2 false
	// 3 false
	// 4 true
}

// All that is wrong is reported at once.
func ExampleNewSlidingWindow_errors() {
	_, err := cruise.NewSlidingWindow(cruise.Window{Calls: 0, Per: time.Second}, cruise.Window{Calls: 5, Per: time.Second})
	fmt.Println(err)
	// Output:
	// cruise: window 1: Calls 0: want 1 to 2147483647
	// cruise: windows 1 and 2 are both 1s long: want one
}
