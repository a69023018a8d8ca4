package cruisehttp_test

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/cruisehttp"
	"github.com/a7df5faa/cruise/cruisehttp/signal"
)

// nothingLeft fails the test if it leaves goroutines of clients or servers.
func nothingLeft(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		var left []string
		for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
			stacks := make([]byte, 1<<20)
			stacks = stacks[:runtime.Stack(stacks, true)]
			left = left[:0]
			for stack := range strings.SplitSeq(string(stacks), "\n\n") {
				if strings.Contains(stack, "net/http") || strings.Contains(stack, "cruisehttp.(*") {
					left = append(left, stack)
				}
			}
			if len(left) == 0 {
				return
			}
		}
		t.Errorf("%d goroutines left behind, such as\n%s", len(left), left[0])
	})
}

// connections counts the connections of a server.
type connections struct{ opened, open atomic.Int64 }

func (c *connections) state(_ net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		c.opened.Add(1)
		c.open.Add(1)
	case http.StateClosed, http.StateHijacked:
		c.open.Add(-1)
	}
}

// listen starts a server and a base transport for it.
func listen(t *testing.T, http2 bool, handler http.HandlerFunc) (*httptest.Server, *http.Transport, *connections) {
	t.Helper()
	nothingLeft(t)
	count := &connections{}
	srv := httptest.NewUnstartedServer(handler)
	srv.Config.ConnState = count.state
	srv.EnableHTTP2 = http2
	if http2 {
		srv.StartTLS()
	} else {
		srv.Start()
	}
	base := srv.Client().Transport.(*http.Transport)
	t.Cleanup(func() {
		base.CloseIdleConnections()
		srv.Close()
		assert.Zero(t, count.open.Load(), "connections left open")
	})
	return srv, base, count
}

var versions = map[string]bool{"HTTP/1.1": false, "HTTP/2.0": true}

func TestTransportUsesConnectionsAgain(t *testing.T) {
	for _, size := range []int{0, 10, 4 << 10, signal.MaxBody - 1, signal.MaxBody, signal.MaxBody + 4<<10 - 1} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			var n atomic.Int64
			srv, base, count := listen(t, false, func(w http.ResponseWriter, _ *http.Request) {
				if n.Add(1)%3 != 0 {
					w.WriteHeader(http.StatusServiceUnavailable)
				}
				_, _ = io.WriteString(w, strings.Repeat("x", size))
			})
			base.MaxConnsPerHost = 1
			tr := transport(t, base)
			for range 3 {
				resp, err := tr.RoundTrip(request(t, "GET", srv.URL, nil))
				require.NoError(t, err)
				assert.Equal(t, 200, resp.StatusCode)
				assert.Len(t, text(t, resp), size)
			}
			assert.EqualValues(t, 9, n.Load())
			assert.EqualValues(t, 1, count.opened.Load(), "connections opened")
		})
	}
}

func TestTransportHoldsNoConnectionWhileItWaits(t *testing.T) {
	var first atomic.Bool
	srv, base, _ := listen(t, false, func(w http.ResponseWriter, r *http.Request) {
		if first.CompareAndSwap(false, true) {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = io.WriteString(w, "body")
	})
	base.MaxConnsPerHost = 1
	tr := transport(t, base, cruisehttp.WithRetrierOptions(cruise.WithBackoff(cruise.Must(cruise.NewBackoff(cruise.WithBase(2*time.Second), cruise.NoJitter())))))
	var group sync.WaitGroup
	group.Go(func() {
		resp, err := tr.RoundTrip(request(t, "GET", srv.URL, nil))
		if assert.NoError(t, err) {
			text(t, resp)
		}
	})
	require.Eventually(t, first.Load, time.Second, time.Millisecond)
	begin := time.Now()
	resp, err := tr.RoundTrip(request(t, "GET", srv.URL, nil))
	require.NoError(t, err)
	text(t, resp)
	assert.Less(t, time.Since(begin), 2*time.Second, "the other one backs off for longer")
	group.Wait()
}

// The rest of a long error keeps its connection until the next attempt. Over HTTP/1.1 that attempt
// needs another connection: reading the rest may take longer than connecting anew.
func TestTransportClosesConnectionsOfLongErrors(t *testing.T) {
	for version, http2 := range versions {
		t.Run(version, func(t *testing.T) {
			const wait = time.Second
			var n atomic.Int64
			srv, base, count := listen(t, http2, func(w http.ResponseWriter, r *http.Request) {
				if n.Add(1) < 3 {
					w.WriteHeader(http.StatusServiceUnavailable)
					_, _ = io.WriteString(w, strings.Repeat("x", 1<<20))
				}
			})
			base.MaxConnsPerHost = 1
			tr := transport(t, base, cruisehttp.WithRetrierOptions(cruise.WithBackoff(cruise.Must(cruise.ConstantBackoff(wait)))))
			var group sync.WaitGroup
			group.Go(func() {
				resp, err := tr.RoundTrip(request(t, "GET", srv.URL, nil))
				if assert.NoError(t, err) {
					assert.Equal(t, 200, resp.StatusCode)
					text(t, resp)
				}
			})
			require.Eventually(t, func() bool { return n.Load() == 1 }, wait, time.Millisecond)
			begin := time.Now()
			resp, err := base.RoundTrip(request(t, "GET", srv.URL, nil))
			took := time.Since(begin)
			require.NoError(t, err)
			_ = resp.Body.Close()
			group.Wait()
			assert.EqualValues(t, 3, n.Load())
			if http2 {
				assert.Less(t, took, wait/2)
				assert.EqualValues(t, 1, count.opened.Load())
			} else {
				assert.Greater(t, took, wait/2)
				assert.EqualValues(t, 3, count.opened.Load())
			}
		})
	}
}

func TestTransportWithACrowd(t *testing.T) {
	for version, http2 := range versions {
		t.Run(version, func(t *testing.T) {
			var n, throttled atomic.Int64
			srv, base, count := listen(t, http2, func(w http.ResponseWriter, r *http.Request) {
				assert.Equal(t, version, r.Proto)
				body, _ := io.ReadAll(r.Body)
				if r.Method == "POST" {
					assert.Equal(t, "body", string(body))
				}
				if n.Add(1) == 40 {
					throttled.Add(1)
					w.Header().Set("Retry-After", "0.2")
					w.WriteHeader(http.StatusTooManyRequests)
				}
				_, _ = io.WriteString(w, r.Header.Get("X-Id"))
			})
			base.MaxConnsPerHost, base.MaxIdleConnsPerHost = 20, 20
			client := &http.Client{Transport: transport(t, base, cruisehttp.WithRetrierOptions(cruise.WithTuning(cruise.Tuning{MinRate: 500})))}
			var group sync.WaitGroup
			for g := range 200 {
				group.Go(func() {
					for i := range 3 {
						id := fmt.Sprint(g, ":", i)
						resp, err := client.Do(request(t, []string{"GET", "POST"}[i%2], srv.URL, strings.NewReader("body"), "X-Id: "+id))
						if assert.NoError(t, err) {
							assert.Equal(t, id, text(t, resp))
						}
					}
				})
			}
			group.Wait()
			assert.EqualValues(t, 600+throttled.Load(), n.Load())
			assert.LessOrEqual(t, count.opened.Load(), int64(20))
		})
	}
}

// A request that net/http cannot send now it cannot send in a second either.
func TestRequestsThatCannotBeSentAreTriedOnce(t *testing.T) {
	const large = 11 << 20
	for _, c := range []struct {
		name  string
		spoil func(*http.Request)
		says  string
		http2 string // if it says something else there
	}{
		{"no such scheme", func(r *http.Request) { r.URL.Scheme = "htp" }, `unsupported protocol scheme "htp"`, ""},
		{"no scheme", func(r *http.Request) { r.URL.Scheme = "" }, `unsupported protocol scheme ""`, ""},
		{"no host", func(r *http.Request) { r.URL.Host = "" }, "http: no Host in request URL", ""},
		{"no such port", func(r *http.Request) { r.URL.Host = "127.0.0.1:99999" }, "dial tcp: address 99999: invalid port", ""},
		{"no URL", func(r *http.Request) { r.URL = nil }, "http: nil Request.URL", ""},
		{"no header", func(r *http.Request) { r.Header = nil }, "http: nil Request.Header", ""},
		{"name of a header", func(r *http.Request) { r.Header["a b"] = []string{"x"} }, `net/http: invalid header field name "a b"`, ""},
		{"value of a header", func(r *http.Request) { r.Header.Set("X", "a\nb") }, `net/http: invalid header field value for "X"`, ""},
		{"name of a trailer", func(r *http.Request) { r.Trailer = http.Header{"a b": nil} }, `net/http: invalid trailer field name "a b"`, ""},
		{"trailer", func(r *http.Request) { r.ContentLength, r.Trailer = -1, http.Header{"Content-Length": nil} }, `invalid Trailer key "Content-Length"`, `http2: invalid Trailer key "Content-Length"`},
		{"method", func(r *http.Request) { r.Method = "GE T" }, `net/http: invalid method "GE T"`, "-"},
		{"path", func(r *http.Request) { r.URL.Opaque = "//x\n" }, "net/http: can't write control character in Request.URL", `http2: invalid request :path "https://x\n" from URL.Opaque = "//x\n"`},
		{"no body", func(r *http.Request) { r.Body, r.GetBody = nil, nil }, "http: Request.ContentLength=4 with nil Body", "-"},
		{"short body", func(r *http.Request) { r.ContentLength = 5 }, "http: ContentLength=5 with Body length 4", "-"},
		{"long body", func(r *http.Request) { r.ContentLength = 3 }, "http: ContentLength=3 with Body length 4", "http2: request body larger than specified content length"},
		{"hop-by-hop header", func(r *http.Request) { r.Header.Set("Connection", "x") }, "-", `http2: invalid Connection request header: ["x"]`},
		{"another protocol", func(r *http.Request) { r.Header.Set("Upgrade", "x") }, "-", `http2: invalid Upgrade request header: ["x"]`},
		{"coding", func(r *http.Request) { r.Header.Set("Transfer-Encoding", "x") }, "-", `http2: invalid Transfer-Encoding request header: ["x"]`},
		{"name of the host", func(r *http.Request) { r.Host = "a b" }, "-", "http2: invalid Host header"},
		{"large headers", func(r *http.Request) { r.Header.Set("X", strings.Repeat("x", large)) }, "-", "http2: request header list larger than peer's advertised limit"},
	} {
		for version, http2 := range versions {
			want := c.says
			if http2 {
				want = cmp.Or(c.http2, want)
			}
			if want == "-" {
				continue
			}
			t.Run(c.name+", "+version, func(t *testing.T) {
				nothingLeft(t)
				srv, base, _ := listen(t, http2, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
				// The limit of headers is known to a client that has had an answer.
				resp, err := base.RoundTrip(request(t, "GET", srv.URL, nil))
				require.NoError(t, err)
				text(t, resp)
				attempts := 0
				tr := transport(t, roundTripper(func(r *http.Request) (*http.Response, error) {
					attempts++
					return base.RoundTrip(r)
				}))
				req := request(t, "PUT", srv.URL, strings.NewReader("body"), "X-A: b")
				c.spoil(req)
				_, err = tr.RoundTrip(req)
				require.EqualError(t, err, want)
				assert.Equal(t, 1, attempts)
				assert.Equal(t, cruise.OutcomePermanent.String(), cruisehttp.Classify(fmt.Errorf("x: %w", err)).Outcome.String())
			})
		}
	}
}

// net/http reports only the phrase of a proxy's answer to CONNECT.
func TestProxiesThatRefuse(t *testing.T) {
	for code, want := range map[int][]cruise.Outcome{
		http.StatusProxyAuthRequired:  {cruise.OutcomePermanent},
		http.StatusTooManyRequests:    {cruise.OutcomeThrottled, cruise.OutcomeThrottled},
		http.StatusServiceUnavailable: {cruise.OutcomeTransient, cruise.OutcomeTransient},
		http.StatusBadGateway:         {cruise.OutcomeTransient, cruise.OutcomeTransient}, // it does not get through to the server
		http.StatusForbidden:          {cruise.OutcomePermanent},                          // its rules are against this server
	} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			proxy, _ := serve(t, status(code))
			at, err := url.Parse(proxy)
			require.NoError(t, err)
			var outcomes []cruise.Outcome
			tr := transport(t, &http.Transport{Proxy: http.ProxyURL(at)}, cruisehttp.WithRetrierOptions(
				cruise.WithMaxAttempts(2), cruise.WithBackoff(cruise.Backoff{}), cruise.WithObserver(cruise.ObserverFunc(func(_ context.Context, e cruise.Event) {
					if e, ok := e.(cruise.AttemptEnded); ok {
						outcomes = append(outcomes, e.Outcome)
					}
				}))))
			_, err = tr.RoundTrip(request(t, "GET", "https://api.example.com", nil))
			require.ErrorContains(t, err, http.StatusText(code))
			assert.Equal(t, want, outcomes)
		})
	}
}

// A server that refuses one handshake will refuse the next one too.
func TestHandshakesThatAServerRefusesAreTriedOnce(t *testing.T) {
	for name, c := range map[string]struct {
		server *tls.Config
		says   string
	}{
		"no certificate":           {&tls.Config{ClientAuth: tls.RequireAnyClientCert, MaxVersion: tls.VersionTLS12}, "remote error: tls: handshake failure"},
		"no version that both can": {&tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}, "remote error: tls: protocol version not supported"},
	} {
		t.Run(name, func(t *testing.T) {
			nothingLeft(t)
			srv := httptest.NewUnstartedServer(status(200))
			srv.TLS = c.server
			srv.Config.ErrorLog = log.New(io.Discard, "", 0)
			srv.StartTLS()
			defer srv.Close()
			attempts := 0
			_, err := transport(t, roundTripper(func(r *http.Request) (*http.Response, error) {
				attempts++
				return srv.Client().Transport.RoundTrip(r)
			})).RoundTrip(request(t, "GET", srv.URL, nil))
			require.EqualError(t, err, c.says)
			assert.Equal(t, 1, attempts)
		})
	}
}

// A Client recognises it by the error of its Transport itself, not by a wrapped error.
func TestClientsKnowAServerWithoutTLS(t *testing.T) {
	for _, tt := range []struct{ name, method string }{
		{"a request that can be sent again", "GET"},
		{"a request that can not", "POST"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			nothingLeft(t)
			srv := httptest.NewUnstartedServer(status(200))
			srv.Config.ErrorLog = log.New(io.Discard, "", 0)
			srv.Start()
			defer srv.Close()
			base := &http.Transport{}
			defer base.CloseIdleConnections()
			client := &http.Client{Transport: transport(t, base)}
			_, err := client.Do(request(t, tt.method, strings.Replace(srv.URL, "http:", "https:", 1), strings.NewReader("body")))
			require.ErrorIs(t, err, http.ErrSchemeMismatch)
		})
	}
}

// Nothing of a request has been sent before the handshake of TLS is done.
func TestTransportRetriesHandshakes(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = silent.Close() }()
	attempts := 0
	base := &http.Transport{TLSHandshakeTimeout: 50 * time.Millisecond}
	tr := transport(t, roundTripper(func(r *http.Request) (*http.Response, error) {
		attempts++
		return base.RoundTrip(r)
	}), cruisehttp.WithRetrierOptions(cruise.WithMaxAttempts(2)))
	_, err = tr.RoundTrip(request(t, "POST", "https://"+silent.Addr().String(), strings.NewReader("body")))
	require.ErrorIs(t, err, cruise.ErrAttemptsExhausted)
	assert.Equal(t, 2, attempts)
}

// A firstListener hangs up on the first connection.
type firstListener struct {
	net.Listener
	n atomic.Int64
}

func (l *firstListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil && l.n.Add(1) == 1 {
		_ = c.Close()
	}
	return c, err
}

// A request that never had a connection is not done, whatever its method. One that had
// may be.
func TestTransportRetriesARequestWithoutConnection(t *testing.T) {
	for name, tt := range map[string]struct {
		first   func(base *http.Transport) // sets up the first attempt's trouble
		handler http.HandlerFunc
		opts    []cruisehttp.Option
		once    bool
	}{
		"a handshake that is cut off": {},
		"a proxy without the server": {first: func(base *http.Transport) {
			var n atomic.Int64
			proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusServiceUnavailable)
			}))
			t.Cleanup(proxy.Close)
			base.Proxy = func(*http.Request) (*url.URL, error) {
				if n.Add(1) > 1 {
					return nil, nil
				}
				return url.Parse(proxy.URL)
			}
		}},
		"a dial without end": {first: func(base *http.Transport) {
			var n atomic.Int64
			base.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
				if n.Add(1) == 1 {
					<-ctx.Done()
					return nil, ctx.Err()
				}
				return (&net.Dialer{}).DialContext(ctx, network, addr)
			}
		}, opts: []cruisehttp.Option{cruisehttp.WithHeaderTimeout(time.Second)}},
		"a server that hangs up": {handler: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, once: true},
	} {
		for version, http2 := range versions {
			t.Run(name+", "+version, func(t *testing.T) {
				var n atomic.Int64
				srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if n.Add(1); tt.handler != nil {
						tt.handler(w, r)
					}
				}))
				srv.Config.ErrorLog = log.New(io.Discard, "", 0)
				if tt.handler == nil && tt.first == nil {
					srv.Listener = &firstListener{Listener: srv.Listener}
				}
				srv.EnableHTTP2 = http2
				srv.StartTLS()
				defer srv.Close()
				base := srv.Client().Transport.(*http.Transport)
				if tt.first != nil {
					tt.first(base)
				}
				tr := transport(t, base, append(tt.opts, cruisehttp.WithRetrierOptions(cruise.WithBackoff(cruise.Backoff{})))...)
				resp, err := tr.RoundTrip(request(t, "POST", srv.URL, strings.NewReader("body")))
				if assert.EqualValues(t, 1, n.Load(), "requests"); tt.once {
					require.ErrorIs(t, err, cruisehttp.ErrNotIdempotent)
					return
				}
				require.NoError(t, err)
				text(t, resp)
			})
		}
	}
}

// A protocol that sends without telling may have sent, on any connection.
func TestTransportWithAProtocolThatTellsNothing(t *testing.T) {
	for _, first := range []string{"GET", "POST"} {
		t.Run("first a "+first, func(t *testing.T) {
			srv, base, _ := listen(t, true, func(http.ResponseWriter, *http.Request) {})
			var posts atomic.Int64
			base.TLSClientConfig.NextProtos = []string{"h2"}
			base.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{
				"h2": func(string, *tls.Conn) http.RoundTripper {
					return roundTripper(func(r *http.Request) (*http.Response, error) {
						if r.Method == "GET" {
							return answer(200, ""), nil
						}
						posts.Add(1)
						return nil, io.ErrUnexpectedEOF
					})
				},
			}
			tr := transport(t, base, cruisehttp.WithRetrierOptions(cruise.WithBackoff(cruise.Backoff{})))
			for _, method := range []string{first, "POST", "POST"} { // the later ones on the connection that there is
				sent := posts.Load()
				_, err := tr.RoundTrip(request(t, method, srv.URL, strings.NewReader("body")))
				if method == "GET" {
					require.NoError(t, err)
					continue
				}
				require.ErrorIs(t, err, cruisehttp.ErrNotIdempotent)
				assert.EqualValues(t, sent+1, posts.Load())
			}
		})
	}
}

func TestTransportCancelled(t *testing.T) {
	for version, http2 := range versions {
		t.Run(version, func(t *testing.T) {
			arrived := make(chan struct{}, 1)
			srv, base, _ := listen(t, http2, func(w http.ResponseWriter, r *http.Request) {
				arrived <- struct{}{}
				<-r.Context().Done()
			})
			tr := transport(t, base)
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				<-arrived
				cancel()
			}()
			_, err := tr.RoundTrip(request(t, "GET", srv.URL, nil).WithContext(ctx))
			require.ErrorIs(t, err, context.Canceled)
		})
	}
}

func TestTransportTimeouts(t *testing.T) {
	// A machine that is busy answers within the former.
	const timeout, longer = time.Second, 1500 * time.Millisecond
	for version, http2 := range versions {
		t.Run(version, func(t *testing.T) {
			var n atomic.Int64
			srv, base, _ := listen(t, http2, func(w http.ResponseWriter, r *http.Request) {
				first := n.Add(1) == 1
				if r.URL.Path == "/body" {
					_, _ = io.WriteString(w, "begin")
					_ = http.NewResponseController(w).Flush()
				}
				if first || r.URL.Path == "/body" {
					select {
					case <-r.Context().Done():
					case <-time.After(longer):
					}
				}
				_, _ = io.WriteString(w, "end")
			})
			t.Run("head", func(t *testing.T) {
				n.Store(0)
				tr := transport(t, base, cruisehttp.WithHeaderTimeout(timeout))
				resp, err := tr.RoundTrip(request(t, "GET", srv.URL, nil))
				require.NoError(t, err)
				assert.Equal(t, "end", text(t, resp))
				assert.EqualValues(t, 2, n.Load())
			})
			t.Run("head of a POST", func(t *testing.T) {
				n.Store(0)
				client := &http.Client{Transport: transport(t, base, cruisehttp.WithHeaderTimeout(timeout))}
				_, err := client.Do(request(t, "POST", srv.URL, nil))
				require.ErrorIs(t, err, cruisehttp.ErrNotIdempotent)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				var timeout net.Error
				require.ErrorAs(t, err, &timeout)
				assert.True(t, timeout.Timeout())
			})
			t.Run("a head timeout leaves the body alone", func(t *testing.T) {
				var group sync.WaitGroup
				for _, opt := range []cruisehttp.Option{
					cruisehttp.WithHeaderTimeout(timeout),
					cruisehttp.WithRetrierOptions(cruise.WithAttemptTimeout(timeout)),
					cruisehttp.WithRetrierOptions(cruise.WithAttemptTimeout(time.Hour)),
				} {
					for _, callers := range []time.Duration{0, time.Minute} {
						client := &http.Client{Transport: transport(t, base, opt), Timeout: callers}
						group.Go(func() {
							resp, err := client.Do(request(t, "GET", srv.URL+"/body", nil))
							if assert.NoError(t, err) {
								assert.Equal(t, "beginend", text(t, resp))
							}
						})
					}
				}
				group.Wait()
			})
			t.Run("body", func(t *testing.T) {
				tr := transport(t, base, cruisehttp.WithAttemptTimeout(timeout))
				resp, err := tr.RoundTrip(request(t, "GET", srv.URL+"/body", nil))
				require.NoError(t, err)
				data, err := io.ReadAll(resp.Body)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				assert.Equal(t, "begin", string(data))
				require.NoError(t, resp.Body.Close())
			})
		})
	}
}

// A connection is closed now and then, every seventh response fails, one is a
// throttle, and bodies come in two pieces. Of HTTP/2 one connection is closed, by
// GOAWAY: net/http itself waits for a second, then for two, four and more, with a
// request that meets several.
func TestTransportSurvivesClosingConnections(t *testing.T) {
	for version, http2 := range versions {
		t.Run(version, func(t *testing.T) {
			var n atomic.Int64
			var mu sync.Mutex
			done := map[string]int{} // by X-Id
			srv, base, count := listen(t, http2, func(w http.ResponseWriter, r *http.Request) {
				n := n.Add(1)
				body, _ := io.ReadAll(r.Body)
				if n == 300 || !http2 && n%10 == 0 {
					w.Header().Set("Connection", "close")
				}
				switch {
				case n == 100:
					w.Header().Set("Retry-After", "0.05")
					w.WriteHeader(http.StatusTooManyRequests)
				case n%7 == 0:
					w.WriteHeader(http.StatusBadGateway)
				default:
					mu.Lock()
					done[r.Header.Get("X-Id")]++
					mu.Unlock()
				}
				_, _ = w.Write(body[:2])
				_ = http.NewResponseController(w).Flush()
				time.Sleep(time.Millisecond)
				_, _ = w.Write(body[2:])
			})
			client := &http.Client{Transport: transport(t, base, cruisehttp.WithRetrierOptions(cruise.WithTuning(cruise.Tuning{MinRate: 1000}), cruise.WithMaxAttempts(20), cruise.WithoutBudget()))}
			var group sync.WaitGroup
			for g := range 200 {
				group.Go(func() {
					for i := range 3 {
						id := fmt.Sprint(g, ":", i)
						req := request(t, []string{"PUT", "POST"}[i%2], srv.URL, strings.NewReader("body"), "X-Id: "+id)
						resp, err := client.Do(req)
						if !assert.NoError(t, err) {
							continue
						}
						assert.Equal(t, "body", text(t, resp))
						if resp.StatusCode == http.StatusBadGateway {
							assert.Equal(t, "POST", req.Method, "a PUT can be sent again")
							continue
						}
						mu.Lock()
						assert.Equal(t, 1, done[id])
						mu.Unlock()
					}
				})
			}
			group.Wait()
			assert.Greater(t, count.opened.Load(), int64(1), "connections were closed")
		})
	}
}

// hooked is a context that counts the functions which wait for its end.
type hooked struct {
	context.Context
	hooks atomic.Int64
}

func (h *hooked) AfterFunc(f func()) (stop func() bool) {
	h.hooks.Add(1)
	unhook := context.AfterFunc(h.Context, f)
	return func() bool {
		stopped := unhook()
		if stopped {
			h.hooks.Add(-1)
		}
		return stopped
	}
}

// Value hides the context within, to which package context would turn directly.
func (*hooked) Value(any) any { return nil }

// All requests of a program may share one context: none of them leaves anything on it, nor does a
// response that has no body and is never closed.
func TestTransportLeavesNothingOnTheContext(t *testing.T) {
	for name, opt := range map[string]cruisehttp.Option{
		"no timeout":             cruisehttp.WithLongWait(time.Hour),
		"header timeout":         cruisehttp.WithHeaderTimeout(time.Minute),
		"attempt timeout":        cruisehttp.WithAttemptTimeout(time.Minute),
		"timeout of the Retrier": cruisehttp.WithRetrierOptions(cruise.WithAttemptTimeout(time.Minute)),
	} {
		for body, of := range map[string]io.ReadCloser{"": io.NopCloser(strings.NewReader("done")), ", no body": http.NoBody, ", nil": nil} {
			t.Run(name+body, func(t *testing.T) {
				ctx := &hooked{Context: t.Context()}
				base := roundTripper(func(r *http.Request) (*http.Response, error) {
					if r.Header.Get("X-Fail") != "" {
						r.Header.Del("X-Fail")
						return nil, io.ErrUnexpectedEOF
					}
					resp := answer(200, "")
					resp.Body = of
					return resp, nil
				})
				tr := transport(t, base, opt, cruisehttp.WithRetrierOptions(cruise.WithBackoff(cruise.Backoff{})))
				resp, err := tr.RoundTrip(request(t, "GET", example, nil, "X-Fail: 1").WithContext(ctx))
				require.NoError(t, err)
				if body == "" {
					text(t, resp)
				}
				assert.Zero(t, ctx.hooks.Load(), "functions left on the context")
			})
		}
	}
}
