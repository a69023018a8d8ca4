package migrating

import (
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/avast/retry-go/v5"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/emr"
	"github.com/cenkalti/backoff/v7"
	"github.com/hashicorp/go-retryablehttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/cruiseaws"
	"github.com/a7df5faa/cruise/cruisehttp"
)

// A statusError is what the client of an API returns, with methods by which cruise
// understands it.
type statusError struct {
	code int
	wait time.Duration
}

func (e *statusError) Error() string             { return http.StatusText(e.code) }
func (e *statusError) StatusCode() int           { return e.code }
func (e *statusError) RetryAfter() time.Duration { return e.wait }

var errNotFound = errors.New("not found")

type app struct{ name string }

// heroku is the client of an API that throttles its first calls.
type heroku struct{ throttles, calls int }

func (h *heroku) App(_ context.Context, name string) (*app, error) {
	h.calls++
	switch {
	case name == "":
		return nil, errNotFound
	case h.calls <= h.throttles:
		return nil, &statusError{http.StatusTooManyRequests, 3 * time.Second}
	}
	return &app{name}, nil
}

func patient() *cruise.Retrier {
	// doc
	api := cruise.Must(cruise.New(
		cruise.WithMaxElapsed(5*time.Minute), // the only bound
		cruise.WithMaxAttempts(math.MaxInt),
		cruise.WithoutBudget(),
	))
	// end
	return api
}

func cenkaltiBefore(ctx context.Context, client *heroku, name string) (*app, error) {
	// doc
	a, err := backoff.Retry(ctx, func() (*app, error) {
		a, err := client.App(ctx, name)
		if errors.Is(err, errNotFound) {
			return nil, backoff.Permanent(err)
		}
		if e, ok := errors.AsType[*statusError](err); ok && e.wait > 0 {
			return nil, backoff.RetryAfter(e.wait, err)
		}
		return a, err
	}, backoff.WithMaxTries(5), backoff.WithMaxElapsedTime(time.Minute))
	// end
	return a, err
}

func cenkaltiAfter(ctx context.Context, client *heroku, name string) (*app, error) {
	// doc
	api := cruise.Must(cruise.New(cruise.WithMaxElapsed(time.Minute))) // once, for all calls

	a, err := cruise.DoValue(ctx, api, func(ctx context.Context) (*app, error) {
		a, err := client.App(ctx, name)
		if errors.Is(err, errNotFound) {
			return nil, cruise.Permanent(err)
		}
		return a, err // its methods StatusCode and RetryAfter say the rest
	})
	// end
	return a, err
}

func avastBefore(ctx context.Context, client *heroku, name string) (a *app, err error) {
	// doc
	err = retry.New(
		retry.Context(ctx),
		retry.Attempts(8),
		retry.Delay(200*time.Millisecond),
		retry.MaxDelay(10*time.Second),
		retry.RetryIf(func(err error) bool { return !errors.Is(err, errNotFound) }),
		retry.LastErrorOnly(true),
	).Do(func() error {
		a, err = client.App(ctx, name)
		return err
	})
	// end
	return a, err
}

func avastAfter(ctx context.Context, client *heroku, name string) (a *app, err error) {
	// doc
	api := cruise.Must(cruise.New( // once, for all calls
		cruise.WithMaxAttempts(8),
		cruise.WithBackoff(cruise.Must(cruise.NewBackoff(
			cruise.WithBase(200*time.Millisecond), cruise.WithMaxDelay(10*time.Second)))),
		cruise.WithClassifier(func(err error) (v cruise.Verdict) {
			if errors.Is(err, errNotFound) {
				v.Outcome = cruise.OutcomePermanent
			}
			return v // else the error's methods decide
		}),
	))

	err = api.Do(ctx, func(ctx context.Context) error {
		a, err = client.App(ctx, name)
		return err
	})
	// end
	return a, err
}

func retryablehttpBefore(base http.RoundTripper) *http.Client {
	// doc
	r := retryablehttp.NewClient()
	r.HTTPClient.Transport = base
	r.RetryMax = 7
	r.Logger = nil
	client := r.StandardClient()
	// end
	return client
}

func retryablehttpAfter(base http.RoundTripper) (*http.Client, error) {
	// doc
	transport, err := cruisehttp.NewTransport(
		cruisehttp.WithRoundTripper(base),
		cruisehttp.WithRetrierOptions(cruise.WithMaxAttempts(8)), // 7 retries
	)
	if err != nil {
		return nil, err
	}
	client := &http.Client{Transport: transport}
	// end
	return client, nil
}

func adaptiveBefore(cfg aws.Config) *emr.Client {
	// doc
	cfg.RetryMode = aws.RetryModeAdaptive
	cfg.RetryMaxAttempts = 8
	clusters := emr.NewFromConfig(cfg)
	// end
	return clusters
}

func adaptiveAfter(cfg aws.Config) (*emr.Client, error) {
	// doc
	throttle, err := cruiseaws.New(cruiseaws.WithRetrierOptions(cruise.WithMaxAttempts(8)))
	if err != nil {
		return nil, err
	}
	throttle.Configure(&cfg)
	clusters := emr.NewFromConfig(cfg)
	// end
	return clusters, nil
}

func rateBefore(ctx context.Context, client *heroku, name string) (*app, error) {
	// doc
	limiter := rate.NewLimiter(10, 20) // once, for all calls

	if err := limiter.Wait(ctx); err != nil {
		return nil, err
	}
	a, err := client.App(ctx, name)
	// end
	return a, err
}

func rateAfter(ctx context.Context, client *heroku, name string) (*app, error) {
	// doc
	limiter := cruise.Must(cruise.NewTokenBucket(10, 20)) // or rate.NewLimiter(10, 20): see below
	api := cruise.Must(cruise.New(cruise.WithLimiter(limiter)))

	a, err := cruise.DoValue(ctx, api, func(ctx context.Context) (*app, error) {
		return client.App(ctx, name)
	})
	// end
	return a, err
}

func rateFound(ctx context.Context, client *heroku, name string) (*app, error) {
	// doc
	api := cruise.Must(cruise.New(cruise.WithMaxRate(10)))

	a, err := cruise.DoValue(ctx, api, func(ctx context.Context) (*app, error) {
		return client.App(ctx, name)
	})
	// end
	return a, err
}

// What came before and what comes after do the same work.
func TestBeforeAndAfter(t *testing.T) {
	type call func(context.Context, *heroku, string) (*app, error)
	for _, tt := range []struct {
		name      string
		call      call
		throttles int
	}{
		{"cenkalti, before", cenkaltiBefore, 2},
		{"cenkalti, after", cenkaltiAfter, 2},
		{"avast, before", avastBefore, 2},
		{"avast, after", avastAfter, 2},
		{"x/time/rate, before", rateBefore, 0}, // doesn't retry
		{"x/time/rate, after", rateAfter, 2},
		{"x/time/rate, no more than", rateFound, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := &heroku{throttles: tt.throttles}
				a, err := tt.call(t.Context(), client, "example")
				require.NoError(t, err)
				assert.Equal(t, "example", a.name)
				assert.Equal(t, tt.throttles+1, client.calls)

				if !strings.HasPrefix(tt.name, "x/time") {
					client = &heroku{}
					_, err = tt.call(t.Context(), client, "")
					assert.ErrorIs(t, err, errNotFound)
					assert.Equal(t, 1, client.calls, "not retried")
				}
			})
		})
	}
}

// Without the budget, and with time as the only limit, calls wait for the end of an outage
// as they did; with the time limit alone they don't.
func TestOutageIsWaitedOut(t *testing.T) {
	type call func(context.Context) error
	do := func(api *cruise.Retrier) func(func() error) call {
		return func(work func() error) call {
			return func(ctx context.Context) error {
				return api.Do(ctx, func(context.Context) error { return work() })
			}
		}
	}
	get := func(build func(base http.RoundTripper) *http.Client) func(func() error) call {
		return func(work func() error) call {
			client := build(roundTripper(func(r *http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: r}, work()
			}))
			return func(ctx context.Context) error {
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://api.example.com/", nil)
				if err != nil {
					return err
				}
				resp, err := client.Do(req)
				if err != nil {
					return err
				}
				return resp.Body.Close()
			}
		}
	}
	timeAlone := cruise.WithMaxElapsed(5 * time.Minute)
	unlimited := cruise.WithMaxAttempts(math.MaxInt)
	for _, tt := range []struct {
		name string
		of   func(work func() error) call
		done int // of 50
	}{
		{"cenkalti", func(work func() error) call {
			return func(ctx context.Context) error {
				_, err := backoff.Retry(ctx, func() (any, error) { return nil, work() }, backoff.WithMaxElapsedTime(5*time.Minute))
				return err
			}
		}, 50},
		{"avast", func(work func() error) call {
			return func(ctx context.Context) error { return retry.New(retry.Context(ctx), retry.Attempts(0)).Do(work) }
		}, 50},
		{"retryablehttp", get(retryablehttpBefore), 50},
		{"after", do(patient()), 50},
		{"after, HTTP", get(func(base http.RoundTripper) *http.Client {
			return &http.Client{Transport: cruise.Must(cruisehttp.NewTransport(
				cruisehttp.WithRoundTripper(base), cruisehttp.WithRetrierOptions(timeAlone, unlimited, cruise.WithoutBudget())))}
		}), 50},
		{"time limit alone", do(cruise.Must(cruise.New(timeAlone))), 0},
		{"with the budget", do(cruise.Must(cruise.New(timeAlone, unlimited))), 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begun := time.Now()
				call := tt.of(func() error {
					time.Sleep(20 * time.Millisecond)
					if time.Since(begun) < 30*time.Second {
						return errors.New("connection refused")
					}
					return nil
				})
				var done atomic.Int64
				var all sync.WaitGroup
				for range 50 {
					all.Go(func() {
						if call(t.Context()) == nil {
							done.Add(1)
						}
					})
				}
				all.Wait()
				assert.EqualValues(t, tt.done, done.Load())
			})
		})
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// throttling throttles the first requests as an API does, then answers.
func throttling(times, code int, refusal, answer string) (base roundTripper, calls *int) {
	calls = new(int)
	return func(r *http.Request) (*http.Response, error) {
		w := httptest.NewRecorder()
		if *calls++; *calls <= times {
			w.WriteHeader(code)
			_, _ = io.WriteString(w, refusal)
		} else {
			_, _ = io.WriteString(w, answer)
		}
		resp := w.Result()
		resp.Request = r
		return resp, nil
	}, calls
}

func TestHTTPBeforeAndAfter(t *testing.T) {
	for name, build := range map[string]func(http.RoundTripper) (*http.Client, error){
		"before": func(base http.RoundTripper) (*http.Client, error) { return retryablehttpBefore(base), nil },
		"after":  retryablehttpAfter,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base, calls := throttling(2, http.StatusTooManyRequests, "slow down", "hello")
				client, err := build(base)
				require.NoError(t, err)
				resp, err := client.Get("http://api.example.com/")
				require.NoError(t, err)
				text, err := io.ReadAll(resp.Body)
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				assert.Equal(t, "hello", string(text))
				assert.Equal(t, 3, *calls)
			})
		})
	}
}

func TestAWSBeforeAndAfter(t *testing.T) {
	for name, build := range map[string]func(aws.Config) (*emr.Client, error){
		"before": func(cfg aws.Config) (*emr.Client, error) { return adaptiveBefore(cfg), nil },
		"after":  adaptiveAfter,
	} {
		t.Run(name, func(t *testing.T) {
			base, calls := throttling(1, http.StatusBadRequest, `{"__type":"ThrottlingException","message":"Rate exceeded"}`,
				`{"Cluster":{"Id":"j-1","Name":"nightly"}}`)
			clusters, err := build(aws.Config{
				Region:      "eu-central-1",
				HTTPClient:  &http.Client{Transport: base},
				Credentials: aws.AnonymousCredentials{},
			})
			require.NoError(t, err)
			out, err := clusters.DescribeCluster(t.Context(), &emr.DescribeClusterInput{ClusterId: aws.String("j-1")})
			require.NoError(t, err)
			assert.Equal(t, "nightly", *out.Cluster.Name)
			assert.Equal(t, 2, *calls)
		})
	}
}

// The code of each page is that between doc and end in its file, in this order.
func TestTheDocumentsShowTestedCode(t *testing.T) {
	for file, page := range map[string]string{
		"migrating_test.go": "../../docs/migrating.md",
		"projects_test.go":  "../../docs/migrating-projects.md",
	} {
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		doc, err := os.ReadFile(page)
		require.NoError(t, err)
		var want, got []string
		for _, m := range regexp.MustCompile(`(?ms)^\t// doc\n(.*?)^\t// end$`).FindAllStringSubmatch(string(source), -1) {
			want = append(want, strings.TrimSpace(strings.ReplaceAll("\n"+m[1], "\n\t", "\n")))
		}
		for _, m := range regexp.MustCompile("(?ms)^```go\n(.*?)^```$").FindAllStringSubmatch(string(doc), -1) {
			got = append(got, strings.TrimSpace(m[1]))
		}
		require.GreaterOrEqual(t, len(want), 10)
		assert.Equal(t, want, got, page)
	}
}
