package migrating

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/cruisehttp"
	"github.com/a7df5faa/cruise/delay"
)

func providerBefore(base http.RoundTripper) *http.Client {
	// doc
	var writes sync.Mutex // one write at a time, a second apart
	client := &http.Client{Transport: roundTripper(func(req *http.Request) (*http.Response, error) {
		if req.Method != http.MethodGet {
			writes.Lock()
			defer writes.Unlock()
			time.Sleep(time.Second)
		}
		for retries := 3; ; retries-- {
			resp, err := base.RoundTrip(req)
			if err != nil || retries == 0 || resp.StatusCode != 429 && resp.StatusCode < 500 {
				return resp, err
			}
			_ = resp.Body.Close()
			time.Sleep(time.Second) // this request alone
		}
	})}
	// end
	return client
}

func providerAfter(base http.RoundTripper) (*http.Client, error) {
	// doc
	writes := func(req *http.Request) string {
		if req.Method == http.MethodGet {
			return "read"
		}
		return "write"
	}
	transport, err := cruisehttp.NewTransport(
		cruisehttp.WithRoundTripper(base), // beneath: oauth2, signing, logging of each attempt
		cruisehttp.WithScope("host", cruisehttp.HostKey),
		cruisehttp.WithScope("kind", writes),
		cruisehttp.WithAnyMethod(), // as before: writes are repeated too
		cruisehttp.WithRetrierOptions(
			cruise.WithMaxAttempts(4), // 3 retries
			cruise.WithScopeLimiter(func(scope, key string) (cruise.Limiter, error) {
				if key == "write" {
					return cruise.NewTokenBucket(1, 1) // a second apart
				}
				return cruise.NewAdaptiveLimiter()
			}),
		),
	)
	if err != nil {
		return nil, err
	}
	client := &http.Client{Transport: transport}
	// end
	return client, nil
}

func apiClientBefore(httpClient *http.Client) func(*http.Request) (*http.Response, error) {
	// doc
	do := func(req *http.Request) (resp *http.Response, err error) {
		req.Header.Set("X-Request-Key", rand.Text()) // the server knows a repeated request by it
		for range 3 {
			resp, err = httpClient.Do(req)
			if err == nil && resp.StatusCode != 429 && resp.StatusCode < 500 {
				return resp, nil
			}
			if err == nil {
				_ = resp.Body.Close()
				err = errors.New(resp.Status)
			}
			time.Sleep(500 * time.Millisecond)
		}
		return nil, err
	}
	// end
	return do
}

func apiClientAfter(httpClient *http.Client) (func(*http.Request) (*http.Response, error), error) {
	// doc
	transport, err := cruisehttp.NewTransport(
		cruisehttp.WithRoundTripper(httpClient.Transport),
		cruisehttp.WithIdempotencyHeader("X-Request-Key"), // so a POST with it is repeated
		cruisehttp.WithRetrierOptions(cruise.WithMaxAttempts(3)),
	)
	if err != nil {
		return nil, err
	}
	client := &http.Client{Transport: transport}
	do := func(req *http.Request) (*http.Response, error) {
		req.Header.Set("X-Request-Key", rand.Text())
		return client.Do(req)
	}
	// end
	return do, nil
}

// A pacer is like those of programs that copy files to clouds: one shared delay, doubled by
// each throttle and lowered by each success.
type pacer struct {
	mu    sync.Mutex
	sleep time.Duration
}

func (p *pacer) Call(f func() (retry bool, err error)) error {
	for n := 1; ; n++ {
		p.mu.Lock()
		sleep := p.sleep
		p.mu.Unlock()
		time.Sleep(sleep)
		retry, err := f()
		p.mu.Lock()
		if retry {
			p.sleep = min(max(2*p.sleep, 10*time.Millisecond), 2*time.Second)
		} else {
			p.sleep /= 2
		}
		p.mu.Unlock()
		if !retry || n == 10 {
			return err
		}
	}
}

func shouldRetry(err error) bool { return err != nil && !errors.Is(err, errNotFound) }

func pacerBefore(_ context.Context, client *heroku, name string) (a *app, err error) {
	p := &pacer{}
	ctx := context.Background()
	// doc
	err = p.Call(func() (bool, error) {
		a, err = client.App(ctx, name)
		return shouldRetry(err), err
	})
	// end
	return a, err
}

func pacerAfter(ctx context.Context, client *heroku, name string) (a *app, err error) {
	// doc
	api := cruise.Must(cruise.New( // once, for all calls
		cruise.WithMaxAttempts(10),
		cruise.WithoutBudget(), // as before: each call retries as if alone
	))

	err = api.Do(ctx, func(ctx context.Context) error {
		a, err = client.App(ctx, name)
		if !shouldRetry(err) {
			return cruise.Permanent(err) // nil stays nil
		}
		return err // StatusCode() tells a 429 from other failures
	})
	// end
	return a, err
}

func pacerKept(ctx context.Context, client *heroku, name string) (a *app, err error) {
	// doc
	pacer := cruise.Must(delay.New(delay.Rule{ // the shared delay, as it was
		First: 10 * time.Millisecond, Factor: 2, Max: 2 * time.Second, LowerFactor: 0.5,
	}))
	api := cruise.Must(cruise.New(cruise.WithLimiter(pacer), cruise.WithMaxAttempts(10)))
	// end
	err = api.Do(ctx, func(ctx context.Context) error {
		a, err = client.App(ctx, name)
		if !shouldRetry(err) {
			return cruise.Permanent(err)
		}
		return err
	})
	return a, err
}

// A flowControl is the interface of programs that let users plug in a rate limiter.
type flowControl interface {
	Wait(ctx context.Context) error
	TryAccept() bool
	QPS() float32
}

type flowBefore struct{ *rate.Limiter }

func (f flowBefore) TryAccept() bool { return f.Allow() }
func (f flowBefore) QPS() float32    { return float32(f.Limit()) }

func newFlowBefore() flowControl {
	// doc
	flow := flowBefore{rate.NewLimiter(10, 20)} // with methods TryAccept and QPS
	// end
	return flow
}

func newFlowAfter() (flowControl, error) {
	// doc
	limiter, err := cruise.NewAdaptiveLimiter(cruise.WithMaxRate(10))
	if err != nil {
		return nil, err
	}
	flow := flowAfter{limiter}
	// end
	return flow, nil
}

type flowAfter struct{ *cruise.AdaptiveLimiter }

func (f flowAfter) Wait(ctx context.Context) error { return f.WaitN(ctx, 1) }
func (f flowAfter) QPS() float32                   { return float32(f.Limit()) }

func (f flowAfter) TryAccept() bool {
	// doc
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	return f.WaitN(ctx, 1) == nil // refused at once if it would wait for longer
	// end
}

func TestProviderBeforeAndAfter(t *testing.T) {
	for name, build := range map[string]func(http.RoundTripper) (*http.Client, error){
		"before": func(base http.RoundTripper) (*http.Client, error) { return providerBefore(base), nil },
		"after":  providerAfter,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base, calls := throttling(2, http.StatusTooManyRequests, "slow down", "hello")
				client, err := build(base)
				require.NoError(t, err)
				begun := time.Now()
				for range 3 {
					resp, err := client.Post("http://api.example.com/", "text/plain", nil)
					require.NoError(t, err)
					require.NoError(t, resp.Body.Close())
					assert.Equal(t, http.StatusOK, resp.StatusCode)
				}
				assert.Equal(t, 5, *calls)
				assert.GreaterOrEqual(t, time.Since(begun), 2*time.Second, "writes are a second apart")
			})
		})
	}
}

func TestAPIClientBeforeAndAfter(t *testing.T) {
	for name, build := range map[string]func(*http.Client) (func(*http.Request) (*http.Response, error), error){
		"before": func(c *http.Client) (func(*http.Request) (*http.Response, error), error) {
			return apiClientBefore(c), nil
		},
		"after": apiClientAfter,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				post := func(do func(*http.Request) (*http.Response, error)) (*http.Response, error) {
					req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://api.example.com/", nil)
					require.NoError(t, err)
					return do(req)
				}
				base, calls := throttling(2, http.StatusBadGateway, "", "hello")
				do, err := build(&http.Client{Transport: base})
				require.NoError(t, err)
				resp, err := post(do)
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				assert.Equal(t, 3, *calls)

				base, calls = throttling(5, http.StatusBadGateway, "it says why", "")
				do, err = build(&http.Client{Transport: base})
				require.NoError(t, err)
				resp, err = post(do)
				assert.Equal(t, 3, *calls)
				if name == "before" {
					assert.EqualError(t, err, "502 Bad Gateway")
					return
				}
				require.NoError(t, err, "the last response comes as it is")
				require.NoError(t, resp.Body.Close())
				assert.Equal(t, http.StatusBadGateway, resp.StatusCode)
			})
		})
	}
}

func TestPacerBeforeAndAfter(t *testing.T) {
	for name, call := range map[string]func(context.Context, *heroku, string) (*app, error){
		"before": pacerBefore, "after": pacerAfter, "kept": pacerKept,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := &heroku{throttles: 4}
				a, err := call(t.Context(), client, "example")
				require.NoError(t, err)
				assert.Equal(t, "example", a.name)
				assert.Equal(t, 5, client.calls)

				client = &heroku{}
				_, err = call(t.Context(), client, "")
				assert.ErrorIs(t, err, errNotFound)
				assert.Equal(t, 1, client.calls, "not retried")
			})
		})
	}
}

func TestFlowControlBeforeAndAfter(t *testing.T) {
	for name, build := range map[string]func() (flowControl, error){
		"before": func() (flowControl, error) { return newFlowBefore(), nil },
		"after":  newFlowAfter,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				flow, err := build()
				require.NoError(t, err)
				assert.EqualValues(t, 10, flow.QPS())
				assert.True(t, flow.TryAccept())
				begun := time.Now()
				for flow.TryAccept() {
					require.Less(t, time.Since(begun), time.Second)
				}
				require.NoError(t, flow.Wait(t.Context()))
				assert.InDelta(t, .1, time.Since(begun).Seconds(), .01)
			})
		})
	}
}
