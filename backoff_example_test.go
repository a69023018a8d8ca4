package cruise_test

import (
	"fmt"
	"time"

	"github.com/a7df5faa/cruise"
)

func ExampleNewBackoff() {
	backoff, err := cruise.NewBackoff(
		cruise.WithBase(200*time.Millisecond),
		cruise.WithMaxDelay(5*time.Second),
		cruise.NoJitter(),
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	for retry := 1; retry <= 6; retry++ {
		fmt.Println(backoff.Delay(retry, 0))
	}
	// Output:
	// 200ms
	// 400ms
	// 800ms
	// 1.6s
	// 3.2s
	// 5s
}

// All that is wrong is reported at once.
func ExampleNewBackoff_errors() {
	_, err := cruise.NewBackoff(
		cruise.WithMultiplier(0.5),
		cruise.WithMaxDelay(50*time.Millisecond),
		cruise.WithRetries(0),
	)
	fmt.Println(err)
	// Output:
	// cruise: WithMultiplier(0.5): want 1 or more, and finite
	// cruise: WithRetries(0): want 1 or more; leave it out for no limit
	// cruise: WithMaxDelay(50ms): want at least the base of 100ms: raise it, or lower WithBase
}

func ExampleBackoff_Schedule() {
	backoff := cruise.Must(cruise.NewBackoff(cruise.EqualJitter()))
	fmt.Print(backoff.Schedule(10))
	// Output:
	// retry  least   most  total least  total most
	//       1   50ms  100ms         50ms       100ms
	//       2  100ms  200ms        150ms       300ms
	//       3  200ms  400ms        350ms       700ms
	//       4  400ms  800ms        750ms        1.5s
	//       5  800ms   1.6s        1.55s        3.1s
	//       6   1.6s   3.2s        3.15s        6.3s
	//       7   3.2s   6.4s        6.35s       12.7s
	//       8   6.4s  12.8s       12.75s       25.5s
	//       9    10s    20s       22.75s       45.5s
	//      10    10s    20s       32.75s      1m5.5s
}

func ExampleGoogleBackoff() {
	backoff := cruise.GoogleBackoff()
	fmt.Print(backoff.Schedule(100))
	fmt.Println("then give up, after", backoff.Retries(), "retries")
	// Output:
	// retry  least  most  total least  total most
	//       1     1s    2s           1s          2s
	//       2     2s    3s           3s          5s
	//       3     4s    5s           7s         10s
	//       4     8s    9s          15s         19s
	//       5    16s   17s          31s         36s
	// then give up, after 5 retries
}

func ExampleLinearBackoff() {
	backoff, err := cruise.LinearBackoff(time.Second, 4*time.Second,
		cruise.ProportionalJitter(0.25))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(backoff.Schedule(5))
	// Output:
	// retry  least   most  total least  total most
	//       1  750ms  1.25s        750ms       1.25s
	//       2   1.5s   2.5s        2.25s       3.75s
	//       3  2.25s  3.75s         4.5s        7.5s
	//       4   2.4s     4s         6.9s       11.5s
	//       5   2.4s     4s         9.3s       15.5s
}
