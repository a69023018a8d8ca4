package cruiseaws_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/cruiseaws"
)

func ExampleThrottle_Configure() {
	cfg := aws.Config{Region: "eu-central-1"} // yours is from config.LoadDefaultConfig

	throttle, err := cruiseaws.New(
		cruiseaws.WithRetrierOptions(cruise.WithMaxAttempts(8)),
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	throttle.Configure(&cfg)
	// Clients made of cfg are paced now.

	put := cruiseaws.Operation{Region: "eu-central-1", Service: "DynamoDB", Name: "PutItem", Table: "orders"}
	throttle.Retrier(put).Limiter().(*cruise.AdaptiveLimiter).Pause(time.Minute) // a batch job has the table now
	fmt.Println(throttle.Retrier(put).Budget().Left(), "retries left")
	// Output: 100 retries left
}

// Writing to a service that leaves every second item of a batch unprocessed.
func ExampleBatch() {
	retrier := cruise.Must(cruise.New(cruise.WithClassifier(cruiseaws.Classify)))
	results, err := cruiseaws.Batch(context.Background(), retrier, []string{"a", "b", "c"}, 25,
		func(_ context.Context, batch []string) ([]*string, error) {
			out := make([]*string, len(batch))
			for i := 0; i < len(batch); i += 2 {
				out[i] = &batch[i]
			}
			return out, nil
		})
	fmt.Println(*results[0], *results[1], *results[2], err)
	// Output: a b c <nil>
}

// Reading from a service that returns at most two items at a time. That is no throttle.
func ExampleBatch_fullAnswers() {
	errFull := errors.New("answer full")
	retrier := cruise.Must(cruise.New(cruise.WithClassifier(cruiseaws.Classify)))
	results, err := cruiseaws.Batch(context.Background(), retrier, []string{"a", "b", "c"}, 100,
		func(_ context.Context, batch []string) ([]*string, error) {
			out := make([]*string, len(batch))
			for i := range min(2, len(batch)) {
				out[i] = &batch[i]
			}
			if len(batch) > 2 {
				return out, cruise.Transient(errFull) // and not nil, which would slow all calls down
			}
			return out, nil
		})
	fmt.Println(*results[0], *results[1], *results[2], err)
	// Output: a b c <nil>
}
