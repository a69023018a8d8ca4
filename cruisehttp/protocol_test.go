package cruisehttp_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/cruisehttp"
	"github.com/a7df5faa/cruise/cruisehttp/signal"
)

// A server's behaviour within the letter of HTTP, and against it, as far as it concerns a Transport
// and not the meaning of a response.

// serve answers with one handler for each request, the last one for good.
func serve(t *testing.T, handlers ...http.HandlerFunc) (url string, requests *atomic.Int64) {
	t.Helper()
	requests = &atomic.Int64{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handlers[min(int(requests.Add(1)), len(handlers))-1](w, r)
	}))
	t.Cleanup(srv.Close)
	return srv.URL, requests
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

// A websocket's handshake is refused once; then the connection is the caller's, for reading and
// writing and as long as it likes, beyond the timeout of an attempt.
func TestUpgradedConnectionsAreLeftAlone(t *testing.T) {
	const timeout = 100 * time.Millisecond
	for name, opts := range map[string][]cruisehttp.Option{
		"no timeout":        nil,
		"header timeout":    {cruisehttp.WithHeaderTimeout(timeout)},
		"attempt timeout":   {cruisehttp.WithAttemptTimeout(timeout)},
		"Retrier's timeout": {cruisehttp.WithRetrierOptions(cruise.WithAttemptTimeout(timeout))},
		"all":               {cruisehttp.WithHeaderTimeout(timeout), cruisehttp.WithAttemptTimeout(timeout), cruisehttp.WithRetrierOptions(cruise.WithAttemptTimeout(timeout))},
	} {
		t.Run(name, func(t *testing.T) {
			url, requests := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After-Ms", "1")
				w.WriteHeader(http.StatusTooManyRequests)
			}, func(w http.ResponseWriter, _ *http.Request) {
				conn, rw, err := http.NewResponseController(w).Hijack()
				if !assert.NoError(t, err) {
					return
				}
				defer conn.Close()
				_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
				_ = rw.Flush()
				for {
					line, err := rw.ReadString('\n')
					if err != nil {
						_, _ = io.WriteString(conn, "bye\n")
						return
					}
					_, _ = rw.WriteString("> " + line)
					_ = rw.Flush()
				}
			})
			hook := &hooked{Context: t.Context()}
			resp, err := transport(t, http.DefaultTransport, opts...).RoundTrip(
				request(t, "GET", url, nil, "Connection: Upgrade", "Upgrade: echo").WithContext(hook))
			require.NoError(t, err)
			require.Equal(t, http.StatusSwitchingProtocols, resp.StatusCode)
			assert.EqualValues(t, 2, requests.Load())
			conn, ok := resp.Body.(io.ReadWriteCloser)
			require.True(t, ok, "%T", resp.Body)
			lines := bufio.NewReader(conn)
			for i := range 3 {
				time.Sleep(timeout)
				_, err := fmt.Fprintf(conn, "%d\n", i)
				require.NoError(t, err)
				line, err := lines.ReadString('\n')
				require.NoError(t, err)
				assert.Equal(t, fmt.Sprintf("> %d\n", i), line)
			}
			half, ok := conn.(interface{ CloseWrite() error })
			require.True(t, ok, "%T", conn)
			require.NoError(t, half.CloseWrite())
			line, err := lines.ReadString('\n')
			require.NoError(t, err)
			assert.Equal(t, "bye\n", line)
			require.NoError(t, conn.Close())
			assert.Eventually(t, func() bool { return hook.hooks.Load() == 0 }, time.Second, time.Millisecond, "left on the context")
		})
	}
}

// seekable is a body like a file: http.NewRequest would hide the Seek of one without Close.
func seekable(text string) io.ReadCloser {
	return struct {
		io.ReadSeeker
		io.Closer
	}{strings.NewReader(text), io.NopCloser(nil)}
}

// A staleConn fails a write before anything of it is sent, as one does that the server has closed.
type staleConn struct {
	net.Conn
	stale *atomic.Bool
}

func (c *staleConn) Write(p []byte) (int, error) {
	if c.stale.Swap(false) {
		return 0, &net.OpError{Op: "write", Net: "tcp", Err: syscall.EPIPE}
	}
	return c.Conn.Write(p)
}

// A POST of which nothing went out, on a connection that the server has closed meanwhile, goes by
// another one.
func TestPostOnAStaleConnection(t *testing.T) {
	for name, body := range map[string]func() io.Reader{
		"GetBody": func() io.Reader { return strings.NewReader("hello") },
		"Seek":    func() io.Reader { return seekable("hello") },
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			var got []string
			srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				data, err := io.ReadAll(r.Body)
				assert.NoError(t, err)
				mu.Lock()
				defer mu.Unlock()
				got = append(got, string(data))
			}))
			defer srv.Close()
			var stale atomic.Bool
			base := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
				c, err := new(net.Dialer).DialContext(ctx, network, addr)
				return &staleConn{c, &stale}, err
			}}
			defer base.CloseIdleConnections()
			tr := transport(t, base)
			for i := range 2 {
				stale.Store(i == 1)
				resp, err := tr.RoundTrip(request(t, "POST", srv.URL, body()))
				require.NoError(t, err)
				text(t, resp)
			}
			mu.Lock()
			defer mu.Unlock()
			assert.Equal(t, []string{"hello", "hello"}, got)
		})
	}
}

// A server may refuse an upload with a long page, and read no more of it. The transport is stuck
// in sending it then, until the response is closed.
func TestUploadThatIsRefusedEarly(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	const page = 70_000
	go func() {
		for first := true; ; first = false {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				r, err := http.ReadRequest(bufio.NewReader(c))
				if err != nil {
					return
				}
				if first {
					fmt.Fprintf(c, "HTTP/1.1 429 Too Many Requests\r\nContent-Length: %d\r\n\r\n%s", page, strings.Repeat("x", page))
					return // and keeps the connection
				}
				defer c.Close()
				_, _ = io.Copy(io.Discard, r.Body)
				fmt.Fprint(c, "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
			}()
		}
	}()
	base := &http.Transport{}
	defer base.CloseIdleConnections()
	req := request(t, "PUT", "http://"+listener.Addr().String(), seekable(strings.Repeat("y", 32<<20)))
	req.ContentLength = 32 << 20
	resp, err := transport(t, base).RoundTrip(req)
	require.NoError(t, err)
	text(t, resp)
	assert.Equal(t, 204, resp.StatusCode)
}

// The server refuses before it has asked for the body, which is sent once only.
func TestExpectContinueIsRetried(t *testing.T) {
	for name, body := range map[string]func() io.Reader{
		"GetBody":  func() io.Reader { return strings.NewReader("hello") },
		"Seek":     func() io.Reader { return seekable("hello") },
		"buffered": func() io.Reader { return io.MultiReader(strings.NewReader("hello")) },
	} {
		t.Run(name, func(t *testing.T) {
			var got atomic.Value
			url, requests := serve(t, status(429), func(w http.ResponseWriter, r *http.Request) {
				data, _ := io.ReadAll(r.Body)
				got.Store(string(data) + r.Header.Get("Expect"))
			})
			base := &http.Transport{ExpectContinueTimeout: 10 * time.Second}
			defer base.CloseIdleConnections()
			tr := transport(t, base, cruisehttp.WithBufferedBodies(100))
			resp, err := tr.RoundTrip(request(t, "POST", url, body(), "Expect: 100-continue"))
			require.NoError(t, err)
			text(t, resp)
			assert.Equal(t, 200, resp.StatusCode)
			assert.EqualValues(t, 2, requests.Load())
			assert.Equal(t, "hello100-continue", got.Load())
		})
	}
}

// Early hints and other interim responses are no answers, and their headers no
// limits.
func TestInterimResponsesAreNotLookedAt(t *testing.T) {
	url, requests := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "3600")
		w.Header().Set("X-RateLimit-Remaining", "0")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Del("Retry-After")
		w.Header().Del("X-RateLimit-Remaining")
		w.WriteHeader(http.StatusNoContent)
	})
	tr := transport(t, http.DefaultTransport)
	for range 3 {
		resp, err := tr.RoundTrip(request(t, "GET", url, nil))
		require.NoError(t, err)
		assert.Equal(t, 204, resp.StatusCode)
		text(t, resp)
	}
	assert.EqualValues(t, 3, requests.Load())
}

// Trailers of a request are sent with each attempt, and those of a response are
// there after its body, which the Transport may have looked at.
func TestTrailersPassThrough(t *testing.T) {
	for _, code := range []int{200, 503} {
		var got []string
		url, _ := serve(t, status(503), func(w http.ResponseWriter, r *http.Request) {
			data, _ := io.ReadAll(r.Body)
			got = append(got, string(data)+r.Trailer.Get("X-Sum"))
			w.Header().Set("Trailer", "X-Took")
			w.WriteHeader(code)
			_, _ = io.WriteString(w, "body")
			w.Header().Set("X-Took", "1s")
		})
		req := request(t, "PUT", url, io.MultiReader(strings.NewReader("hello")))
		req.Trailer = http.Header{"X-Sum": {"5"}}
		tr := transport(t, http.DefaultTransport, cruisehttp.WithBufferedBodies(100),
			cruisehttp.WithRetrierOptions(cruise.WithMaxAttempts(2), cruise.WithBackoff(cruise.Backoff{})))
		resp, err := tr.RoundTrip(req)
		require.NoError(t, err)
		assert.Equal(t, code, resp.StatusCode)
		assert.Equal(t, "body", text(t, resp))
		assert.Equal(t, "1s", resp.Trailer.Get("X-Took"))
		assert.Equal(t, []string{"hello5"}, got)
	}
}

// A body of unknown length goes out chunked. It is sent again whole if it can be; else it is sent
// once.
func TestBodiesOfUnknownLength(t *testing.T) {
	for name, tt := range map[string]struct {
		opts []cruisehttp.Option
		want []string
		err  error
	}{
		"buffered":       {[]cruisehttp.Option{cruisehttp.WithBufferedBodies(5)}, []string{"hello", "hello"}, nil},
		"too long":       {[]cruisehttp.Option{cruisehttp.WithBufferedBodies(4)}, []string{"hello"}, cruisehttp.ErrBody},
		"not replayable": {nil, []string{"hello"}, cruisehttp.ErrBody},
	} {
		for _, length := range []int64{-1, 0} {
			t.Run(fmt.Sprint(name, length), func(t *testing.T) {
				var got []string
				answer := func(code int) http.HandlerFunc {
					return func(w http.ResponseWriter, r *http.Request) {
						data, _ := io.ReadAll(r.Body)
						got = append(got, string(data))
						w.WriteHeader(code)
					}
				}
				url, _ := serve(t, answer(503), answer(200))
				req := request(t, "PUT", url, io.MultiReader(strings.NewReader("hello")))
				req.ContentLength = length
				var gaveUp error
				resp, err := transport(t, http.DefaultTransport, append(tt.opts,
					cruisehttp.WithRetrierOptions(cruise.WithBackoff(cruise.Backoff{}), cruise.WithObserver(cruise.ObserverFunc(func(_ context.Context, e cruise.Event) {
						if e, ok := e.(cruise.AttemptEnded); ok && e.Err != nil {
							gaveUp = e.Err
						}
					}))))...).RoundTrip(req)
				require.NoError(t, err)
				text(t, resp)
				assert.Equal(t, tt.want, got)
				if tt.err != nil {
					assert.ErrorIs(t, gaveUp, tt.err)
				}
			})
		}
	}
}

// Bodies that are never closed hold their connections, as with any transport, but no slot and no
// place in the queue.
func TestBodiesThatAreNeverClosedHoldNoSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := roundTripper(func(*http.Request) (*http.Response, error) { return answer(200, "body"), nil })
		tr := transport(t, base)
		start := time.Now()
		for range 1000 {
			_, err := tr.RoundTrip(request(t, "GET", example, nil))
			require.NoError(t, err)
		}
		assert.Zero(t, time.Since(start))
	})
}

// Some round trippers return a response beside an error. The Transport must close its body.
func TestAResponseBesideAnErrorIsClosed(t *testing.T) {
	for name, opts := range map[string][]cruisehttp.Option{"plain": nil, "timed": {cruisehttp.WithAttemptTimeout(time.Hour)}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := inOrder(func() (*http.Response, error) { return answer(500, "x"), errors.New("both") }, says(200, "ok"))
				resp, err := transport(t, s, opts...).RoundTrip(request(t, "GET", example, nil))
				require.NoError(t, err)
				assert.Equal(t, "ok", text(t, resp))
				assert.Zero(t, s.open.Load(), "bodies not closed")
			})
		})
	}
}

// A frame of HTTP/2 with a payload.
func frame(kind, flags byte, stream uint32, payload ...byte) []byte {
	f := []byte{0, 0, byte(len(payload)), kind, flags}
	return append(binary.BigEndian.AppendUint32(f, stream), payload...)
}

// serveHTTP2 answers 204 to each stream that nothing else is said to.
func serveHTTP2(t *testing.T, says func(stream uint32) []byte) (url string) {
	nothingLeft(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			// A stream that has just ended keeps its connection from being idle.
			t.Cleanup(func() { _ = c.Close() })
			go func() {
				r := bufio.NewReader(c)
				if _, err := r.Discard(len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")); err != nil {
					return
				}
				_, _ = c.Write(frame(4, 0, 0))
				for {
					head := make([]byte, 9)
					if _, err := io.ReadFull(r, head); err != nil {
						return
					}
					size := int(head[0])<<16 | int(head[1])<<8 | int(head[2])
					if _, err := r.Discard(size); err != nil {
						return
					}
					if head[3] != 1 { // HEADERS
						continue
					}
					stream := binary.BigEndian.Uint32(head[5:])
					said := says(stream)
					if said == nil {
						said = frame(1, 5, stream, 0x89) // :status 204, and the end
					}
					_, _ = c.Write(said)
				}
			}()
		}
	}()
	return "http://" + l.Addr().String()
}

func onlyHTTP2() *http.Transport {
	protocols := &http.Protocols{}
	protocols.SetUnencryptedHTTP2(true)
	return &http.Transport{Protocols: protocols}
}

// An overloaded HTTP/2 server says ENHANCE_YOUR_CALM, for a stream or for the whole connection. It
// is a throttle for all requests, and the request is sent again if that is safe.
func TestEnhanceYourCalmIsAThrottle(t *testing.T) {
	const calm = 11
	for name, refusal := range map[string]func(stream uint32) []byte{
		"RST_STREAM": func(stream uint32) []byte { return frame(3, 0, stream, 0, 0, 0, calm) },
		"GOAWAY":     func(uint32) []byte { return frame(7, 0, 0, 0, 0, 0, 0, 0, 0, 0, calm) },
	} {
		t.Run(name, func(t *testing.T) {
			var streams atomic.Int64
			url := serveHTTP2(t, func(stream uint32) []byte {
				if streams.Add(1) > 1 {
					return nil
				}
				return refusal(stream)
			})
			base := onlyHTTP2()
			defer base.CloseIdleConnections()
			var mu sync.Mutex
			var outcomes []cruise.Outcome
			tr := transport(t, base, cruisehttp.WithRetrierOptions(cruise.WithObserver(cruise.ObserverFunc(func(_ context.Context, e cruise.Event) {
				if e, ok := e.(cruise.AttemptEnded); ok {
					mu.Lock()
					defer mu.Unlock()
					outcomes = append(outcomes, e.Outcome)
				}
			}))))
			resp, err := tr.RoundTrip(request(t, "GET", url, nil))
			require.NoError(t, err)
			assert.Equal(t, 204, resp.StatusCode)
			mu.Lock()
			defer mu.Unlock()
			assert.Equal(t, []cruise.Outcome{cruise.OutcomeThrottled, cruise.OutcomeSuccess}, outcomes)

			streams.Store(0)
			base.CloseIdleConnections()
			mu.Unlock()
			_, err = tr.RoundTrip(request(t, "POST", url, nil))
			mu.Lock()
			require.ErrorIs(t, err, cruisehttp.ErrNotIdempotent)
			assert.Equal(t, cruise.OutcomeThrottled, outcomes[2])
		})
	}
}

// A request may be sent again if an HTTP/2 server says that it has not begun it. net/http does so
// if it can get the body again, and after a PROTOCOL_ERROR, too (golang/go#47635).
func TestRequestsThatHTTP2HasNotBegunWith(t *testing.T) {
	for name, tt := range map[string]struct {
		refusal  func(stream uint32) []byte
		attempts int64
	}{
		"REFUSED_STREAM": {func(stream uint32) []byte { return frame(3, 0, stream, 0, 0, 0, 7) }, 2},
		"GOAWAY":         {func(uint32) []byte { return frame(7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0) }, 2},
		"INTERNAL_ERROR": {func(stream uint32) []byte { return frame(3, 0, stream, 0, 0, 0, 2) }, 1},
		"PROTOCOL_ERROR": {func(stream uint32) []byte { return frame(3, 0, stream, 0, 0, 0, 1) }, 2},
	} {
		t.Run(name, func(t *testing.T) {
			var streams atomic.Int64
			url := serveHTTP2(t, func(stream uint32) []byte {
				if streams.Add(1) > 1 {
					return nil
				}
				return tt.refusal(stream)
			})
			base := onlyHTTP2()
			defer base.CloseIdleConnections()
			resp, err := transport(t, base, cruisehttp.WithRetrierOptions(cruise.WithBackoff(cruise.Backoff{}))).RoundTrip(request(t, "POST", url, seekable("hello")))
			if tt.attempts > 1 {
				require.NoError(t, err)
				text(t, resp)
			} else {
				require.ErrorIs(t, err, cruisehttp.ErrNotIdempotent)
			}
			assert.Equal(t, tt.attempts, streams.Load())
		})
	}
}

// Names of buckets are kept, so a server must not choose how long they are.
// Nor are they scopes, which could not be forgotten while they pause.
func TestThrottlesOfBucketsOfLongNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		tr := transport(t, roundTripper(func(*http.Request) (*http.Response, error) {
			n++
			return answer(429, "", "Retry-After: 3000", fmt.Sprint("X-Bucket: ", n, strings.Repeat("b", 300))), nil
		}), cruisehttp.WithBuckets("X-Bucket", nil))
		for i := range 10 {
			_, err := tr.RoundTrip(request(t, "GET", fmt.Sprint(example, "/", i), nil))
			require.ErrorIs(t, err, cruise.ErrServerDelay)
		}
		for s := range tr.Retrier().Scopes() {
			for _, step := range s.Path {
				assert.Less(t, len(step.Key), 100)
			}
		}
	})
}

func TestRateLimitFieldsAreBounded(t *testing.T) {
	list := func(item string) string { return strings.TrimSuffix(strings.Repeat(item+",", 1000), ",") }
	resp := answer(200, "", "RateLimit: "+list(`"a";r=1`), "RateLimit-Policy: "+list(`"b";q=1`))
	assert.Len(t, signal.Generic().Read(resp, nil, time.Now()).Limits, 64)
}

func TestBucketsOfLongNamesAreNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		name := strings.Repeat("b", 1<<20)
		tr := transport(t, roundTripper(func(*http.Request) (*http.Response, error) {
			return answer(200, "", "X-Bucket: "+strings.Clone(name)), nil
		}), cruisehttp.WithBuckets("X-Bucket", nil))
		use := func() uint64 {
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return m.HeapAlloc
		}
		before := use()
		for i := range 100 {
			resp, err := tr.RoundTrip(request(t, "GET", fmt.Sprint(example, "/", i), nil))
			require.NoError(t, err)
			text(t, resp)
		}
		assert.Less(t, use(), before+10<<20)
		runtime.KeepAlive(tr)
	})
}

// An answer that holds for hours is kept for later requests, but not the megabytes of its headers.
func TestParkedAnswersAreSmall(t *testing.T) {
	for size, want := range map[int]bool{100: true, 1 << 20: false} {
		synctest.Test(t, func(t *testing.T) {
			tr := transport(t, inOrder(says(429, "", "Retry-After: 7200", "X-Note: "+strings.Repeat("x", size))))
			for i := range 2 {
				_, err := tr.RoundTrip(request(t, "GET", example, nil))
				e, ok := errors.AsType[*cruisehttp.ResponseError](err)
				require.True(t, ok)
				assert.Equal(t, i == 0 || want, e.Header != nil, "%d bytes, request %d", size, i+1)
			}
		})
	}
}

// A caller may change its response, as a proxy does, while other requests read the kept answer.
func TestParkedAnswersHaveHeadersOfTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := transport(t, inOrder(says(429, "", "Retry-After: 7200", "Connection: close")), cruisehttp.WithQuotaResponses())
		resp, err := tr.RoundTrip(request(t, "GET", example, nil))
		require.NoError(t, err)
		_, err = tr.RoundTrip(request(t, "GET", example, nil))
		e, ok := errors.AsType[*cruisehttp.ResponseError](err)
		require.True(t, ok)
		resp.Header.Del("Connection")
		assert.Equal(t, "close", e.Header.Get("Connection"))
	})
}

// A server's text cannot flood or garble the logs of its clients.
func TestErrorsQuoteLittleOfTheServer(t *testing.T) {
	long := strings.Repeat("x", 1<<16)
	for name, resp := range map[string]*http.Response{
		"phrase":         {StatusCode: 403, Status: "403 " + long},
		"control bytes":  {StatusCode: 403, Status: "403 \x1b[31mred"},
		"invalid UTF-8":  {StatusCode: 403, Status: "403 \xff"},
		"code":           answer(400, `{"__type":"Throttling`+long+`"}`, "X-Amzn-Requestid: 1"),
		"limit":          answer(429, "", "X-Github-Request-Id: 1", "X-Ratelimit-Resource: "+long),
		"limit and code": answer(403, `{"error":{"errors":[{"reason":"rateLimitExceeded`+long+`"}]}}`, "X-Goog-A: 1", "X-Ratelimit-Resource: "+long),
	} {
		synctest.Test(t, func(t *testing.T) {
			var got error
			tr := transport(t, inOrder(func() (*http.Response, error) { return resp, nil }),
				cruisehttp.WithRetrierOptions(cruise.WithMaxAttempts(1), cruise.WithObserver(cruise.ObserverFunc(func(_ context.Context, e cruise.Event) {
					if e, ok := e.(cruise.AttemptEnded); ok {
						got = e.Err
					}
				}))))
			_, err := tr.RoundTrip(request(t, "GET", example, nil))
			require.NoError(t, err)
			require.Error(t, got)
			assert.Less(t, len(got.Error()), 2000, name)
			assert.NotContains(t, got.Error(), "\x1b", name)
			assert.True(t, utf8.ValidString(got.Error()), name)
		})
	}
	until := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for want, e := range map[string]cruisehttp.ResponseError{
		"":                                       {},
		" (code=busy)":                           {Signal: signal.Signal{Reason: "code=busy"}},
		" (" + strings.Repeat("x", 200) + "...)": {Signal: signal.Signal{Reason: strings.Repeat("x", 1000)}},
		`, limit "user", until 2026-11-20T12:00:00Z: later`: {Signal: signal.Signal{Scope: "user"}, Until: until, NotRetried: errors.New("later")},
	} {
		e.Status, e.StatusCode = "429 Too Many Requests", 429
		assert.EqualError(t, &e, "cruisehttp: 429 Too Many Requests"+want)
	}
}
