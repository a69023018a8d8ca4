package cruisehttp_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/cruisehttp"
)

// program finds a server that a test needs. Debian keeps them outside the PATH of
// an ordinary user.
func program(t *testing.T, name string) string {
	t.Helper()
	if testing.Short() {
		t.Skip("takes seconds")
	}
	for _, path := range []string{name, filepath.Join("/usr/sbin", name)} {
		if found, err := exec.LookPath(path); err == nil {
			return found
		}
	}
	if os.Getenv("CRUISE_REQUIRE_SERVICES") == "1" {
		t.Fatalf("%s is not installed", name)
	}
	t.Skipf("%s is not installed", name)
	return ""
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)
	return port
}

// start runs a program until the test ends, and waits until it listens.
func start(t *testing.T, port string, path string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(path, args...)
	output := &syncBuffer{}
	cmd.Stdout, cmd.Stderr = output, output
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	require.Eventually(t, func() bool {
		conn, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err != nil {
			return false
		}
		return conn.Close() == nil
	}, 10*time.Second, 10*time.Millisecond, "%s does not listen: %s", path, output)
	return cmd
}

type syncBuffer struct {
	mu  sync.Mutex
	buf strings.Builder
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// origin is the server behind the proxy. It counts how often each request, named
// by its X-Id, arrives.
type origin struct {
	port string
	mu   sync.Mutex
	seen map[string]int
}

func newOrigin(t *testing.T) *origin {
	t.Helper()
	o := &origin{seen: map[string]int{}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	_, o.port, err = net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		o.mu.Lock()
		o.seen[r.Header.Get("X-Id")]++
		o.mu.Unlock()
		_, _ = io.WriteString(w, "done")
	})}
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close() })
	return o
}

// nginx starts nginx with limit_req of a rate, in requests per second.
func startNginx(t *testing.T, path, dir, port string, perSecond int, options string, o *origin) *exec.Cmd {
	t.Helper()
	config := fmt.Sprintf(`
daemon off;
master_process on;
worker_processes 1;
pid %[1]s/pid;
error_log %[1]s/error.log;
events { worker_connections 256; }
http {
  access_log off;
  client_body_temp_path %[1]s/body;
  proxy_temp_path %[1]s/proxy;
  fastcgi_temp_path %[1]s/fastcgi;
  uwsgi_temp_path %[1]s/uwsgi;
  scgi_temp_path %[1]s/scgi;
  limit_req_zone $binary_remote_addr zone=api:1m rate=%[2]dr/s;
  server {
    listen 127.0.0.1:%[3]s;
    location / {
      %[4]s
      proxy_pass http://127.0.0.1:%[5]s;
    }
  }
}
`, dir, perSecond, port, options, o.port)
	file := filepath.Join(dir, "nginx.conf")
	require.NoError(t, os.WriteFile(file, []byte(config), 0o600))
	return start(t, port, path, "-e", filepath.Join(dir, "error.log"), "-p", dir, "-c", file)
}

func startHAProxy(t *testing.T, path, dir, port string, perWindow int, window string, o *origin) *exec.Cmd {
	t.Helper()
	config := fmt.Sprintf(`
global
  maxconn 256
defaults
  mode http
  timeout connect 5s
  timeout client 30s
  timeout server 30s
frontend api
  bind 127.0.0.1:%[1]s
  stick-table type ip size 1k expire 60s store http_req_rate(%[2]s)
  acl over src_http_req_rate gt %[3]d
  http-request track-sc0 src unless over
  http-request return status 429 content-type text/plain string slow-down hdr Retry-After 1 if over
  default_backend origin
backend origin
  server origin 127.0.0.1:%[4]s
`, port, window, perWindow, o.port)
	file := filepath.Join(dir, "haproxy.cfg")
	require.NoError(t, os.WriteFile(file, []byte(config), 0o600))
	return start(t, port, path, "-db", "-f", file)
}

// tally counts what attempts come to, in the order in which they end.
type tally struct {
	mu        sync.Mutex
	throttled []bool
}

func (c *tally) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err == nil {
		c.mu.Lock()
		c.throttled = append(c.throttled, resp.StatusCode == 429 || resp.StatusCode == 503)
		c.mu.Unlock()
	}
	return resp, err
}

func (c *tally) report(skip int) (share float64, throttles int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, throttled := range c.throttled[min(skip, len(c.throttled)):] {
		if throttled {
			throttles++
		}
	}
	return float64(throttles) / float64(max(1, len(c.throttled)-skip)), throttles
}

// crowd sends requests from 8 workers and returns how long that took.
func crowd(t *testing.T, client *http.Client, requests int, send func(n int) *http.Request) time.Duration {
	t.Helper()
	begin := time.Now()
	var next atomic.Int64
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for {
				n := int(next.Add(1))
				if n > requests {
					return
				}
				resp, err := client.Do(send(n))
				if !assert.NoError(t, err) {
					continue
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
				assert.Equal(t, 200, resp.StatusCode)
			}
		})
	}
	group.Wait()
	return time.Since(begin)
}

func TestTransportKeepsToTheRateOfRealServers(t *testing.T) {
	for _, c := range []struct {
		name      string
		perSecond float64
		free      int // that may go at once in the beginning
		requests  int
		start     func(t *testing.T, port string, o *origin)
	}{
		{"nginx 429", 50, 10, 400, func(t *testing.T, port string, o *origin) {
			startNginx(t, program(t, "nginx"), t.TempDir(), port, 50, "limit_req zone=api burst=10 nodelay; limit_req_status 429;", o)
		}},
		{"nginx 503", 50, 10, 400, func(t *testing.T, port string, o *origin) {
			startNginx(t, program(t, "nginx"), t.TempDir(), port, 50, "limit_req zone=api burst=10 nodelay;", o)
		}},
		{"haproxy", 50, 0, 400, func(t *testing.T, port string, o *origin) {
			startHAProxy(t, program(t, "haproxy"), t.TempDir(), port, 50, "1s", o)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			port := freePort(t)
			o := newOrigin(t)
			c.start(t, port, o)
			count := &tally{}
			client := &http.Client{Transport: cruise.Must(cruisehttp.NewTransport(cruisehttp.WithBase(count), cruisehttp.WithRetrier(cruise.WithMaxAttempts(20))))}
			took := crowd(t, client, c.requests, func(n int) *http.Request {
				return request(t, "GET", "http://127.0.0.1:"+port+"/", nil)
			})
			share, throttles := count.report(20)
			_, all := count.report(0)
			used := float64(c.requests-c.free) / took.Seconds() / c.perSecond
			t.Logf("%d requests in %v: %.1f %% of the rate used, %d throttled, after the first 20: %d, %.1f %%",
				c.requests, took.Round(time.Millisecond), 100*used, all, throttles, 100*share)
			// Far from the figures of a quiet machine, since these are real seconds
			// on one that may be busy with other tests.
			assert.LessOrEqual(t, share, .1, "throttled after the first 20")
			assert.GreaterOrEqual(t, used, .25, "of the rate used")
		})
	}
}

func TestTransportSurvivesARestartOfNginx(t *testing.T) {
	t.Parallel()
	path, dir, port := program(t, "nginx"), t.TempDir(), freePort(t)
	o := newOrigin(t)
	const options = "limit_req zone=api burst=20 nodelay; limit_req_status 429;"
	first := startNginx(t, path, dir, port, 100, options, o)
	client := &http.Client{Transport: cruise.Must(cruisehttp.NewTransport(cruisehttp.WithBase(&http.Transport{})))}
	defer client.CloseIdleConnections()

	restarted := make(chan struct{})
	go func() {
		defer close(restarted)
		time.Sleep(time.Second)
		_ = first.Process.Signal(syscall.SIGTERM)
		_ = first.Wait()
		time.Sleep(200 * time.Millisecond)
		startNginx(t, path, dir, port, 100, options, o)
	}()
	var mu sync.Mutex
	failed := map[string]error{} // POSTs
	var next atomic.Int64
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for n := next.Add(1); n <= 300; n = next.Add(1) {
				method, id := "GET", fmt.Sprint(n)
				if n%3 == 0 {
					method = "POST"
				}
				resp, err := client.Do(request(t, method, "http://127.0.0.1:"+port+"/", strings.NewReader("body"), "X-Id: "+id))
				if err == nil {
					_, err = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
					if resp.StatusCode != 200 {
						err = fmt.Errorf("status %s", resp.Status)
					}
				}
				if method == "POST" && err != nil {
					mu.Lock()
					failed[id] = err
					mu.Unlock()
					continue
				}
				assert.NoError(t, err, "%s %s", method, id)
			}
		})
	}
	group.Wait()
	<-restarted
	o.mu.Lock()
	defer o.mu.Unlock()
	for n := 1; n <= 300; n++ {
		id := fmt.Sprint(n)
		switch {
		case n%3 != 0:
			assert.GreaterOrEqual(t, o.seen[id], 1, "GET %s is lost", id)
		case failed[id] != nil:
			assert.LessOrEqual(t, o.seen[id], 1, "POST %s was sent twice", id)
			t.Logf("POST %s failed and was not sent again: %v", id, failed[id])
		default:
			assert.Equal(t, 1, o.seen[id], "POST %s", id)
		}
	}
}
