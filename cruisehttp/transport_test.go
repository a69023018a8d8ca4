package cruisehttp_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/cruisehttp"
	"github.com/a7df5faa/cruise/cruisehttp/signal"
	"github.com/a7df5faa/cruise/cruiseslog"
)

// server is a base transport that answers by itself, without a socket.
type server struct {
	mu      sync.Mutex
	bodies  []string // of the requests, as they arrived
	times   []time.Duration
	start   time.Time
	open    atomic.Int64 // response bodies not closed
	answers func(n int, r *http.Request) (*http.Response, error)
}

func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	body := ""
	if r.Body != nil {
		data, _ := io.ReadAll(r.Body)
		_ = r.Body.Close()
		body = string(data)
	}
	s.mu.Lock()
	s.bodies = append(s.bodies, body)
	s.times = append(s.times, time.Since(s.start))
	n := len(s.bodies)
	s.mu.Unlock()
	resp, err := s.answers(n, r)
	if resp != nil {
		s.open.Add(1)
		resp.Body = &closing{ReadCloser: resp.Body, closed: func() { s.open.Add(-1) }}
	}
	return resp, err
}

func (s *server) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.bodies)
}

type closing struct {
	io.ReadCloser
	closed func()
	once   sync.Once
}

func (c *closing) Close() error {
	c.once.Do(c.closed)
	return c.ReadCloser.Close()
}

// answer makes a response; headers are "Name: value".
func answer(status int, body string, headers ...string) *http.Response {
	resp := &http.Response{
		StatusCode: status, Status: strconv.Itoa(status) + " " + http.StatusText(status),
		Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body)), ContentLength: -1,
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		resp.Header.Add(name, value)
	}
	return resp
}

// inOrder answers with each response in turn, then with the last one for good.
func inOrder(responses ...func() (*http.Response, error)) *server {
	return &server{start: time.Now(), answers: func(n int, _ *http.Request) (*http.Response, error) {
		return responses[min(n, len(responses))-1]()
	}}
}

func says(status int, body string, headers ...string) func() (*http.Response, error) {
	return func() (*http.Response, error) { return answer(status, body, headers...), nil }
}

func fails(err error) func() (*http.Response, error) {
	return func() (*http.Response, error) { return nil, err }
}

func transport(t testing.TB, base http.RoundTripper, opts ...cruisehttp.Option) *cruisehttp.Transport {
	t.Helper()
	tr, err := cruisehttp.NewTransport(append([]cruisehttp.Option{cruisehttp.WithRoundTripper(base)}, opts...)...)
	require.NoError(t, err)
	return tr
}

func request(t testing.TB, method, url string, body io.Reader, headers ...string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, body)
	require.NoError(t, err)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Add(name, value)
	}
	return req
}

func text(t testing.TB, resp *http.Response) string {
	t.Helper()
	data, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return string(data)
}

const example = "http://api.example.com/things"

// noServers is an error that could join others, but has none.
type noServers struct{ error }

func (noServers) Unwrap() []error        { return nil }
func (e noServers) Is(target error) bool { return target == e.error }

func TestTransportRetries(t *testing.T) {
	reset := &net.OpError{Op: "read", Err: errors.New("connection reset")}
	dial := &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	ok := says(200, "done")
	for _, c := range []struct {
		name     string
		method   string
		header   string
		ctx      func(context.Context) context.Context
		opts     []cruisehttp.Option
		first    func() (*http.Response, error)
		attempts int
		status   int // 0: an error
		is       error
	}{
		{name: "GET, 503", method: "GET", first: says(503, ""), attempts: 2, status: 200},
		{name: "PUT, 502", method: "PUT", first: says(502, ""), attempts: 2, status: 200},
		{name: "POST, 503", method: "POST", first: says(503, "down"), attempts: 1, status: 503},
		{name: "PATCH, 500", method: "PATCH", first: says(500, "down"), attempts: 1, status: 500},
		{name: "PROPFIND, 500", method: "PROPFIND", first: says(500, "down"), attempts: 2, status: 200},
		{name: "LOCK, 500", method: "LOCK", first: says(500, "down"), attempts: 1, status: 500},
		{name: "POST with a key, 503", method: "POST", header: "Idempotency-Key: 1", first: says(503, ""), attempts: 2, status: 200},
		{name: "POST allowed, 503", method: "POST", ctx: cruisehttp.AllowRetry, first: says(503, ""), attempts: 2, status: 200},
		{name: "GET forbidden, 503", method: "GET", ctx: cruisehttp.ForbidRetry, first: says(503, ""), attempts: 1, status: 503},
		{name: "GET forbidden, 429", method: "GET", ctx: cruisehttp.ForbidRetry, first: says(429, ""), attempts: 1, status: 429},
		{name: "POST, 429", method: "POST", first: says(429, ""), attempts: 2, status: 200},
		{name: "POST, 503 with Retry-After", method: "POST", first: says(503, "", "Retry-After: 1"), attempts: 2, status: 200},
		{name: "POST, 429, only idempotent", method: "POST", opts: []cruisehttp.Option{cruisehttp.WithOnlyIdempotent()}, first: says(429, "x"), attempts: 1, status: 429},
		{name: "POST allowed, 429, only idempotent", method: "POST", ctx: cruisehttp.AllowRetry, opts: []cruisehttp.Option{cruisehttp.WithOnlyIdempotent()}, first: says(429, "x"), attempts: 2, status: 200},
		{name: "GET, 429, only idempotent", method: "GET", opts: []cruisehttp.Option{cruisehttp.WithOnlyIdempotent()}, first: says(429, ""), attempts: 2, status: 200},
		{name: "GET, reset", method: "GET", first: fails(reset), attempts: 2, status: 200},
		{name: "POST, reset", method: "POST", first: fails(reset), attempts: 1, is: cruisehttp.ErrNotIdempotent},
		{name: "POST with a key, reset", method: "POST", header: "X-Idempotency-Key: 1", first: fails(reset), attempts: 2, status: 200},
		{name: "POST with a key that is not sent, reset", method: "POST", header: "Idempotency-Key", first: fails(reset), attempts: 2, status: 200},
		{name: "POST with an empty key, reset", method: "POST", header: "Idempotency-Key: ", first: fails(reset), attempts: 1, is: cruisehttp.ErrNotIdempotent},
		{name: "POST, refused connection", method: "POST", first: fails(dial), attempts: 2, status: 200},
		{name: "POST, a SOCKS proxy that reaches nobody", method: "POST", first: fails(&net.OpError{Op: "socks connect", Err: errors.New("connection refused")}), attempts: 2, status: 200},
		{name: "POST, two servers that refuse", method: "POST", first: fails(errors.Join(dial, dial)), attempts: 2, status: 200},
		{name: "POST, a server that refuses and one that resets", method: "POST", first: fails(errors.Join(dial, reset)), attempts: 1, is: cruisehttp.ErrNotIdempotent},
		{name: "POST, unsent for want of something else", method: "POST", first: fails(fmt.Errorf("no token: %w", cruisehttp.Unsent(reset))), attempts: 2, status: 200},
		{name: "POST, reset, told by another error", method: "POST", first: fails(fmt.Errorf("call: %w", reset)), attempts: 1, is: cruisehttp.ErrNotIdempotent},
		{name: "POST, reset, of no server", method: "POST", first: fails(noServers{reset}), attempts: 1, is: cruisehttp.ErrNotIdempotent},
		{name: "GET, no such host", method: "GET", first: fails(&net.DNSError{IsNotFound: true}), attempts: 1, is: nil},
		{name: "GET, neither response nor error", method: "GET", first: fails(nil), attempts: 1, is: nil},
		{name: "GET, 404", method: "GET", first: says(404, "no"), attempts: 1, status: 404},
		{name: "POST, server wants it", method: "POST", first: says(500, "", "Stripe-Should-Retry: true"), attempts: 2, status: 200},
		{name: "POST, 409, server wants it", method: "POST", first: says(409, "", "X-Should-Retry: true"), attempts: 2, status: 200},
		{name: "POST, server wants it, only idempotent", method: "POST", opts: []cruisehttp.Option{cruisehttp.WithOnlyIdempotent()}, first: says(500, "x", "X-Should-Retry: true"), attempts: 1, status: 500},
		{name: "GET, 500, server forbids it", method: "GET", first: says(500, "", "X-Should-Retry: false"), attempts: 1, status: 500},
		{name: "GET, 429, server forbids it", method: "GET", first: says(429, "", "X-Should-Retry: false"), attempts: 1, status: 429},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base := inOrder(c.first, ok)
				req := request(t, c.method, example, strings.NewReader("body"))
				if c.header != "" {
					name, value, sent := strings.Cut(c.header, ": ")
					req.Header[name] = nil
					if sent {
						req.Header[name] = []string{value}
					}
				}
				if c.ctx != nil {
					req = req.WithContext(c.ctx(req.Context()))
				}
				resp, err := transport(t, base, c.opts...).RoundTrip(req)
				assert.Equal(t, c.attempts, base.count())
				for _, body := range base.bodies {
					assert.Equal(t, "body", body)
				}
				if c.status == 0 {
					require.Error(t, err)
					if c.is != nil {
						require.ErrorIs(t, err, c.is)
						require.ErrorIs(t, err, error(reset))
					}
				} else {
					require.NoError(t, err)
					assert.Equal(t, c.status, resp.StatusCode)
					assert.Same(t, req, resp.Request)
					text(t, resp)
				}
				assert.Zero(t, base.open.Load(), "response bodies left open")
			})
		})
	}
}

func TestTransportReturnsTheLastResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		long := strings.Repeat("x", 3*signal.MaxBody)
		base := inOrder(says(503, "first"), says(503, long))
		resp, err := transport(t, base, cruisehttp.WithRetrierOptions(cruise.WithMaxAttempts(3))).RoundTrip(request(t, "GET", example, nil))
		require.NoError(t, err)
		assert.Equal(t, 503, resp.StatusCode)
		assert.Equal(t, 3, base.count())
		assert.EqualValues(t, 1, base.open.Load())
		assert.Equal(t, long, text(t, resp), "given back untouched")
		assert.Zero(t, base.open.Load())
	})
}

func TestTransportReturnsTheResponseThatADeadlineLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		base := inOrder(says(429, "later", "Retry-After: 30"))
		start := time.Now()
		resp, err := transport(t, base).RoundTrip(request(t, "GET", example, nil).WithContext(ctx))
		require.NoError(t, err)
		assert.Equal(t, "later", text(t, resp))
		assert.Zero(t, time.Since(start), "nothing to wait for")
	})
}

func TestTransportFailsOnAContextThatEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		base := inOrder(says(429, "later", "Retry-After: 30"))
		why := errors.New("why")
		time.AfterFunc(5*time.Second, func() { cancel(why) })
		_, err := transport(t, base).RoundTrip(request(t, "GET", example, nil).WithContext(ctx))
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, why)
		answer, ok := errors.AsType[*cruisehttp.ResponseError](err)
		require.True(t, ok, "the server's answer is not hidden")
		assert.Equal(t, 429, answer.StatusCode)
		assert.Zero(t, base.open.Load())
	})
}

// Whether the response is worth a retry or not.
func TestTransportFailsOnAContextThatHasEnded(t *testing.T) {
	why := errors.New("why")
	for _, status := range []int{404, 429, 503} {
		for name, cause := range map[string]error{"context canceled": nil, "context canceled: why": why} {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				base := inOrder(func() (*http.Response, error) {
					time.Sleep(3 * time.Second)
					cancel(cause)
					return answer(status, "no"), nil
				})
				_, err := transport(t, base).RoundTrip(request(t, "GET", example, nil).WithContext(ctx))
				require.ErrorIs(t, err, context.Canceled)
				if cause != nil {
					require.ErrorIs(t, err, cause)
				}
				assert.ErrorContains(t, err, "cruise: gave up after 1 attempt in 3s: "+name+": cruisehttp: "+strconv.Itoa(status))
				answer, ok := errors.AsType[*cruisehttp.ResponseError](err)
				require.True(t, ok)
				assert.Equal(t, status, answer.StatusCode)
				assert.Zero(t, base.open.Load())
			})
		}
	}
}

// A Client with a Timeout ends both. The base may notice either of them first, and return any
// error.
func TestTransportDropsARequestThatIsCancelled(t *testing.T) {
	cancelled, why := errors.New("net/http: request canceled"), errors.New("why")
	for _, tt := range []struct {
		name string
		end  func(*http.Request) *http.Request
		is   []error // in addition to the base's error
	}{
		{name: "by its channel", end: func(req *http.Request) *http.Request {
			cancel := make(chan struct{})
			time.AfterFunc(time.Second, func() { close(cancel) })
			req.Cancel = cancel //lint:ignore SA1019 it is what is tested
			return req
		}},
		{name: "by its context", end: func(req *http.Request) *http.Request {
			ctx, cancel := context.WithCancel(req.Context())
			time.AfterFunc(time.Second, cancel)
			return req.WithContext(ctx)
		}, is: []error{context.Canceled}},
		{name: "by its context, for a reason", end: func(req *http.Request) *http.Request {
			ctx, cancel := context.WithCancelCause(req.Context())
			time.AfterFunc(time.Second, func() { cancel(why) })
			return req.WithContext(ctx)
		}, is: []error{context.Canceled, why}},
		{name: "by its deadline", end: func(req *http.Request) *http.Request {
			ctx, cancel := context.WithTimeout(req.Context(), time.Second)
			context.AfterFunc(ctx, cancel)
			return req.WithContext(ctx)
		}, is: []error{context.DeadlineExceeded}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var ended []cruise.AttemptEnded
				tr := transport(t, roundTripper(func(r *http.Request) (*http.Response, error) {
					select {
					case <-r.Context().Done():
					case <-r.Cancel: //lint:ignore SA1019 it is what is tested
					}
					return nil, cancelled
				}), cruisehttp.WithRetrierOptions(cruise.WithObserver(cruise.ObserverFunc(func(_ context.Context, e cruise.Event) {
					if e, ok := e.(cruise.AttemptEnded); ok {
						ended = append(ended, e)
					}
				}))))
				begin := time.Now()
				_, err := tr.RoundTrip(tt.end(request(t, "GET", example, nil)))
				require.ErrorIs(t, err, cancelled)
				for _, is := range tt.is {
					assert.ErrorIs(t, err, is)
				}
				timeout, ok := err.(net.Error)
				assert.Equal(t, slices.Contains(tt.is, context.DeadlineExceeded), ok && timeout.Timeout())
				require.Len(t, ended, 1)
				assert.Equal(t, cruise.OutcomeDropped.String(), ended[0].Outcome.String())
				assert.Equal(t, time.Second, time.Since(begin))
			})
		})
	}
}

func TestTransportDoesNotModifyTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := inOrder(says(503, ""), says(200, ""))
		req := request(t, "PUT", example, strings.NewReader("body"), "X-A: b")
		before := *req
		header := req.Header.Clone()
		resp, err := transport(t, base).RoundTrip(req)
		require.NoError(t, err)
		text(t, resp)
		assert.Equal(t, header, req.Header)
		assert.Same(t, before.URL, req.URL)
		assert.Equal(t, before.Body, req.Body)
		assert.Equal(t, before.ContentLength, req.ContentLength)
		assert.Equal(t, before.Context(), req.Context())
	})
}

// once is a body that can be read once, and tells whether it was closed.
type once struct {
	io.Reader
	closed atomic.Int64
}

func (o *once) Close() error {
	o.closed.Add(1)
	return nil
}

func TestTransportSendsTheBodyAgain(t *testing.T) {
	file := filepath.Join(t.TempDir(), "body")
	require.NoError(t, os.WriteFile(file, []byte("skipped, sent"), 0o600))
	t.Run("by Seek, from where it stood", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f, err := os.Open(file)
			require.NoError(t, err)
			_, err = f.Seek(9, io.SeekStart)
			require.NoError(t, err)
			base := inOrder(says(503, ""), says(503, ""), says(200, ""))
			resp, err := transport(t, base).RoundTrip(request(t, "PUT", example, f))
			require.NoError(t, err)
			text(t, resp)
			assert.Equal(t, []string{"sent", "sent", "sent"}, base.bodies)
			_, err = f.Read(make([]byte, 1))
			require.ErrorIs(t, err, os.ErrClosed)
		})
	})
	for _, c := range []struct {
		name   string
		max    int64
		body   string
		bodies []string
	}{
		{"not at all", 0, "12345", []string{"12345"}},
		{"from the buffer", 5, "12345", []string{"12345", "12345"}},
		{"longer than the buffer", 4, "12345", []string{"12345"}},
		{"whatever its length", math.MaxInt64, "12345", []string{"12345", "12345"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base := inOrder(fails(io.ErrUnexpectedEOF), says(200, ""))
				var opts []cruisehttp.Option
				if c.max > 0 {
					opts = append(opts, cruisehttp.WithBufferedBodies(c.max))
				}
				body := &once{Reader: strings.NewReader(c.body)}
				resp, err := transport(t, base, opts...).RoundTrip(request(t, "PUT", example, body))
				assert.Equal(t, c.bodies, base.bodies)
				assert.EqualValues(t, 1, body.closed.Load())
				if len(c.bodies) == 1 {
					require.ErrorIs(t, err, cruisehttp.ErrBody)
					require.ErrorIs(t, err, io.ErrUnexpectedEOF)
					return
				}
				require.NoError(t, err)
				text(t, resp)
			})
		})
	}
	t.Run("GetBody has none any more", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			base := inOrder(says(503, "busy"))
			req := request(t, "PUT", example, strings.NewReader("12345"))
			req.GetBody = func() (io.ReadCloser, error) { return nil, nil }
			resp, err := transport(t, base).RoundTrip(req)
			require.NoError(t, err)
			assert.Equal(t, "busy", text(t, resp))
			assert.Equal(t, []string{"12345"}, base.bodies)
		})
	})
	t.Run("a body that fails", func(t *testing.T) {
		body := &once{Reader: io.MultiReader(strings.NewReader("1"), failing{})}
		_, err := transport(t, inOrder(says(200, "")), cruisehttp.WithBufferedBodies(9)).RoundTrip(request(t, "PUT", example, body))
		require.ErrorIs(t, err, io.ErrClosedPipe)
		assert.EqualValues(t, 1, body.closed.Load())
	})
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestTransportClosesTheBodyOfARequestThatIsNeverSent(t *testing.T) {
	for _, tt := range []struct {
		name    string
		max     int64 // bytes to buffer; 0: none
		refused bool  // by the limiter; else its context has ended
		is      error
	}{
		{"cancelled", 0, false, context.Canceled},
		{"refused", 0, true, cruise.ErrDeadline},
		{"to be buffered, cancelled", 5, false, context.Canceled},
		{"buffered, refused", 5, true, cruise.ErrDeadline},
		{"longer than the buffer, refused", 4, true, cruise.ErrDeadline},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				limiter := cruise.Must(cruise.NewTokenBucket(1, 1))
				opts := []cruisehttp.Option{cruisehttp.WithRetrierOptions(cruise.WithLimiter(limiter))}
				if tt.max > 0 {
					opts = append(opts, cruisehttp.WithBufferedBodies(tt.max))
				}
				if tt.refused {
					limiter.Pause(2 * time.Minute)
				} else {
					cancel()
				}
				base, body := inOrder(says(200, "")), &once{Reader: strings.NewReader("12345")}
				_, err := transport(t, base, opts...).RoundTrip(request(t, "POST", example, body).WithContext(ctx))
				require.ErrorIs(t, err, tt.is)
				assert.ErrorContains(t, err, "cruise: call not made")
				assert.Zero(t, base.count())
				assert.EqualValues(t, 1, body.closed.Load())
			})
		})
	}
}

func TestTransportNotMadeByNewTransport(t *testing.T) {
	for name, transport := range map[string]*cruisehttp.Transport{"zero": {}, "nil": nil} {
		t.Run(name, func(t *testing.T) {
			body := &once{Reader: strings.NewReader("payload")}
			req, err := http.NewRequest("POST", "http://api.example.com", body)
			require.NoError(t, err)
			resp, err := transport.RoundTrip(req)
			assert.EqualError(t, err, "cruisehttp: Transport not made by NewTransport")
			assert.Nil(t, resp)
			assert.EqualValues(t, 1, body.closed.Load())
		})
	}
}

func TestTransportPausesTheWholeScope(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := inOrder(says(429, "", "Retry-After: 30"), says(200, ""))
		tr := transport(t, base)
		var group sync.WaitGroup
		for range 20 {
			group.Go(func() {
				resp, err := tr.RoundTrip(request(t, "GET", example, nil))
				if assert.NoError(t, err) {
					text(t, resp)
				}
			})
		}
		other := request(t, "GET", "http://other.example.com/", nil)
		time.Sleep(time.Second)
		start := time.Now()
		resp, err := tr.RoundTrip(other)
		require.NoError(t, err)
		text(t, resp)
		assert.Less(t, time.Since(start), time.Second, "another host is another scope")
		group.Wait()
		within := 0
		for _, at := range base.times {
			if at < 30*time.Second {
				within++
			}
		}
		assert.Equal(t, 2, within, "one request met the throttle, one was to another host")
	})
}

func TestTransportLeavesSuccessesAlone(t *testing.T) {
	switched := answer(101, "")
	base := roundTripper(func(*http.Request) (*http.Response, error) { return switched, nil })
	body := switched.Body
	resp, err := transport(t, base, cruisehttp.WithAttemptTimeout(time.Hour)).RoundTrip(request(t, "GET", example, nil))
	require.NoError(t, err)
	assert.Equal(t, body, resp.Body, "a connection to write to")
}

func TestTransportWithinAnotherRetrier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := inOrder(says(503, "first"), says(429, "second", "Retry-After: 86400"))
		tr := transport(t, base)
		outer := cruise.Must(cruise.New(cruise.WithMaxAttempts(3)))
		var statuses []int
		err := outer.Do(t.Context(), func(ctx context.Context) error {
			resp, err := tr.RoundTrip(request(t, "GET", example, nil).WithContext(ctx))
			if err != nil {
				return err
			}
			statuses = append(statuses, resp.StatusCode)
			text(t, resp)
			return errors.New(resp.Status)
		})
		require.ErrorIs(t, err, cruise.ErrQuotaExhausted)
		assert.Equal(t, []int{503}, statuses)
		assert.Equal(t, 2, base.count(), "retries do not multiply")
	})
}

// A request is in the background as the call is that it is made in, and retried all the same.
func TestRequestsInTheBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var served []string
		base := &server{start: time.Now(), answers: func(n int, r *http.Request) (*http.Response, error) {
			served = append(served, r.URL.Path)
			if n == 1 {
				return answer(429, "", "Retry-After: 3"), nil
			}
			return answer(200, ""), nil
		}}
		client := &http.Client{Transport: transport(t, base, cruisehttp.WithRetrierOptions(cruise.WithMaxRate(1), cruise.WithNestedRetries()))}
		get := func(ctx context.Context, path string) error {
			resp, err := client.Do(request(t, "GET", example+path, nil).WithContext(ctx))
			if err == nil {
				assert.Equal(t, 200, resp.StatusCode)
				err = resp.Body.Close()
			}
			return err
		}
		background := cruise.Must(cruise.New(cruise.WithoutLimiter(), cruise.WithMaxAttempts(1)))
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				assert.NoError(t, background.Do(t.Context(), func(ctx context.Context) error { return get(ctx, "/batch") }, cruise.WithBackground()))
			})
			synctest.Wait()
		}
		for range 3 {
			all.Go(func() { assert.NoError(t, get(t.Context(), "/user")) })
		}
		all.Wait()
		assert.Equal(t, []string{"/things/batch", "/things/user", "/things/user", "/things/user", "/things/batch", "/things/batch", "/things/batch"}, served)
	})
}

func TestTransportAsksTheClassifierOfTheRetrier(t *testing.T) {
	decide := func(e *cruisehttp.ResponseError) cruise.Verdict {
		if e.StatusCode == 404 {
			return cruise.Verdict{Outcome: cruise.OutcomeTransient}
		}
		return e.Verdict()
	}
	for name, classifier := range map[string]func(error) cruise.Verdict{
		"a function": func(err error) cruise.Verdict {
			e, _ := errors.AsType[*cruisehttp.ResponseError](err)
			return decide(e)
		},
		"ClassifyAs": cruise.ClassifyAs(decide),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base := inOrder(says(404, "not yet"), says(429, "slow down", "Retry-After: 7"), says(200, "done"))
				tr := transport(t, base, cruisehttp.WithRetrierOptions(cruise.WithClassifier(classifier)))
				start := time.Now()
				resp, err := tr.RoundTrip(request(t, "GET", example, nil))
				require.NoError(t, err)
				assert.Equal(t, "done", text(t, resp))
				assert.GreaterOrEqual(t, time.Since(start), 7*time.Second, "the other verdicts stand")
			})
		})
	}
}

// A response error that was made by hand means what its status says.
func TestVerdictOfAResponse(t *testing.T) {
	s := signal.Signal{Outcome: cruise.OutcomeQuotaExhausted, Scope: "day"}
	for _, tt := range []struct {
		e    cruisehttp.ResponseError
		want cruise.Verdict
	}{
		{cruisehttp.ResponseError{StatusCode: 429}, cruise.Verdict{Outcome: cruise.OutcomeThrottled}},
		{cruisehttp.ResponseError{StatusCode: 404}, cruise.Verdict{Outcome: cruise.OutcomePermanent}},
		{cruisehttp.ResponseError{StatusCode: 403, Signal: s}, cruise.Verdict{Outcome: cruise.OutcomeQuotaExhausted, Scope: "day"}},
	} {
		assert.Equal(t, tt.want, tt.e.Verdict(), "%d", tt.e.StatusCode)
		assert.Equal(t, tt.want, cruise.Classify(fmt.Errorf("list: %w", &tt.e)), "%d", tt.e.StatusCode)
	}
}

// A request that the classifier calls throttled was not processed; one that it calls transient may
// have been.
func TestTransportAsksTheClassifierAboutAPost(t *testing.T) {
	for outcome, want := range map[cruise.Outcome][]string{
		cruise.OutcomeThrottled: {"throttled, retry, success", "done"},
		cruise.OutcomeTransient: {"transient", "calm down"},
		cruise.OutcomePermanent: {"permanent", "calm down"},
	} {
		synctest.Test(t, func(t *testing.T) {
			var events []string
			base := inOrder(says(420, "calm down"), says(200, "done"))
			tr := transport(t, base, cruisehttp.WithRetrierOptions(
				cruise.WithClassifier(func(error) cruise.Verdict {
					return cruise.Verdict{Outcome: outcome, RetryAfter: 4 * time.Minute}
				}),
				cruise.WithObserver(cruise.ObserverFunc(func(_ context.Context, event cruise.Event) {
					switch e := event.(type) {
					case cruise.AttemptEnded:
						events = append(events, e.Outcome.String())
						if outcome == cruise.OutcomeTransient {
							assert.ErrorIs(t, e.Err, cruisehttp.ErrNotIdempotent)
						}
					case cruise.RetryScheduled:
						events = append(events, "retry")
					}
				}))))
			start := time.Now()
			resp, err := tr.RoundTrip(request(t, "POST", example, strings.NewReader("body")))
			require.NoError(t, err)
			assert.Equal(t, want, []string{strings.Join(events, ", "), text(t, resp)})
			if outcome != cruise.OutcomeThrottled {
				assert.Zero(t, time.Since(start), "no wait for what is not sent again")
			}
		})
	}
}

// A log at its usual level says why a POST was not sent again, where the response cannot.
func TestWhyAResponseWasNotRetriedIsLogged(t *testing.T) {
	for _, tt := range []struct{ method, context, log string }{
		{"POST", "", `reason="cruisehttp: not retried: the method is not idempotent and the request has no Idempotency-Key" attempts=1`},
		{"GET", "forbids", `reason="cruisehttp: not retried: its context forbids it" attempts=1`},
	} {
		synctest.Test(t, func(t *testing.T) {
			var log strings.Builder
			logged := cruise.WithObserver(cruiseslog.NewObserver(slog.New(slog.NewTextHandler(&log, nil))))
			tr := transport(t, inOrder(says(500, "boom")), cruisehttp.WithRetrierOptions(logged))
			req := request(t, tt.method, example, http.NoBody)
			if tt.context != "" {
				req = req.WithContext(cruisehttp.ForbidRetry(t.Context()))
			}
			resp, err := tr.RoundTrip(req)
			require.NoError(t, err)
			assert.Equal(t, 500, resp.StatusCode)
			assert.Equal(t, "boom", text(t, resp))
			assert.Contains(t, log.String(), `level=WARN msg="cruise: gave up" reason=`)
			assert.Contains(t, log.String(), tt.log)
			assert.Equal(t, 1, strings.Count(log.String(), "\n"), log.String())
		})
	}
}

// One cancellation ends every request with an error of one shape, wherever the request was.
func TestCancelledRequestHasOneShape(t *testing.T) {
	shutdown := errors.New("shutting down")
	for name, tt := range map[string]struct {
		first   func() (*http.Response, error) // nil: there is none until the end
		options []cruise.Option
	}{
		"under way":      {nil, nil},
		"in line":        {says(200, "ok"), []cruise.Option{cruise.WithMaxRate(1e-3)}},
		"paused":         {says(429, "", "Retry-After: 60"), nil},
		"in the backoff": {says(500, ""), []cruise.Option{cruise.WithBackoff(cruise.Must(cruise.ConstantBackoff(time.Minute)))}},
		"in a retry":     {says(503, ""), nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base := &server{answers: func(n int, r *http.Request) (*http.Response, error) {
					if n == 1 && tt.first != nil {
						return tt.first()
					}
					<-r.Context().Done()
					return nil, r.Context().Err()
				}}
				tr := transport(t, base, cruisehttp.WithRetrierOptions(tt.options...))
				if name == "in line" {
					resp, err := tr.RoundTrip(request(t, "GET", example, http.NoBody))
					require.NoError(t, err)
					_ = text(t, resp)
				}
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(10*time.Second, func() { cancel(shutdown) })
				_, err := (&http.Client{Transport: tr}).Do(request(t, "GET", example, http.NoBody).WithContext(ctx))
				e, ok := errors.AsType[*cruise.Error](err)
				require.True(t, ok, "%T: %v", err, err)
				assert.EqualError(t, e.Reason, "context canceled: shutting down")
				assert.ErrorIs(t, err, context.Canceled)
				assert.ErrorIs(t, err, shutdown)
			})
		})
	}
}

// A classifier does not know the state of the body.
func TestTransportAsksTheClassifierAboutARequestSentOnce(t *testing.T) {
	for method, want := range map[string]error{"PUT": cruisehttp.ErrBody, "POST": cruisehttp.ErrNotIdempotent} {
		synctest.Test(t, func(t *testing.T) {
			alert := tls.AlertError(42) // of a server that refuses the certificate, when it has a part of the body
			base := inOrder(fails(alert), says(200, ""))
			_, err := transport(t, base, cruisehttp.WithRetrierOptions(cruise.WithClassifier(func(error) cruise.Verdict {
				return cruise.Verdict{Outcome: cruise.OutcomeTransient}
			}))).RoundTrip(request(t, method, example, io.MultiReader(strings.NewReader("body"))))
			require.ErrorIs(t, err, want)
			require.ErrorIs(t, err, alert)
			assert.Equal(t, []string{"body"}, base.bodies)
		})
	}
}

// On a redirect to another host, credentials stay behind, and so do quotas and pauses: neither host
// is paused for the other.
func TestRedirectsToAnotherHostTakeNothingAlong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen []string
		base := roundTripper(func(r *http.Request) (*http.Response, error) {
			seen = append(seen, r.URL.Host+" "+r.Header.Get("Authorization")+r.Header.Get("Cookie"))
			switch {
			case r.URL.Host == "other.example.com":
				return answer(200, "done"), nil
			case len(seen) == 1:
				return answer(307, "", "Location: http://other.example.com/", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 60"), nil
			}
			return answer(429, "", "Retry-After: 7200"), nil
		})
		client := &http.Client{Transport: transport(t, base)}
		resp, err := client.Do(request(t, "GET", example, nil, "Authorization: secret", "Cookie: secret"))
		require.NoError(t, err)
		assert.Equal(t, "done", text(t, resp))
		assert.Equal(t, []string{"api.example.com secretsecret", "other.example.com "}, seen)

		time.Sleep(time.Hour)
		_, err = client.Do(request(t, "GET", example, nil, "Authorization: secret"))
		require.ErrorIs(t, err, cruise.ErrQuotaExhausted)
		assert.NotContains(t, err.Error(), "secret")
		start := time.Now()
		resp, err = client.Do(request(t, "GET", "http://other.example.com/", nil))
		require.NoError(t, err)
		text(t, resp)
		assert.Zero(t, time.Since(start), "the other host is not paused")
	})
}
