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
	"github.com/a7df5faa/cruise/internal/calm"
)

func TestMain(m *testing.M) { os.Exit(calm.Run(m)) }

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
		time.Sleep(20 * time.Millisecond) // as an API takes that does some work
		_, _ = io.WriteString(w, "done")
	})}
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close() })
	return o
}

// startNginx starts nginx with limit_req of a rate, in requests per second.
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

// startHAProxy starts HAProxy with a sliding window, by one of the rules that are
// in use.
func startHAProxy(t *testing.T, path, dir, port string, perWindow int, window string, rules haproxyRules, o *origin) *exec.Cmd {
	t.Helper()
	const refuse = "http-request return status 429 content-type text/plain string slow-down hdr Retry-After 1 if over\n"
	lines := map[haproxyRules]string{
		refuseThenCount: "  " + refuse + "  http-request track-sc0 src\n",
		countUnlessOver: "  http-request track-sc0 src unless over\n  " + refuse,
		countThenRefuse: "  http-request track-sc0 src\n  " + refuse,
	}[rules]
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
%[5]s  default_backend origin
backend origin
  server origin 127.0.0.1:%[4]s
`, port, window, perWindow, o.port, lines)
	file := filepath.Join(dir, "haproxy.cfg")
	require.NoError(t, os.WriteFile(file, []byte(config), 0o600))
	return start(t, port, path, "-db", "-f", file)
}

// tally counts the results of attempts, in the order in which they end.
type tally struct {
	base http.RoundTripper
	mu   sync.Mutex
	ends []end
}

type end struct {
	at        time.Time
	throttled bool
}

func (c *tally) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := c.base.RoundTrip(r)
	if err == nil {
		c.mu.Lock()
		c.ends = append(c.ends, end{time.Now(), resp.StatusCode == 429 || resp.StatusCode == 503})
		c.mu.Unlock()
	}
	return resp, err
}

// startUp is how many attempts a client has for finding the limit.
const startUp = 20

// report returns two shares for the time after the start: throttled attempts, and the used part of
// the server's rate. The start has emptied the server's bucket, or filled its window, so only the
// rate is left.
func (c *tally) report(perSecond float64) (throttled, used float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	rest := c.ends[startUp:]
	throttles := 0
	for _, e := range rest {
		if e.throttled {
			throttles++
		}
	}
	span := rest[len(rest)-1].at.Sub(c.ends[startUp-1].at)
	return float64(throttles) / float64(len(rest)), float64(len(rest)-throttles) / span.Seconds() / perSecond
}

// crowd sends requests from 8 workers, until all of them have succeeded.
func crowd(t *testing.T, client *http.Client, requests int, url string) {
	t.Helper()
	var next atomic.Int64
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for next.Add(1) <= int64(requests) {
				resp, err := client.Do(request(t, "GET", url, nil))
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
}

// The servers are those of TestTransportKeepsToTheRate, where time is virtual and
// the bounds are narrow. Here seconds are real and the machine may be busy with
// other tests: one run of three within the bounds is enough, and the machine must not
// have stood still where none is.
func TestTransportKeepsToTheRateOfRealServers(t *testing.T) {
	nginx := func(options string) func(*testing.T, string, *origin) {
		return func(t *testing.T, port string, o *origin) {
			startNginx(t, program(t, "nginx"), t.TempDir(), port, 20, options, o)
		}
	}
	haproxy := func(rules haproxyRules) func(*testing.T, string, *origin) {
		return func(t *testing.T, port string, o *origin) {
			startHAProxy(t, program(t, "haproxy"), t.TempDir(), port, 9, "3s", rules, o)
		}
	}
	for _, c := range []struct {
		name      string
		perSecond float64
		requests  int // sixty over the limit and its burst
		start     func(t *testing.T, port string, o *origin)
	}{
		{"nginx 429", 20, 66, nginx("limit_req zone=api burst=5 nodelay; limit_req_status 429;")},
		{"nginx 503", 20, 66, nginx("limit_req zone=api burst=5 nodelay;")},
		{"haproxy", 3, 69, haproxy(countUnlessOver)},
		{"haproxy that counts what it refuses", 3, 69, haproxy(countThenRefuse)},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			const most = 3
			calmly := 0
			for range most {
				stop := calm.Watch()
				port := freePort(t)
				c.start(t, port, newOrigin(t))
				count := &tally{base: http.DefaultTransport}
				// On a machine that is busy a window may stay closed for five attempts.
				tr := transport(t, count, cruisehttp.WithRetrierOptions(cruise.WithMaxAttempts(8)))
				crowd(t, &http.Client{Transport: tr}, c.requests, "http://127.0.0.1:"+port+"/")
				x, y := count.report(c.perSecond)
				stood := stop()
				t.Logf("%.1f %% throttled, %.1f %% of the rate used; the machine stood still for %v", 100*x, 100*y, stood)
				if x <= .06 && y >= .8 {
					return
				}
				if stood < calm.Stood {
					calmly++
				}
			}
			if calmly < most {
				t.Skip("the machine stands still too often to tell")
			}
			t.Error("want at most 6 % throttled and 80 % used")
		})
	}
}

func TestTransportSurvivesARestartOfNginx(t *testing.T) {
	t.Parallel()
	path, dir, port := program(t, "nginx"), t.TempDir(), freePort(t)
	o := newOrigin(t)
	const options = "limit_req zone=api burst=20 nodelay; limit_req_status 429;"
	first := startNginx(t, path, dir, port, 100, options, o)
	client := &http.Client{Transport: cruise.Must(cruisehttp.NewTransport(cruisehttp.WithRoundTripper(&http.Transport{}),
		cruisehttp.WithRetrierOptions(cruise.WithMaxAttempts(8))))} // for by chance five may be over in a tenth of a second
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
