package clienttest

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/emr"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/require"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/cruiseaws"
	"github.com/a7df5faa/cruise/internal/calm"
)

func TestMain(m *testing.M) { os.Exit(calm.Run(m)) }

// Answers of services, as they send them.
const (
	emrThrottled    = `{"__type":"ThrottlingException","message":"Rate exceeded"}`
	emrFound        = `{"Cluster":{"Id":"j-1","Name":"nightly"}}`
	dynamoThrottled = `{"__type":"com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException",` +
		`"message":"The level of configured provisioned throughput for the table was exceeded.",` +
		`"ThrottlingReasons":[{"reason":"TableWriteProvisionedThroughputExceeded","resource":"arn:aws:dynamodb:eu-central-1:123456789012:table/orders"}]}`
	dynamoCanceled = `{"__type":"com.amazonaws.dynamodb.v20120810#TransactionCanceledException","message":"Transaction cancelled",` +
		`"CancellationReasons":[{"Code":"None"},{"Code":"ThrottlingError","Message":"slow down"}]}`
	s3SlowDown = `<?xml version="1.0" encoding="UTF-8"?><Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>`
)

// service answers each request by the number of the attempt.
type service struct {
	*httptest.Server
	seen atomic.Int64
}

func serve(t testing.TB, answer func(n int64, w http.ResponseWriter, r *http.Request)) *service {
	t.Helper()
	s := &service{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer(s.seen.Add(1), w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

// first answers the first n attempts with a failure and the others with ok.
func first(n int64, status int, failure, ok string) func(int64, http.ResponseWriter, *http.Request) {
	return func(i int64, w http.ResponseWriter, _ *http.Request) {
		kind := "application/x-amz-json-1.0"
		if strings.HasPrefix(failure, "<") {
			kind = "application/xml"
		}
		w.Header().Set("Content-Type", kind)
		if i <= n {
			w.WriteHeader(status)
			_, _ = w.Write([]byte(failure))
			return
		}
		_, _ = w.Write([]byte(ok))
	}
}

func config(endpoint string) aws.Config {
	return aws.Config{
		Region:       "eu-central-1",
		BaseEndpoint: aws.String(endpoint),
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "id", SecretAccessKey: "secret"}, nil
		}),
	}
}

func throttled(t testing.TB, s *service, opts ...cruiseaws.Option) (aws.Config, *log) {
	t.Helper()
	seen := &log{}
	throttle, err := cruiseaws.New(append([]cruiseaws.Option{cruiseaws.WithRetrierOptions(cruise.WithObserver(seen))}, opts...)...)
	require.NoError(t, err)
	cfg := config(s.URL)
	throttle.Configure(&cfg)
	return cfg, seen
}

func newS3(cfg aws.Config) *s3.Client {
	return s3.NewFromConfig(cfg, func(o *s3.Options) { o.UsePathStyle = true })
}

func describe(ctx context.Context, c *emr.Client) error {
	_, err := c.DescribeCluster(ctx, &emr.DescribeClusterInput{ClusterId: aws.String("j-1")})
	return err
}

func get(ctx context.Context, cfg aws.Config) error {
	_, err := dynamodb.NewFromConfig(cfg).DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: aws.String("orders")})
	return err
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

func (l *log) delays() (all []time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.events {
		if e, ok := e.(cruise.RetryScheduled); ok {
			all = append(all, e.Delay)
		}
	}
	return all
}

func (l *log) scopes() (all []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.events {
		if e, ok := e.(cruise.ThrottleSeen); ok {
			all = append(all, e.Scope)
		}
	}
	return all
}
