package main

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// latency is how long the server takes to answer.
const latency = 30 * time.Millisecond

// An api is a server that admits calls by a token bucket, and tells the others to
// slow down. It says nothing of its limit.
type api struct {
	rate, burst float64

	mu     sync.Mutex // guards the fields below
	tokens float64
	at     time.Time
	now    counts // since they were last taken
	late   counts // since half of the time was over, see report
	half   time.Duration
	took   time.Time
	began  time.Time
}

// counts holds the calls of the workers.
type counts struct {
	admitted  []int // by worker
	total     int
	throttled int
	degraded  int // calls of workers that were without Redis
}

func newAPI(rate float64, workers int, duration time.Duration) *api {
	burst := max(1, rate/10)
	now := time.Now()
	return &api{rate: rate, burst: burst, tokens: burst, at: now, took: now, began: now, half: duration / 2,
		now: counts{admitted: make([]int, workers)}, late: counts{admitted: make([]int, workers)}}
}

// ServeHTTP answers a call of a worker.
func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	worker, err := strconv.Atoi(r.Header.Get("Worker"))
	if err != nil || worker < 0 || worker >= len(a.now.admitted) {
		http.Error(w, "who are you?", http.StatusBadRequest)
		return
	}
	ok := a.admit(worker, r.Header.Get("Degraded") != "")
	time.Sleep(latency)
	if !ok {
		http.Error(w, "slow down", http.StatusTooManyRequests)
	}
}

func (a *api) admit(worker int, degraded bool) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	a.tokens = min(a.burst, a.tokens+now.Sub(a.at).Seconds()*a.rate)
	a.at = now
	ok := a.tokens >= 1
	for _, c := range []*counts{&a.now, &a.late} {
		switch {
		case ok:
			c.admitted[worker]++
			c.total++
		default:
			c.throttled++
		}
		if degraded {
			c.degraded++
		}
	}
	if ok {
		a.tokens--
	}
	return ok
}

// take returns the counts since the last time. The first half is left out of
// the report: the workers had to find the limit.
func (a *api) take() counts {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := a.now
	a.now = counts{admitted: make([]int, len(c.admitted))}
	if time.Since(a.began) <= a.half {
		a.late, a.took = counts{admitted: make([]int, len(c.admitted))}, time.Now()
	}
	return c
}

func (c *counts) throttledShare() float64 {
	return 100 * float64(c.throttled) / float64(max(1, c.total+c.throttled))
}

// report says how well the limit was used, and how fairly.
func (a *api) report(out io.Writer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if time.Since(a.began) <= a.half {
		fmt.Fprintln(out, "\ninterrupted before the second half, which would have been measured")
		return
	}
	took := time.Since(a.took).Seconds()
	var sum, squares float64
	for _, n := range a.late.admitted {
		sum, squares = sum+float64(n), squares+float64(n)*float64(n)
	}
	jain := sum * sum / max(1, float64(len(a.late.admitted))*squares)
	fmt.Fprintf(out, "\nin the last %.0f s: %.2f of the limit used, %.2f %% throttled, fairness %.3f (Jain's index, 1 is perfect)\n",
		took, sum/took/a.rate, a.late.throttledShare(), jain)
}
