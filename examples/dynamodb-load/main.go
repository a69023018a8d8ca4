// Dynamodb-load shows how the rate follows a limit that grows: 50 workers write to a DynamoDB
// table with cruiseaws and, beside it, with the adaptive mode of the AWS SDK. The capacity of the
// table doubles every 8 seconds, from 50 writes a second to 200. The program starts its servers,
// shows its progress and ends with a table. The adaptive mode follows the rise faster, and is
// throttled more often.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
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
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"golang.org/x/time/rate"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/cruiseaws"
)

const (
	workers = 50
	lasts   = 8 * time.Second // each capacity
	phases  = 3
)

// capacity of the table, in writes a second.
func capacity(phase int) rate.Limit { return rate.Limit(int(50) << phase) }

// table is a DynamoDB with one table.
type table struct {
	bucket           *rate.Limiter
	phase            atomic.Int64
	taken, throttled [phases + 1]atomic.Int64 // by phase; the last one counts late calls
}

func (t *table) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	phase := t.phase.Load()
	w.Header().Set("Content-Type", "application/x-amz-json-1.0")
	if t.bucket.Allow() {
		t.taken[phase].Add(1)
		fmt.Fprint(w, `{}`)
		return
	}
	t.throttled[phase].Add(1)
	w.WriteHeader(http.StatusBadRequest)
	fmt.Fprint(w, `{"__type":"com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException",`+
		`"message":"The level of configured provisioned throughput for the table was exceeded.",`+
		`"ThrottlingReasons":[{"reason":"TableWriteProvisionedThroughputExceeded",`+
		`"resource":"arn:aws:dynamodb:eu-central-1:123456789012:table/orders"}]}`)
}

// load has workers write for as long as the phases last, and tells the longest time
// that a write took and how many failed.
func load(name string, t *table, setup func(*aws.Config) error) (longest time.Duration, failed int64, err error) {
	server := httptest.NewServer(t)
	defer server.Close()
	cfg := aws.Config{ // yours is from config.LoadDefaultConfig
		Region:       "eu-central-1",
		BaseEndpoint: aws.String(server.URL),
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "id", SecretAccessKey: "secret"}, nil
		}),
	}
	if err := setup(&cfg); err != nil {
		return 0, 0, err
	}
	client := dynamodb.NewFromConfig(cfg)
	ctx, cancel := context.WithTimeout(context.Background(), phases*lasts)
	defer cancel()
	var (
		all     sync.WaitGroup
		next    atomic.Int64
		failing atomic.Int64
		mu      sync.Mutex // guards longest
	)
	for range workers {
		all.Go(func() {
			for ctx.Err() == nil {
				from := time.Now()
				_, err := client.PutItem(ctx, &dynamodb.PutItemInput{TableName: aws.String("orders"), Item: map[string]types.AttributeValue{
					"id": &types.AttributeValueMemberN{Value: fmt.Sprint(next.Add(1))}}})
				if err != nil && !errors.Is(err, context.DeadlineExceeded) {
					failing.Add(1)
				}
				mu.Lock()
				longest = max(longest, time.Since(from))
				mu.Unlock()
			}
		})
	}
	for phase := range phases {
		t.bucket.SetLimit(capacity(phase))
		t.phase.Store(int64(phase))
		time.Sleep(lasts)
		taken := t.taken[phase].Load()
		fmt.Printf("%-13s %3.0f/s: %4d written  %s\n", name, float64(capacity(phase)), taken, strings.Repeat("#", int(taken/25)))
	}
	t.phase.Store(phases)
	all.Wait()
	return longest, failing.Load(), nil
}

func main() {
	flag.Usage = func() { fmt.Fprintln(os.Stderr, "usage: go run ./examples/dynamodb-load (it has no options)") }
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "dynamodb-load: unexpected argument %q\n", flag.Arg(0))
		flag.Usage()
		os.Exit(2)
	}

	clients := []struct {
		name  string
		setup func(*aws.Config) error
	}{
		{"cruiseaws", func(cfg *aws.Config) error {
			throttle, err := cruiseaws.New(cruiseaws.WithRetrierOptions(cruise.WithUncountedThrottles()))
			if err != nil {
				return err
			}
			throttle.Configure(cfg)
			return nil
		}},
		{"adaptive mode", func(cfg *aws.Config) error {
			mode := retry.NewAdaptiveMode(func(o *retry.AdaptiveModeOptions) {
				o.StandardOptions = append(o.StandardOptions, func(o *retry.StandardOptions) { o.MaxAttempts = 0 })
			})
			cfg.Retryer = func() aws.Retryer { return mode }
			return nil
		}},
	}
	type result struct {
		table   *table
		longest time.Duration
		failed  int64
		err     error
	}
	results := make([]result, len(clients))
	fmt.Printf("%d workers write to a table whose capacity doubles every %v\n\n", workers, lasts)
	var both sync.WaitGroup
	for i, c := range clients {
		both.Go(func() {
			r := &results[i]
			r.table = &table{bucket: rate.NewLimiter(capacity(0), 10)}
			r.longest, r.failed, r.err = load(c.name, r.table, c.setup)
		})
	}
	both.Wait()

	fmt.Println("\nuse of each capacity")
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(out, "\t")
	for phase := range phases {
		fmt.Fprintf(out, "%.0f/s\t", float64(capacity(phase)))
	}
	fmt.Fprint(out, "throttled\tfailed\tlongest wait\t\n")
	for i, r := range results {
		if r.err != nil {
			log.Fatal(r.err)
		}
		fmt.Fprintf(out, "%s\t", clients[i].name)
		var taken, throttled int64
		for phase := range phases + 1 {
			n := r.table.taken[phase].Load()
			taken, throttled = taken+n, throttled+r.table.throttled[phase].Load()
			if phase < phases {
				fmt.Fprintf(out, "%.0f %%\t", 100*float64(n)/(float64(capacity(phase))*lasts.Seconds()))
			}
		}
		fmt.Fprintf(out, "%.1f %%\t%d\t%.1f s\t\n", 100*float64(throttled)/float64(taken+throttled), r.failed, r.longest.Seconds())
	}
	if err := out.Flush(); err != nil {
		log.Fatal(err)
	}
}
