package delay_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/delay"
)

// Responsive exponential backoff, with the settings of the post that described it. Calls fail
// below 200 ms. Then the service recovers, and 60 ms are enough.
func ExampleResponsive() {
	rule := delay.Responsive()
	rule.First, rule.NoneBelow = time.Millisecond, time.Millisecond
	rule.Every, rule.LowerFactor = 5, 0.6
	rule.JitterBelow, rule.JitterAbove = 0, 0
	limiter := cruise.Must(delay.New(rule))

	enough := 200 * time.Millisecond
	var last time.Duration
	for range 60 {
		if d := limiter.Delay(); d != last {
			bar := strings.Repeat("#", int(d/(8*time.Millisecond)))
			fmt.Println(strings.TrimRight(fmt.Sprintf("%5.1f ms %s", float64(d)/1e6, bar), " "))
			last = d
		}
		outcome := cruise.OutcomeSuccess
		if last < enough {
			outcome = cruise.OutcomeThrottled
		} else {
			enough = 60 * time.Millisecond
		}
		limiter.Learn(cruise.Feedback{Outcome: outcome, Cost: 1})
	}
	// Output:
	//   1.0 ms
	//   1.5 ms
	//   2.2 ms
	//   3.4 ms
	//   5.1 ms
	//   7.6 ms
	//  11.4 ms #
	//  17.1 ms ##
	//  25.6 ms ###
	//  38.4 ms ####
	//  57.7 ms #######
	//  86.5 ms ##########
	// 129.7 ms ################
	// 194.6 ms ########################
	// 291.9 ms ####################################
	// 175.2 ms #####################
	// 105.1 ms #############
	//  63.1 ms #######
	//  37.8 ms ####
	//  56.8 ms #######
	//  85.1 ms ##########
	//  51.1 ms ######
	//  76.6 ms #########
	//  46.0 ms #####
	//  69.0 ms ########
	//  41.4 ms #####
	//  62.1 ms #######
}

// All callers share one delay: throttles raise it to 1 s and to 2 s, and a success ends it.
func ExampleNew() {
	limiter := cruise.Must(delay.New(delay.Linear(time.Second)))
	for _, outcome := range []cruise.Outcome{cruise.OutcomeThrottled, cruise.OutcomeThrottled, cruise.OutcomeSuccess} {
		limiter.Learn(cruise.Feedback{Outcome: outcome, Cost: 1})
		fmt.Println(outcome, limiter.Delay())
	}
	// Output:
	// throttled 1s
	// throttled 2s
	// success 0s
}

// Calls report the rest of the quota, as Heroku's own client does.
func ExampleHerokuRemaining() {
	limiter := cruise.Must(delay.New(delay.HerokuRemaining()))
	retrier := cruise.Must(cruise.New(cruise.WithLimiter(limiter)))
	tries := 0
	err := retrier.Do(context.Background(), func(ctx context.Context) error {
		if tries++; tries == 1 {
			return cruise.Throttled(errors.New("429 Too Many Requests"))
		}
		cruise.Report(ctx, cruise.Quota{Remaining: 2250}) // of 4500
		return nil
	})
	fmt.Println(tries, err, limiter.Delay())
	// Output:
	// 2 <nil> 480ms
}

// Nothing is shared: each call backs off by itself.
func ExampleHerokuBackoff() {
	retrier := cruise.Must(cruise.New(cruise.WithoutLimiter(), cruise.WithThrottleBackoff(delay.HerokuBackoff())))
	fmt.Println(retrier.Do(context.Background(), func(context.Context) error { return nil }))
	fmt.Print(delay.HerokuBackoff().Schedule(3))
	// Output:
	// <nil>
	//   retry   least    most  total least  total most
	//       1   800ms   880ms        800ms       880ms
	//       2   960ms  1.056s        1.76s      1.936s
	//       3  1.152s  1.267s       2.912s      3.203s
}
