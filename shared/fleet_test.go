package shared

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/internal/chance"
	"github.com/a7df5faa/cruise/internal/replay"
)

// distantStore is a store whose answers are under way for a while.
type distantStore struct {
	Store
	rtt   time.Duration
	apart bool // of other answers
	mu    sync.Mutex
	syncs int
}

// busyStore is a store of a fleet, of which no two answers come at the same instant.
func busyStore(s Store) *distantStore { return &distantStore{Store: s, rtt: ms, apart: true} }

func (d *distantStore) Sync(ctx context.Context, q Request) (Reply, error) {
	d.mu.Lock()
	d.syncs++
	d.mu.Unlock()
	sleep := time.Sleep
	if d.apart {
		sleep = replay.Sleep
	}
	sleep(d.rtt / 2)
	r, err := d.Store.Sync(ctx, q)
	sleep(d.rtt / 2)
	return r, err
}

// tokenServer admits limit calls a second, a tenth of that at once; or as many as
// that makes in each window.
type tokenServer struct {
	tells   bool    // what is left
	refills bool    // and of a bucket when it will be full, in whole seconds
	chance  float64 // of a throttle, whatever the rate

	mu           sync.Mutex // guards the fields below
	limit, burst float64
	window       time.Duration // 0 for a bucket
	tokens       float64
	at           time.Time
	sent         []time.Time
}

func newTokenServer(limit float64) *tokenServer {
	burst := max(1, limit/10)
	return &tokenServer{limit: limit, burst: burst, tokens: burst, at: time.Now()}
}

// change makes the limit another one.
func (b *tokenServer) change(limit float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refill(time.Now())
	b.limit, b.burst = limit, max(1, limit/10)
	b.tokens = min(b.tokens, b.burst)
}

// windowed makes the server one of windows, of which the first begins now.
func (b *tokenServer) windowed(d time.Duration) *tokenServer {
	b.window, b.burst = d, b.limit*d.Seconds()
	b.tokens = b.burst
	return b
}

func (b *tokenServer) refill(now time.Time) {
	if b.window > 0 {
		for !now.Before(b.at.Add(b.window)) {
			b.tokens, b.at = b.burst, b.at.Add(b.window)
		}
		return
	}
	b.tokens = min(b.burst, b.tokens+now.Sub(b.at).Seconds()*b.limit)
	b.at = now
}

func (b *tokenServer) admits() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	b.refill(now)
	b.sent = append(b.sent, now)
	if b.tokens < 1 || chance.Float64() < b.chance {
		return false
	}
	b.tokens--
	return true
}

// quota is what is left, nil if the server does not tell.
func (b *tokenServer) quota() *cruise.Quota {
	if !b.tells {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	q := &cruise.Quota{Limit: int(b.burst), Remaining: int(b.tokens)}
	if b.window > 0 {
		q.Reset = b.window - time.Since(b.at)
	}
	if b.refills {
		q.Reset = time.Duration(math.Ceil((b.burst-b.tokens)/b.limit)) * time.Second
	}
	return q
}

// worst is the most calls in any second from a moment on.
func (b *tokenServer) worst(from time.Time) (worst int) {
	first := 0
	for i, at := range b.sent {
		for b.sent[first].Before(from) && first < i || at.Sub(b.sent[first]) >= time.Second {
			first++
		}
		worst = max(worst, i-first+1)
	}
	return worst
}

// fleetFigures are what a fleet of workers did, most of them after some time to
// settle.
type fleetFigures struct {
	use       float64       // of the limit, or of the load if that is less
	throttled float64       // share of the attempts
	jain      float64       // fairness between workers, 1 is perfect
	trips     float64       // round trips to the store per 1,000 calls, from the beginning on
	worst     float64       // calls in the worst second, by the limit
	wait      time.Duration // of 99 % of the calls, at most
}

// simulate has workers call a server that answers after 60 ms. Calls come at
// random, as many as load says, in terms of the limit; 0 is as many as go. What
// they do after warm is measured, until long is over.
func simulate(workers []cruise.Learner, srv *tokenServer, load float64, warm, long time.Duration) (f fleetFigures) {
	const latency = 60 * time.Millisecond
	n, limit := len(workers), srv.limit
	start := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), long)
	defer cancel()
	var wg sync.WaitGroup
	var mu sync.Mutex // guards what is counted
	var waits []time.Duration
	share := make([]float64, n)
	var ok, throttled float64
	for i, l := range workers {
		call := func() bool {
			came := time.Now()
			if l.WaitN(ctx, 1) != nil {
				return false
			}
			sent, waited := time.Now(), time.Since(came)
			replay.Sleep(latency / 2)
			f := cruise.Feedback{Outcome: cruise.OutcomeThrottled, Sent: sent, Cost: 1}
			if srv.admits() {
				f.Outcome = cruise.OutcomeSuccess
			}
			f.Quota = srv.quota()
			if time.Since(start) > warm {
				mu.Lock()
				waits = append(waits, waited)
				if f.Outcome == cruise.OutcomeSuccess {
					share[i]++
					ok++
				} else {
					throttled++
				}
				mu.Unlock()
			}
			replay.Sleep(latency / 2)
			l.Learn(f)
			return true
		}
		if load == 0 {
			for range 3 + int(math.Ceil(3*latency.Seconds()*limit/float64(n))) {
				wg.Go(func() {
					for call() {
					}
				})
			}
			continue
		}
		wg.Go(func() {
			for ctx.Err() == nil {
				time.Sleep(time.Duration(-1e9 * math.Log(1-chance.Float64()) * float64(n) / (limit * load)))
				wg.Go(func() { call() })
			}
		})
	}
	wg.Wait()
	time.Sleep(time.Second) // for the last syncs
	synctest.Wait()
	f.use = ok / (long - warm).Seconds() / limit
	if load > 0 {
		f.use /= min(1, load)
	}
	f.throttled = throttled / (ok + throttled)
	var sum, squares float64
	for _, x := range share {
		sum, squares = sum+x, squares+x*x
	}
	f.jain = sum * sum / (float64(n) * squares)
	f.trips = 1000 / float64(len(srv.sent))
	f.worst = float64(srv.worst(start.Add(warm))) / limit
	slices.Sort(waits)
	f.wait = waits[len(waits)*99/100]
	return f
}

// Workers find a limit together that nobody told them. The figures are those of
// docs/benchmarks.md; run with -v for all of them.
func TestFleet(t *testing.T) {
	const warm, long = time.Minute, 2 * time.Minute
	for _, tt := range []struct {
		workers     int
		limit, load float64
		short       bool // one of the few that always run
	}{
		{1, 10, 0, true}, {10, 10, 0, false}, {100, 10, 0, false},
		{1, 100, 0, false}, {10, 100, 0, true}, {100, 100, 0, true},
		{1, 1000, 0, false}, {10, 1000, 0, false}, {100, 1000, 0, true},
		{1000, 1000, 0, false},
		{10, 100, .5, false}, {100, 100, .5, false}, {10, 1000, .5, false}, {100, 1000, .5, false},
		{10, 100, 1.2, false}, {100, 100, 1.2, false}, {10, 1000, 1.2, false}, {100, 1000, 1.2, false},
		{100_000, 10_000, .8, false},
	} {
		if !tt.short && !testing.Verbose() {
			continue
		}
		t.Run(fmt.Sprintf("%d workers, %v a second, load %v", tt.workers, tt.limit, tt.load), func(t *testing.T) {
			replay.Test(t, func(t *testing.T) {
				store := busyStore(NewMemoryStore())
				var workers, alone []cruise.Learner
				for range tt.workers {
					workers = append(workers, cruise.Must(New(store)))
					alone = append(alone, cruise.Must(cruise.NewAdaptiveLimiter()))
				}
				f := simulate(workers, newTokenServer(tt.limit), tt.load, warm, long)
				f.trips *= float64(store.syncs)
				t.Logf("shared: use %.2f, throttled %.2f %%, Jain %.3f, worst second %.2f, p99 wait %v, %.0f round trips per 1,000 calls",
					f.use, 100*f.throttled, f.jain, f.worst, f.wait.Round(time.Millisecond), f.trips)
				if testing.Verbose() && tt.workers <= 1000 {
					f := simulate(alone, newTokenServer(tt.limit), tt.load, warm, long)
					t.Logf("each alone: use %.2f, throttled %.2f %%, Jain %.3f, worst second %.2f, p99 wait %v",
						f.use, 100*f.throttled, f.jain, f.worst, f.wait.Round(time.Millisecond))
				}
				if float64(tt.workers) > tt.limit {
					return // a call of each worker in many seconds: too few to be fair
				}
				assert.GreaterOrEqual(t, f.use, .65)
				if tt.limit >= 100 {
					assert.LessOrEqual(t, f.throttled, .01)
					assert.LessOrEqual(t, f.worst, 1.3)
				}
				assert.GreaterOrEqual(t, f.jain, .85)
				if tt.workers == 100 && tt.limit == 1000 && tt.load == 0 {
					assert.LessOrEqual(t, f.trips, 1000./3)
				}
			})
		})
	}
}

// Whatever the limit and however many workers there are, they find it, keep to it
// and share it evenly. It is measured for a minute, or until each worker has had
// its turn 30 times if that is longer. The figures are those of docs/scaling.md;
// run with -v for all of them.
func TestScale(t *testing.T) {
	takesLong(t)
	for _, limit := range []float64{1, 10, 100, 1000, 10_000} {
		for _, n := range []int{2, 10, 100} {
			if !testing.Verbose() && limit*float64(n) > 10_000 {
				continue
			}
			t.Run(fmt.Sprintf("%v a second, %d workers", limit, n), func(t *testing.T) {
				replay.Test(t, func(t *testing.T) {
					store := busyStore(NewMemoryStore())
					var workers []cruise.Learner
					for range n {
						workers = append(workers, cruise.Must(New(store)))
					}
					calls := func(n float64) time.Duration { return time.Duration(n / limit * 1e9) }
					warm := max(time.Minute, calls(300))
					f := simulate(workers, newTokenServer(limit), 0, warm, warm+max(time.Minute, calls(30*float64(n))))
					t.Logf("| %v/s | %d | %.2f | %.2f %% | %.2f | %.2f | %.0f |",
						limit, n, f.use, 100*f.throttled, f.jain, f.worst, f.trips*float64(store.syncs))
					assert.GreaterOrEqual(t, f.use, .65)
					assert.GreaterOrEqual(t, f.jain, .85)
					assert.LessOrEqual(t, f.throttled, .05)
					if limit >= 100 {
						assert.GreaterOrEqual(t, f.use, .85)
						assert.LessOrEqual(t, f.throttled, .01)
						assert.LessOrEqual(t, f.worst, 1.3)
					}
				})
			})
		}
	}
}

// Throttles that come by chance, whatever the rate is, do not bring a shared rate down to nothing. A
// bound is well below what they come to.
func TestThrottlesByChance(t *testing.T) {
	takesLong(t)
	const runs = 5
	for _, tt := range []struct{ chance, least float64 }{{.001, .6}, {.005, .25}, {.01, .01}, {.05, .1}, {.1, .005}} {
		t.Run(fmt.Sprintf("%v %%", 100*tt.chance), func(t *testing.T) {
			use := 0.
			for range runs {
				replay.Test(t, func(t *testing.T) {
					srv := newTokenServer(100)
					srv.chance = tt.chance
					store := NewMemoryStore()
					var workers []cruise.Learner
					for range 5 {
						workers = append(workers, cruise.Must(New(store)))
					}
					use += simulate(workers, srv, 0, 30*time.Minute, 40*time.Minute).use / runs
				})
			}
			t.Logf("%.1f %% of what the server gives after half an hour", 100*use)
			assert.Greater(t, use, tt.least)
		})
	}
}

// Workers heed what the server says is left of their common quota: it lasts until the
// window ends, or until there is more. The figures are those of docs/scaling.md.
func TestQuota(t *testing.T) {
	takesLong(t)
	for _, tt := range []struct {
		name string
		srv  func() *tokenServer
	}{
		{"600 in each minute", func() *tokenServer { return newTokenServer(10).windowed(time.Minute) }},
		{"50 in each 10 seconds", func() *tokenServer { return newTokenServer(5).windowed(10 * time.Second) }},
		{"5,000 in each hour", func() *tokenServer { return newTokenServer(5000. / 3600).windowed(time.Hour) }},
		{"10 a second, 200 at once", func() *tokenServer {
			srv := newTokenServer(10)
			srv.burst, srv.tokens = 200, 200
			return srv
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			run := func(tells bool) (throttled float64) {
				replay.Test(t, func(t *testing.T) {
					store := busyStore(NewMemoryStore())
					var workers []cruise.Learner
					for range 10 {
						workers = append(workers, cruise.Must(New(store)))
					}
					srv := tt.srv()
					srv.tells = tells
					warm := max(2*time.Minute, srv.window)
					f := simulate(workers, srv, 0, warm, warm+max(10*time.Minute, srv.window))
					t.Logf("told %v: use %.3f, throttled %.2f %%, Jain %.2f", tells, f.use, 100*f.throttled, f.jain)
					throttled = f.throttled
					if tells {
						assert.GreaterOrEqual(t, f.use, .9)
						assert.GreaterOrEqual(t, f.jain, .9)
					}
				})
				return throttled
			}
			var told, untold float64
			for n := 1.; n <= 6; n++ { // one run of seven is throttled more often
				told, untold = told+run(true), untold+run(false)
				if told <= .004*n && told < .8*untold {
					return
				}
			}
			t.Errorf("throttled %.2f %% where it is told, %.2f %% where not", 100*told/6, 100*untold/6)
		})
	}
}

// What is left of a window of some seconds has changed when the workers know of it: they use
// it up as if they were told nothing. A longer one they use up, and not less of the next for
// what they knew too late.
func TestShortWindow(t *testing.T) {
	takesLong(t)
	for _, tt := range []struct {
		name    string
		workers int
		least   float64 // use
		srv     func() *tokenServer
	}{
		{"10 in each second", 10, .7, func() *tokenServer { return newTokenServer(10).windowed(time.Second) }},
		{"100 in each second", 10, .7, func() *tokenServer { return newTokenServer(100).windowed(time.Second) }},
		{"20 in each 2 seconds", 10, .7, func() *tokenServer { return newTokenServer(10).windowed(2 * time.Second) }},
		{"60 in each 3 seconds", 10, .85, func() *tokenServer { return newTokenServer(20).windowed(3 * time.Second) }},
		{"500 in each 5 seconds", 10, .9, func() *tokenServer { return newTokenServer(100).windowed(5 * time.Second) }},
		{"500 in each 5 seconds, many workers", 50, .9, func() *tokenServer { return newTokenServer(100).windowed(5 * time.Second) }},
		{"100 a second, 10 at once", 1, .7, func() *tokenServer {
			srv := newTokenServer(100)
			srv.refills = true
			return srv
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			replay.Test(t, func(t *testing.T) {
				store := busyStore(NewMemoryStore())
				var workers []cruise.Learner
				for range tt.workers {
					workers = append(workers, cruise.Must(New(store)))
				}
				srv := tt.srv()
				srv.tells = true
				f := simulate(workers, srv, 0, 2*time.Minute, 10*time.Minute)
				t.Logf("use %.3f, throttled %.2f %%", f.use, 100*f.throttled)
				assert.GreaterOrEqual(t, f.use, tt.least)
				assert.LessOrEqual(t, f.throttled, .05)
			})
		})
	}
}

// A limiter of one process, told all of a small window, uses it up and waits for the
// next one, neither longer nor in vain.
func TestSmallWindow(t *testing.T) {
	replay.Test(t, func(t *testing.T) {
		srv := newTokenServer(.5).windowed(10 * time.Second)
		srv.tells = true
		f := simulate([]cruise.Learner{cruise.Must(cruise.NewAdaptiveLimiter())}, srv, 0, time.Minute, 10*time.Minute)
		assert.GreaterOrEqual(t, f.use, .95)
		assert.LessOrEqual(t, f.throttled, .02)
	})
}

// The limit grows to four times what it was, and falls back: ten workers follow it up
// within a minute, and down within three seconds.
func TestRamp(t *testing.T) {
	takesLong(t)
	const latency, phase, low = 60 * time.Millisecond, 2 * time.Minute, 100.
	replay.Test(t, func(t *testing.T) {
		store := busyStore(NewMemoryStore())
		srv := newTokenServer(low)
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 3*phase)
		defer cancel()
		time.AfterFunc(phase, func() { srv.change(4 * low) })
		time.AfterFunc(2*phase, func() { srv.change(low) })
		var wg sync.WaitGroup
		var mu sync.Mutex // guards the counts of each second
		oks, throttles := make([]float64, 3*phase/time.Second+2), make([]float64, 3*phase/time.Second+2)
		for range 10 {
			s := cruise.Must(New(store))
			for range 12 {
				wg.Go(func() {
					for s.WaitN(ctx, 1) == nil {
						sent := time.Now()
						replay.Sleep(latency / 2)
						f := cruise.Feedback{Outcome: cruise.OutcomeThrottled, Sent: sent, Cost: 1}
						count := throttles
						if srv.admits() {
							f.Outcome, count = cruise.OutcomeSuccess, oks
						}
						mu.Lock()
						count[time.Since(start)/time.Second]++
						mu.Unlock()
						replay.Sleep(latency / 2)
						s.Learn(f)
					}
				})
			}
		}
		wg.Wait()
		time.Sleep(time.Second) // for the last syncs
		synctest.Wait()
		// rate is per second, of what was counted from a second on until another.
		rate := func(count []float64, from, to time.Duration) (sum float64) {
			for _, n := range count[from/time.Second : to/time.Second] {
				sum += n
			}
			return sum / (to - from).Seconds()
		}
		for at := time.Duration(0); at < 3*phase; at += 10 * time.Second {
			t.Logf("%v: %.0f a second, %.1f throttled", at, rate(oks, at, at+10*time.Second), rate(throttles, at, at+10*time.Second))
		}
		const up, down, s = phase, 2 * phase, time.Second
		assert.GreaterOrEqual(t, rate(oks, up-60*s, up), .85*low, "before")
		assert.GreaterOrEqual(t, rate(oks, up+60*s, up+70*s), .8*4*low, "a minute after it grew")
		assert.GreaterOrEqual(t, rate(oks, up+70*s, down), .85*4*low, "and from then on")
		assert.LessOrEqual(t, rate(throttles, up, down), .01*4*low)
		assert.LessOrEqual(t, rate(throttles, down, down+3*s), 2*low)
		assert.LessOrEqual(t, rate(throttles, down+3*s, 3*phase), .01*low)
		assert.GreaterOrEqual(t, rate(oks, down, down+60*s), .5*low, "it does not fall too far")
		assert.GreaterOrEqual(t, rate(oks, 3*phase-20*s, 3*phase), .8*low, "and is back in time")
	})
}
