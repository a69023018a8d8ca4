package cruiseredis_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/a7df5faa/cruise/internal/calm"
)

// program finds a server that a test needs. Debian keeps some outside the PATH of
// an ordinary user.
func program(t testing.TB, name string) string {
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

// ports that servers of these tests have had.
var ports sync.Map

// freePort returns a port that no other server of these tests had or will have, since servers are
// stopped and started again. The port is below the range that the system gives to clients, which
// could take it meanwhile, and so is the port 10,000 above it, on which the nodes of a cluster
// talk.
func freePort(t testing.TB) string {
	t.Helper()
	free := func(port int) bool {
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		return err == nil && l.Close() == nil
	}
	for range 1000 {
		port := 10_000 + rand.IntN(10_000)
		if _, taken := ports.LoadOrStore(port, true); !taken && free(port) && free(port+10_000) {
			return strconv.Itoa(port)
		}
	}
	t.Fatal("no port is free")
	return ""
}

// server is a redis-server of a test's own, which can be killed and started again.
type server struct {
	t    testing.TB
	addr string
	port string
	args []string
	env  []string
	cmd  *exec.Cmd
}

func startRedis(t testing.TB, args ...string) *server {
	t.Helper()
	s := &server{t: t, port: freePort(t), args: args}
	s.addr = "127.0.0.1:" + s.port
	s.start()
	t.Cleanup(s.kill)
	return s
}

func (s *server) start() {
	s.t.Helper()
	args := append([]string{"--port", s.port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", s.t.TempDir(), "--logfile", ""}, s.args...)
	s.cmd = exec.Command(program(s.t, "redis-server"), args...)
	s.cmd.Env = append(os.Environ(), s.env...)
	require.NoError(s.t, s.cmd.Start())
	require.Eventually(s.t, func() bool {
		conn, err := net.Dial("tcp", s.addr)
		return err == nil && conn.Close() == nil
	}, time.Minute, 5*time.Millisecond, "redis-server does not listen")
}

// kill ends it as a crash does.
func (s *server) kill() {
	if s.cmd != nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
		s.cmd = nil
	}
}

// signal stops it for a while, or lets it go on.
func (s *server) signal(sig syscall.Signal) {
	s.t.Helper()
	require.NoError(s.t, s.cmd.Process.Signal(sig))
}

func (s *server) client(change ...func(*redis.Options)) *redis.Client {
	o := &redis.Options{Addr: s.addr}
	for _, f := range change {
		f(o)
	}
	c := redis.NewClient(o)
	s.t.Cleanup(func() { _ = c.Close() })
	return c
}

// proxy is a TCP connection that can be disturbed.
type proxy struct {
	to atomic.Pointer[string]
	l  net.Listener

	mu     sync.Mutex // guards the fields below
	delay  time.Duration
	hole   bool // drops all data without closing the connections
	slice  bool // one byte at a time
	refuse bool
	conns  map[net.Conn]bool
}

func startProxy(t testing.TB, to string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &proxy{l: l, conns: map[net.Conn]bool{}}
	p.to.Store(&to)
	t.Cleanup(func() { l.Close(); p.reset() })
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			p.mu.Lock()
			refuse := p.refuse
			p.mu.Unlock()
			out, err := net.Dial("tcp", *p.to.Load())
			if err != nil || refuse {
				in.Close()
				if out != nil {
					out.Close()
				}
				continue
			}
			p.mu.Lock()
			p.conns[in], p.conns[out] = true, true
			p.mu.Unlock()
			go p.pipe(out, in)
			go p.pipe(in, out)
		}
	}()
	return p
}

func (p *proxy) addr() string { return p.l.Addr().String() }

// set changes the treatment of all further data.
func (p *proxy) set(change func(*proxy)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(p)
}

// reset breaks all connections.
func (p *proxy) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		c.Close()
	}
	clear(p.conns)
}

func (p *proxy) pipe(to, from net.Conn) {
	defer func() {
		to.Close()
		from.Close()
		p.mu.Lock()
		delete(p.conns, to)
		delete(p.conns, from)
		p.mu.Unlock()
	}()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		p.mu.Lock()
		delay, hole, slice := p.delay, p.hole, p.slice
		p.mu.Unlock()
		time.Sleep(delay)
		if hole {
			continue
		}
		if !slice {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
			continue
		}
		for i := range n {
			if _, err := to.Write(buf[i : i+1]); err != nil {
				return
			}
		}
	}
}

// scopeOf is a scope that no other test uses.
func scopeOf(t testing.TB) string { return fmt.Sprintf("%s %d", t.Name(), time.Now().UnixNano()) }

// Tests that start a Redis do little but wait, so many of them may run at once.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "12"); err != nil {
		panic(err)
	}
	redis.SetLogger(silent{}) // go-redis tells of each connection that failed
	if os.Getenv(fleetWorker) != "" {
		os.Exit(m.Run())
	}
	os.Exit(calm.Run(m))
}

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}
