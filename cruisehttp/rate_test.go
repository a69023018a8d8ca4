package cruisehttp_test

import (
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// A limiter is how a real server decides, down to its rounding.
type limiter interface{ admit(now time.Time) bool }

// limitReq is nginx's limit_req: a bucket that leaks, in whole milliseconds.
type limitReq struct {
	perSecond, burst, excess float64
	last                     time.Time
}

func (l *limitReq) admit(now time.Time) bool {
	if l.last.IsZero() {
		l.last = now
		return true
	}
	leaked := l.perSecond * float64(now.Sub(l.last).Milliseconds()) / 1000
	excess := max(0, l.excess-leaked) + 1
	if excess > l.burst {
		return false
	}
	l.excess, l.last = excess, now
	return true
}

// stickTable is HAProxy's http_req_rate: the requests of this period, and those
// of the one before in proportion to how much of it the window still covers.
type stickTable struct {
	most          float64
	period        time.Duration
	countsRefused bool
	current, past float64
	begin         time.Time // of the current period
}

func (s *stickTable) admit(now time.Time) bool {
	if now.Sub(s.begin) >= s.period {
		s.past, s.current, s.begin = s.current, 0, s.begin.Add(s.period)
		if now.Sub(s.begin) >= s.period {
			s.past, s.begin = 0, now
		}
	}
	covered := 1 - now.Sub(s.begin).Seconds()/s.period.Seconds()
	ok := s.past*covered+s.current <= s.most
	if ok || s.countsRefused {
		s.current++
	}
	return ok
}

// Sixty requests and more over the limit, from 8 workers: after the 20 attempts in
// which the limit is found, at most 3 % are throttled, and most of the rate is
// used; on average over some runs, since pauses have jitter.
func TestTransportKeepsToTheRate(t *testing.T) {
	retryAfter := []string{"Retry-After: 1"}
	for _, c := range []struct {
		name      string
		server    func() limiter
		headers   []string
		perSecond float64
		requests  int
		used      float64
	}{
		{"nginx", func() limiter { return &limitReq{perSecond: 20, burst: 5} }, nil, 20, 200, .9},
		{"nginx, fast", func() limiter { return &limitReq{perSecond: 50, burst: 5} }, nil, 50, 500, .9},
		// A pause costs the calls of a second, and the window that it empties is
		// filled at the pace of before.
		{"haproxy", func() limiter { return &stickTable{most: 9, period: 3 * time.Second} }, retryAfter, 3, 69, .9},
		{"haproxy, longer", func() limiter { return &stickTable{most: 9, period: 3 * time.Second} }, retryAfter, 3, 500, .8},
		// Each knock at the closed door keeps it closed for longer.
		{"haproxy that counts what it refuses", func() limiter { return &stickTable{most: 9, period: 3 * time.Second, countsRefused: true} }, retryAfter, 3, 500, .7},
	} {
		t.Run(c.name, func(t *testing.T) {
			const runs = 20
			var throttled, used float64
			for range runs {
				synctest.Test(t, func(t *testing.T) {
					var mu sync.Mutex
					server := c.server()
					count := &tally{base: roundTripper(func(*http.Request) (*http.Response, error) {
						time.Sleep(20 * time.Millisecond)
						mu.Lock()
						defer mu.Unlock()
						if server.admit(time.Now()) {
							return answer(200, ""), nil
						}
						return answer(429, "", c.headers...), nil
					})}
					crowd(t, &http.Client{Transport: transport(t, count)}, c.requests, example)
					x, y := count.report(c.perSecond)
					throttled += x / runs
					used += y / runs
				})
			}
			t.Logf("%.1f %% throttled, %.1f %% of the rate used", 100*throttled, 100*used)
			assert.LessOrEqual(t, throttled, .03, "throttled")
			assert.GreaterOrEqual(t, used, c.used, "of the rate used")
		})
	}
}
