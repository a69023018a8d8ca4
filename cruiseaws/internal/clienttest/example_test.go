package clienttest

import (
	"context"
	"fmt"
	"net/http/httptest"
	"sync/atomic"

	"net/http"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/emr"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/cruiseaws"
)

func Example() {
	// An EMR that throttles the first call.
	var calls atomic.Int64
	answer := first(1, 400, emrThrottled, emrFound)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { answer(calls.Add(1), w, r) }))
	defer server.Close()
	cfg := config(server.URL) // yours is from config.LoadDefaultConfig

	throttle, err := cruiseaws.New(cruiseaws.WithRetrierOptions(cruise.WithMaxAttempts(8)))
	if err != nil {
		fmt.Println(err)
		return
	}
	throttle.Configure(&cfg)

	out, err := emr.NewFromConfig(cfg).DescribeCluster(context.Background(), &emr.DescribeClusterInput{ClusterId: aws.String("j-1")})
	if err != nil {
		fmt.Println(err)
		return
	}
	limiter := throttle.Retrier(cruiseaws.Operation{Region: "eu-central-1", Service: "EMR", Name: "DescribeCluster"}).Limiter().(*cruise.AdaptiveLimiter)
	fmt.Println(*out.Cluster.Name, "after", limiter.Stats().Throttles, "throttle")
	// Output: nightly after 1 throttle
}
