package cruisegrpc_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/cruisegrpc"
)

var slowDown = status.Error(codes.ResourceExhausted, "slow down")

func twoMessages() *pb.StreamingOutputCallRequest {
	return &pb.StreamingOutputCallRequest{ResponseParameters: []*pb.ResponseParameters{{}, {}}}
}

func TestStreamIsRetriedBeforeItsFirstMessage(t *testing.T) {
	s := serve(t, &service{gate: first(2, slowDown)})
	client, seen := throttle(t, s)
	stream, err := client.StreamingOutputCall(within(t, 20*time.Second), twoMessages())
	require.NoError(t, err)
	for i := range 2 {
		m, err := stream.Recv()
		require.NoError(t, err)
		assert.Equal(t, []byte{byte(i)}, m.GetPayload().GetBody())
	}
	_, err = stream.Recv()
	assert.Equal(t, io.EOF, err)
	assert.Equal(t, []string{"throttled", "throttled", "success"}, seen.outcomes())
}

func TestStreamIsNotRetriedAfterItsFirstMessage(t *testing.T) {
	s := serve(t, &service{after: func(int) error { return slowDown }})
	client, seen := throttle(t, s)
	stream, err := client.StreamingOutputCall(within(t, 10*time.Second), twoMessages())
	require.NoError(t, err)
	_, err = stream.Recv()
	require.NoError(t, err)
	_, err = stream.Recv()
	assert.Equal(t, slowDown.Error(), err.Error())
	assert.EqualValues(t, 1, s.seen.Load())
	assert.Equal(t, []string{"success"}, seen.outcomes())
}

// A goroutine that is locked to a thread may use a stream like any other.
func TestStreamOfLockedGoroutines(t *testing.T) {
	client, _ := throttle(t, serve(t, &service{gate: first(1, slowDown)}))
	locked := func(f func()) {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		f()
	}
	unlocked := func(f func()) {
		var wg sync.WaitGroup
		wg.Go(f)
		wg.Wait()
	}
	for name, by := range map[string]struct{ open, read func(func()) }{
		"opened by one": {locked, unlocked},
		"read by one":   {unlocked, locked},
	} {
		t.Run(name, func(t *testing.T) {
			by.open(func() {
				stream, err := client.StreamingOutputCall(within(t, 20*time.Second), twoMessages())
				if !assert.NoError(t, err) {
					return
				}
				by.read(func() {
					_, err := stream.Recv()
					assert.NoError(t, err)
				})
			})
			by.open(func() {
				ctx, cancel := context.WithCancel(t.Context())
				stream, err := client.FullDuplexCall(ctx)
				cancel()
				if !assert.NoError(t, err) {
					return
				}
				by.read(func() {
					_, err := stream.Recv()
					assert.Equal(t, codes.Canceled, status.Code(err))
				})
			})
		})
	}
}

func TestStreamSendsItsMessagesAgain(t *testing.T) {
	s := serve(t, &service{gate: first(2, slowDown)})
	client, _ := throttle(t, s)
	stream, err := client.StreamingInputCall(within(t, 20*time.Second))
	require.NoError(t, err)
	for range 10 {
		require.NoError(t, stream.Send(&pb.StreamingInputCallRequest{Payload: &pb.Payload{Body: make([]byte, 1000)}}))
		time.Sleep(time.Millisecond) // the server has said no by now
	}
	reply, err := stream.CloseAndRecv()
	require.NoError(t, err)
	assert.EqualValues(t, 10_000, reply.GetAggregatedPayloadSize())
	assert.EqualValues(t, 3, s.seen.Load())
}

func TestStreamThatFilledItsBufferIsRetried(t *testing.T) {
	message := &pb.StreamingInputCallRequest{Payload: &pb.Payload{Body: make([]byte, 1000)}}
	s := serve(t, &service{gate: first(1, slowDown)})
	client, _ := throttle(t, s, cruisegrpc.WithStreamBuffer(3*(5+proto.Size(message))))
	stream, err := client.StreamingInputCall(within(t, 10*time.Second))
	require.NoError(t, err)
	for range 3 {
		require.NoError(t, stream.Send(message))
	}
	reply, err := stream.CloseAndRecv()
	require.NoError(t, err)
	assert.EqualValues(t, 3000, reply.GetAggregatedPayloadSize())
	assert.EqualValues(t, 2, s.seen.Load())
}

func TestStreamThatSentTooMuchIsNotRetried(t *testing.T) {
	s := serve(t, &service{gate: first(2, slowDown)})
	client, seen := throttle(t, s, cruisegrpc.WithStreamBuffer(1500))
	stream, err := client.StreamingInputCall(within(t, 10*time.Second))
	require.NoError(t, err)
	for range 3 {
		if err := stream.Send(&pb.StreamingInputCallRequest{Payload: &pb.Payload{Body: make([]byte, 1000)}}); err != nil {
			assert.Equal(t, io.EOF, err)
			break
		}
	}
	_, err = stream.CloseAndRecv()
	assert.Equal(t, codes.ResourceExhausted, status.Code(err))
	assert.EqualValues(t, 1, s.seen.Load())
	assert.Equal(t, []string{"throttled"}, seen.outcomes(), "the limiter learns all the same")
}

// Empty messages take room too.
func TestStreamThatSentTooManyEmptyMessagesIsNotRetried(t *testing.T) {
	s := serve(t, &service{gate: first(1, slowDown)})
	client, _ := throttle(t, s, cruisegrpc.WithStreamBuffer(100))
	stream, err := client.StreamingInputCall(within(t, 10*time.Second))
	require.NoError(t, err)
	for range 100 {
		if err := stream.Send(&pb.StreamingInputCallRequest{}); err != nil {
			assert.Equal(t, io.EOF, err)
			break
		}
	}
	_, err = stream.CloseAndRecv()
	assert.Equal(t, codes.ResourceExhausted, status.Code(err))
	assert.EqualValues(t, 1, s.seen.Load())
}

func TestStreamBothWays(t *testing.T) {
	s := serve(t, &service{gate: first(1, slowDown)})
	client, seen := throttle(t, s)
	stream, err := client.FullDuplexCall(within(t, 20*time.Second))
	require.NoError(t, err)
	const messages = 200
	sent := make(chan error, 1)
	go func() {
		for i := range messages {
			if err := stream.Send(&pb.StreamingOutputCallRequest{Payload: &pb.Payload{Body: bytes.Repeat([]byte{byte(i)}, 500)}}); err != nil {
				sent <- err
				return
			}
		}
		sent <- stream.CloseSend()
	}()
	for i := range messages {
		m, err := stream.Recv()
		require.NoError(t, err)
		require.Equal(t, byte(i), m.GetPayload().GetBody()[0], "in order, none lost, none twice")
	}
	_, err = stream.Recv()
	assert.Equal(t, io.EOF, err)
	require.NoError(t, <-sent)
	assert.Equal(t, []string{"throttled", "success"}, seen.outcomes())
}

// After the first message a stream is gRPC's own: Send says io.EOF once the server
// has ended it.
func TestStreamThatWasEndedTakesNoMore(t *testing.T) {
	s := serve(t, &service{after: func(int) error { return slowDown }})
	client, _ := throttle(t, s)
	stream, err := client.FullDuplexCall(within(t, 10*time.Second))
	require.NoError(t, err)
	require.NoError(t, stream.Send(&pb.StreamingOutputCallRequest{}))
	_, err = stream.Recv()
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		return stream.Send(&pb.StreamingOutputCallRequest{}) == io.EOF
	}, 5*time.Second, time.Millisecond)
	_, err = stream.Recv()
	assert.Equal(t, slowDown.Error(), err.Error())
	assert.EqualValues(t, 1, s.seen.Load())
}

// A server that cancels is not an attempt that took too long.
func TestStreamThatTheServerCancels(t *testing.T) {
	s := serve(t, &service{gate: first(100, status.Error(codes.Canceled, "shutting down"))})
	client, _ := throttle(t, s, cruisegrpc.WithRetrierOptions(cruise.WithAttemptTimeout(10*time.Second)))
	stream, err := client.StreamingOutputCall(within(t, 10*time.Second), twoMessages())
	require.NoError(t, err)
	_, err = stream.Recv()
	assert.Equal(t, codes.Canceled, status.Code(err))
	assert.ErrorContains(t, err, "shutting down")
}

func TestStreamHeaderEndsRetries(t *testing.T) {
	s := serve(t, &service{gate: first(1, slowDown)})
	client, seen := throttle(t, s)
	stream, err := client.StreamingOutputCall(within(t, 10*time.Second), twoMessages())
	require.NoError(t, err)
	_, err = stream.Header()
	require.NoError(t, err)
	_, err = stream.Recv()
	assert.Equal(t, slowDown.Error(), err.Error())
	assert.Equal(t, []string{"throttled"}, seen.outcomes())
	assert.EqualValues(t, 1, s.seen.Load())
}

func TestStreamPushback(t *testing.T) {
	s := serve(t, &service{gate: func(_ int64, _ metadata.MD, trailer func(metadata.MD)) error {
		trailer(metadata.Pairs(cruisegrpc.PushbackKey, "-1"))
		return slowDown
	}})
	client, seen := throttle(t, s)
	stream, err := client.StreamingOutputCall(within(t, 10*time.Second), twoMessages())
	require.NoError(t, err)
	_, err = stream.Recv()
	assert.Equal(t, codes.ResourceExhausted, status.Code(err))
	assert.Equal(t, []string{"permanent"}, seen.outcomes())
}

// The timeout of an attempt is over with its first message.
func TestStreamOutlivesItsAttempt(t *testing.T) {
	const timeout, longer = time.Second, 1500 * time.Millisecond // a busy machine answers within the former
	slow := func(n int) error {
		time.Sleep(longer)
		return nil
	}
	s := serve(t, &service{after: slow})
	client, _ := throttle(t, s, cruisegrpc.WithRetrierOptions(cruise.WithAttemptTimeout(timeout)))
	stream, err := client.StreamingOutputCall(within(t, 10*time.Second), twoMessages())
	require.NoError(t, err)
	for range 2 {
		_, err := stream.Recv()
		require.NoError(t, err)
	}
	_, err = stream.Recv()
	assert.Equal(t, io.EOF, err)

	s = serve(t, &service{gate: func(n int64, _ metadata.MD, _ func(metadata.MD)) error {
		if n == 1 {
			time.Sleep(longer)
		}
		return nil
	}})
	client, seen := throttle(t, s, cruisegrpc.WithIdempotent("*"), cruisegrpc.WithRetrierOptions(cruise.WithAttemptTimeout(timeout)))
	stream, err = client.StreamingOutputCall(within(t, 10*time.Second), twoMessages())
	require.NoError(t, err)
	_, err = stream.Recv()
	require.NoError(t, err)
	assert.Equal(t, []string{"transient", "success"}, seen.outcomes())
}

// gRPC frees a stream at the end of its context or its connection, even if the caller never reads
// from it.
func TestAbandonedStreamLeavesTheLimiter(t *testing.T) {
	for name, abandon := range map[string]func(cancel func(), conn *grpc.ClientConn){
		"cancelled":         func(cancel func(), _ *grpc.ClientConn) { cancel() },
		"connection closed": func(_ func(), conn *grpc.ClientConn) { _ = conn.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			release := make(chan struct{})
			defer close(release)
			s := serve(t, &service{gate: func(int64, metadata.MD, func(metadata.MD)) error { <-release; return nil }})
			seen := &log{}
			i := cruise.Must(cruisegrpc.New(cruisegrpc.WithRetrierOptions(cruise.WithObserver(seen))))
			var attempt context.Context
			conn := dial(t, s.addr, append(i.DialOptions(), grpc.WithChainStreamInterceptor(
				func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
					attempt = ctx
					return streamer(ctx, desc, cc, method, opts...)
				}))...)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			stream, err := pb.NewTestServiceClient(conn).StreamingOutputCall(ctx, twoMessages())
			require.NoError(t, err)
			abandon(cancel, conn)
			require.Eventually(t, func() bool { return len(seen.outcomes()) == 1 }, 5*time.Second, time.Millisecond)
			assert.Equal(t, []string{"dropped"}, seen.outcomes())
			<-attempt.Done()
			_, err = stream.Recv()
			assert.Error(t, err)
		})
	}
}

func TestCancelWhileAStreamBacksOff(t *testing.T) {
	s := serve(t, &service{gate: func(_ int64, _ metadata.MD, trailer func(metadata.MD)) error {
		trailer(metadata.Pairs(cruisegrpc.PushbackKey, "60000"))
		return slowDown
	}})
	client, _ := throttle(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	stream, err := client.StreamingOutputCall(ctx, twoMessages())
	require.NoError(t, err)
	time.AfterFunc(50*time.Millisecond, cancel)
	_, err = stream.Recv()
	assert.Equal(t, codes.Canceled, status.Code(err))
	assert.ErrorIs(t, err, context.Canceled)
	_, ok := status.FromError(err)
	assert.True(t, ok)
	var gaveUp *cruise.Error
	assert.ErrorAs(t, err, &gaveUp)
	assert.Contains(t, err.Error(), "slow down", "the server's word is not lost")
}

// open opens a stream of a new Interceptor on the streamer's stream, without a connection.
func open(t *testing.T, ctx context.Context, streamer func(context.Context) (grpc.ClientStream, error), opts ...cruisegrpc.Option) (grpc.ClientStream, error) {
	t.Helper()
	i, err := cruisegrpc.New(opts...)
	require.NoError(t, err)
	desc := &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}
	return i.Stream()(ctx, desc, nil, "/a.B/Talk", func(ctx context.Context, _ *grpc.StreamDesc, _ *grpc.ClientConn, _ string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
		return streamer(ctx)
	})
}

// Sending an invalid message fails at once, even between two attempts.
func TestStreamRefusesAMessageWhileItBacksOff(t *testing.T) {
	s := serve(t, &service{gate: func(_ int64, _ metadata.MD, trailer func(metadata.MD)) error {
		trailer(metadata.Pairs(cruisegrpc.PushbackKey, "60000"))
		return slowDown
	}})
	client, seen := throttle(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := client.FullDuplexCall(ctx, grpc.MaxCallSendMsgSize(1000))
	require.NoError(t, err)
	received, sent := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := stream.Recv()
		received <- err
	}()
	require.Eventually(t, func() bool { return len(seen.pauses()) > 0 }, 10*time.Second, time.Millisecond)
	go func() {
		sent <- stream.Send(&pb.StreamingOutputCallRequest{Payload: &pb.Payload{Body: make([]byte, 5000)}})
	}()
	select {
	case err := <-sent:
		assert.ErrorContains(t, err, "trying to send message larger than max")
	case <-time.After(10 * time.Second):
		t.Error("the message is not refused")
	}
	cancel()
	assert.Equal(t, codes.Canceled, status.Code(<-received))
	assert.EqualValues(t, 1, s.seen.Load())
}

// silent is the stream of a server that never says a word.
type silent struct {
	grpc.ClientStream
	ctx   context.Context
	later time.Duration // until it notices its end
}

func (s silent) SendMsg(any) error    { return nil }
func (s silent) CloseSend() error     { return nil }
func (s silent) Trailer() metadata.MD { return nil }
func (s silent) RecvMsg(any) error {
	<-s.ctx.Done()
	time.Sleep(s.later)
	return status.FromContextError(s.ctx.Err()).Err()
}

// chatty is the stream of a server that has something to say at any time.
type chatty struct{ silent }

func (chatty) RecvMsg(any) error { return nil }

// A stream that will not be retried keeps nothing for that, however long it lasts.
func TestStreamForgetsSentMessages(t *testing.T) {
	s, err := open(t, t.Context(), func(ctx context.Context) (grpc.ClientStream, error) {
		return chatty{silent{ctx: ctx}}, nil
	})
	require.NoError(t, err)
	kept := func() weak.Pointer[pb.SimpleRequest] {
		m := hello()
		assert.NoError(t, s.SendMsg(m))
		return weak.Make(m)
	}()
	runtime.GC()
	assert.NotNil(t, kept.Value(), "to be sent again")
	require.NoError(t, s.RecvMsg(hello()))
	runtime.GC()
	assert.Nil(t, kept.Value())
	runtime.KeepAlive(s)
}

func TestStreamOfAContextThatHasEnded(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 200 { // the race may show in few of them only
		s, err := open(t, ctx, func(ctx context.Context) (grpc.ClientStream, error) {
			return nil, status.FromContextError(ctx.Err()).Err()
		})
		require.Nil(t, s)
		require.Equal(t, codes.Canceled, status.Code(err))
		require.ErrorIs(t, err, context.Canceled)
	}
}

func TestContextEndsWhileAStreamOpens(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	seen := &log{}
	s, err := open(t, ctx, func(ctx context.Context) (grpc.ClientStream, error) {
		cancel()
		time.Sleep(10 * time.Millisecond) // a goroutine that waits for its end has seen it by now
		return silent{ctx: ctx}, nil
	}, cruisegrpc.WithRetrierOptions(cruise.WithObserver(seen)))
	require.NoError(t, err)
	assert.NoError(t, s.SendMsg(hello()))
	assert.NoError(t, s.CloseSend())
	assert.Equal(t, codes.Canceled, status.Code(s.RecvMsg(hello())))
	assert.Equal(t, []string{"dropped"}, seen.outcomes())
}

// A stream that is not retried reports, too, that its attempt took too long, and not that it was
// cancelled.
func TestStreamSaysThatItsAttemptTookTooLong(t *testing.T) {
	for name, buffer := range map[string]int{"which is not repeated": cruisegrpc.DefaultStreamBuffer, "which nothing is kept of": 0} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, err := open(t, t.Context(), func(ctx context.Context) (grpc.ClientStream, error) {
					return silent{ctx: ctx}, nil
				}, cruisegrpc.WithStreamBuffer(buffer), cruisegrpc.WithRetrierOptions(cruise.WithAttemptTimeout(time.Second)))
				require.NoError(t, err)
				require.NoError(t, s.SendMsg(hello()))
				err = s.RecvMsg(hello())
				assert.Equal(t, codes.DeadlineExceeded, status.Code(err))
				assert.ErrorContains(t, err, "no message within the time of one attempt")
			})
		})
	}
}

// A stream that does not open is tried again, as a call is.
func TestStreamThatOpensTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := &log{}
		i := cruise.Must(cruisegrpc.New(cruisegrpc.WithRetrierOptions(cruise.WithObserver(seen), cruise.WithAttemptTimeout(time.Second), cruise.WithMaxAttempts(2))))
		conn := dial(t, "passthrough:///nowhere", append(i.DialOptions(), grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}))...)
		defer conn.Close()
		_, err := pb.NewTestServiceClient(conn).FullDuplexCall(t.Context(), grpc.WaitForReady(true))
		assert.Equal(t, codes.DeadlineExceeded, status.Code(err))
		assert.ErrorIs(t, err, cruise.ErrAttemptsExhausted)
		assert.ErrorContains(t, err, "no stream within the time of one attempt")
		assert.Equal(t, []string{"transient", "transient"}, seen.outcomes())
	})
}

// The deadline of the caller is no cancellation, though attempts have an end of their own.
func TestStreamPastItsDeadline(t *testing.T) {
	for name, tc := range map[string]struct{ attempt, later time.Duration }{
		"before the attempt's":      {time.Hour, 0},
		"while the attempt ends":    {1500 * time.Millisecond, time.Second},
		"in the attempt's last one": {2*time.Second - 1, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				i := cruise.Must(cruisegrpc.New(cruisegrpc.WithRetrierOptions(cruise.WithAttemptTimeout(tc.attempt), cruise.WithInitialRate(1e6))))
				for range 50 { // the order was chance
					ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
					s, err := i.Stream()(ctx, &grpc.StreamDesc{ServerStreams: true}, nil, "/a.B/Watch",
						func(ctx context.Context, _ *grpc.StreamDesc, _ *grpc.ClientConn, _ string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
							return silent{ctx: ctx, later: tc.later}, nil
						})
					require.NoError(t, err)
					require.Equal(t, codes.DeadlineExceeded, status.Code(s.RecvMsg(hello())))
					cancel()
				}
			})
		})
	}
}

func TestSilentStreamsOpenSlowlyWithoutARate(t *testing.T) {
	for name, tc := range map[string]struct {
		opts []cruise.Option
		want time.Duration
	}{
		"without a rate": {nil, 600 * time.Millisecond},
		"with one":       {[]cruise.Option{cruise.WithInitialRate(100)}, 90 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				i := cruise.Must(cruisegrpc.New(cruisegrpc.WithRetrierOptions(tc.opts...)))
				began := time.Now()
				for range 10 {
					_, err := i.Stream()(ctx, &grpc.StreamDesc{ServerStreams: true}, nil, "/a.B/Watch",
						func(ctx context.Context, _ *grpc.StreamDesc, _ *grpc.ClientConn, _ string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
							return silent{ctx: ctx}, nil
						})
					require.NoError(t, err)
				}
				assert.Equal(t, tc.want, time.Since(began))
			})
		})
	}
}

// echo is the stream of a server that says every message again, and reads the next
// one when that has been received: a flow-control window of one message. It has
// refused the call if refused is not nil.
type echo struct {
	grpc.ClientStream
	ctx      context.Context
	refused  error
	messages chan proto.Message
	closed   chan struct{}
}

func newEcho(ctx context.Context, refused error) *echo {
	return &echo{ctx: ctx, refused: refused, messages: make(chan proto.Message), closed: make(chan struct{})}
}

func (e *echo) SendMsg(m any) error {
	if e.refused != nil {
		return io.EOF
	}
	select {
	case e.messages <- m.(proto.Message):
		return nil
	case <-e.ctx.Done():
		return io.EOF
	}
}

func (e *echo) RecvMsg(m any) error {
	if e.refused != nil {
		return e.refused
	}
	select {
	case got := <-e.messages:
		proto.Merge(m.(proto.Message), got)
		return nil
	case <-e.closed:
		return io.EOF
	case <-e.ctx.Done():
		return status.FromContextError(e.ctx.Err()).Err()
	}
}

func (e *echo) CloseSend() error     { close(e.closed); return nil }
func (e *echo) Trailer() metadata.MD { return nil }

func payload(i int) *pb.Payload { return &pb.Payload{Body: []byte{byte(i)}} }

// echoes opens a stream that is refused once, and sends 3 messages on it.
func echoes(t *testing.T, ctx context.Context) grpc.ClientStream {
	t.Helper()
	attempts := 0
	s, err := open(t, ctx, func(ctx context.Context) (grpc.ClientStream, error) {
		if attempts++; attempts == 1 {
			return newEcho(ctx, slowDown), nil
		}
		return newEcho(ctx, nil), nil
	})
	require.NoError(t, err)
	for i := range 3 {
		require.NoError(t, s.SendMsg(payload(i)))
	}
	return s
}

// A server that may send no more reads no more, so messages must be received while the earlier
// messages are sent again.
func TestStreamReceivesWhileItSendsAgain(t *testing.T) {
	for name, closes := range map[string]int{"closed before": 0, "closed by the receiver": 1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				s := echoes(t, ctx)
				for i := range 3 {
					if i == closes {
						require.NoError(t, s.CloseSend())
					}
					got := &pb.Payload{}
					require.NoError(t, s.RecvMsg(got))
					assert.Equal(t, []byte{byte(i)}, got.GetBody())
				}
				assert.Equal(t, io.EOF, s.RecvMsg(&pb.Payload{}))
			})
		})
	}
}

// Messages sent meanwhile come after the messages sent before.
func TestStreamSendsWhileItSendsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		s := echoes(t, ctx)
		got := &pb.Payload{}
		require.NoError(t, s.RecvMsg(got))
		var sender sync.WaitGroup
		sender.Go(func() {
			assert.NoError(t, s.SendMsg(payload(3)))
			assert.NoError(t, s.CloseSend())
		})
		for range 3 {
			require.NoError(t, s.RecvMsg(got))
		}
		assert.Equal(t, []byte{3}, got.GetBody(), "in order")
		assert.Equal(t, io.EOF, s.RecvMsg(got))
		sender.Wait()
	})
}

// No goroutine goes on sending on a stream that has ended: the bubble would not end.
func TestStreamEndsWhileItSendsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s := echoes(t, ctx)
		require.NoError(t, s.RecvMsg(&pb.Payload{}))
		cancel()
		for {
			if err := s.RecvMsg(&pb.Payload{}); err != nil {
				assert.Equal(t, codes.Canceled, status.Code(err))
				return
			}
		}
	})
}

// By default, with the windows of HTTP/2.
func TestStreamOfLongRepliesIsRetried(t *testing.T) {
	s := serve(t, &service{gate: first(1, slowDown)})
	client, seen := throttle(t, s)
	stream, err := client.FullDuplexCall(within(t, 20*time.Second))
	require.NoError(t, err)
	const messages = 400
	for range messages {
		require.NoError(t, stream.Send(&pb.StreamingOutputCallRequest{ResponseParameters: []*pb.ResponseParameters{{Size: 8 << 10}}, Payload: &pb.Payload{Body: make([]byte, 500)}}))
	}
	require.NoError(t, stream.CloseSend())
	for range messages {
		_, err := stream.Recv()
		require.NoError(t, err)
	}
	_, err = stream.Recv()
	assert.Equal(t, io.EOF, err)
	assert.Equal(t, []string{"throttled", "success"}, seen.outcomes())
}

// A panic of the streamer passes through, after the limiter has learned of the attempt.
func TestStreamerPanics(t *testing.T) {
	i := cruise.Must(cruisegrpc.New())
	open := func(ctx context.Context) {
		defer func() { assert.Equal(t, "an interceptor's", recover()) }()
		_, _ = i.Stream()(ctx, &grpc.StreamDesc{ServerStreams: true}, nil, "/s/M",
			func(context.Context, *grpc.StreamDesc, *grpc.ClientConn, string, ...grpc.CallOption) (grpc.ClientStream, error) {
				panic("an interceptor's")
			})
	}
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		for range 10 {
			open(t.Context())
		}
		assert.Zero(t, time.Since(began))
	})
}

// A classifier that panics at a message that cannot be sent leaves the stream to others.
func TestStreamAfterAPanicInSend(t *testing.T) {
	client, seen := throttle(t, serve(t, &service{}), cruisegrpc.WithClassifier(func(error) cruise.Verdict { panic("at the disco") }))
	stream, err := client.FullDuplexCall(within(t, 10*time.Second), grpc.MaxCallSendMsgSize(1000))
	require.NoError(t, err)
	assert.PanicsWithValue(t, "at the disco", func() {
		_ = stream.Send(&pb.StreamingOutputCallRequest{Payload: &pb.Payload{Body: make([]byte, 5000)}})
	})
	received := make(chan error, 1)
	go func() {
		_, err := stream.Recv()
		received <- err
	}()
	select {
	case err := <-received:
		assert.ErrorContains(t, err, "trying to send message larger than max")
	case <-time.After(20 * time.Second):
		t.Error("no message can be received")
	}
	assert.Equal(t, []string{"dropped"}, seen.outcomes())
}
