package cruisegrpc_test

import (
	"context"
	"fmt"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/cruisegrpc"
)

// busy is a server that throttles every call's first attempt.
type busy struct {
	pb.UnimplementedTestServiceServer
	calls int
}

func (b *busy) EmptyCall(context.Context, *pb.Empty) (*pb.Empty, error) {
	if b.calls++; b.calls%2 == 1 {
		return nil, status.Error(codes.ResourceExhausted, "too many requests")
	}
	return &pb.Empty{}, nil
}

func startBusy() (addr string, stop func()) {
	l := cruise.Must(net.Listen("tcp", "127.0.0.1:0"))
	server := grpc.NewServer()
	pb.RegisterTestServiceServer(server, &busy{})
	go server.Serve(l)
	return l.Addr().String(), server.Stop
}

func ExampleNew() {
	addr, stop := startBusy()
	defer stop()

	throttle, err := cruisegrpc.New(
		cruisegrpc.WithScope(cruisegrpc.ScopeByService),
		cruisegrpc.WithIdempotent("/grpc.testing.TestService/*"),
		cruisegrpc.WithRetrierOptions(cruise.WithMaxAttempts(8)),
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	conn, err := grpc.NewClient(addr,
		append(throttle.DialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close()

	_, err = pb.NewTestServiceClient(conn).EmptyCall(context.Background(), &pb.Empty{})
	fmt.Println(err)

	limiter := throttle.Retrier(addr + "/grpc.testing.TestService").Limiter().(*cruise.AdaptiveLimiter)
	fmt.Println("throttled:", limiter.Stats().Throttles)
	// Output:
	// <nil>
	// throttled: 1
}

func ExampleClassify() {
	busy := status.Error(codes.ResourceExhausted, "too many requests")
	fmt.Println(cruisegrpc.Classify(busy).Outcome)

	pushed := cruisegrpc.WithTrailer(status.Error(codes.Unavailable, "busy"), metadata.Pairs(cruisegrpc.PushbackKey, "250"))
	v := cruisegrpc.Classify(pushed)
	fmt.Println(v.Outcome, v.RetryAfter)
	// Output:
	// throttled
	// throttled 250ms
}

// Around calls of a client that cannot be changed.
func ExampleClassify_retrier() {
	retrier := cruise.Must(cruise.New(cruise.WithClassifier(cruisegrpc.Classify)))
	calls := 0
	err := retrier.Do(context.Background(), func(context.Context) error {
		if calls++; calls < 3 {
			return status.Error(codes.Unavailable, "restarting")
		}
		return nil
	})
	fmt.Println(err, calls)
	// Output: <nil> 3
}

func ExampleCost() {
	addr, stop := startBusy()
	defer stop()
	throttle := cruise.Must(cruisegrpc.New())
	conn := cruise.Must(grpc.NewClient(addr,
		append(throttle.DialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()))...))
	defer conn.Close()

	_, err := pb.NewTestServiceClient(conn).EmptyCall(context.Background(), &pb.Empty{}, cruisegrpc.Cost(5))
	fmt.Println(err)
	// Output: <nil>
}
