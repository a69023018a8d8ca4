package clienttest

import (
	"context"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/emr"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	s3types "github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go/tracing"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/cruiseaws"
)

// The timeout of an attempt in real time, and a longer time. A busy machine answers within the
// timeout.
const timeout, longer = time.Second, 1500 * time.Millisecond

func TestAttemptTimeout(t *testing.T) {
	hour, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	for name, ctx := range map[string]context.Context{"no deadline": t.Context(), "a later deadline": hour} {
		t.Run(name, func(t *testing.T) {
			answer := first(0, 0, "", emrFound)
			s := serve(t, func(n int64, w http.ResponseWriter, r *http.Request) {
				if n == 1 {
					time.Sleep(longer)
				}
				answer(n, w, r)
			})
			cfg, seen := throttled(t, s, cruiseaws.WithRetrierOptions(cruise.WithAttemptTimeout(timeout)))
			require.NoError(t, describe(ctx, emr.NewFromConfig(cfg)))
			assert.Equal(t, []string{"transient", "success"}, seen.outcomes())
		})
	}
}

// hanging is an HTTP client whose requests end with their context, or a while later.
type hanging struct{ later time.Duration }

func (h hanging) Do(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	time.Sleep(h.later)
	return nil, r.Context().Err()
}

// A timeout is no cancellation, and is not reported as one.
func TestAttemptsThatTakeTooLong(t *testing.T) {
	for name, tc := range map[string]struct {
		deadline time.Duration
		later    time.Duration
		want     error
	}{
		"both attempts":                        {time.Hour, 0, cruise.ErrAttemptsExhausted},
		"the deadline passes while one ends":   {1500 * time.Millisecond, time.Second, context.DeadlineExceeded},
		"the deadline comes before the second": {1200 * time.Millisecond, 0, context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			modes(t, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					cfg := config("http://emr.test")
					cfg.HTTPClient = hanging{tc.later}
					throttle := cruise.Must(cruiseaws.New(cruiseaws.WithRetrierOptions(cruise.WithAttemptTimeout(time.Second), cruise.WithMaxAttempts(2))))
					throttle.Configure(&cfg)
					ctx, cancel := context.WithTimeout(t.Context(), tc.deadline)
					defer cancel()
					err := describe(ctx, emr.NewFromConfig(cfg))
					assert.ErrorIs(t, err, tc.want)
					assert.ErrorIs(t, err, context.DeadlineExceeded)
					assert.NotErrorIs(t, err, context.Canceled)
				})
			})
		})
	}
}

// Around a client without retries too: the SDK says of both ends that it was cancelled.
func TestCallsThatTakeTooLong(t *testing.T) {
	opts := []cruise.Option{cruise.WithAttemptTimeout(time.Second), cruise.WithMaxAttempts(2)}
	retriers := map[string]func() *cruise.Retrier{
		"a Retrier": func() *cruise.Retrier {
			return cruise.Must(cruise.New(append(opts[:2:2], cruise.WithClassifier(cruiseaws.Classify))...))
		},
		"that of a Throttle": func() *cruise.Retrier {
			return cruise.Must(cruiseaws.New(cruiseaws.WithRetrierOptions(opts...))).Retrier(cruiseaws.Operation{Service: "EMR"})
		},
	}
	for name, tc := range map[string]struct {
		deadline time.Duration
		attempts int
		want     error
	}{
		"both attempts":      {time.Hour, 2, cruise.ErrAttemptsExhausted},
		"the deadline first": {500 * time.Millisecond, 1, context.DeadlineExceeded},
	} {
		for of, retrier := range retriers {
			t.Run(name+", "+of, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					cfg := config("http://emr.test")
					cfg.HTTPClient = hanging{}
					cfg.APIOptions = append(cfg.APIOptions, cruiseaws.WithoutRetries)
					client := emr.NewFromConfig(cfg)
					ctx, cancel := context.WithTimeout(t.Context(), tc.deadline)
					defer cancel()
					attempts := 0
					_, err := cruiseaws.Do(ctx, retrier(), func(ctx context.Context) (struct{}, error) {
						attempts++
						return struct{}{}, describe(ctx, client)
					})
					assert.ErrorIs(t, err, tc.want)
					assert.Equal(t, tc.attempts, attempts)
				})
			})
		}
	}
}

// The timeout of an attempt ends with its answer: a body may be read for longer.
func TestBodyOutlivesItsAttempt(t *testing.T) {
	s := serve(t, func(_ int64, w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "begin ")
		_ = http.NewResponseController(w).Flush()
		time.Sleep(longer)
		_, _ = io.WriteString(w, "end")
	})
	cfg, seen := throttled(t, s, cruiseaws.WithRetrierOptions(cruise.WithAttemptTimeout(timeout)))
	object, err := newS3(cfg).GetObject(t.Context(), &s3.GetObjectInput{Bucket: aws.String("b"), Key: aws.String("k")})
	require.NoError(t, err)
	body, err := io.ReadAll(object.Body)
	require.NoError(t, err)
	assert.Equal(t, "begin end", string(body))
	require.NoError(t, object.Body.Close())
	assert.Equal(t, []string{"success"}, seen.outcomes())
}

func TestEventsOutliveTheirAttempt(t *testing.T) {
	s := serve(t, func(_ int64, w http.ResponseWriter, _ *http.Request) {
		_ = http.NewResponseController(w).Flush()
		time.Sleep(longer)
	})
	cfg, seen := throttled(t, s, cruiseaws.WithRetrierOptions(cruise.WithAttemptTimeout(timeout)))
	cfg.HTTPClient = &sender{}
	out, err := newS3(cfg).SelectObjectContent(t.Context(), selectAll)
	require.NoError(t, err)
	for range out.GetStream().Events() {
		assert.Fail(t, "none was sent")
	}
	assert.NoError(t, out.GetStream().Err(), "the end, not a cut")
	assert.Equal(t, []string{"success"}, seen.outcomes())
}

var selectAll = &s3.SelectObjectContentInput{
	Bucket: aws.String("b"), Key: aws.String("k"), Expression: aws.String("SELECT *"), ExpressionType: "SQL",
	InputSerialization: &s3types.InputSerialization{}, OutputSerialization: &s3types.OutputSerialization{},
}

// sender is an HTTP client that remembers the context of the last request.
//
// The SDK closes the body of a request when the head of its answer has come. If
// net/http asks only then whether there is more of it, the WriteTo of such a body says
// EOF as if it had failed, and the connection is cut. So it is hidden here.
type sender struct{ ctx context.Context }

func (s *sender) Do(r *http.Request) (*http.Response, error) {
	s.ctx = r.Context()
	if r.ContentLength > 0 {
		r.Body = struct{ io.ReadCloser }{r.Body}
	}
	return http.DefaultClient.Do(r)
}

// Of an attempt with a timeout nothing is left to the context of its caller, which
// may be that of the whole program.
func TestAttemptsWithATimeoutAreReleased(t *testing.T) {
	object := &s3.GetObjectInput{Bucket: aws.String("b"), Key: aws.String("k")}
	for name, tc := range map[string]struct {
		body string
		call func(context.Context, aws.Config) (end func() error, err error) // end is nil if the call is over
	}{
		"no stream": {emrFound, func(ctx context.Context, cfg aws.Config) (func() error, error) {
			return nil, describe(ctx, emr.NewFromConfig(cfg))
		}},
		"no body": {"", func(ctx context.Context, cfg aws.Config) (func() error, error) {
			_, err := newS3(cfg).GetObject(ctx, object)
			return nil, err
		}},
		"body closed": {"hello", func(ctx context.Context, cfg aws.Config) (func() error, error) {
			out, err := newS3(cfg).GetObject(ctx, object)
			return func() error { return out.Body.Close() }, err
		}},
		"body read": {"hello", func(ctx context.Context, cfg aws.Config) (func() error, error) {
			out, err := newS3(cfg).GetObject(ctx, object)
			return func() error {
				_, err := io.Copy(io.Discard, out.Body)
				return err
			}, err
		}},
		"events closed": {"endless", func(ctx context.Context, cfg aws.Config) (func() error, error) {
			out, err := newS3(cfg).SelectObjectContent(ctx, selectAll)
			return func() error { return out.GetStream().Close() }, err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, func(_ int64, w http.ResponseWriter, r *http.Request) {
				if tc.body != "endless" {
					_, _ = io.WriteString(w, tc.body)
					return
				}
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
			})
			cfg, _ := throttled(t, s, cruiseaws.WithRetrierOptions(cruise.WithAttemptTimeout(time.Minute)))
			sent := &sender{}
			cfg.HTTPClient = sent
			end, err := tc.call(t.Context(), cfg)
			require.NoError(t, err)
			if end != nil {
				require.NoError(t, sent.ctx.Err(), "it goes on")
				require.NoError(t, end())
			}
			assert.ErrorIs(t, sent.ctx.Err(), context.Canceled)
			assert.NoError(t, t.Context().Err())
		})
	}
}

// tracer makes spans that know whether they have ended.
type tracer struct{}

func (t tracer) Tracer(string, ...tracing.TracerOption) tracing.Tracer { return t }

func (tracer) StartSpan(ctx context.Context, name string, _ ...tracing.SpanOption) (context.Context, tracing.Span) {
	none, _ := tracing.GetSpan(context.Background())
	s := &span{Span: none, name: name}
	return tracing.WithSpan(ctx, s), s
}

type span struct {
	tracing.Span
	name  string
	ended atomic.Bool
}

func (s *span) End() { s.ended.Store(true) }

// The SDK may have a span for each attempt. The events of an operation go to a span that lasts as
// long.
func TestEventsGoToASpanThatHasNotEnded(t *testing.T) {
	modes(t, func(t *testing.T) {
		var told []string
		s := serve(t, first(2, 400, emrThrottled, emrFound))
		cfg, _ := throttled(t, s, cruiseaws.WithRetrierOptions(
			cruise.WithTuning(cruise.Tuning{PauseBackoff: cruise.Must(cruise.ConstantBackoff(time.Millisecond))}),
			cruise.WithObserver(cruise.ObserverFunc(func(ctx context.Context, e cruise.Event) {
				if e, ok := e.(cruise.AttemptEnded); ok {
					current, _ := tracing.GetSpan(ctx)
					told = append(told, e.Outcome.String())
					if s, ok := current.(*span); assert.True(t, ok, "a span") {
						assert.False(t, s.ended.Load(), "%s, of attempt %d", s.name, e.Attempt)
					}
				}
			}))))
		client := emr.NewFromConfig(cfg, func(o *emr.Options) { o.TracerProvider = tracer{} })
		require.NoError(t, describe(t.Context(), client))
		assert.Equal(t, []string{"throttled", "throttled", "success"}, told)
	})
}
