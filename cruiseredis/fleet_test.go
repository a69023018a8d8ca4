package cruiseredis_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/cruiseredis"
	"github.com/a7df5faa/cruise/internal/calm"
)

// lasting returns the length of a test. An environment variable makes it longer.
func lasting(t *testing.T, otherwise time.Duration) time.Duration {
	t.Helper()
	text := os.Getenv("CRUISE_SOAK")
	if text == "" {
		return otherwise
	}
	d, err := time.ParseDuration(text)
	require.NoError(t, err)
	return d
}

// tokenAPI is a server that admits limit calls a second, a tenth of that at once, and does not
// report its limit.
type tokenAPI struct {
	limit float64

	mu        sync.Mutex // guards the fields below
	tokens    float64
	at        time.Time
	sent      []time.Time
	admitted  map[string]float64 // by worker, since measured
	throttled float64            // the same
	measured  time.Time          // zero before
}

func newTokenAPI(limit float64) *tokenAPI {
	return &tokenAPI{limit: limit, tokens: limit / 10, at: time.Now(), admitted: map[string]float64{}}
}

func (a *tokenAPI) admits(worker string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	a.tokens = min(a.limit/10, a.tokens+now.Sub(a.at).Seconds()*a.limit)
	a.at = now
	a.sent = append(a.sent, now)
	ok := a.tokens >= 1
	if ok {
		a.tokens--
	}
	switch {
	case a.measured.IsZero():
	case ok:
		a.admitted[worker]++
	default:
		a.throttled++
	}
	return ok
}

// measure resets the counters.
func (a *tokenAPI) measure() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.measured, a.sent = time.Now(), nil
}

func (a *tokenAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ok := a.admits(r.Header.Get("Worker"))
	time.Sleep(20 * time.Millisecond)
	if !ok {
		w.WriteHeader(http.StatusTooManyRequests)
	}
}

// worst is the most calls in any second.
func worst(times []time.Time) (worst int) {
	times = slices.SortedFunc(slices.Values(times), time.Time.Compare)
	first := 0
	for i, at := range times {
		for at.Sub(times[first]) >= time.Second {
			first++
		}
		worst = max(worst, i-first+1)
	}
	return worst
}

// The variables that make this test's binary a worker of a fleet.
const (
	fleetRedis  = "CRUISE_TEST_FLEET_REDIS"
	fleetAPI    = "CRUISE_TEST_FLEET_API"
	fleetWorker = "CRUISE_TEST_FLEET_WORKER"
)

// fleetWork makes calls as fast as they go, until the input ends.
func fleetWork(t *testing.T) {
	l, err := cruiseredis.NewLimiter(redis.NewClient(&redis.Options{Addr: os.Getenv(fleetRedis), PoolSize: 2}), "fleet", cruise.WithInitialRate(50))
	require.NoError(t, err)
	api, err := cruise.New(cruise.WithLimiter(l), cruise.WithUncountedThrottles())
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	web := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 3}}
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for ctx.Err() == nil {
				_ = api.Do(ctx, func(ctx context.Context) error {
					req, err := http.NewRequestWithContext(ctx, http.MethodGet, os.Getenv(fleetAPI), nil)
					if err != nil {
						return cruise.Permanent(err)
					}
					req.Header.Set("Worker", os.Getenv(fleetWorker))
					resp, err := web.Do(req)
					if err != nil {
						return err
					}
					defer resp.Body.Close()
					if resp.StatusCode == http.StatusTooManyRequests {
						return cruise.Throttled(errors.New(resp.Status))
					}
					return nil
				})
			}
		})
	}
	wg.Wait()
}

// A hundred processes find the limit of a server that says nothing of it, keep to it,
// and share it evenly. CRUISE_SOAK=2m makes it last.
func TestHundredProcesses(t *testing.T) {
	if os.Getenv(fleetRedis) != "" {
		fleetWork(t)
		return
	}
	if calm.Raced {
		t.Skip("a minute of real time, and processes share no memory")
	}
	const limit, workers = 300, 100
	s := startRedis(t)
	api := newTokenAPI(limit)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := &http.Server{Handler: api, ReadHeaderTimeout: 10 * time.Second}
	go server.Serve(listener)
	t.Cleanup(func() { server.Close() })
	late := calm.Watch()
	for i := range workers {
		cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.timeout=2h")
		cmd.Env = append(os.Environ(), fleetRedis+"="+s.addr, fleetAPI+"=http://"+listener.Addr().String(), fleetWorker+"="+strconv.Itoa(i), "GOMAXPROCS=1")
		input, err := cmd.StdinPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		t.Cleanup(func() {
			input.Close()
			timer := time.AfterFunc(10*time.Second, func() { _ = cmd.Process.Kill() })
			_ = cmd.Wait()
			timer.Stop()
		})
	}
	require.Eventually(t, func() bool {
		api.mu.Lock()
		defer api.mu.Unlock()
		return len(api.sent) > workers
	}, time.Minute, 10*time.Millisecond)
	const settle = 30 * time.Second // until they have found it
	time.Sleep(settle)
	api.measure()
	time.Sleep(lasting(t, 15*time.Second))
	stood := late()

	api.mu.Lock()
	defer api.mu.Unlock()
	took := time.Since(api.measured).Seconds()
	var sum, squares float64
	for _, n := range api.admitted {
		sum, squares = sum+n, squares+n*n
	}
	use, throttled, jain := sum/took/limit, api.throttled/(sum+api.throttled), sum*sum/(float64(workers)*squares)
	window := float64(worst(api.sent)) / limit
	figures := fmt.Sprintf("use %.2f, throttled %.2f %%, Jain %.3f, worst second %.2f; the machine stood still for %v at most", use, 100*throttled, jain, window, stood)
	t.Log(figures)
	// If calls and answers are late, the workers learn late.
	slow := 4 * stood.Seconds()
	assert.LessOrEqual(t, window, 1.2+slow, figures)
	assert.LessOrEqual(t, throttled, .02+slow, figures)
	assert.Positive(t, use, figures)
	if stood > 20*time.Millisecond {
		t.Log("that is too long to ask for more than that the limit is kept")
		return
	}
	assert.GreaterOrEqual(t, use, .8, figures)
	assert.GreaterOrEqual(t, jain, .9, figures)
}
