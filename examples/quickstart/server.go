package main

import (
	"net"
	"net/http"
	"strconv"
	"time"

	"golang.org/x/time/rate"
)

type serverConfig struct {
	rate    float64 // requests per second
	bucket  int     // requests at once, when full
	latency time.Duration
}

// api throttles as Heroku's API does: each request takes a token from a bucket
// that refills steadily. Without a token the answer is 429. Every response says
// how many tokens are left, and none says how long to wait.
type api struct {
	serverConfig
	tokens *rate.Limiter
}

func newAPI(c serverConfig) *api {
	return &api{c, rate.NewLimiter(rate.Limit(c.rate), c.bucket)}
}

// take takes a token, if there is one, and returns how many are left.
func (a *api) take(now time.Time) (left int, ok bool) {
	ok = a.tokens.AllowN(now, 1)
	return max(0, int(a.tokens.TokensAt(now))), ok
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	left, ok := a.take(time.Now())
	select {
	case <-time.After(a.latency):
	case <-r.Context().Done():
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("RateLimit-Remaining", strconv.Itoa(left))
	if !ok {
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = w.Write([]byte(`{"id":"rate_limit","message":"Your account reached the API rate limit"}`))
		return
	}
	_, _ = w.Write([]byte(`{"id":"01234567-89ab-cdef-0123-456789abcdef","name":"example"}`))
}

type server struct {
	*http.Server
	url string
}

// startServer serves an api on a free port of the loopback interface.
func startServer(c serverConfig) (*server, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &server{&http.Server{Handler: newAPI(c), ReadHeaderTimeout: 10 * time.Second}, "http://" + listener.Addr().String()}
	go func() { _ = s.Serve(listener) }() // until Close
	return s, nil
}
