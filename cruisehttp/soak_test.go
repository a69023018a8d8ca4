package cruisehttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/cruisehttp"
)

// lossy starts a proxy that delays data for up to 20 ms. Now and then it swallows all further data
// of a connection, as a network does after losing a route, or resets the connection.
func lossy(t *testing.T, to string) (url string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	pass := func(from, to *net.TCPConn) {
		defer from.Close()
		defer to.Close()
		defer context.AfterFunc(ctx, func() { _ = from.Close() })()
		for buffer := make([]byte, 4<<10); ; {
			n, err := from.Read(buffer)
			if err != nil {
				return
			}
			time.Sleep(rand.N(20 * time.Millisecond))
			switch rand.N(1000) {
			case 0, 1, 2, 3, 4:
				_, _ = io.Copy(io.Discard, from)
				return
			case 5, 6, 7, 8, 9:
				_ = from.SetLinger(0)
				_ = to.SetLinger(0)
				return
			}
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
	}
	group.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s, err := net.Dial("tcp", to)
			if err != nil {
				_ = c.Close()
				continue
			}
			client, server := c.(*net.TCPConn), s.(*net.TCPConn)
			group.Go(func() { pass(client, server) })
			group.Go(func() { pass(server, client) })
		}
	})
	t.Cleanup(func() {
		cancel()
		_ = l.Close()
		group.Wait()
	})
	return "http://" + l.Addr().String()
}

// usage counts the resources that a process must not use more and more of.
type usage struct {
	goroutines, files int
	heap              uint64
}

func (u usage) String() string {
	return fmt.Sprintf("%d goroutines, %d files, %.1f MB of heap", u.goroutines, u.files, float64(u.heap)/1e6)
}

func measure() usage {
	runtime.GC()
	runtime.GC() // for objects with finalizers
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	files, _ := os.ReadDir("/proc/self/fd") // empty where there is none
	return usage{runtime.NumGoroutine(), len(files), m.HeapAlloc}
}

// reason is why a request failed, in a few words.
func reason(err error) string {
	for _, of := range []struct {
		err  error
		text string
	}{
		{context.Canceled, "cancelled by its caller"},
		{cruisehttp.ErrNotIdempotent, "a POST that may have been done"},
		{cruise.ErrMaxElapsed, "no time left"},
		{cruise.ErrAttemptsExhausted, "no attempts left"},
		{cruise.ErrBudgetExhausted, "no budget left"},
	} {
		if errors.Is(err, of.err) {
			return of.text
		}
	}
	var give *cruise.Error
	if errors.As(err, &give) {
		return "given up: " + give.Reason.Error()
	}
	return "in its body, or at once"
}

// TestSoak sends requests through a bad network to a server with all faults, by a
// schedule of chance. None is lost, none that must not be is done twice, answers
// belong to their requests, and after each of ten rounds as much is in use as
// after the first.
//
// CRUISE_SOAK=10m makes it last, CRUISE_SOAK_SEED=n repeats a schedule, as far as
// a network can.
func TestSoak(t *testing.T) {
	if testing.Short() {
		t.Skip("some ten seconds of real time")
	}
	lasting, seed := time.Second, uint64(time.Now().UnixNano())
	if text := os.Getenv("CRUISE_SOAK"); text != "" {
		var err error
		lasting, err = time.ParseDuration(text)
		require.NoError(t, err)
	}
	if text := os.Getenv("CRUISE_SOAK_SEED"); text != "" {
		var err error
		seed, err = strconv.ParseUint(text, 10, 64)
		require.NoError(t, err)
	}
	t.Logf("CRUISE_SOAK=%v CRUISE_SOAK_SEED=%d", lasting, seed)
	const rounds, workers = 10, 30
	ctx := t.Context() // one for all requests, as is the client
	client := &http.Client{Transport: transport(t, &http.Transport{MaxResponseHeaderBytes: 64 << 10, MaxIdleConnsPerHost: workers},
		cruisehttp.WithHeaderTimeout(200*time.Millisecond), cruisehttp.WithAttemptTimeout(time.Second),
		cruisehttp.WithScope("one of many", cruisehttp.HeaderKey("X-Key")),
		cruisehttp.WithRetrierOptions(cruise.WithTuning(cruise.Tuning{MinRate: 20}), cruise.WithMaxScopes(10), cruise.WithMaxElapsed(5*time.Second)))}
	var all, answered, refused, failed atomic.Int64
	var why sync.Map // *atomic.Int64 by the reason of a failure
	var began usage
	for round := range rounds {
		t.Run(fmt.Sprint("round ", round+1), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, uint64(round)))
			var mu sync.Mutex
			roll := func(n int) int { mu.Lock(); defer mu.Unlock(); return rng.IntN(n) }
			bad := roll(30) // of a hundred; in some rounds nearly none
			srv := serveFaults(t, func(string, int) *fault {
				if roll(100) < bad {
					return &faults[roll(len(faults))]
				}
				return nil
			})
			url := lossy(t, srv.Addr().String())
			defer client.CloseIdleConnections()
			until := time.Now().Add(lasting / rounds)
			var group sync.WaitGroup
			for w := range workers {
				group.Go(func() {
					for i := 0; i == 0 || time.Now().Before(until); i++ {
						id := fmt.Sprint(w, ".", i)
						method := []string{"GET", "PUT", "POST", "DELETE"}[roll(4)]
						call, cancel := context.WithCancel(ctx)
						if roll(20) == 0 {
							time.AfterFunc(time.Duration(roll(50))*time.Millisecond, cancel)
						}
						begin := time.Now()
						all.Add(1)
						resp, err := client.Do(request(t, method, url, strings.NewReader("body"), "X-Id: "+id, "X-Key: "+strconv.Itoa(roll(50))).WithContext(call))
						var got []byte
						if err == nil {
							got, err = io.ReadAll(resp.Body)
							_ = resp.Body.Close()
						}
						cancel()
						seen, done := srv.counts(id)
						switch {
						case err != nil:
							failed.Add(1)
							n, _ := why.LoadOrStore(reason(err), new(atomic.Int64))
							n.(*atomic.Int64).Add(1)
						case resp.StatusCode != http.StatusOK:
							refused.Add(1)
						default:
							answered.Add(1)
							assert.Equal(t, id+"body", string(got), "the answer to another request")
							assert.GreaterOrEqual(t, done, 1, "lost")
						}
						if method == "POST" {
							assert.LessOrEqual(t, done, 1, "done twice")
						}
						assert.LessOrEqual(t, seen, 2*5, "net/http may send once more each time")
						assert.Less(t, time.Since(begin), 30*time.Second)
					}
				})
			}
			group.Wait()
		})
		now := measure()
		for deadline := time.Now().Add(5 * time.Second); round > 0 && now.goroutines > began.goroutines+5 && time.Now().Before(deadline); now = measure() {
			time.Sleep(50 * time.Millisecond) // connections end in their own time
		}
		if round == 0 {
			time.Sleep(100 * time.Millisecond)
			began = measure()
		}
		t.Logf("round %d: %v", round+1, now)
		assert.LessOrEqual(t, now.goroutines, began.goroutines+5, "goroutines, round %d", round+1)
		assert.LessOrEqual(t, now.files, began.files+10, "files, round %d", round+1)
		assert.LessOrEqual(t, now.heap, began.heap+4<<20, "heap, round %d", round+1)
	}
	t.Logf("%d requests: %d answered, %d refused by the server, %d failed", all.Load(), answered.Load(), refused.Load(), failed.Load())
	why.Range(func(reason, n any) bool {
		t.Logf("failed, %s: %d", reason, n.(*atomic.Int64).Load())
		return true
	})
	assert.Equal(t, all.Load(), answered.Load()+refused.Load()+failed.Load())
	assert.Greater(t, answered.Load(), all.Load()/2)
}
