package clienttest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2"
	vkit "cloud.google.com/go/pubsub/v2/apiv1"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"cloud.google.com/go/pubsub/v2/pstest"
	"github.com/googleapis/gax-go/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/api/googleapi"
	"google.golang.org/api/iterator"
	"google.golang.org/api/option"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/cruisegoogle"
	"github.com/a7df5faa/cruise/cruisegrpc"
	"github.com/a7df5faa/cruise/cruisehttp"
	"github.com/a7df5faa/cruise/cruisehttp/signal"
	"github.com/a7df5faa/cruise/internal/calm"
)

func TestMain(m *testing.M) { os.Exit(calm.Run(m)) }

const topic = "projects/p/topics/t"

// refuse is a reaction of the server: it fails the first calls of a method.
type refuse struct {
	first int64
	err   error
	seen  atomic.Int64
}

func (r *refuse) React(any) (handled bool, ret any, err error) {
	if r.seen.Add(1) <= r.first {
		return true, nil, r.err
	}
	return false, nil, nil
}

// serve is Pub/Sub in memory, with a topic.
func serve(t *testing.T, method string, r *refuse) (*pstest.Server, []option.ClientOption) {
	t.Helper()
	s := pstest.NewServer(pstest.ServerReactorOption{FuncName: method, Reactor: r})
	t.Cleanup(func() { _ = s.Close() })
	_, err := s.GServer.CreateTopic(t.Context(), &pubsubpb.Topic{Name: topic})
	require.NoError(t, err)
	return s, []option.ClientOption{option.WithEndpoint(s.Addr), option.WithoutAuthentication(),
		option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials()))}
}

// log collects the events of an observer.
type log struct {
	mu  sync.Mutex // guards the field below
	all []string
}

func (l *log) Observe(_ context.Context, e cruise.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e, ok := e.(cruise.AttemptEnded); ok {
		l.all = append(l.all, e.Outcome.String())
	}
}

func (l *log) outcomes() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all
}

func connect(t *testing.T, auth []option.ClientOption, opts ...cruisegrpc.Option) (*pubsub.Client, *log) {
	t.Helper()
	seen := &log{}
	throttle, err := cruisegoogle.NewInterceptor(append([]cruisegrpc.Option{cruisegrpc.WithRetrierOptions(cruise.WithObserver(seen))}, opts...)...)
	require.NoError(t, err)
	client, err := pubsub.NewClient(t.Context(), "p", append(cruisegoogle.ClientOptions(throttle), auth...)...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	require.NoError(t, cruisegoogle.DisableRetries(client.TopicAdminClient.CallOptions, client.SubscriptionAdminClient.CallOptions))
	return client, seen
}

func failure(t *testing.T, code codes.Code, details ...protoadapt.MessageV1) error {
	t.Helper()
	s, err := status.New(code, "busy").WithDetails(details...)
	require.NoError(t, err)
	return s.Err()
}

func list(ctx context.Context, c *pubsub.Client) (names []string, err error) {
	topics := c.TopicAdminClient.ListTopics(ctx, &pubsubpb.ListTopicsRequest{Project: "projects/p"})
	for {
		topic, err := topics.Next()
		if errors.Is(err, iterator.Done) {
			return names, nil
		}
		if err != nil {
			return names, err
		}
		names = append(names, topic.GetName())
	}
}

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func TestPubSubObeysRetryInfo(t *testing.T) {
	r := &refuse{first: 1, err: failure(t, codes.ResourceExhausted,
		&errdetails.ErrorInfo{Reason: "RATE_LIMIT_EXCEEDED", Domain: "googleapis.com", Metadata: map[string]string{"quota_limit": "ReadsPerMinutePerProject"}},
		&errdetails.RetryInfo{RetryDelay: durationpb.New(600 * time.Millisecond)})}
	_, auth := serve(t, "ListTopics", r)
	client, seen := connect(t, auth)
	began := time.Now()
	names, err := list(within(t, 20*time.Second), client)
	require.NoError(t, err)
	assert.Equal(t, []string{topic}, names)
	assert.Equal(t, []string{"throttled", "success"}, seen.outcomes())
	assert.GreaterOrEqual(t, time.Since(began), 600*time.Millisecond)
}

func TestPubSubPublishesThroughThrottles(t *testing.T) {
	r := &refuse{first: 3, err: failure(t, codes.ResourceExhausted)}
	server, auth := serve(t, "Publish", r)
	client, seen := connect(t, auth, cruisegrpc.WithRetrierOptions(cruise.WithTuning(cruise.Tuning{PauseBackoff: cruise.Must(cruise.ConstantBackoff(10 * time.Millisecond))})))
	publisher := client.Publisher(topic)
	defer publisher.Stop()
	ctx := within(t, 30*time.Second)
	var results []*pubsub.PublishResult
	for i := range 20 {
		results = append(results, publisher.Publish(ctx, &pubsub.Message{Data: fmt.Append(nil, i)}))
	}
	for _, result := range results {
		_, err := result.Get(ctx)
		require.NoError(t, err)
	}
	assert.Len(t, server.Messages(), 20, "each once")
	assert.Equal(t, []string{"throttled", "throttled", "throttled", "success"}, seen.outcomes()[:4])
}

// A client alone would publish again, too; one with ordering keys stops where it fails.
func TestPubSubPublishesThroughARestart(t *testing.T) {
	server, auth := serve(t, "Publish", &refuse{first: 1, err: failure(t, codes.Unavailable)})
	client, seen := connect(t, auth)
	publisher := client.Publisher(topic)
	defer publisher.Stop()
	ctx := within(t, 30*time.Second)
	_, err := publisher.Publish(ctx, &pubsub.Message{Data: []byte("a")}).Get(ctx)
	require.NoError(t, err)
	assert.Len(t, server.Messages(), 1)
	assert.Equal(t, []string{"transient", "success"}, seen.outcomes())
}

func TestPubSubDailyQuotaIsParked(t *testing.T) {
	if left := time.Until(signal.NextPacificDay(time.Now())); left < 10*time.Second {
		time.Sleep(left) // else the quota is renewed during the test
	}
	r := &refuse{first: 99, err: failure(t, codes.ResourceExhausted,
		&errdetails.ErrorInfo{Reason: "RATE_LIMIT_EXCEEDED", Domain: "googleapis.com", Metadata: map[string]string{"quota_limit": "RequestsPerDayPerProject"}},
		&errdetails.RetryInfo{RetryDelay: durationpb.New(18 * time.Second)})}
	_, auth := serve(t, "GetTopic", r)
	client, _ := connect(t, auth)
	for i := range 3 {
		_, err := client.TopicAdminClient.GetTopic(t.Context(), &pubsubpb.GetTopicRequest{Topic: topic})
		gaveUp, ok := errors.AsType[*cruise.Error](err)
		require.True(t, ok, "%v", err)
		if i == 0 {
			assert.ErrorIs(t, err, cruise.ErrQuotaExhausted)
		}
		assert.WithinDuration(t, signal.NextPacificDay(time.Now()), time.Now().Add(gaveUp.RetryAfter), time.Minute)
		assert.Equal(t, codes.ResourceExhausted, status.Code(err))
	}
	assert.EqualValues(t, 1, r.seen.Load(), "the quota is known to be used up")
}

// A method that google.api.http maps to GET is idempotent, and its retries don't
// multiply with the client's own.
func TestPubSubRetriesReads(t *testing.T) {
	r := &refuse{first: 99, err: failure(t, codes.Unavailable)}
	_, auth := serve(t, "GetTopic", r)
	client, seen := connect(t, auth, cruisegrpc.WithRetrierOptions(cruise.WithMaxAttempts(3)))
	_, err := client.TopicAdminClient.GetTopic(within(t, 20*time.Second), &pubsubpb.GetTopicRequest{Topic: topic})
	assert.ErrorIs(t, err, cruise.ErrAttemptsExhausted)
	assert.EqualValues(t, 3, r.seen.Load())
	assert.Len(t, seen.outcomes(), 3)

	r = &refuse{first: 99, err: failure(t, codes.Unavailable)}
	_, auth = serve(t, "UpdateTopic", r)
	client, _ = connect(t, auth)
	_, err = client.TopicAdminClient.UpdateTopic(within(t, 20*time.Second), &pubsubpb.UpdateTopicRequest{Topic: &pubsubpb.Topic{Name: topic}})
	assert.Equal(t, codes.Unavailable, status.Code(err))
	assert.EqualValues(t, 1, r.seen.Load(), "it may be done already")
}

// A client may keep its retries to itself. They are left to it then, and paced.
func TestClientThatKeepsItsRetries(t *testing.T) {
	for name, tc := range map[string]struct {
		opts []cruisegrpc.Option
		want int64 // attempts
	}{
		"both retry":    {[]cruisegrpc.Option{cruisegrpc.WithRetrierOptions(cruise.WithMaxAttempts(2))}, 6},
		"it alone does": {[]cruisegrpc.Option{cruisegrpc.WithRetrierOptions(cruise.WithMaxAttempts(1))}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			r := &refuse{first: 99, err: failure(t, codes.Unavailable)}
			_, auth := serve(t, "GetTopic", r)
			throttle, err := cruisegoogle.NewInterceptor(tc.opts...)
			require.NoError(t, err)
			client, err := vkit.NewTopicAdminClient(t.Context(), append(cruisegoogle.ClientOptions(throttle), auth...)...)
			require.NoError(t, err)
			defer client.Close()
			asked := 0
			ownRetries := gax.WithRetry(func() gax.Retryer { return threeTimes{&asked} })
			_, err = client.GetTopic(within(t, 20*time.Second), &pubsubpb.GetTopicRequest{Topic: topic}, ownRetries)
			assert.Equal(t, codes.Unavailable, status.Code(err))
			assert.Equal(t, tc.want, r.seen.Load())
		})
	}
}

// threeTimes is a client's own way to retry.
type threeTimes struct{ asked *int }

func (r threeTimes) Retry(err error) (time.Duration, bool) {
	*r.asked++
	return time.Millisecond, status.Code(err) == codes.Unavailable && *r.asked < 3
}

// Clients that speak REST retry like clients that speak gRPC, and are switched off in the same way.
func TestRESTClientWithoutRetries(t *testing.T) {
	var seen atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		seen.Add(1)
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, `{"error":{"code":503,"status":"UNAVAILABLE","message":"busy"}}`)
	}))
	defer s.Close()
	paced, err := cruisegoogle.NewHTTPClient(t.Context(), []option.ClientOption{option.WithHTTPClient(&http.Client{})},
		cruisehttp.WithRetrierOptions(cruise.WithMaxAttempts(3), cruise.WithBackoff(cruise.Must(cruise.ConstantBackoff(time.Millisecond)))))
	require.NoError(t, err)
	client, err := vkit.NewTopicAdminRESTClient(t.Context(), option.WithHTTPClient(paced), option.WithEndpoint(s.URL))
	require.NoError(t, err)
	defer client.Close()
	require.NoError(t, cruisegoogle.DisableRetries(client.CallOptions))
	_, err = client.GetTopic(within(t, 20*time.Second), &pubsubpb.GetTopicRequest{Topic: topic})
	answer, ok := errors.AsType[*googleapi.Error](err)
	require.True(t, ok, "%v", err)
	assert.Equal(t, http.StatusServiceUnavailable, answer.Code)
	assert.EqualValues(t, 3, seen.Load())
}

// For a client whose connection is made elsewhere.
func TestWithRetry(t *testing.T) {
	r := &refuse{first: 2, err: failure(t, codes.ResourceExhausted, &errdetails.RetryInfo{RetryDelay: durationpb.New(300 * time.Millisecond)})}
	_, auth := serve(t, "GetTopic", r)
	client, err := vkit.NewTopicAdminClient(t.Context(), auth...)
	require.NoError(t, err)
	defer client.Close()
	backoff := cruise.Must(cruise.ConstantBackoff(time.Millisecond))
	get := func(opts ...gax.CallOption) error {
		_, err := client.GetTopic(within(t, 20*time.Second), &pubsubpb.GetTopicRequest{Topic: topic}, opts...)
		return err
	}
	began := time.Now()
	require.NoError(t, get(cruisegoogle.WithRetry(backoff)))
	assert.GreaterOrEqual(t, time.Since(began), 600*time.Millisecond)
	assert.EqualValues(t, 3, r.seen.Load())

	for name, tc := range map[string]struct {
		err  error
		want int64 // attempts
	}{
		"for good":    {failure(t, codes.NotFound), 1},
		"in passing":  {failure(t, codes.Unavailable), 5},
		"a long wait": {failure(t, codes.ResourceExhausted, &errdetails.RetryInfo{RetryDelay: durationpb.New(10 * time.Minute)}), 1},
		"a day's quota": {failure(t, codes.ResourceExhausted, &errdetails.QuotaFailure{
			Violations: []*errdetails.QuotaFailure_Violation{{QuotaId: "RequestsPerDay"}}}), 1},
	} {
		r = &refuse{first: 99, err: tc.err}
		_, auth = serve(t, "GetTopic", r)
		client, err = vkit.NewTopicAdminClient(t.Context(), auth...)
		require.NoError(t, err)
		assert.Error(t, get(cruisegoogle.WithRetry(backoff)), name)
		assert.Equal(t, tc.want, r.seen.Load(), name)
		require.NoError(t, client.Close())
	}
}

func TestDisableRetriesWantsCallOptions(t *testing.T) {
	for name, v := range map[string]any{
		"nothing": nil, "no pointer": vkit.TopicAdminCallOptions{}, "a nil pointer": (*vkit.TopicAdminCallOptions)(nil),
		"another struct": &struct{ Name string }{}, "a client": &vkit.TopicAdminClient{},
	} {
		assert.ErrorContains(t, cruisegoogle.DisableRetries(v), "DisableRetries", name)
	}
	good := &vkit.TopicAdminCallOptions{}
	assert.Error(t, cruisegoogle.DisableRetries(good, nil))
	assert.Empty(t, good.GetTopic, "unchanged")
	require.NoError(t, cruisegoogle.DisableRetries(good))
	assert.Len(t, good.GetTopic, 1)
}
