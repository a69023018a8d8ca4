// Aws shows the AWS SDK with cruiseaws: 10 workers describe 1,000 EMR clusters, at a server on
// this machine that admits 60 calls a second and throttles as EMR does, with 400 and "Rate
// exceeded". It shows its progress and ends with a table.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/emr"
	"golang.org/x/time/rate"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/cruiseaws"
)

const (
	clusters = 1000
	workers  = 10
	limit    = 60 // calls a second
)

// serve is an EMR that knows every cluster.
func serve(ok, throttled *atomic.Int64) *httptest.Server {
	bucket := rate.NewLimiter(limit, limit/6)
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/x-amz-json-1.1")
		if bucket.Allow() {
			ok.Add(1)
			fmt.Fprint(w, `{"Cluster":{"Id":"j-1","Name":"nightly","Status":{"State":"WAITING"}}}`)
			return
		}
		throttled.Add(1)
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, `{"__type":"ThrottlingException","message":"Rate exceeded"}`)
	}))
}

func main() {
	flag.Usage = func() { fmt.Fprintln(os.Stderr, "usage: go run ./examples/aws (it has no options)") }
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "aws: unexpected argument %q\n", flag.Arg(0))
		flag.Usage()
		os.Exit(2)
	}

	var ok, throttled atomic.Int64
	server := serve(&ok, &throttled)
	defer server.Close()

	cfg := aws.Config{ // yours is from config.LoadDefaultConfig
		Region:       "eu-central-1",
		BaseEndpoint: aws.String(server.URL),
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "id", SecretAccessKey: "secret"}, nil
		}),
	}
	throttle, err := cruiseaws.New(cruiseaws.WithRetrierOptions(cruise.WithUncountedThrottles()))
	if err != nil {
		log.Fatal(err)
	}
	throttle.Configure(&cfg)
	client := emr.NewFromConfig(cfg)

	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	var (
		all                sync.WaitGroup
		next, done, failed atomic.Int64
		mu                 sync.Mutex
		longest            time.Duration
	)
	began := time.Now()
	for range workers {
		all.Go(func() {
			for i := next.Add(1); i <= clusters; i = next.Add(1) {
				from := time.Now()
				_, err := client.DescribeCluster(ctx, &emr.DescribeClusterInput{ClusterId: aws.String(fmt.Sprintf("j-%d", i))})
				if err != nil {
					failed.Add(1)
				}
				mu.Lock()
				longest = max(longest, time.Since(from))
				mu.Unlock()
				if n := done.Add(1); n%50 == 0 {
					fmt.Printf("%4d of %d  %s\n", n, clusters, strings.Repeat("#", int(n/25)))
				}
			}
		})
	}
	all.Wait()
	took := time.Since(began)

	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "\nclusters\t%d, %d failed\n", clusters, failed.Load())
	fmt.Fprintf(table, "took\t%v\n", took.Round(10*time.Millisecond))
	fmt.Fprintf(table, "the server's limit\t%d/s, used to %.1f %%\n", limit, 100*float64(ok.Load()-limit/6)/(limit*took.Seconds()))
	fmt.Fprintf(table, "throttled\t%d of %d attempts\n", throttled.Load(), ok.Load()+throttled.Load())
	fmt.Fprintf(table, "longest wait of a call\t%v\n", longest.Round(time.Millisecond))
	if err := table.Flush(); err != nil {
		log.Fatal(err)
	}
}
