package cruisegrpc_test

import (
	"context"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/cruisegrpc"
	"github.com/a7df5faa/cruise/internal/calm"
)

func TestMain(m *testing.M) { os.Exit(calm.Run(m)) }

const unaryMethod = "/grpc.testing.TestService/UnaryCall"

// service is a gRPC server on loopback with answers made by a test: gate is called before every
// call, and returns the call's status.
type service struct {
	pb.UnimplementedTestServiceServer
	addr  string
	seen  atomic.Int64 // attempts that the server saw
	gate  func(n int64, md metadata.MD, trailer func(metadata.MD)) error
	after func(sent int) error // asked after each message of a stream
}

func (*service) UnaryCall(_ context.Context, in *pb.SimpleRequest) (*pb.SimpleResponse, error) {
	return &pb.SimpleResponse{Payload: in.GetPayload()}, nil
}

func (s *service) StreamingOutputCall(in *pb.StreamingOutputCallRequest, out pb.TestService_StreamingOutputCallServer) error {
	for i := range in.GetResponseParameters() {
		if err := out.Send(&pb.StreamingOutputCallResponse{Payload: &pb.Payload{Body: []byte{byte(i)}}}); err != nil {
			return err
		}
		if s.after != nil {
			if err := s.after(i + 1); err != nil {
				return err
			}
		}
	}
	return nil
}

func (*service) StreamingInputCall(in pb.TestService_StreamingInputCallServer) error {
	size := 0
	for {
		m, err := in.Recv()
		if err == io.EOF {
			return in.SendAndClose(&pb.StreamingInputCallResponse{AggregatedPayloadSize: int32(size)})
		}
		if err != nil {
			return err
		}
		size += len(m.GetPayload().GetBody())
	}
}

func (s *service) FullDuplexCall(both pb.TestService_FullDuplexCallServer) error {
	for sent := 1; ; sent++ {
		m, err := both.Recv()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		reply := m.GetPayload()
		for _, p := range m.GetResponseParameters() {
			reply = &pb.Payload{Body: make([]byte, p.GetSize())}
		}
		if err := both.Send(&pb.StreamingOutputCallResponse{Payload: reply}); err != nil {
			return err
		}
		if s.after != nil {
			if err := s.after(sent); err != nil {
				return err
			}
		}
	}
}

func serve(t testing.TB, s *service) *service {
	t.Helper()
	ask := func(ctx context.Context, trailer func(metadata.MD)) error {
		n := s.seen.Add(1)
		if s.gate == nil {
			return nil
		}
		md, _ := metadata.FromIncomingContext(ctx)
		return s.gate(n, md, trailer)
	}
	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			if err := ask(ctx, func(md metadata.MD) { _ = grpc.SetTrailer(ctx, md) }); err != nil {
				return nil, err
			}
			return next(ctx, req)
		}),
		grpc.ChainStreamInterceptor(func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			if err := ask(ss.Context(), ss.SetTrailer); err != nil {
				return err
			}
			return next(srv, ss)
		}))
	pb.RegisterTestServiceServer(server, s)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s.addr = l.Addr().String()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l)
	}()
	t.Cleanup(func() {
		server.Stop()
		<-done
	})
	return s
}

func dial(t testing.TB, addr string, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(addr, append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func connect(t testing.TB, addr string, opts ...grpc.DialOption) pb.TestServiceClient {
	t.Helper()
	return pb.NewTestServiceClient(dial(t, addr, opts...))
}

// log collects the events of an observer.
type log struct {
	mu     sync.Mutex // guards the field below
	events []cruise.Event
}

func (l *log) Observe(_ context.Context, e cruise.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, e)
}

func (l *log) outcomes() (all []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.events {
		if e, ok := e.(cruise.AttemptEnded); ok {
			all = append(all, e.Outcome.String())
		}
	}
	return all
}

func (l *log) pauses() (all []time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.events {
		if e, ok := e.(cruise.Paused); ok {
			all = append(all, e.For)
		}
	}
	return all
}

// throttle returns a client of s through a new Interceptor, and a log of its events.
func throttle(t testing.TB, s *service, opts ...cruisegrpc.Option) (pb.TestServiceClient, *log) {
	t.Helper()
	seen := &log{}
	opts = append([]cruisegrpc.Option{cruisegrpc.WithRetrierOptions(cruise.WithObserver(seen))}, opts...)
	i, err := cruisegrpc.New(opts...)
	require.NoError(t, err)
	return connect(t, s.addr, i.DialOptions()...), seen
}

// first fails the first n attempts with err.
func first(n int64, err error) func(int64, metadata.MD, func(metadata.MD)) error {
	return func(i int64, _ metadata.MD, _ func(metadata.MD)) error {
		if i <= n {
			return err
		}
		return nil
	}
}

// limited admits limit calls a second.
func limited(limit rate.Limit, burst int) func(int64, metadata.MD, func(metadata.MD)) error {
	bucket := rate.NewLimiter(limit, burst)
	return func(int64, metadata.MD, func(metadata.MD)) error {
		if !bucket.Allow() {
			return status.Error(codes.ResourceExhausted, "too many requests")
		}
		return nil
	}
}

func hello() *pb.SimpleRequest { return &pb.SimpleRequest{Payload: &pb.Payload{Body: []byte("hello")}} }

func within(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}
