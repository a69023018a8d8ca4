// Fleet has workers call a server that throttles, by three ways to keep to its
// limit, and prints the result: a shared.Limiter of cruise with a real Redis,
// redis_rate with the same, and an AdaptiveLimiter in each worker. It starts a
// redis-server of its own, on the loopback interface.
//
//	go run ./benchmarks/fleet
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/cruiseredis"
)

const (
	limit   = 1000 // of the server, calls per second
	saved   = 100  // calls that it admits at once
	latency = 30 * time.Millisecond
	tooMuch = limit * 6 / 5
)

func main() {
	warm := flag.Duration("warm", 8*time.Second, "how long each fleet runs before it is measured")
	long := flag.Duration("long", 12*time.Second, "how long it is measured")
	flag.Parse()
	if err := check(*warm, *long); err != nil {
		fmt.Fprintln(os.Stderr, "fleet:", err)
		os.Exit(2)
	}
	log.SetFlags(0)
	if err := run(os.Stdout, *warm, *long); err != nil {
		log.Fatal(err)
	}
}

func check(warm, long time.Duration) error {
	switch {
	case flag.NArg() > 0:
		return fmt.Errorf("unexpected argument %q: all options are flags, see -h", flag.Arg(0))
	case warm < 0 || warm > time.Hour:
		return fmt.Errorf("-warm %v: want 0s to 1h", warm)
	case long < time.Second || long > time.Hour:
		return fmt.Errorf("-long %v: want 1s to 1h", long)
	}
	return nil
}

// A worker waits for its turn, and may learn how a call ended.
type worker interface {
	WaitN(ctx context.Context, n int) error
	Learn(f cruise.Feedback)
}

// ways lists the ways to keep to a limit. Each fleet has a scope of its own.
var ways = []struct {
	name string
	make func(client *redis.Client, scope string) (worker, error)
}{
	{"cruise, shared", func(client *redis.Client, scope string) (worker, error) {
		return cruiseredis.NewLimiter(client, scope, cruise.WithInitialRate(limit/2))
	}},
	{"redis_rate, told the limit", func(client *redis.Client, scope string) (worker, error) {
		return newPoller(client, scope, limit), nil
	}},
	{"redis_rate, told 1.2 × the limit", func(client *redis.Client, scope string) (worker, error) {
		return newPoller(client, scope, tooMuch), nil
	}},
	{"cruise, each alone", func(*redis.Client, string) (worker, error) {
		return cruise.NewAdaptiveLimiter()
	}},
}

// run prints the table.
func run(out io.Writer, warm, long time.Duration) error {
	addr, stop, err := startRedis()
	if err != nil {
		return err
	}
	defer stop()
	fmt.Fprintln(out, "| workers, load | | round trips per 1,000 calls | throttled | use | Jain | p99 wait |")
	fmt.Fprintln(out, "|---|---|---|---|---|---|---|")
	for _, n := range []int{10, 100} {
		for _, load := range []float64{.5, 1.2} {
			for i, way := range ways {
				scope := fmt.Sprint(n, load, i)
				var workers []worker
				var clients []*redis.Client
				for range n {
					client := redis.NewClient(&redis.Options{Addr: addr})
					clients = append(clients, client)
					w, err := way.make(client, scope)
					if err != nil {
						return err
					}
					workers = append(workers, w)
				}
				f, err := measure(workers, clients[0], load, warm, long)
				if err != nil {
					return err
				}
				for _, c := range clients {
					c.Close()
				}
				fmt.Fprintf(out, "| %d, %v | %s | %.0f | %.2f %% | %.2f | %.2f | %v |\n",
					n, load, way.name, f.trips, 100*f.throttled, f.use, f.jain, f.wait.Round(100*time.Microsecond))
			}
		}
	}
	return nil
}

// A poller is the loop around Allow that makes a limiter of redis_rate wait. Only
// one call of a worker asks at a time, the others stand in line behind it: that
// spares Redis, and no call is overtaken for long.
type poller struct {
	limiter *redis_rate.Limiter
	scope   string
	limit   redis_rate.Limit
	turn    chan struct{}
}

func newPoller(client *redis.Client, scope string, perSecond int) *poller {
	// Half of the burst that the server admits, so that it is never too much.
	limit := redis_rate.Limit{Rate: perSecond, Burst: saved / 2, Period: time.Second}
	return &poller{redis_rate.NewLimiter(client), scope, limit, make(chan struct{}, 1)}
}

func (p *poller) WaitN(ctx context.Context, n int) error {
	select {
	case p.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-p.turn }()
	for {
		r, err := p.limiter.AllowN(ctx, p.scope, p.limit, n)
		if err != nil {
			return err
		}
		if r.Allowed > 0 {
			return nil
		}
		select {
		case <-time.After(r.RetryAfter):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (p *poller) Learn(cruise.Feedback) {}

// A server admits calls by a token bucket.
type server struct {
	mu     sync.Mutex // guards the fields below
	tokens float64
	at     time.Time
}

func (s *server) admits() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.tokens = min(saved, s.tokens+now.Sub(s.at).Seconds()*limit)
	s.at = now
	if s.tokens < 1 {
		return false
	}
	s.tokens--
	return true
}

type figures struct {
	trips     float64       // round trips to Redis per 1,000 calls
	throttled float64       // share of the calls
	use       float64       // of the limit, or of the load if that is less
	jain      float64       // fairness between workers, 1 is perfect
	wait      time.Duration // of 99 % of the calls, at most
}

// measure has calls come to the workers at random, as many as load says in terms
// of the limit.
func measure(workers []worker, client *redis.Client, load float64, warm, long time.Duration) (f figures, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), warm+long)
	defer cancel()
	srv := &server{tokens: saved, at: time.Now()}
	from := time.Now().Add(warm)
	var all sync.WaitGroup
	var mu sync.Mutex // guards the counts
	var waits []time.Duration
	admitted := make([]float64, len(workers))
	throttled := 0
	for i, w := range workers {
		call := func() {
			came := time.Now()
			if w.WaitN(ctx, 1) != nil {
				return
			}
			sent := time.Now()
			time.Sleep(latency / 2)
			ok := srv.admits()
			time.Sleep(latency / 2)
			fed := cruise.Feedback{Outcome: cruise.OutcomeThrottled, Sent: sent, Cost: 1}
			if ok {
				fed.Outcome = cruise.OutcomeSuccess
			}
			w.Learn(fed)
			if sent.Before(from) {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			waits = append(waits, sent.Sub(came))
			if ok {
				admitted[i]++
			} else {
				throttled++
			}
		}
		all.Go(func() {
			// By the time at which each should come, not by sleeps one after the
			// other, which take longer than they should.
			for next := time.Now(); ctx.Err() == nil; {
				next = next.Add(time.Duration(1e9 * rand.ExpFloat64() * float64(len(workers)) / (limit * load)))
				time.Sleep(time.Until(next))
				all.Go(call)
			}
		})
	}
	time.Sleep(time.Until(from))
	before, err := scripts(client)
	if err != nil {
		return f, err
	}
	<-ctx.Done()
	after, err := scripts(client)
	if err != nil {
		return f, err
	}
	all.Wait()
	var sum, squares float64
	for _, x := range admitted {
		sum, squares = sum+x, squares+x*x
	}
	calls := sum + float64(throttled)
	if sum == 0 {
		return f, fmt.Errorf("none of %.0f calls was admitted", calls)
	}
	slices.Sort(waits)
	return figures{
		trips:     1000 * float64(after-before) / calls,
		throttled: float64(throttled) / calls,
		use:       sum / long.Seconds() / limit / min(1, load),
		jain:      sum * sum / (float64(len(workers)) * squares),
		wait:      waits[len(waits)*99/100],
	}, nil
}

// scripts is how many scripts Redis has run so far. Either limiter runs one for
// each round trip.
func scripts(client *redis.Client) (n int, err error) {
	info, err := client.Info(context.Background(), "commandstats").Result()
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(info) {
		name, rest, _ := strings.Cut(line, ":calls=")
		if name != "cmdstat_evalsha" && name != "cmdstat_eval" {
			continue
		}
		calls, _, _ := strings.Cut(rest, ",")
		k, err := strconv.Atoi(calls)
		if err != nil {
			return 0, fmt.Errorf("%q: %w", line, err)
		}
		n += k
	}
	return n, nil
}

// startRedis starts a redis-server on a free port.
func startRedis() (addr string, stop func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	addr = l.Addr().String()
	l.Close()
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", nil, err
	}
	cmd := exec.Command("redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no")
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	stop = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	for range 1000 {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			conn.Close()
			return addr, stop, nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	stop()
	return "", nil, fmt.Errorf("redis-server does not listen on %s", addr)
}
