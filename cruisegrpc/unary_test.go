package cruisegrpc_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	stdlog "log"
	"net"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"golang.org/x/time/rate"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/cruisegrpc"
)

func TestUnaryRetriesAThrottle(t *testing.T) {
	var previous []string
	s := serve(t, &service{gate: func(n int64, md metadata.MD, _ func(metadata.MD)) error {
		previous = append(previous, strings.Join(md.Get("grpc-previous-rpc-attempts"), ","))
		if n < 3 {
			return status.Error(codes.ResourceExhausted, "slow down")
		}
		return nil
	}})
	client, seen := throttle(t, s)
	reply, err := client.UnaryCall(within(t, 20*time.Second), hello())
	require.NoError(t, err)
	assert.Equal(t, "hello", string(reply.GetPayload().GetBody()))
	assert.Equal(t, []string{"throttled", "throttled", "success"}, seen.outcomes())
	assert.Equal(t, []string{"", "1", "2"}, previous)
}

func TestUnaryRetriesOnlySafeCalls(t *testing.T) {
	down := status.Error(codes.Unavailable, "restarting")
	s := serve(t, &service{gate: first(1, down)})
	client, _ := throttle(t, s)
	_, err := client.UnaryCall(within(t, 10*time.Second), hello())
	assert.Equal(t, codes.Unavailable, status.Code(err))
	assert.Equal(t, down.Error(), err.Error(), "untouched")
	assert.EqualValues(t, 1, s.seen.Load())

	s = serve(t, &service{gate: first(1, down)})
	client, seen := throttle(t, s, cruisegrpc.WithIdempotent(unaryMethod))
	_, err = client.UnaryCall(within(t, 10*time.Second), hello())
	require.NoError(t, err)
	assert.Equal(t, []string{"transient", "success"}, seen.outcomes())
}

// A call that found no connection was not sent.
func TestUnaryRetriesACallThatWasNeverSent(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	client, seen := throttle(t, &service{addr: l.Addr().String()}, cruisegrpc.WithRetrierOptions(cruise.WithMaxAttempts(3)))
	_, err = client.UnaryCall(within(t, 10*time.Second), hello())
	assert.Equal(t, codes.Unavailable, status.Code(err))
	assert.ErrorIs(t, err, cruise.ErrAttemptsExhausted)
	assert.Equal(t, []string{"transient", "transient", "transient"}, seen.outcomes())
}

// bothKinds is a call of each kind that an Interceptor has a method for.
var bothKinds = map[string]func(context.Context, pb.TestServiceClient) error{
	"unary": func(ctx context.Context, client pb.TestServiceClient) error {
		_, err := client.UnaryCall(ctx, hello())
		return err
	},
	"stream": func(ctx context.Context, client pb.TestServiceClient) error {
		stream, err := client.StreamingOutputCall(ctx, twoMessages())
		if err == nil {
			_, err = stream.Recv()
		}
		return err
	},
}

// Credentials that come by gRPC fail with a status of their own server's.
func TestThrottleOfCredentialsIsNoneOfTheServer(t *testing.T) {
	for name, call := range bothKinds {
		t.Run(name, func(t *testing.T) {
			s, seen := serve(t, &service{}), &log{}
			i := cruise.Must(cruisegrpc.New(cruisegrpc.WithRetrierOptions(cruise.WithObserver(seen))))
			client := connect(t, s.addr, append(i.DialOptions(), grpc.WithPerRPCCredentials(&busyCredentials{}))...)
			require.NoError(t, call(within(t, 10*time.Second), client))
			assert.Equal(t, []string{"transient", "success"}, seen.outcomes())
			assert.EqualValues(t, 1, s.seen.Load())
		})
	}
}

// busyCredentials are to be had at the second try.
type busyCredentials struct{ asked atomic.Int64 }

func (c *busyCredentials) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	if c.asked.Add(1) == 1 {
		return nil, status.Error(codes.ResourceExhausted, "too many tokens asked for")
	}
	return map[string]string{"authorization": "token"}, nil
}

func (*busyCredentials) RequireTransportSecurity() bool { return false }

// A certificate that is not trusted is not trusted at the next attempt.
func TestUntrustedServersAreTriedOnce(t *testing.T) {
	s := httptest.NewUnstartedServer(nil)
	s.EnableHTTP2 = true
	s.Config.ErrorLog = stdlog.New(io.Discard, "", 0)
	s.StartTLS()
	defer s.Close()
	seen := &log{}
	i := cruise.Must(cruisegrpc.New(cruisegrpc.WithRetrierOptions(cruise.WithObserver(seen))))
	conn, err := grpc.NewClient(s.Listener.Addr().String(), append(i.DialOptions(), grpc.WithTransportCredentials(credentials.NewTLS(nil)))...)
	require.NoError(t, err)
	defer conn.Close()
	_, err = pb.NewTestServiceClient(conn).UnaryCall(within(t, 10*time.Second), hello())
	assert.Equal(t, codes.Unavailable, status.Code(err))
	assert.ErrorContains(t, err, "x509")
	assert.Equal(t, []string{"permanent"}, seen.outcomes())
}

func TestWaitForReadyIsRespected(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	client, seen := throttle(t, &service{addr: l.Addr().String()})
	_, err = client.UnaryCall(within(t, 200*time.Millisecond), hello(), grpc.WaitForReady(true))
	assert.Equal(t, codes.DeadlineExceeded, status.Code(err))
	assert.Equal(t, []string{"dropped"}, seen.outcomes(), "one attempt, which waited")
}

func TestPushback(t *testing.T) {
	for name, tc := range map[string]struct {
		values   []string
		attempts int64
		pause    time.Duration
	}{
		"a wait":   {[]string{"150"}, 2, 150 * time.Millisecond},
		"at once":  {[]string{"0"}, 2, 1}, // 0 would be no pause that the server asks for
		"stop":     {[]string{"-1"}, 1, 0},
		"unparsed": {[]string{"soon"}, 1, 0},
		"twice":    {[]string{"1", "1"}, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var times []time.Time
			s := serve(t, &service{gate: func(n int64, _ metadata.MD, trailer func(metadata.MD)) error {
				times = append(times, time.Now())
				if n > 1 {
					return nil
				}
				trailer(metadata.MD{cruisegrpc.PushbackKey: tc.values})
				return status.Error(codes.Unavailable, "busy")
			}})
			client, seen := throttle(t, s)
			_, err := client.UnaryCall(within(t, 10*time.Second), hello())
			assert.Equal(t, tc.attempts, s.seen.Load())
			if tc.attempts == 1 {
				assert.Equal(t, codes.Unavailable, status.Code(err))
				assert.Empty(t, seen.pauses())
				return
			}
			require.NoError(t, err)
			assert.Equal(t, []time.Duration{tc.pause}, seen.pauses(), "exactly")
			assert.GreaterOrEqual(t, times[1].Sub(times[0]), tc.pause)
		})
	}
}

// An observer learns why a failure worth a retry had none. The caller gets gRPC's own error.
func TestObserversAreToldThatTheMethodIsNotIdempotent(t *testing.T) {
	var told error
	s := serve(t, &service{gate: first(1, status.Error(codes.Unavailable, "gone"))})
	client, _ := throttle(t, s, cruisegrpc.WithRetrierOptions(cruise.WithObserver(cruise.ObserverFunc(func(_ context.Context, event cruise.Event) {
		if e, ok := event.(cruise.AttemptEnded); ok {
			told = e.Err
		}
	}))))
	_, err := client.UnaryCall(within(t, 10*time.Second), hello())
	assert.EqualError(t, err, "rpc error: code = Unavailable desc = gone")
	assert.EqualError(t, told, "rpc error: code = Unavailable desc = gone (not retried: the method is not idempotent, see cruisegrpc.WithIdempotent)")
	assert.Equal(t, codes.Unavailable, status.Code(told))
}

// An Interceptor around another one shows the caller gRPC's own errors, too.
func TestErrorsOfTwoInterceptors(t *testing.T) {
	for name, tc := range map[string]struct {
		failures []error
		want     string
	}{
		"at once":       {[]error{status.Error(codes.Unavailable, "gone")}, "rpc error: code = Unavailable desc = gone"},
		"after a retry": {[]error{status.Error(codes.ResourceExhausted, "slow"), status.Error(codes.Unavailable, "gone")}, "permanent failure: rpc error: code = Unavailable desc = gone"},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, &service{gate: func(n int64, _ metadata.MD, _ func(metadata.MD)) error { return tc.failures[n-1] }})
			outer, inner := cruise.Must(cruisegrpc.New()), cruise.Must(cruisegrpc.New())
			client := connect(t, s.addr, append(outer.DialOptions(), inner.DialOptions()...)...)
			_, err := client.UnaryCall(within(t, 10*time.Second), hello())
			require.Error(t, err)
			assert.True(t, strings.HasSuffix(err.Error(), tc.want), err)
			assert.Equal(t, codes.Unavailable, status.Code(err))
		})
	}
}

// An observer may look at an error while a Retrier around the call judges it.
func TestErrorsAreJudgedWhileOthersLook(t *testing.T) {
	var group sync.WaitGroup
	s := serve(t, &service{gate: first(1, status.Error(codes.Unavailable, "gone"))})
	client, _ := throttle(t, s,
		cruisegrpc.WithClassifier(func(error) cruise.Verdict { return cruise.Verdict{Outcome: cruise.OutcomePermanent} }),
		cruisegrpc.WithRetrierOptions(cruise.WithObserver(cruise.ObserverFunc(func(_ context.Context, event cruise.Event) {
			if e, ok := event.(cruise.AttemptEnded); ok {
				group.Go(func() { assert.ErrorContains(t, e.Err, "gone") })
			}
		}))))
	around := cruise.Must(cruise.New(cruise.WithClassifier(cruisegrpc.Classify)))
	assert.Error(t, around.Do(within(t, 10*time.Second), func(ctx context.Context) error {
		_, err := client.UnaryCall(ctx, hello())
		return err
	}))
	group.Wait()
}

// A Retrier around decides on retries, and obeys the server's pushback, too.
func TestPushbackToTheRetrierAround(t *testing.T) {
	never := func(_ int64, _ metadata.MD, trailer func(metadata.MD)) error {
		trailer(metadata.Pairs(cruisegrpc.PushbackKey, "-1"))
		return status.Error(codes.Unavailable, "never again")
	}
	outer := cruise.Must(cruise.New(cruise.WithClassifier(cruisegrpc.Classify)))
	for name, call := range bothKinds {
		t.Run(name, func(t *testing.T) {
			s := serve(t, &service{gate: never})
			client, _ := throttle(t, s)
			err := outer.Do(within(t, 10*time.Second), func(ctx context.Context) error { return call(ctx, client) })
			assert.Equal(t, codes.Unavailable, status.Code(err))
			assert.EqualValues(t, 1, s.seen.Load())
		})
	}
}

func TestOversizedMessagesAreNotRetried(t *testing.T) {
	s := serve(t, &service{})
	client, seen := throttle(t, s)
	_, err := client.UnaryCall(within(t, 10*time.Second), hello(), grpc.MaxCallRecvMsgSize(2))
	assert.Equal(t, codes.ResourceExhausted, status.Code(err))
	_, err = client.UnaryCall(within(t, 10*time.Second), hello(), grpc.MaxCallSendMsgSize(2))
	assert.Equal(t, codes.ResourceExhausted, status.Code(err))
	assert.Equal(t, []string{"permanent", "permanent"}, seen.outcomes())
}

// Without an Interceptor the trailer shows that the server cancelled the call.
func TestCancellationWithoutAnInterceptor(t *testing.T) {
	for name, tc := range map[string]struct {
		callers bool
		want    cruise.Outcome
	}{
		"the caller's": {true, cruise.OutcomeDropped},
		"the server's": {false, cruise.OutcomePermanent},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(within(t, 10*time.Second))
			defer cancel()
			over := make(chan struct{})
			s := serve(t, &service{gate: func(int64, metadata.MD, func(metadata.MD)) error {
				if tc.callers {
					cancel()
					<-over
				}
				return status.Error(codes.Canceled, "context canceled")
			}})
			var trailer metadata.MD
			_, err := connect(t, s.addr).UnaryCall(ctx, hello(), grpc.Trailer(&trailer))
			close(over)
			require.Equal(t, codes.Canceled, status.Code(err))
			assert.Equal(t, tc.want.String(), cruisegrpc.Classify(cruisegrpc.WithTrailer(err, trailer)).Outcome.String())
		})
	}
}

func TestErrorsHaveAStatus(t *testing.T) {
	s := serve(t, &service{gate: first(100, status.Error(codes.ResourceExhausted, "slow down"))})
	client, _ := throttle(t, s, cruisegrpc.WithRetrierOptions(cruise.WithMaxAttempts(2)))
	_, err := client.UnaryCall(within(t, 20*time.Second), hello())
	assert.ErrorIs(t, err, cruise.ErrAttemptsExhausted)
	gaveUp, ok := errors.AsType[*cruise.Error](err)
	require.True(t, ok)
	assert.Equal(t, 2, gaveUp.Attempts)
	got := status.Convert(err)
	assert.Equal(t, codes.ResourceExhausted, got.Code())
	assert.Contains(t, got.Message(), "slow down")
	assert.Contains(t, got.Message(), "gave up after 2 attempts")

	// The pause is longer than the caller can wait: no attempt, and told at once.
	began := time.Now()
	_, err = client.UnaryCall(within(t, 20*time.Millisecond), hello())
	assert.Equal(t, codes.DeadlineExceeded, status.Code(err))
	assert.ErrorIs(t, err, context.DeadlineExceeded)
	assert.Less(t, time.Since(began), 2*time.Second)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = client.UnaryCall(ctx, hello())
	assert.Equal(t, codes.Canceled, status.Code(err))
	assert.ErrorIs(t, err, context.Canceled)

	_, err = client.UnaryCall(within(t, time.Second), hello(), cruisegrpc.Cost(-1))
	assert.Error(t, err)

	client, _ = throttle(t, s, cruisegrpc.WithRetrierOptions(cruise.WithTuning(cruise.Tuning{Burst: 2}), cruise.WithInitialRate(1)))
	_, err = client.UnaryCall(within(t, 20*time.Second), hello(), cruisegrpc.Cost(3))
	assert.ErrorIs(t, err, cruise.ErrCost)
	assert.Equal(t, codes.InvalidArgument, status.Code(err))
}

func TestScopes(t *testing.T) {
	for name, tc := range map[string]struct {
		scope func(context.Context, string, string) string
		want  string
	}{
		"method":  {cruisegrpc.ScopeByMethod, "t/grpc.testing.TestService/UnaryCall"},
		"service": {cruisegrpc.ScopeByService, "t/grpc.testing.TestService"},
		"target":  {cruisegrpc.ScopeByTarget, "t"},
	} {
		assert.Equal(t, tc.want, tc.scope(t.Context(), "t", unaryMethod), name)
	}

	// A throttled method does not slow another one.
	s := serve(t, &service{})
	i, err := cruisegrpc.New()
	require.NoError(t, err)
	client := connect(t, s.addr, i.DialOptions()...)
	limiter := i.Retrier(s.addr + unaryMethod).Limiter().(*cruise.AdaptiveLimiter)
	limiter.Pause(time.Minute)
	_, err = client.UnaryCall(within(t, time.Second), hello())
	assert.ErrorIs(t, err, context.DeadlineExceeded)
	stream, err := client.FullDuplexCall(within(t, 10*time.Second))
	require.NoError(t, err)
	require.NoError(t, stream.Send(&pb.StreamingOutputCallRequest{}))
	_, err = stream.Recv()
	require.NoError(t, err)
}

// A paused scope is not evicted when there are too many scopes.
func TestPausedScopesAreKept(t *testing.T) {
	s := serve(t, &service{})
	i, err := cruisegrpc.New(cruisegrpc.WithRetrierOptions(cruise.WithMaxScopes(1)))
	require.NoError(t, err)
	client := connect(t, s.addr, i.DialOptions()...)
	i.Retrier(s.addr + unaryMethod).Limiter().(*cruise.AdaptiveLimiter).Pause(time.Minute)
	for range 10 {
		_, err := client.EmptyCall(within(t, 10*time.Second), &pb.Empty{})
		require.Equal(t, codes.Unimplemented, status.Code(err))
	}
	_, err = client.UnaryCall(within(t, time.Second), hello())
	assert.ErrorIs(t, err, context.DeadlineExceeded)
}

// A limit of one's own holds for all methods together, and theirs within it.
func TestLimitAroundAll(t *testing.T) {
	named, err := status.New(codes.ResourceExhausted, "quota").WithDetails(
		&errdetails.QuotaFailure{Violations: []*errdetails.QuotaFailure_Violation{{QuotaId: "CallsPerMinute"}}},
		&errdetails.RetryInfo{RetryDelay: durationpb.New(20 * time.Second)})
	require.NoError(t, err)
	s := serve(t, &service{gate: first(1, named.Err())})
	around := cruise.Must(cruise.NewTokenBucket(rate.Every(time.Hour), 3))
	i, err := cruisegrpc.New(cruisegrpc.WithRetrierOptions(cruise.WithLimiter(around)))
	require.NoError(t, err)
	client := connect(t, s.addr, i.DialOptions()...)
	_, err = client.UnaryCall(within(t, time.Second), hello())
	require.ErrorIs(t, err, context.DeadlineExceeded, "throttled, the method with the limit that is named")
	for _, want := range []codes.Code{codes.Unimplemented, codes.Unimplemented, codes.DeadlineExceeded} {
		_, err = client.EmptyCall(within(t, time.Second), &pb.Empty{})
		require.Equal(t, want, status.Code(err), "others go on, as far as the limit around them lets them")
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for want, opt := range map[string]cruisegrpc.Option{
		"cruisegrpc: option 1 is nil":                     nil,
		"cruisegrpc: WithScope(nil)":                      cruisegrpc.WithScope(nil),
		`cruisegrpc: method "UnaryCall"`:                  cruisegrpc.WithIdempotent("UnaryCall"),
		"cruisegrpc: WithClassifier(nil)":                 cruisegrpc.WithClassifier(nil),
		"cruisegrpc: WithStreamBuffer(-1)":                cruisegrpc.WithStreamBuffer(-1),
		"cruise: WithMaxAttempts(0)":                      cruisegrpc.WithRetrierOptions(cruise.WithMaxAttempts(0)),
		"cruisegrpc: WithRetrierOptions: option 2 is nil": cruisegrpc.WithRetrierOptions(cruise.WithMaxAttempts(1), nil),
	} {
		_, err := cruisegrpc.New(opt)
		assert.ErrorContains(t, err, want)
	}
}

func TestZeroInterceptorSaysSo(t *testing.T) {
	s := serve(t, &service{})
	for _, i := range []*cruisegrpc.Interceptor{nil, {}} {
		client := connect(t, s.addr, i.DialOptions()...)
		_, err := client.UnaryCall(t.Context(), hello())
		assert.EqualError(t, err, "cruisegrpc: Interceptor not made by New")
		_, err = client.FullDuplexCall(t.Context())
		assert.EqualError(t, err, "cruisegrpc: Interceptor not made by New")
		assert.Nil(t, i.Retrier("any"))
	}
}

func TestClassifierAndStrict(t *testing.T) {
	s := serve(t, &service{gate: first(1, status.Error(codes.NotFound, "not yet"))})
	client, _ := throttle(t, s, cruisegrpc.WithClassifier(func(err error) cruise.Verdict {
		if status.Code(err) == codes.NotFound {
			return cruise.Verdict{Outcome: cruise.OutcomeTransient}
		}
		return cruise.Verdict{}
	}))
	_, err := client.UnaryCall(within(t, 10*time.Second), hello())
	require.NoError(t, err)

	s = serve(t, &service{gate: first(1, status.Error(codes.ResourceExhausted, "full"))})
	client, _ = throttle(t, s, cruisegrpc.WithStrict())
	_, err = client.UnaryCall(within(t, 10*time.Second), hello())
	assert.Equal(t, codes.ResourceExhausted, status.Code(err))
	assert.EqualValues(t, 1, s.seen.Load())
}

// A classifier that asks Classify gets its answer of this very attempt.
func TestClassifierAroundClassify(t *testing.T) {
	down := status.Error(codes.Unavailable, "restarting")
	for name, tc := range map[string]struct {
		opts     []cruisegrpc.Option
		pushback string
		want     []string
	}{
		"a method that may have done its work": {nil, "", []string{"permanent"}},
		"an idempotent one":                    {[]cruisegrpc.Option{cruisegrpc.WithIdempotent(unaryMethod)}, "", []string{"transient", "success"}},
		"the server forbids a retry":           {[]cruisegrpc.Option{cruisegrpc.WithIdempotent(unaryMethod)}, "-1", []string{"permanent"}},
		"the server names the wait":            {nil, "10", []string{"throttled", "success"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, &service{gate: func(n int64, _ metadata.MD, trailer func(metadata.MD)) error {
				if n > 1 {
					return nil
				}
				if tc.pushback != "" {
					trailer(metadata.Pairs(cruisegrpc.PushbackKey, tc.pushback))
				}
				return down
			}})
			classifier := cruisegrpc.WithClassifier(func(err error) cruise.Verdict {
				assert.ErrorIs(t, err, down)
				return cruisegrpc.Classify(fmt.Errorf("of mine: %w", err))
			})
			client, seen := throttle(t, s, append(tc.opts, classifier)...)
			_, err := client.UnaryCall(within(t, 10*time.Second), hello())
			if len(tc.want) == 1 {
				assert.Equal(t, down, err, "untouched")
			}
			assert.Equal(t, tc.want, seen.outcomes())
		})
	}
}

// At no time are there two attempts of a call, however slow the server is.
func TestNothingIsHedged(t *testing.T) {
	var now, most, seen atomic.Int64
	s := serve(t, &service{gate: func(n int64, _ metadata.MD, _ func(metadata.MD)) error {
		seen.Add(1)
		most.Store(max(most.Load(), now.Add(1)))
		defer now.Add(-1)
		time.Sleep(100 * time.Millisecond)
		if n%2 == 1 {
			return status.Error(codes.ResourceExhausted, "slow down")
		}
		return nil
	}})
	pause := cruise.Must(cruise.ConstantBackoff(10 * time.Millisecond))
	client, _ := throttle(t, s, cruisegrpc.WithIdempotent("*"), cruisegrpc.WithRetrierOptions(cruise.WithTuning(cruise.Tuning{PauseBackoff: pause})))
	for range 2 {
		_, err := client.UnaryCall(within(t, 20*time.Second), hello())
		require.NoError(t, err)
	}
	assert.EqualValues(t, 4, seen.Load())
	assert.EqualValues(t, 1, most.Load())
}

// wire is a server that a test speaks for: it answers each stream by its number, from 1.
// It waits for the request, since gRPC loses a status that comes while it sends again.
func wire(t *testing.T, answer func(f *http2.Framer, stream uint32, n int)) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var server sync.WaitGroup
	server.Go(func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		preface := make([]byte, len(http2.ClientPreface))
		if _, err := conn.Read(preface); err != nil {
			return
		}
		f := http2.NewFramer(conn, conn)
		_ = f.WriteSettings()
		streams := 0
		for {
			frame, err := f.ReadFrame()
			if err != nil {
				return
			}
			switch frame := frame.(type) {
			case *http2.SettingsFrame:
				if !frame.IsAck() {
					_ = f.WriteSettingsAck()
				}
			case *http2.DataFrame:
				if frame.StreamEnded() {
					streams++
					answer(f, frame.StreamID, streams)
				}
			}
		}
	})
	t.Cleanup(func() { // after the connection is closed
		_ = l.Close()
		server.Wait()
	})
	return l.Addr().String()
}

// end answers a stream without a message, as proxies do.
func end(f *http2.Framer, stream uint32, pairs ...string) {
	_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, EndHeaders: true, EndStream: true,
		BlockFragment: fields(append([]string{":status", "200", "content-type", "application/grpc"}, pairs...)...)})
}

// A stream that the server refused unseen is retried by gRPC itself, within one
// attempt of ours.
func TestTransparentRetriesAreNotCounted(t *testing.T) {
	var streams atomic.Int64
	addr := wire(t, func(f *http2.Framer, stream uint32, n int) {
		if streams.Add(1); n == 1 {
			_ = f.WriteRSTStream(stream, http2.ErrCodeRefusedStream)
			return
		}
		end(f, stream, "grpc-status", "5")
	})
	client, seen := throttle(t, &service{addr: addr})
	_, err := client.UnaryCall(within(t, 10*time.Second), hello())
	assert.Equal(t, codes.NotFound, status.Code(err))
	assert.EqualValues(t, 2, streams.Load(), "of which gRPC made two")
	assert.Equal(t, []string{"permanent"}, seen.outcomes(), "one attempt")
}

// A proxy that limits calls has not sent them on, so calls of any method are retried.
func TestLimitOfEnvoyIsAThrottle(t *testing.T) {
	addr := wire(t, func(f *http2.Framer, stream uint32, n int) {
		if n == 1 {
			end(f, stream, "grpc-status", "14", "x-envoy-ratelimited", "true")
			return
		}
		end(f, stream, "grpc-status", "5")
	})
	client, seen := throttle(t, &service{addr: addr})
	_, err := client.UnaryCall(within(t, 10*time.Second), hello())
	assert.Equal(t, codes.NotFound, status.Code(err))
	assert.Equal(t, []string{"throttled", "permanent"}, seen.outcomes())
}

func fields(pairs ...string) []byte {
	var b strings.Builder
	e := hpack.NewEncoder(&b)
	for i := 0; i < len(pairs); i += 2 {
		_ = e.WriteField(hpack.HeaderField{Name: pairs[i], Value: pairs[i+1]})
	}
	return []byte(b.String())
}
