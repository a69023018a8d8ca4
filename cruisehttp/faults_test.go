package cruisehttp_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/cruisehttp"
)

// A fault is a server's treatment of a connection after it has read a request. It reports whether
// the connection is good for another one.
type fault struct {
	name string
	done bool // the server has done the work all the same
	do   func(c *net.TCPConn) (again bool)
}

// writes answers so, and closes.
func writes(text string) func(*net.TCPConn) bool {
	return func(c *net.TCPConn) bool {
		_, _ = io.WriteString(c, text)
		return false
	}
}

// resets makes the client's kernel say "connection reset by peer".
func resets(text string) func(*net.TCPConn) bool {
	return func(c *net.TCPConn) bool {
		_, _ = io.WriteString(c, text)
		_ = c.SetLinger(0)
		return false
	}
}

// answers is a whole response, after which the connection is used again.
func answers(status int, header string) func(*net.TCPConn) bool {
	return func(c *net.TCPConn) bool {
		_, err := fmt.Fprintf(c, "HTTP/1.1 %d x\r\n%sContent-Length: 5\r\n\r\nfault", status, header)
		return err == nil
	}
}

// hangs says nothing more until the client hangs up.
func hangs(c *net.TCPConn) bool {
	_, _ = io.Copy(io.Discard, c)
	return false
}

// faults happen before a head, so that a transport can tell that there was no
// answer, or are answers.
var faults = []fault{
	{"hangs", true, hangs},
	{"half a head, then hangs", true, func(c *net.TCPConn) bool {
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Le")
		return hangs(c)
	}},
	{"resets", true, resets("")},
	{"resets within the head", true, resets("HTTP/1.1 200 OK\r\nX-")},
	{"closes", true, writes("")},
	{"closes its half, and reads on", true, func(c *net.TCPConn) bool {
		_ = c.CloseWrite()
		return hangs(c)
	}},
	{"garbage", true, writes("\x16\x03\x01\x00\xa5\xff\xfe\x00 garbage\r\n\r\n")},
	{"a head without end", true, func(c *net.TCPConn) bool {
		_, err := io.WriteString(c, "HTTP/1.1 200 OK\r\n")
		for line := "X-A: " + strings.Repeat("a", 1000) + "\r\n"; err == nil; {
			_, err = io.WriteString(c, line)
		}
		return false
	}},
	{"informational answers without end", true, func(c *net.TCPConn) bool {
		var err error
		for err == nil {
			_, err = io.WriteString(c, "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n")
		}
		return false
	}},
	{"two lengths", true, writes("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx")},
	{"a negative length", true, writes("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n")},
	{"503", true, answers(503, "")},
	{"502, with a lie of a length", true, writes("HTTP/1.1 502 x\r\nContent-Length: 99999999999\r\n\r\nshort")},
	{"500, chunks that are none", true, writes("HTTP/1.1 500 x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n")},
	{"500, gzip that is none", true, answers(500, "Content-Encoding: gzip\r\n")},
	{"429", false, answers(429, "Retry-After: 0.05\r\n")},
	{"429, waits that are none", false, answers(429, "Retry-After: -1\r\nRetry-After: NaN\r\nX-RateLimit-Reset: 1e99\r\nRateLimit: \"\r\n")},
	{"429, limits of zero", false, answers(429, "X-RateLimit-Limit: 0\r\nX-RateLimit-Remaining: 0\r\nX-RateLimit-Reset: 0\r\n")},
	{"429, body without end", false, func(c *net.TCPConn) bool {
		_, err := io.WriteString(c, "HTTP/1.1 429 x\r\nRetry-After: 0\r\n\r\n")
		for chunk := strings.Repeat("a", 1<<12); err == nil; {
			_, err = io.WriteString(c, chunk)
		}
		return false
	}},
	{"503, body that hangs", true, func(c *net.TCPConn) bool {
		_, _ = io.WriteString(c, "HTTP/1.1 503 x\r\nContent-Length: 100\r\n\r\nbegin")
		return hangs(c)
	}},
}

// A faultyServer answers by the bytes of TCP.
type faultyServer struct {
	net.Listener
	pick func(id string, n int) *fault // for the n-th request of an id; nil: none

	group sync.WaitGroup
	ctx   context.Context // ends with the server

	mu   sync.Mutex // guards the fields below
	seen map[string]int
	done map[string]int
}

func serveFaults(t *testing.T, pick func(id string, n int) *fault) *faultyServer {
	t.Helper()
	return serveFaultsAt(t, "127.0.0.1:0", pick)
}

func serveFaultsAt(t *testing.T, address string, pick func(id string, n int) *fault) *faultyServer {
	t.Helper()
	l, err := net.Listen("tcp", address)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	s := &faultyServer{Listener: l, pick: pick, ctx: ctx, seen: map[string]int{}, done: map[string]int{}}
	s.group.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.group.Go(func() { s.serve(c.(*net.TCPConn)) })
		}
	})
	t.Cleanup(func() {
		cancel()
		_ = l.Close()
		s.group.Wait()
	})
	return s
}

func (s *faultyServer) url() string { return "http://" + s.Addr().String() }

func (s *faultyServer) serve(c *net.TCPConn) {
	defer c.Close()
	defer context.AfterFunc(s.ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })() // nothing outlives the server
	r := bufio.NewReader(c)
	for {
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return
		}
		id := req.Header.Get("X-Id")
		s.mu.Lock()
		f := s.pick(id, s.seen[id])
		s.seen[id]++
		if f == nil || f.done {
			s.done[id]++
		}
		s.mu.Unlock()
		if f == nil {
			text := id + string(body)
			if _, err := fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(text), text); err != nil {
				return
			}
			continue
		}
		if !f.do(c) {
			return
		}
	}
}

func (s *faultyServer) counts(id string) (seen, done int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen[id], s.done[id]
}

// Any fault may hit the first attempt. A request that may be sent again is answered at the second
// attempt, and any other is sent once. A request takes no longer than the timeout and the wait, and
// leaves nothing behind.
func TestFaults(t *testing.T) {
	if testing.Short() {
		t.Skip("half a minute of real time")
	}
	for i := range faults {
		f := &faults[i]
		t.Run(f.name, func(t *testing.T) {
			nothingLeft(t)
			srv := serveFaults(t, func(_ string, n int) *fault {
				if n == 0 {
					return f
				}
				return nil
			})
			base := &http.Transport{MaxResponseHeaderBytes: 64 << 10}
			t.Cleanup(base.CloseIdleConnections)
			// A test takes the timeout of a hanging attempt, the look at a hanging body, and short
			// waits. Ten times that is for busy machines.
			tr := transport(t, base, cruisehttp.WithHeaderTimeout(200*time.Millisecond),
				cruisehttp.WithRetrierOptions(cruise.WithBackoff(cruise.Must(cruise.ConstantBackoff(time.Millisecond)))))
			client := &http.Client{Transport: tr}
			for _, method := range []string{"GET", "PUT", "POST"} {
				begin := time.Now()
				resp, err := client.Do(request(t, method, srv.url(), strings.NewReader("body"), "X-Id: "+method))
				seen, done := srv.counts(method)
				if method == "POST" && f.done {
					assert.Equal(t, 1, done, "a POST may have been done, and is not sent again")
					if err == nil {
						assert.GreaterOrEqual(t, resp.StatusCode, 500)
						_ = resp.Body.Close()
					} else {
						assert.ErrorIs(t, err, cruisehttp.ErrNotIdempotent)
					}
				} else if assert.NoError(t, err, method) {
					assert.Equal(t, method+"body", text(t, resp))
					assert.GreaterOrEqual(t, done, 1)
				}
				assert.LessOrEqual(t, seen, 5, method)
				assert.Less(t, time.Since(begin), 10*time.Second, method)
			}
		})
	}
}

// The head is good, and the body breaks: the caller gets the bytes read so far and an error, and
// nothing is sent again.
func TestBodiesThatBreak(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(*net.TCPConn) bool
	}{
		{"resets", resets("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nbegin")},
		{"closes", writes("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nbegin")},
		{"broken chunks", writes("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nbegin\r\nxyz\r\n")},
		{"hangs", func(c *net.TCPConn) bool {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nbegin")
			return hangs(c)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			nothingLeft(t)
			srv := serveFaults(t, func(string, int) *fault { return &fault{done: true, do: tt.do} })
			base := &http.Transport{}
			t.Cleanup(base.CloseIdleConnections)
			client := &http.Client{Transport: transport(t, base, cruisehttp.WithAttemptTimeout(300*time.Millisecond))}
			resp, err := client.Do(request(t, "GET", srv.url(), nil, "X-Id: 1"))
			if err == nil { // a reset may be faster than the head
				var got []byte
				got, err = io.ReadAll(resp.Body)
				assert.True(t, strings.HasPrefix("begin", string(got)), "%q", got)
				require.NoError(t, resp.Body.Close())
				seen, _ := srv.counts("1")
				assert.Equal(t, 1, seen)
			}
			assert.Error(t, err)
		})
	}
}
