// Grpc shows a gRPC client as it is, then with its own retryPolicy, then with cruisegrpc: 100
// callers make 1,000 calls to a server on this machine that admits 200 a second. It ends with a
// table.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/a7df5faa/cruise/cruisegrpc"
)

const (
	calls   = 1000
	callers = 100
	limit   = 200 // calls a second
)

const retryPolicy = `{"methodConfig": [{"name": [{}], "retryPolicy": {
	"maxAttempts": 5, "initialBackoff": "0.1s", "maxBackoff": "1s", "backoffMultiplier": 2,
	"retryableStatusCodes": ["RESOURCE_EXHAUSTED", "UNAVAILABLE"]}}]}`

type server struct {
	grpc_health_v1.UnimplementedHealthServer
	bucket *rate.Limiter
	seen   atomic.Int64
}

func (s *server) Check(context.Context, *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	s.seen.Add(1)
	if !s.bucket.Allow() {
		return nil, status.Error(codes.ResourceExhausted, "too many requests")
	}
	return &grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_SERVING}, nil
}

func run(options ...grpc.DialOption) (ok, failed, attempts int64, took time.Duration, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, 0, 0, 0, err
	}
	s := &server{bucket: rate.NewLimiter(limit, limit/10)}
	g := grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(g, s)
	go g.Serve(l)
	defer g.Stop()

	conn, err := grpc.NewClient(l.Addr().String(), append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		return 0, 0, 0, 0, err
	}
	defer conn.Close()
	client := grpc_health_v1.NewHealthClient(conn)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var (
		all            sync.WaitGroup
		next, good, no atomic.Int64
	)
	began := time.Now()
	for range callers {
		all.Go(func() {
			for next.Add(1) <= calls {
				if _, err := client.Check(ctx, &grpc_health_v1.HealthCheckRequest{}); err != nil {
					no.Add(1)
				} else {
					good.Add(1)
				}
			}
		})
	}
	all.Wait()
	return good.Load(), no.Load(), s.seen.Load(), time.Since(began), nil
}

func main() {
	flag.Usage = func() { fmt.Fprintln(os.Stderr, "usage: go run ./examples/grpc (it has no options)") }
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "grpc: unexpected argument %q\n", flag.Arg(0))
		flag.Usage()
		os.Exit(2)
	}

	throttle, err := cruisegrpc.New()
	if err != nil {
		log.Fatal(err)
	}
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(table, "\tsucceeded\tfailed\tattempts\tthrottled\ttook\t\n")
	for _, c := range []struct {
		name    string
		options []grpc.DialOption
	}{
		{"no retries", nil},
		{"retryPolicy", []grpc.DialOption{grpc.WithDefaultServiceConfig(retryPolicy)}},
		{"cruisegrpc", throttle.DialOptions()},
	} {
		fmt.Printf("%d calls by %d callers at %d/s: %s\n", calls, callers, limit, c.name)
		ok, failed, attempts, took, err := run(c.options...)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%.1f %%\t%v\t\n", c.name, ok, failed, attempts,
			100*float64(attempts-ok)/float64(attempts), took.Round(10*time.Millisecond))
	}
	fmt.Println()
	if err := table.Flush(); err != nil {
		log.Fatal(err)
	}
}
