package cruiseredis_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/cruiseredis"
	"github.com/a7df5faa/cruise/shared"
)

// troubles are the faults of a store, or of the way to it. healed ends the lasting ones.
var troubles = []struct {
	name string
	do   func(s *server, p *proxy, c *redis.Client, key string)
}{
	{"20 ms each way", func(_ *server, p *proxy, _ *redis.Client, _ string) {
		p.set(func(p *proxy) { p.delay = 20 * time.Millisecond })
	}},
	{"500 ms each way", func(_ *server, p *proxy, _ *redis.Client, _ string) {
		p.set(func(p *proxy) { p.delay = 500 * time.Millisecond })
	}},
	{"a black hole", func(_ *server, p *proxy, _ *redis.Client, _ string) { p.set(func(p *proxy) { p.hole = true }) }},
	{"a byte at a time", func(_ *server, p *proxy, _ *redis.Client, _ string) { p.set(func(p *proxy) { p.slice = true }) }},
	{"refused", func(_ *server, p *proxy, _ *redis.Client, _ string) {
		p.set(func(p *proxy) { p.refuse = true })
		p.reset()
	}},
	{"reset", func(_ *server, p *proxy, _ *redis.Client, _ string) { p.reset() }},
	{"standing still", func(s *server, _ *proxy, _ *redis.Client, _ string) { s.signal(syscall.SIGSTOP) }},
	{"killed", func(s *server, _ *proxy, _ *redis.Client, _ string) { s.kill() }},
	{"flushed", func(_ *server, _ *proxy, c *redis.Client, _ string) { c.FlushAll(context.Background()) }},
	{"without the script", func(_ *server, _ *proxy, c *redis.Client, _ string) { c.ScriptFlush(context.Background()) }},
	{"out of memory", func(_ *server, _ *proxy, c *redis.Client, _ string) {
		c.ConfigSet(context.Background(), "maxmemory", "1")
	}},
	{"a replica", func(_ *server, _ *proxy, c *redis.Client, _ string) {
		c.Do(context.Background(), "REPLICAOF", "127.0.0.1", "1")
	}},
	{"a key of another type", func(_ *server, _ *proxy, c *redis.Client, key string) {
		c.Set(context.Background(), key, "17", 0)
	}},
	{"a damaged key", func(_ *server, _ *proxy, c *redis.Client, key string) {
		c.HSet(context.Background(), key, "rate", "much")
	}},
}

func healed(s *server, p *proxy, c *redis.Client, key string) {
	p.set(func(p *proxy) { p.delay, p.hole, p.slice, p.refuse = 0, false, false, false })
	p.reset()
	if s.cmd == nil {
		s.start()
	}
	s.signal(syscall.SIGCONT)
	ctx := context.Background()
	c.ConfigSet(ctx, "maxmemory", "0")
	c.Do(ctx, "REPLICAOF", "NO", "ONE")
	if c.Type(ctx, key).Val() == "string" {
		c.Del(ctx, key)
	}
}

// TestSoak has workers find a limit while Redis has all kinds of trouble, by a random schedule. The
// workers never send much more than the limit, no call waits for long or is refused, all workers
// share again after each trouble, crowds leave at once, and in the end the program holds as many
// resources as in the beginning.
//
// CRUISE_SOAK=10m makes it last, CRUISE_SOAK_SEED=n repeats a schedule.
func TestSoak(t *testing.T) {
	t.Parallel()
	long, seed := lasting(t, 8*time.Second), uint64(time.Now().UnixNano())
	if text := os.Getenv("CRUISE_SOAK_SEED"); text != "" {
		var err error
		seed, err = strconv.ParseUint(text, 10, 64)
		require.NoError(t, err)
	}
	t.Logf("CRUISE_SOAK=%v CRUISE_SOAK_SEED=%d", long, seed)
	rng := rand.New(rand.NewPCG(seed, 1))

	const limit, workers, callers = 200, 10, 4
	s := startRedis(t, "--maxmemory-policy", "noeviction")
	p := startProxy(t, s.addr)
	admin := s.client(func(o *redis.Options) { o.ReadTimeout, o.MaxRetries = time.Second, -1 })
	scope := scopeOf(t)
	key := cruiseredis.KeyOf(scope)
	goroutines := runtime.NumGoroutine()
	fleet := fleet(t, workers, p.addr(), scope, cruise.WithInitialRate(limit/2), patient)
	api := newTokenAPI(limit)
	api.measure()

	calls := driveTo(t, fleet, callers, func(worker int) cruise.Outcome {
		admitted := api.admits(strconv.Itoa(worker))
		time.Sleep(10 * time.Millisecond)
		if admitted {
			return cruise.OutcomeSuccess
		}
		return cruise.OutcomeThrottled
	})

	var began runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&began)
	rounds := 0
	for until := time.Now().Add(long); rounds == 0 || time.Now().Before(until); rounds++ {
		tr := troubles[rng.IntN(len(troubles))]
		t.Logf("%s", tr.name)
		tr.do(s, p, admin, key)
		crowd(t, fleet[rng.IntN(workers)], 500)
		time.Sleep(time.Duration(rng.IntN(1500)) * time.Millisecond)
		healed(s, p, admin, key)
		recovers(t, fleet)
		time.Sleep(time.Duration(rng.IntN(500)) * time.Millisecond)
	}
	calls.stop()

	api.mu.Lock()
	defer api.mu.Unlock()
	var admitted float64
	for _, n := range api.admitted {
		admitted += n
	}
	took := time.Since(api.measured).Seconds()
	figures := fmt.Sprintf("%d troubles in %.0f s: use %.2f, throttled %.2f %%, worst second %.2f, longest wait %v",
		rounds, took, admitted/took/limit, 100*api.throttled/(admitted+api.throttled), float64(worst(api.sent))/limit, calls.waited)
	t.Log(figures)
	assert.Empty(t, calls.failed)
	assert.LessOrEqual(t, worst(api.sent), 2*limit+atOnce(2*limit), "some have their share, while the others have the whole rate")
	assert.LessOrEqual(t, api.throttled, .1*(admitted+api.throttled)+float64(atOnce(limit)))
	assert.GreaterOrEqual(t, admitted/took, .2*limit/(1+hiccup().Seconds()))
	assert.Less(t, calls.waited, 5*time.Second+hiccup())
	for _, l := range fleet {
		assert.Zero(t, l.Stats().Waiting)
	}
	if os.Getenv("CRUISE_SOAK") == "" {
		return // other tests run beside this one, and use more or less
	}
	p.reset()
	assert.Eventually(t, func() bool { return runtime.NumGoroutine() <= goroutines }, time.Minute, 10*time.Millisecond,
		"%d goroutines, before %d", runtime.NumGoroutine(), goroutines)
	api.sent, calls.sent = nil, nil
	var end runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&end)
	assert.Less(t, end.HeapAlloc, began.HeapAlloc+2e6)
}

// crowd has many callers come at once, and leave soon after.
func crowd(t *testing.T, l *shared.Limiter, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			if l.WaitN(ctx, 1) == nil {
				l.Learn(cruise.Feedback{Outcome: cruise.OutcomeDropped, Sent: time.Now(), Cost: 1})
			}
		})
	}
	wg.Wait()
	assert.Less(t, time.Since(deadlineOf(ctx)), slack(), "a crowd that leaves takes long")
}

func deadlineOf(ctx context.Context) time.Time {
	d, _ := ctx.Deadline()
	return d
}
