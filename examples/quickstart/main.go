// Quickstart shows cruise beside plain exponential backoff: 10 workers send 300 requests through
// one cruise.Retrier to a server on this machine that throttles like Heroku's API. At the same
// time the same work is done with backoff alone, at a server of its own.
//
//	go run ./examples/quickstart
//	go run ./examples/quickstart -rate 40 -bucket 100 -requests 1000
//	go run ./examples/quickstart -hints
//	go run ./examples/quickstart -requests 3000 -debug :6060
//	go run ./examples/quickstart -url https://api.example.com/things -requests 20
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/cruisehttp/debug"
	httpsignal "github.com/a7df5faa/cruise/cruisehttp/signal"
)

// An app calls the API. get is the call as your code would have it: it says what
// came of one attempt. When to make it, and whether to make it again, is not its
// business.
type app struct {
	client *http.Client
	url    string
	hints  bool // heed RateLimit-Remaining
}

func (a *app) get(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.url, nil)
	if err != nil {
		return cruise.Permanent(err)
	}
	resp, err := a.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if left, err := strconv.Atoi(resp.Header.Get("RateLimit-Remaining")); err == nil && a.hints {
		cruise.Report(ctx, cruise.Quota{Remaining: left})
	}
	wait, _ := httpsignal.ParseRetryAfter(resp.Header, time.Now())
	switch err := errors.New(resp.Status); cruise.StatusOutcome(resp.StatusCode, wait) {
	case cruise.OutcomeSuccess:
		return nil
	case cruise.OutcomeThrottled:
		return cruise.Throttled(err, cruise.RetryAfter(wait))
	case cruise.OutcomeTransient:
		return cruise.Transient(err, cruise.RetryAfter(wait))
	default:
		return cruise.Permanent(err)
	}
}

// newCruise returns a Retrier that finds the server's rate and keeps to it.
// Bulk work has time, so throttles don't count as failures.
func newCruise(counts, page cruise.Observer) (*cruise.Retrier, error) {
	return cruise.New(
		cruise.WithUncountedThrottles(),
		cruise.WithAttemptTimeout(30*time.Second),
		cruise.WithObserver(counts),
		cruise.WithObserver(page),
	)
}

// newPlain returns what most programs do instead: each call backs off by itself,
// exponentially from 100 ms to 10 s, with full jitter.
func newPlain(counts, page cruise.Observer) (*cruise.Retrier, error) {
	backoff, err := cruise.NewBackoff(cruise.WithMaxDelay(10 * time.Second))
	if err != nil {
		return nil, err
	}
	return cruise.New(
		cruise.WithoutLimiter(),
		cruise.WithoutBudget(),
		cruise.WithBackoff(backoff),
		cruise.WithThrottleBackoff(backoff),
		cruise.WithUncountedThrottles(),
		cruise.WithAttemptTimeout(30*time.Second),
		cruise.WithObserver(counts),
		cruise.WithObserver(page),
	)
}

type config struct {
	requests, workers int
	server            serverConfig
	url               string
	hints, compare    bool
	debug             string // where to serve a page to watch; "" for none
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program the hard way
	c, err := parse(os.Args[1:], os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return
	case err != nil:
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(2)
	}
	if err := run(ctx, c, os.Stdout, isTerminal(os.Stdout)); err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

func parse(args []string, output io.Writer) (config, error) {
	var c config
	flags := flag.NewFlagSet("quickstart", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // errors are printed once, by main
	flags.IntVar(&c.requests, "requests", 300, "how many `requests` to make")
	flags.IntVar(&c.workers, "workers", 10, "how many `workers` make them")
	flags.Float64Var(&c.server.rate, "rate", 15, "`requests` per second that the server admits")
	flags.IntVar(&c.server.bucket, "bucket", 30, "`requests` that the server's bucket holds when full")
	flags.DurationVar(&c.server.latency, "latency", 50*time.Millisecond, "`time` that the server takes for a request")
	flags.StringVar(&c.url, "url", "", "use the server at this `URL`, without a comparison, instead of one on this machine")
	flags.BoolVar(&c.hints, "hints", false, "heed RateLimit-Remaining too, so as not to be throttled at all")
	flags.BoolVar(&c.compare, "compare", true, "do the same work with plain exponential backoff too")
	flags.StringVar(&c.debug, "debug", "", "serve a page to watch at this `address`, such as :6060; of this machine alone unless it names a host")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(output, "Usage of quickstart:")
			flags.SetOutput(output)
			flags.PrintDefaults()
		}
		return c, err
	}
	given := map[string]bool{}
	flags.Visit(func(f *flag.Flag) { given[f.Name] = true })
	return c, c.check(flags.Args(), given)
}

func (c *config) check(args []string, given map[string]bool) error {
	switch {
	case len(args) > 0:
		return fmt.Errorf("unexpected argument %q: all options are flags, see -h", args[0])
	case c.requests < 1 || c.requests > 1_000_000:
		return fmt.Errorf("-requests %d: want 1 to 1000000", c.requests)
	case c.workers < 1 || c.workers > 1000:
		return fmt.Errorf("-workers %d: want 1 to 1000", c.workers)
	case !(c.server.rate >= .01 && c.server.rate <= 10_000):
		return fmt.Errorf("-rate %v: want 0.01 to 10000 requests per second", c.server.rate)
	case c.server.bucket < 1 || c.server.bucket > 1_000_000:
		return fmt.Errorf("-bucket %d: want 1 to 1000000", c.server.bucket)
	case c.server.latency < 0 || c.server.latency > 10*time.Second:
		return fmt.Errorf("-latency %v: want 0 to 10s", c.server.latency)
	}
	if given["debug"] {
		host, port, err := net.SplitHostPort(c.debug)
		if err != nil {
			return fmt.Errorf("-debug %q: want a port, such as :6060, or host:port", c.debug)
		}
		if host == "" {
			host = "127.0.0.1" // not all the world
		}
		c.debug = net.JoinHostPort(host, port)
	}
	if !given["url"] {
		return nil
	}
	if u, err := url.Parse(c.url); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return fmt.Errorf("-url %q: want http://… or https://…", c.url)
	}
	for _, name := range []string{"rate", "bucket", "latency", "compare"} {
		if given[name] {
			return fmt.Errorf("-%s is about the server on this machine: it does not go with -url", name)
		}
	}
	c.compare = false
	return nil
}

// run does the work, shows how it goes, and prints the table, also when ctx ends
// or a request fails.
func run(ctx context.Context, c config, stdout io.Writer, live bool) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	sides := []*side{{name: "cruise", make: newCruise}, {name: "plain backoff", make: newPlain}}
	if !c.compare {
		sides = sides[:1]
	}
	page := debug.New()
	for _, s := range sides {
		var err error
		watch := page.Watch(s.name)
		if s.retrier, err = s.make(s, watch); err != nil {
			return err
		}
		watch.Add(s.retrier)
		s.url = c.url
		if s.url == "" {
			server, err := startServer(c.server)
			if err != nil {
				return err
			}
			defer server.Close()
			s.url = server.url
		}
	}

	if c.debug != "" {
		address, shut, err := serve(c.debug, page)
		if err != nil {
			return fmt.Errorf("-debug: %w", err)
		}
		defer shut()
		fmt.Fprintf(stdout, "watch it at http://%s/debug/cruise\n", address)
	}

	done := make(chan struct{})
	go func() {
		defer close(done)
		var both sync.WaitGroup
		for _, s := range sides {
			both.Go(func() {
				if err := s.work(ctx, c); err != nil {
					cancel(err)
				}
			})
		}
		both.Wait()
	}()
	fmt.Fprintln(stdout, c.headline())
	show(stdout, live, c.requests, sides, done)
	printTable(stdout, c.requests, sides)
	if err := context.Cause(ctx); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// serve serves a page, as a program of yours would beside pprof.
func serve(address string, page http.Handler) (at net.Addr, shut func(), err error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("/debug/cruise", page)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = server.Serve(listener) }() // until shut
	return listener.Addr(), func() { _ = server.Close() }, nil
}

func (c *config) headline() string {
	what := fmt.Sprintf("%d requests by %d workers to ", c.requests, c.workers)
	if c.url != "" {
		return what + c.url
	}
	return what + fmt.Sprintf("a server that admits %v/s, after %d at once", c.server.rate, c.server.bucket)
}

// work makes the requests. It stops at the first that fails for good.
func (s *side) work(ctx context.Context, c config) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = c.workers // one connection for each, kept
	app := &app{&http.Client{Transport: transport}, s.url, c.hints}
	defer transport.CloseIdleConnections()

	s.begin()
	defer s.end()
	var next atomic.Int64
	var all sync.WaitGroup
	for range min(c.workers, c.requests) {
		all.Go(func() {
			for next.Add(1) <= int64(c.requests) && ctx.Err() == nil {
				began := time.Now()
				err := s.retrier.Do(ctx, app.get)
				if err != nil {
					cancel(err)
					return
				}
				s.finished(time.Since(began))
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}
