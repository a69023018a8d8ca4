package cruisehttp_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/cruisehttp"
)

// It is given back whole all the same.
func TestTransportDoesNotWaitForASlowError(t *testing.T) {
	for name, c := range map[string]struct {
		opt  cruisehttp.Option
		head time.Duration
	}{
		"no timeout":        {cruisehttp.WithLongWait(time.Hour), 2 * time.Second},
		"header timeout":    {cruisehttp.WithHeaderTimeout(time.Second), time.Second},
		"Retrier's timeout": {cruisehttp.WithRetrierOptions(cruise.WithAttemptTimeout(time.Second)), time.Second},
	} {
		for _, status := range []int{404, 503} {
			t.Run(fmt.Sprint(name, " ", status), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					first := true
					base := &server{start: time.Now(), answers: func(_ int, r *http.Request) (*http.Response, error) {
						if !first {
							return answer(200, ""), nil
						}
						first = false
						resp := answer(status, "")
						body, w := io.Pipe()
						context.AfterFunc(r.Context(), func() { _ = w.CloseWithError(r.Context().Err()) })
						go func() {
							_, _ = io.WriteString(w, "begin")
							time.Sleep(time.Minute)
							_, _ = io.WriteString(w, "end")
							_ = w.Close()
						}()
						resp.Body = body
						return resp, nil
					}}
					begin := time.Now()
					resp, err := transport(t, base, c.opt, cruisehttp.WithRetrierOptions(cruise.WithBackoff(cruise.Backoff{}))).RoundTrip(request(t, "GET", example, nil))
					require.NoError(t, err)
					assert.Equal(t, c.head, time.Since(begin))
					if status == 404 {
						assert.Equal(t, "beginend", text(t, resp))
					} else {
						text(t, resp)
					}
					synctest.Wait()
					assert.Zero(t, base.open.Load())
					time.Sleep(time.Hour)
				})
			})
		}
	}
}

// Nor does it use up the caller's time: the answer is there, and another attempt may be made.
func TestTransportLeavesTimeAfterASlowError(t *testing.T) {
	for _, status := range []int{404, 503} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				first := true
				base := &server{start: time.Now(), answers: func(_ int, r *http.Request) (*http.Response, error) {
					if !first {
						return answer(200, "ok"), nil
					}
					first = false
					resp := answer(status, "")
					body, w := io.Pipe()
					context.AfterFunc(r.Context(), func() { _ = w.CloseWithError(r.Context().Err()) })
					resp.Body = body
					return resp, nil
				}}
				begin := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				resp, err := transport(t, base, cruisehttp.WithRetrierOptions(cruise.WithBackoff(cruise.Backoff{}))).
					RoundTrip(request(t, "GET", example, nil).WithContext(ctx))
				require.NoError(t, err)
				assert.Equal(t, 500*time.Millisecond, time.Since(begin))
				if status == 404 {
					assert.Equal(t, 404, resp.StatusCode)
				} else {
					assert.Equal(t, 200, resp.StatusCode)
				}
				require.NoError(t, resp.Body.Close())
				synctest.Wait()
				assert.Zero(t, base.open.Load())
			})
		})
	}
}

// A packedBody is silent, and its Close waits for the Read. A gzip body of net/http does the same
// until it has read the gzip header.
type packedBody struct {
	ctx  context.Context
	open atomic.Bool
}

func (b *packedBody) Read([]byte) (int, error) {
	<-b.ctx.Done()
	return 0, b.ctx.Err()
}

func (b *packedBody) Close() error {
	<-b.ctx.Done()
	b.open.Store(false)
	return nil
}

func TestTransportDoesNotWaitForAPackedError(t *testing.T) {
	for name, c := range map[string]struct {
		opt  cruisehttp.Option
		open bool // while the context of the request lasts
	}{
		"no timeout":     {cruisehttp.WithLongWait(time.Hour), true},
		"header timeout": {cruisehttp.WithHeaderTimeout(time.Hour), false},
	} {
		for _, status := range []int{404, 503} {
			t.Run(fmt.Sprint(name, " ", status), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					body := &packedBody{}
					base := roundTripper(func(r *http.Request) (*http.Response, error) {
						if body.ctx != nil {
							return answer(200, ""), nil
						}
						body.ctx = r.Context()
						body.open.Store(true)
						resp := answer(status, "")
						resp.Body = body
						return resp, nil
					})
					begin := time.Now()
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					resp, err := transport(t, base, c.opt, cruisehttp.WithRetrierOptions(cruise.WithBackoff(cruise.Backoff{}))).
						RoundTrip(request(t, "GET", example, nil).WithContext(ctx))
					require.NoError(t, err)
					require.NoError(t, resp.Body.Close())
					assert.Equal(t, 2*time.Second, time.Since(begin))
					synctest.Wait()
					assert.Equal(t, c.open, body.open.Load())
					cancel()
					synctest.Wait()
					assert.False(t, body.open.Load())
				})
			})
		}
	}
}

// An error may be a stream too, such as a log, which its reader wants to follow.
func TestTransportHandsOnASlowErrorAsItComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := roundTripper(func(*http.Request) (*http.Response, error) {
			body, w := io.Pipe()
			go func() {
				for i := range 4 {
					_, _ = fmt.Fprint(w, i)
					time.Sleep(time.Minute)
				}
				_ = w.Close()
			}()
			resp := answer(404, "")
			resp.Body = body
			return resp, nil
		})
		begin := time.Now()
		resp, err := transport(t, base).RoundTrip(request(t, "GET", example, nil))
		require.NoError(t, err)
		for i, at := range []time.Duration{2 * time.Second, time.Minute, 2 * time.Minute, 3 * time.Minute} {
			line := make([]byte, 9)
			n, err := resp.Body.Read(line)
			require.NoError(t, err)
			assert.Equal(t, fmt.Sprint(i), string(line[:n]))
			assert.Equal(t, at, time.Since(begin))
		}
		assert.Empty(t, text(t, resp))
	})
}

type panicking struct{}

func (panicking) Read([]byte) (int, error) { panic("corrupt") }
func (panicking) Close() error             { return nil }

func TestTransportClosesTheResponseThatAClassifierPanicsAt(t *testing.T) {
	base := inOrder(says(429, "slow down"))
	tr := transport(t, base, cruisehttp.WithRetrierOptions(cruise.WithClassifier(func(error) cruise.Verdict { panic("at the disco") })))
	assert.PanicsWithValue(t, "at the disco", func() { _, _ = tr.RoundTrip(request(t, "GET", example, nil)) })
	assert.Equal(t, 1, base.count())
	assert.Zero(t, base.open.Load())
}

// Google's transports write an API key into the URL of the request that they get.
func TestTransportTellsNothingThatABaseWritesIntoTheURL(t *testing.T) {
	client := &http.Client{Transport: transport(t, roundTripper(func(r *http.Request) (*http.Response, error) {
		r.URL.RawQuery = "key=s3cr3t"
		return answer(429, "", "Retry-After: 86400"), nil
	}))}
	_, err := client.Get(example)
	require.ErrorIs(t, err, cruise.ErrQuotaExhausted)
	assert.NotContains(t, err.Error(), "s3cr3t")
}

// Such as a panic of a library that unpacks a server's body.
func TestTransportMakesAnErrorOfAPanicOfABody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		resp := answer(404, "")
		resp.Body = panicking{}
		got, err := transport(t, inOrder(func() (*http.Response, error) { return resp, nil })).RoundTrip(request(t, "GET", example, nil))
		require.NoError(t, err)
		_, err = io.ReadAll(got.Body)
		require.EqualError(t, err, "cruisehttp: reading the body panicked: corrupt")
		require.NoError(t, got.Body.Close())
	})
}

// As with net/http, however much of the body the Transport has read.
func TestClosedBodiesHoldNothing(t *testing.T) {
	resp, err := transport(t, inOrder(says(404, "not found"))).RoundTrip(request(t, "GET", example, nil))
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	data, err := io.ReadAll(resp.Body)
	require.ErrorIs(t, err, http.ErrBodyReadAfterClose)
	assert.Empty(t, data)
}
