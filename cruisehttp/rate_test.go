package cruisehttp_test

import (
	"cmp"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/a7df5faa/cruise/internal/calm"
	"github.com/a7df5faa/cruise/internal/chance"
	"github.com/a7df5faa/cruise/internal/replay"
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

// stickTable is HAProxy's http_req_rate: the requests of this period, and those of the one before
// in proportion to the part that the window still covers.
type stickTable struct {
	most          float64
	period        time.Duration
	rules         haproxyRules
	current, past float64
	begin         time.Time // of the current period
}

// haproxyRules are rules of HAProxy that limit the requests in a window.
type haproxyRules int

const (
	refuseThenCount haproxyRules = iota // refused requests do not count
	countUnlessOver                     // nor does it but for the first one
	countThenRefuse                     // it does, as in most configurations that are published
)

func (s *stickTable) admit(now time.Time) bool {
	if now.Sub(s.begin) >= s.period {
		s.past, s.current, s.begin = s.current, 0, s.begin.Add(s.period)
		if now.Sub(s.begin) >= s.period {
			s.past, s.begin = 0, now
		}
	}
	covered := 1 - now.Sub(s.begin).Seconds()/s.period.Seconds()
	over := s.past*covered+s.current > s.most
	if !over || s.rules == countThenRefuse {
		s.current++
	}
	if s.rules != refuseThenCount {
		over = s.past*covered+s.current > s.most
	}
	return !over
}

// Sixty requests over the limit, and more, from 8 workers: after the 20 attempts in
// which the limit is found, at most 5 % are throttled, and 90 % of the rate or more
// are used, on average over many runs, since pauses and answers have jitter. Where
// that is not reached, the reason is said.
func TestTransportKeepsToTheRate(t *testing.T) {
	retryAfter := []string{"Retry-After: 1"}
	nginx := func(perSecond float64) func() limiter {
		return func() limiter { return &limitReq{perSecond: perSecond, burst: 5} }
	}
	haproxy := func(rules haproxyRules) func() limiter {
		return func() limiter { return &stickTable{most: 9, period: 3 * time.Second, rules: rules} }
	}
	for _, c := range []struct {
		name      string
		server    func() limiter
		headers   []string
		perSecond float64
		requests  int
		used      float64
		took      time.Duration // by an answer; 22 ms if 0
	}{
		{name: "nginx", server: nginx(20), perSecond: 20, requests: 66, used: .91},
		{name: "nginx, longer", server: nginx(20), perSecond: 20, requests: 200, used: .94},
		{name: "nginx next door", server: nginx(20), perSecond: 20, requests: 66, used: .93, took: time.Millisecond / 2},
		{name: "nginx next door, longer", server: nginx(20), perSecond: 20, requests: 200, used: .94, took: time.Millisecond / 2},
		// Not 90 %: it is over in a second and a half, of which learning takes a part.
		{name: "nginx, fast", server: nginx(50), perSecond: 50, requests: 66, used: .8},
		{name: "nginx, fast and longer", server: nginx(50), perSecond: 50, requests: 500, used: .91},
		{name: "haproxy", server: haproxy(refuseThenCount), headers: retryAfter, perSecond: 3, requests: 69, used: .84},
		{name: "haproxy, longer", server: haproxy(refuseThenCount), headers: retryAfter, perSecond: 3, requests: 500, used: .92},
		{name: "haproxy next door", server: haproxy(refuseThenCount), headers: retryAfter, perSecond: 3, requests: 69, used: .84, took: time.Millisecond / 2},
		// Not 90 %: each pause costs the calls of a second, and one more.
		{name: "haproxy that counts one too many", server: haproxy(countUnlessOver), headers: retryAfter, perSecond: 3, requests: 69, used: .75},
		{name: "haproxy that counts one too many, longer", server: haproxy(countUnlessOver), headers: retryAfter, perSecond: 3, requests: 500, used: .78},
		// Not 90 %: each request during the block extends it.
		{name: "haproxy that counts what it refuses", server: haproxy(countThenRefuse), headers: retryAfter, perSecond: 3, requests: 69, used: .67},
		{name: "haproxy that counts what it refuses, longer", server: haproxy(countThenRefuse), headers: retryAfter, perSecond: 3, requests: 500, used: .71},
	} {
		t.Run(c.name, func(t *testing.T) {
			runs, margin := 100., 0.
			if calm.Raced {
				runs, margin = 20, .03
			}
			took := cmp.Or(c.took, 22*time.Millisecond)
			var throttled, used float64
			for range int(runs) {
				replay.Test(t, func(t *testing.T) {
					var mu sync.Mutex
					server := c.server()
					count := &tally{base: roundTripper(func(*http.Request) (*http.Response, error) {
						replay.Sleep(took*4/5 + chance.N(took*2/5))
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
			assert.LessOrEqual(t, throttled, .05+margin, "throttled")
			assert.GreaterOrEqual(t, used, c.used-margin, "of the rate used")
		})
	}
}
