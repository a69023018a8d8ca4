// Workers shows one limit for many processes: it starts a Redis and a server that throttles, both
// on this machine, and several worker processes that know neither each other nor the limit. A
// table shows how their rates converge; its last column counts calls made while Redis did not
// answer.
//
//	go run ./examples/workers
//	go run ./examples/workers -kill-redis        stops Redis in the middle
//	go run ./examples/workers -alone             each with a limiter of its own
//	go run ./examples/workers -workers 100 -rate 1000 -duration 2m
//
// It needs redis-server (Debian: apt-get install redis-server).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

type config struct {
	workers  int
	rate     float64
	duration time.Duration
	kill     bool
	alone    bool
}

func main() {
	if os.Getenv("WORKER") != "" {
		if err := work(); err != nil {
			fmt.Fprintln(os.Stderr, "worker:", err)
			os.Exit(1)
		}
		return
	}
	var c config
	flag.IntVar(&c.workers, "workers", 8, "worker processes, 1 to 200")
	flag.Float64Var(&c.rate, "rate", 100, "calls a second that the server admits, 0.01 to 10000")
	flag.DurationVar(&c.duration, "duration", 30*time.Second, "how long, 10s to 24h")
	flag.BoolVar(&c.kill, "kill-redis", false, "kill Redis after half the time, and start it again after two thirds")
	flag.BoolVar(&c.alone, "alone", false, "share nothing: each worker has a limiter of its own")
	flag.Parse()
	if err := c.check(); err != nil {
		fmt.Fprintln(os.Stderr, "workers:", err)
		os.Exit(2)
	}
	// SIGTERM too: a Redis that is left behind would run for ever.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Stdout, c); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func (c *config) check() error {
	switch {
	case flag.NArg() > 0:
		return fmt.Errorf("unexpected argument %q: all options are flags, see -h", flag.Arg(0))
	case c.workers < 1 || c.workers > 200:
		return fmt.Errorf("-workers %d: want 1 to 200", c.workers)
	case !(c.rate >= .01 && c.rate <= 10_000):
		return fmt.Errorf("-rate %v: want 0.01 to 10000 calls per second", c.rate)
	case c.duration < 10*time.Second || c.duration > 24*time.Hour:
		return fmt.Errorf("-duration %v: want 10s to 24h", c.duration)
	case c.kill && c.alone:
		return errors.New("-kill-redis and -alone contradict each other: alone, no worker uses Redis")
	}
	return nil
}

func run(ctx context.Context, out io.Writer, c config) error {
	path, err := findRedis()
	if err != nil {
		fmt.Fprintln(out, "redis-server is not installed, so there is nothing to show.")
		fmt.Fprintln(out, "On Debian and Ubuntu: apt-get install redis-server")
		return nil
	}
	dir, err := os.MkdirTemp("", "workers")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	store := &redisServer{path: path, dir: dir}
	if err := store.start(); err != nil {
		return err
	}
	defer store.kill()

	api := newAPI(c.rate, c.workers, c.duration)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: api, ReadHeaderTimeout: 10 * time.Second}
	go server.Serve(l)
	defer server.Close()

	fmt.Fprintf(out, "%d worker processes, a server that admits %v calls a second. Calls a second of each:\n\n", c.workers, c.rate)
	ctx, cancel := context.WithTimeout(ctx, c.duration)
	defer cancel()
	workers, err := startWorkers(c, "http://"+l.Addr().String(), store.addr())
	defer stopWorkers(workers)
	if err != nil {
		return err
	}
	show(ctx, out, c, api, store)
	return nil
}

// show prints a line every two seconds, and the totals at the end.
func show(ctx context.Context, out io.Writer, c config, api *api, store *redisServer) {
	const every = 2 * time.Second
	tick := time.NewTicker(every)
	defer tick.Stop()
	shown := min(c.workers, 8)
	head := fmt.Sprintf("%6s  %-5s", "time", "redis")
	for i := range shown {
		head += fmt.Sprintf(" %6s", "#"+strconv.Itoa(i+1))
	}
	if shown < c.workers {
		head += "    ..."
	}
	fmt.Fprintf(out, "%s %8s %10s %8s\n", head, "together", "throttled", "cut off")
	began := time.Now()
	for {
		select {
		case <-ctx.Done():
			api.report(out)
			return
		case <-tick.C:
		}
		since := time.Since(began)
		if c.kill {
			switch {
			case since >= c.duration/2 && store.cmd != nil && !store.back:
				store.kill()
			case since >= c.duration*2/3 && store.cmd == nil:
				store.back = true
				if err := store.start(); err != nil {
					fmt.Fprintln(out, err)
				}
			}
		}
		state := "up"
		if store.cmd == nil {
			state = "down"
		}
		now := api.take()
		line := fmt.Sprintf("%5.0fs  %-5s", since.Seconds(), state)
		for _, n := range now.admitted[:shown] {
			line += fmt.Sprintf(" %6.1f", float64(n)/every.Seconds())
		}
		if shown < c.workers {
			line += "       "
		}
		fmt.Fprintf(out, "%s %8.1f %8.1f %% %8d\n", line, float64(now.total)/every.Seconds(), now.throttledShare(), now.degraded)
	}
}

// findRedis finds redis-server, also where an ordinary user's PATH does not lead.
func findRedis() (string, error) {
	for _, path := range []string{"redis-server", filepath.Join("/usr/sbin", "redis-server")} {
		if found, err := exec.LookPath(path); err == nil {
			return found, nil
		}
	}
	return "", exec.ErrNotFound
}

// redisServer is a redis-server that can be killed and started again.
type redisServer struct {
	path, dir string
	port      string
	cmd       *exec.Cmd // nil while down
	back      bool      // it was down and is up again
}

func (r *redisServer) addr() string { return "127.0.0.1:" + r.port }

func (r *redisServer) start() error {
	if r.port == "" {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		_, r.port, _ = net.SplitHostPort(l.Addr().String())
		l.Close()
	}
	r.cmd = exec.Command(r.path, "--port", r.port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", r.dir)
	if err := r.cmd.Start(); err != nil {
		r.cmd = nil
		return err
	}
	for range 500 {
		if conn, err := net.Dial("tcp", r.addr()); err == nil {
			return conn.Close()
		}
		time.Sleep(10 * time.Millisecond)
	}
	return errors.New("redis-server does not listen")
}

func (r *redisServer) kill() {
	if r.cmd != nil {
		_ = r.cmd.Process.Kill()
		_ = r.cmd.Wait()
		r.cmd = nil
	}
}

// A process is a worker, which ends when its input does.
type process struct {
	cmd   *exec.Cmd
	input io.Closer
}

// startWorkers runs this program again, once for each worker.
func startWorkers(c config, url, store string) (workers []process, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	for i := range c.workers {
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), "WORKER="+strconv.Itoa(i), "URL="+url, "REDIS="+store,
			"CALLERS="+strconv.Itoa(3+int(4*latency.Seconds()*c.rate/float64(c.workers))))
		if c.alone {
			cmd.Env = append(cmd.Env, "REDIS=")
		}
		errs := &strings.Builder{}
		cmd.Stderr = errs
		input, err := cmd.StdinPipe()
		if err != nil {
			return workers, err
		}
		if err := cmd.Start(); err != nil {
			return workers, fmt.Errorf("%w: %s", err, errs)
		}
		workers = append(workers, process{cmd, input})
	}
	return workers, nil
}

func stopWorkers(workers []process) {
	for _, w := range workers {
		w.input.Close()
	}
	for _, w := range workers {
		timer := time.AfterFunc(5*time.Second, func() { _ = w.cmd.Process.Kill() })
		_ = w.cmd.Wait()
		timer.Stop()
	}
}
