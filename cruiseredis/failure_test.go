package cruiseredis_test

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/cruiseredis"
	"github.com/a7df5faa/cruise/internal/calm"
	"github.com/a7df5faa/cruise/shared"
)

// hiccup is by how much all that a call waits for may be late together, on a machine that
// kept this process waiting: its turn, the sync, the answer, and our look at it.
func hiccup() time.Duration { return 4 * calm.Late() }

// slack returns the time that a busy machine may add.
func slack() time.Duration { return 500*time.Millisecond + hiccup() }

// atOnce is how many calls may come at once at a rate, since they are late.
func atOnce(rate float64) int { return int(rate * hiccup().Seconds()) }

// crowded returns the most calls that may come in a second at a limit of 100. On a busy machine
// calls due just before it may come late, within it. A burst of saved tokens would make it 200.
func crowded() int { return 180 + atOnce(100) }

func steady(limit rate.Limit, more ...cruiseredis.Option) []cruiseredis.Option {
	return append(more, cruise.WithInitialRate(limit), cruise.WithMaxRate(limit), cruise.WithTuning(cruise.Tuning{MinRate: limit}))
}

// patience is for Redis where it is well: a busy machine may answer too late for the
// default.
const patience = 400 * time.Millisecond

var patient = shared.WithStoreTimeout(patience)

// fleet is some workers that share a scope, each with a client of its own.
func fleet(t *testing.T, n int, addr, scope string, opts ...cruiseredis.Option) []*shared.Limiter {
	t.Helper()
	var workers []*shared.Limiter
	for range n {
		c := redis.NewClient(&redis.Options{Addr: addr})
		t.Cleanup(func() { c.Close() })
		l, err := cruiseredis.NewLimiter(c, scope, opts...)
		require.NoError(t, err)
		workers = append(workers, l)
	}
	return workers
}

// traffic counts the calls of workers in closed loops, until it is stopped.
type traffic struct {
	stop   func()
	mu     sync.Mutex // guards the fields below
	sent   []time.Time
	waited time.Duration // longest, since the last reset
	failed []error
}

// drive has workers call a server that never throttles.
func drive(t *testing.T, workers []*shared.Limiter, callers int) *traffic {
	t.Helper()
	return driveTo(t, workers, callers, func(int) cruise.Outcome {
		time.Sleep(2 * time.Millisecond)
		return cruise.OutcomeSuccess
	})
}

// driveTo has workers call a server. The server gets the number of the calling worker.
func driveTo(t *testing.T, workers []*shared.Limiter, callers int, serve func(worker int) cruise.Outcome) *traffic {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	tr := &traffic{}
	var wg sync.WaitGroup
	tr.stop = func() { cancel(); wg.Wait() }
	t.Cleanup(tr.stop)
	for i, l := range workers {
		for range callers {
			wg.Go(func() {
				for {
					came := time.Now()
					err := l.WaitN(ctx, 1)
					if ctx.Err() != nil {
						return
					}
					at := time.Now()
					tr.mu.Lock()
					tr.sent = append(tr.sent, at)
					tr.waited = max(tr.waited, at.Sub(came))
					if err != nil {
						tr.failed = append(tr.failed, err)
					}
					tr.mu.Unlock()
					l.Learn(cruise.Feedback{Outcome: serve(i), Sent: at, Cost: 1})
				}
			})
		}
	}
	return tr
}

// longest returns the longest wait since it was last asked.
func (tr *traffic) longest() time.Duration {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	w := tr.waited
	tr.waited = 0
	return w
}

func (tr *traffic) count(from time.Time, d time.Duration) (n int) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	for _, at := range tr.sent {
		if !at.Before(from) && at.Before(from.Add(d)) {
			n++
		}
	}
	return n
}

// worst is the most calls in any second.
func (tr *traffic) worst() (worst int) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	times := slices.SortedFunc(slices.Values(tr.sent), time.Time.Compare)
	first := 0
	for i, at := range times {
		for at.Sub(times[first]) >= time.Second {
			first++
		}
		worst = max(worst, i-first+1)
	}
	return worst
}

func throttles(workers []*shared.Limiter) (n uint64) {
	for _, l := range workers {
		n += l.Stats().Throttles
	}
	return n
}

// eventually waits until something was seen of every worker, for a minute at most.
func eventually(t *testing.T, workers []*shared.Limiter, seen func(cruise.Stats) bool) {
	t.Helper()
	left := slices.Clone(workers)
	require.Eventually(t, func() bool {
		left = slices.DeleteFunc(left, func(l *shared.Limiter) bool { return seen(l.Stats()) })
		return len(left) == 0
	}, time.Minute, 10*time.Millisecond)
}

// recovers waits until all workers share again. Probes are at most 5 s apart.
func recovers(t *testing.T, workers []*shared.Limiter) {
	t.Helper()
	eventually(t, workers, func(s cruise.Stats) bool { return !s.Degraded })
}

// degrade waits until all workers go on alone.
func degrade(t *testing.T, workers []*shared.Limiter) {
	t.Helper()
	eventually(t, workers, func(s cruise.Stats) bool { return s.Degraded })
}

// meet waits until all workers share and each knows their number, and so its own share if it goes
// on alone. Before that a worker would begin with the whole rate. Calls until then are not counted.
func meet(t *testing.T, workers []*shared.Limiter, tr *traffic) {
	t.Helper()
	eventually(t, workers, func(s cruise.Stats) bool { return !s.Degraded && s.Workers >= len(workers) })
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.sent, tr.waited = nil, 0
}

// heeds checks that a later call waited for the end of a pause of d, too.
func heeds(t *testing.T, d, took time.Duration) {
	t.Helper()
	assert.Greater(t, took, d-slack(), "a later call waits for the pause, too")
	assert.Less(t, took, d+2*slack())
}

// A wait that one worker is told stops all others within a sync, and they resume
// at the pace of the rate.
func TestPauseReachesAll(t *testing.T) {
	t.Parallel()
	s := startRedis(t)
	workers := fleet(t, 10, s.addr, scopeOf(t), steady(200, patient)...)
	tr := drive(t, workers, 3)
	time.Sleep(1500 * time.Millisecond)
	workers[0].Learn(cruise.Feedback{Outcome: cruise.OutcomeThrottled, Sent: time.Now(), Cost: 1, RetryAfter: 3 * time.Second})
	stopped := time.Now()
	time.Sleep(4500 * time.Millisecond)
	tr.stop()
	assert.Positive(t, tr.count(stopped.Add(-time.Second), time.Second))
	assert.Zero(t, tr.count(stopped.Add(500*time.Millisecond+slack()), 2500*time.Millisecond-slack()), "calls inside the pause")
	assert.LessOrEqual(t, tr.count(stopped.Add(3*time.Second), 100*time.Millisecond), 40+atOnce(200))
	assert.Positive(t, tr.count(stopped.Add(3*time.Second), time.Second+slack()))
}

// With pauses alone, scopes stop separately.
func TestPauseOnly(t *testing.T) {
	t.Parallel()
	s := startRedis(t)
	account := fleet(t, 3, s.addr, "ACCOUNT", steady(50, patient, shared.WithPauseOnly())...)
	developer := fleet(t, 3, s.addr, "DEVELOPER", steady(50, patient, shared.WithPauseOnly())...)
	a, d := drive(t, account, 2), drive(t, developer, 2)
	time.Sleep(time.Second)
	account[2].Learn(cruise.Feedback{Outcome: cruise.OutcomeThrottled, Sent: time.Now(), Cost: 1, RetryAfter: 2 * time.Second})
	stopped := time.Now()
	time.Sleep(3 * time.Second)
	a.stop()
	d.stop()
	assert.Zero(t, a.count(stopped.Add(500*time.Millisecond+slack()), 1500*time.Millisecond-slack()))
	assert.Positive(t, a.count(stopped.Add(2*time.Second), time.Second+slack()))
	n := d.count(stopped.Add(500*time.Millisecond), time.Second)
	assert.GreaterOrEqual(t, n, max(1, 90-atOnce(150)), "this scope goes on")
	assert.LessOrEqual(t, n, 210+atOnce(150), "three workers of 50 a second each")
}

// Redis crashes and comes back empty: no call is blocked or refused, no burst is sent, a pause
// holds, and a new worker learns of it.
func TestRedisIsKilled(t *testing.T) {
	t.Parallel()
	s := startRedis(t)
	scope := scopeOf(t)
	workers := fleet(t, 5, s.addr, scope, steady(100)...)
	tr := drive(t, workers, 2)
	meet(t, workers, tr)
	s.kill()
	killed := time.Now()
	time.Sleep(2 * time.Second)
	n := tr.count(killed.Add(500*time.Millisecond), time.Second)
	assert.GreaterOrEqual(t, n, max(1, 50-atOnce(100)), "the shares of five workers")
	assert.LessOrEqual(t, n, 150+atOnce(100), "the shares of five workers")
	assert.Less(t, tr.longest(), time.Second+hiccup(), "10 callers at 100 a second, and the timeout")
	degrade(t, workers)
	s.start()
	recovers(t, workers)
	time.Sleep(time.Second)

	const pause = 15 * time.Second // longer than it takes a busy machine to share again
	workers[0].Pause(pause)
	paused := time.Now()
	time.Sleep(time.Second)
	s.kill()
	s.start()
	before := workers[0].Stats()
	workers[0].Learn(cruise.Feedback{Outcome: cruise.OutcomeThrottled, Sent: time.Now(), Cost: 1}) // which asks Redis
	eventually(t, workers[:1], func(st cruise.Stats) bool {
		return st.Syncs-st.Failures > before.Syncs-before.Failures+1 // one may be under way
	})
	late := fleet(t, 1, s.addr, scope, steady(100, patient)...)
	require.NoError(t, late[0].WaitN(t.Context(), 1))
	heeds(t, pause, time.Since(paused))
	time.Sleep(time.Second)
	tr.stop()
	assert.Zero(t, tr.count(paused.Add(500*time.Millisecond+slack()), pause-500*time.Millisecond-2*slack()))
	assert.LessOrEqual(t, tr.worst(), crowded())
	assert.Empty(t, tr.failed)
}

// calls is how often Redis ran the script.
func (s *server) calls(t *testing.T) (n uint64) {
	t.Helper()
	c := s.client()
	for line := range strings.Lines(c.Info(t.Context(), "commandstats").Val()) {
		for _, name := range []string{"cmdstat_evalsha:calls=", "cmdstat_eval:calls="} {
			if rest, ok := strings.CutPrefix(line, name); ok {
				number, _, _ := strings.Cut(rest, ",")
				k, err := strconv.ParseUint(number, 10, 64)
				require.NoError(t, err)
				n += k
			}
		}
	}
	return n
}

// Redis stands still for a while: no call waits for it, no sync is done twice, and when it goes on
// no burst is sent.
func TestRedisStandsStill(t *testing.T) {
	t.Parallel()
	for _, d := range []time.Duration{500 * time.Millisecond, 3 * time.Second, 30 * time.Second} {
		t.Run(d.String(), func(t *testing.T) {
			t.Parallel()
			s := startRedis(t)
			workers := fleet(t, 4, s.addr, scopeOf(t), steady(100)...)
			tr := drive(t, workers, 2)
			meet(t, workers, tr)
			s.signal(syscall.SIGSTOP)
			time.Sleep(d)
			s.signal(syscall.SIGCONT)
			assert.Less(t, tr.longest(), d/2+shared.DefaultStoreTimeout+slack())
			recovers(t, workers)
			time.Sleep(time.Second)
			tr.stop()
			time.Sleep(2 * shared.DefaultStoreTimeout)
			var syncs uint64
			for _, l := range workers {
				syncs += l.Stats().Syncs
			}
			assert.LessOrEqual(t, s.calls(t), 2*syncs+uint64(len(workers)), "each may take a step, and the first of each may find no script")
			assert.LessOrEqual(t, tr.worst(), crowded())
			assert.Empty(t, tr.failed)
			assert.Zero(t, throttles(workers))
		})
	}
}

// With any fault of the network, calls wait for their turn and at most the timeout longer.
func TestNetworkFaults(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		fault func(*proxy)
		down  bool // and whether it degrades
	}{
		{"20 ms each way", func(p *proxy) { p.delay = 20 * time.Millisecond }, false},
		{"500 ms each way", func(p *proxy) { p.delay = 500 * time.Millisecond }, true},
		{"5 s each way", func(p *proxy) { p.delay = 5 * time.Second }, true},
		{"one byte at a time", func(p *proxy) { p.slice = true }, false},
		{"black hole", func(p *proxy) { p.hole = true }, true},
		{"refused", func(p *proxy) { p.refuse = true; go p.reset() }, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := startRedis(t)
			p := startProxy(t, s.addr)
			timeout := patience
			if tt.down {
				timeout = shared.DefaultStoreTimeout
			}
			workers := fleet(t, 4, p.addr(), scopeOf(t), steady(100, shared.WithStoreTimeout(timeout))...)
			tr := drive(t, workers, 2)
			meet(t, workers, tr)
			p.set(tt.fault)
			time.Sleep(2 * time.Second)
			if tt.down {
				degrade(t, workers)
			} else {
				recovers(t, workers) // at once, but where the machine stood still
			}
			assert.Less(t, tr.longest(), timeout+2*slack())
			p.set(func(p *proxy) { p.delay, p.hole, p.slice, p.refuse = 0, false, false, false })
			p.reset()
			recovers(t, workers)
			time.Sleep(time.Second)
			tr.stop()
			assert.LessOrEqual(t, tr.worst(), crowded())
			assert.Empty(t, tr.failed)
			assert.Zero(t, throttles(workers))
		})
	}
}

// A connection that is reset now and then is one sync lost each time.
func TestResets(t *testing.T) {
	t.Parallel()
	s := startRedis(t)
	p := startProxy(t, s.addr)
	workers := fleet(t, 4, p.addr(), scopeOf(t), steady(100)...)
	tr := drive(t, workers, 2)
	meet(t, workers, tr)
	for range 20 {
		time.Sleep(150 * time.Millisecond)
		p.reset()
	}
	recovers(t, workers)
	tr.stop()
	assert.Less(t, tr.longest(), time.Second+shared.DefaultStoreTimeout+slack())
	assert.LessOrEqual(t, tr.worst(), 200+atOnce(200), "some have their share, while the others have the whole rate")
	assert.Empty(t, tr.failed)
}

// Redis refuses: the limiter goes on alone, says why, and heals by itself when
// Redis does.
func TestRedisRefuses(t *testing.T) {
	t.Parallel()
	do := func(t *testing.T, c *redis.Client, args ...any) {
		t.Helper()
		require.NoError(t, c.Do(t.Context(), args...).Err())
	}
	for _, tt := range []struct {
		name string
		args []string
		fail func(t *testing.T, c *redis.Client, key string)
		heal func(t *testing.T, c *redis.Client, key string) // nil: nothing to be done
		want string                                          // in Stats.Err; "": does not degrade
	}{
		{name: "FLUSHALL", fail: func(t *testing.T, c *redis.Client, _ string) { do(t, c, "FLUSHALL") }},
		{name: "SCRIPT FLUSH", fail: func(t *testing.T, c *redis.Client, _ string) { do(t, c, "SCRIPT", "FLUSH") }},
		{name: "the key is evicted", fail: func(t *testing.T, c *redis.Client, key string) { do(t, c, "DEL", key) }},
		{name: "the key is damaged", fail: func(t *testing.T, c *redis.Client, key string) { do(t, c, "HSET", key, "rate", "much") }},
		{name: "a key of another type",
			fail: func(t *testing.T, c *redis.Client, key string) { do(t, c, "SET", key, "17") },
			heal: func(t *testing.T, c *redis.Client, key string) { do(t, c, "DEL", key) },
			want: "WRONGTYPE"},
		{name: "out of memory",
			fail: func(t *testing.T, c *redis.Client, _ string) {
				do(t, c, "CONFIG", "SET", "maxmemory-policy", "noeviction")
				do(t, c, "CONFIG", "SET", "maxmemory", "1")
			},
			heal: func(t *testing.T, c *redis.Client, _ string) { do(t, c, "CONFIG", "SET", "maxmemory", "0") },
			want: "OOM"},
		{name: "scripts are denied",
			fail: func(t *testing.T, c *redis.Client, _ string) { do(t, c, "ACL", "SETUSER", "default", "-@scripting") },
			heal: func(t *testing.T, c *redis.Client, _ string) { do(t, c, "ACL", "SETUSER", "default", "+@all") },
			want: "NOPERM"},
		{name: "EVAL is gone", args: []string{"--rename-command", "EVAL", ""},
			fail: func(t *testing.T, c *redis.Client, _ string) { do(t, c, "SCRIPT", "FLUSH") },
			heal: func(t *testing.T, c *redis.Client, _ string) {
				require.NoError(t, c.ScriptLoad(t.Context(), cruiseredis.Script).Err())
			},
			want: "unknown command"},
		{name: "a replica",
			fail: func(t *testing.T, c *redis.Client, _ string) {
				do(t, c, "REPLICAOF", "127.0.0.1", "1")
			},
			heal: func(t *testing.T, c *redis.Client, _ string) { do(t, c, "REPLICAOF", "NO", "ONE") },
			want: "READONLY"},
		{name: "busy with another script",
			fail: func(t *testing.T, c *redis.Client, _ string) {
				do(t, c, "CONFIG", "SET", "busy-reply-threshold", "50")
				go c.Eval(context.Background(), "while true do end", nil)
			},
			heal: func(t *testing.T, c *redis.Client, _ string) {
				require.Eventually(t, func() bool { return c.ScriptKill(t.Context()).Err() == nil }, time.Minute, 50*time.Millisecond)
			},
			want: "cruiseredis: "}, // BUSY, or a timeout
		{name: "too few replicas",
			fail: func(t *testing.T, c *redis.Client, _ string) {
				do(t, c, "CONFIG", "SET", "min-replicas-to-write", "1")
			},
			heal: func(t *testing.T, c *redis.Client, _ string) { do(t, c, "CONFIG", "SET", "min-replicas-to-write", "0") },
			want: "NOREPLICAS"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := startRedis(t, tt.args...)
			c := s.client(func(o *redis.Options) { o.ReadTimeout, o.MaxRetries = 5*time.Second, -1 })
			if tt.args != nil {
				require.NoError(t, c.ScriptLoad(t.Context(), cruiseredis.Script).Err())
			}
			scope := scopeOf(t)
			workers := fleet(t, 3, s.addr, scope, steady(100)...)
			tr := drive(t, workers, 2)
			meet(t, workers, tr)
			tt.fail(t, c, cruiseredis.KeyOf(scope))
			time.Sleep(1500 * time.Millisecond)
			if tt.want == "" {
				recovers(t, workers)
				assert.Equal(t, rate.Limit(100), workers[0].Limit())
			} else {
				for _, l := range workers {
					assert.EventuallyWithT(t, func(t *assert.CollectT) { // it timed out before, if the machine stood still
						assert.ErrorContains(t, l.Stats().Err, tt.want)
					}, time.Minute, 20*time.Millisecond)
				}
			}
			assert.Less(t, tr.longest(), shared.DefaultStoreTimeout+2*slack())
			if tt.heal != nil {
				tt.heal(t, c, cruiseredis.KeyOf(scope))
			}
			recovers(t, workers)
			tr.stop()
			assert.LessOrEqual(t, tr.worst(), crowded())
			assert.Empty(t, tr.failed)
			assert.Zero(t, throttles(workers))
		})
	}
}

// Ten thousand scopes with a call each leave keys that expire.
func TestManyScopes(t *testing.T) {
	if calm.Raced {
		t.Skip("it takes long, and others race more")
	}
	t.Parallel()
	s := startRedis(t)
	c := s.client()
	api, err := cruise.New(cruise.WithoutLimiter(), cruise.WithMaxScopes(100), cruise.WithScopeLimiter(
		func(scope, key string) (cruise.Limiter, error) {
			return cruiseredis.NewLimiter(c, scope+" "+key, shared.WithStoreTimeout(10*time.Second))
		}))
	require.NoError(t, err)
	for i := range 10_000 {
		require.NoError(t, api.Scope("ACCOUNT", strconv.Itoa(i)).Do(t.Context(), func(context.Context) error { return nil }))
	}
	assert.EqualValues(t, 10_000, c.DBSize(t.Context()).Val())
	for i := 0; i < 10_000; i += 99 {
		left := c.PTTL(t.Context(), cruiseredis.KeyOf("ACCOUNT "+strconv.Itoa(i))).Val()
		assert.Positive(t, left)
		assert.LessOrEqual(t, left, 11*time.Minute)
	}
}

// A pause that was ended is remembered for as long as a worker may know of it.
func TestEndedPauseIsRemembered(t *testing.T) {
	t.Parallel()
	c := startRedis(t).client()
	s := cruise.Must(cruiseredis.NewStore(c, "x"))
	for _, q := range []shared.Request{{Law: law, Pause: time.Hour, NewPause: true}, {Law: law, Resume: true}} {
		_, err := s.Sync(t.Context(), q)
		require.NoError(t, err)
	}
	assert.Greater(t, c.PTTL(t.Context(), cruiseredis.KeyOf("x")).Val(), time.Hour)
}

// A connection takes several round trips to make, and may take longer than an answer may.
func TestDistantRedisIsReached(t *testing.T) {
	t.Parallel()
	s := startRedis(t, "--requirepass", "x")
	p := startProxy(t, s.addr)
	p.set(func(p *proxy) { p.delay = 80 * time.Millisecond })
	c := redis.NewClient(&redis.Options{Addr: p.addr(), Password: "x"})
	defer func() { _ = c.Close() }()
	l, err := cruiseredis.NewLimiter(c, scopeOf(t), patient)
	require.NoError(t, err)
	tr := drive(t, []*shared.Limiter{l}, 2)
	defer tr.stop()
	require.Eventually(t, func() bool { return l.Stats().Failures > 0 }, time.Minute, time.Millisecond)
	recovers(t, []*shared.Limiter{l})
}

// A limiter that is made while Redis is down works, and shares once it is up.
func TestRedisComesLater(t *testing.T) {
	t.Parallel()
	s := startRedis(t)
	s.kill()
	workers := fleet(t, 2, s.addr, scopeOf(t))
	began := time.Now()
	tr := drive(t, workers, 2)
	time.Sleep(500 * time.Millisecond)
	degrade(t, workers)
	assert.Equal(t, rate.Inf, workers[0].Limit(), "it begins as an AdaptiveLimiter does")
	assert.Positive(t, tr.count(began, time.Minute))
	s.start()
	recovers(t, workers)
	tr.stop()
	assert.Empty(t, tr.failed)
}
