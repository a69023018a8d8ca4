package cruisehttp_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/cruisehttp"
	"github.com/a7df5faa/cruise/cruisehttp/signal"
)

func send(t *testing.T, tr *cruisehttp.Transport, url string, headers ...string) *http.Response {
	t.Helper()
	resp, err := tr.RoundTrip(request(t, "GET", url, nil, headers...))
	require.NoError(t, err)
	text(t, resp)
	return resp
}

func TestScopesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &server{start: time.Now(), answers: func(_ int, r *http.Request) (*http.Response, error) {
			if strings.HasPrefix(r.URL.Host, "full") {
				return answer(429, "", "Retry-After: 7200"), nil
			}
			return answer(200, ""), nil
		}}
		tr := transport(t, base, cruisehttp.WithRetrierOptions(cruise.WithMaxScopes(3)))
		const hosts = 2000 // more than are remembered
		for i := range hosts {
			_, err := tr.RoundTrip(request(t, "GET", fmt.Sprintf("http://full%d", i), nil))
			require.ErrorIs(t, err, cruise.ErrQuotaExhausted)
			send(t, tr, fmt.Sprintf("http://host%d/", i))
		}
		before := base.count()
		remembered := 0
		for i := range hosts {
			_, err := tr.RoundTrip(request(t, "GET", fmt.Sprintf("http://full%d", i), nil))
			e, ok := errors.AsType[*cruise.Error](err)
			require.True(t, ok)
			assert.Equal(t, 2*time.Hour, e.RetryAfter)
			if _, ok := errors.AsType[*cruisehttp.ResponseError](err); ok {
				remembered++
			}
		}
		assert.Equal(t, 1024, remembered, "of whom the answer is known")
		assert.Equal(t, before, base.count(), "nothing was sent")
		paused := limiterOf(t, tr, "full7")
		fast := limiterOf(t, tr, "host7")
		time.Sleep(time.Hour)
		for i := range hosts {
			send(t, tr, fmt.Sprintf("http://new%d/", i))
		}
		assert.Same(t, paused, limiterOf(t, tr, "full7"), "a paused scope is not forgotten")
		assert.NotSame(t, fast, limiterOf(t, tr, "host7"))

		time.Sleep(time.Hour)
		before = base.count()
		for range 2 { // the second is not sent
			_, err := tr.RoundTrip(request(t, "GET", "http://full1999", nil))
			_, ok := errors.AsType[*cruisehttp.ResponseError](err)
			assert.True(t, ok, "there is room again")
		}
		assert.Equal(t, before+1, base.count())
	})
}

// A request obeys the limiters of all its scopes, and a throttle concerns the one
// that it names.
func TestScopesWithinScopes(t *testing.T) {
	for _, c := range []struct {
		name  string
		blame string
		waits map[string]bool // by account
	}{
		{"the account", "ACCOUNT", map[string]bool{"1": true}},
		{"the developer", "DEVELOPER", map[string]bool{"1": true, "2": true}},
		{"neither", "CORE", map[string]bool{"1": true}},
		{"nobody", "", map[string]bool{"1": true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, limiter := range []cruise.Option{cruise.WithoutLimiter(), cruise.WithLimiter(cruise.Must(cruise.NewAdaptiveLimiter()))} {
				synctest.Test(t, func(t *testing.T) {
					body := `{"error":{"details":[{"rateScope":"` + c.blame + `"}]}}`
					base := inOrder(says(429, body, "Retry-After: 30"), says(200, ""))
					p := signal.Generic()
					p.ScopeFields = []string{"*.ratescope"}
					tr := transport(t, base, cruisehttp.WithProfile(p), cruisehttp.WithRetrierOptions(limiter),
						cruisehttp.WithScope("DEVELOPER", cruisehttp.HostKey), cruisehttp.WithScope("ACCOUNT", cruisehttp.HeaderKey("Account")))
					took := func(account string) time.Duration {
						begin := time.Now()
						send(t, tr, example, "Account: "+account)
						return time.Since(begin)
					}
					done := make(chan time.Duration)
					go func() { done <- took("1") }()
					synctest.Wait()
					want := time.Duration(0)
					if c.waits["2"] {
						want = 30 * time.Second
					}
					assert.Equal(t, want, took("2").Truncate(time.Second))
					assert.Equal(t, 30*time.Second, (<-done).Truncate(time.Second))
				})
			}
		})
	}
}

// A server may blame a scope that the request is not in. That concerns the innermost
// that it is in, and nothing further out.
func TestAThrottleOfAScopeThatTheRequestIsNotIn(t *testing.T) {
	for _, tt := range []struct{ name, account, developer, blame, paused string }{
		{"no account, blamed", "", "d", "ACCOUNT", "DEVELOPER"},
		{"no account, nobody blamed", "", "d", "", "DEVELOPER"},
		{"no account, another blamed", "", "d", "CORE", "DEVELOPER"},
		{"no developer, blamed", "1", "", "DEVELOPER", "ACCOUNT"},
		{"neither", "", "", "ACCOUNT", ""},
	} {
		for _, wait := range []time.Duration{30 * time.Second, 2 * time.Hour} { // a throttle, and a quota
			t.Run(fmt.Sprint(tt.name, ", ", wait), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					body := `{"error":{"details":[{"rateScope":"` + tt.blame + `"}]}}`
					base := inOrder(says(429, body, fmt.Sprint("Retry-After: ", int(wait.Seconds()))), says(200, ""))
					p := signal.Generic()
					p.ScopeFields = []string{"*.ratescope"}
					key := func(name string) func(*http.Request) string {
						return func(r *http.Request) string { return r.Header.Get(name) }
					}
					tr := transport(t, base, cruisehttp.WithProfile(p), cruisehttp.WithOnlyIdempotent(),
						cruisehttp.WithRetrierOptions(cruise.WithLimiter(cruise.Must(cruise.NewAdaptiveLimiter()))),
						cruisehttp.WithScope("DEVELOPER", key("Developer")), cruisehttp.WithScope("ACCOUNT", key("Account")))
					post := func() error {
						resp, err := tr.RoundTrip(request(t, "POST", example, nil, "Developer: "+tt.developer, "Account: "+tt.account))
						if err == nil {
							text(t, resp)
						}
						return err
					}
					first := post()
					for s := range tr.Retrier().Scopes() {
						scope := ""
						if len(s.Path) > 0 {
							scope = s.Path[len(s.Path)-1].Scope
						}
						want := time.Duration(0)
						if scope == tt.paused {
							want = wait
						}
						assert.Equal(t, want, s.PauseLeft, scope)
					}
					if wait < time.Hour {
						require.NoError(t, first)
						return
					}
					require.ErrorIs(t, first, cruise.ErrQuotaExhausted)
					if tt.paused == "" {
						return // nothing is known of other requests
					}
					_, ok := errors.AsType[*cruisehttp.ResponseError](post())
					assert.True(t, ok, "the same answer for those who come later")
					assert.Equal(t, 1, base.count())
				})
			})
		}
	}
}

func TestRequestsInNoScope(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := inOrder(says(429, "", "Retry-After: 7200"), says(200, ""))
		tr := transport(t, base, cruisehttp.WithScope("none", func(*http.Request) string { return "" }))
		assert.Nil(t, tr.Retrier().Limiter())
		_, err := tr.RoundTrip(request(t, "GET", example, nil))
		require.ErrorIs(t, err, cruise.ErrQuotaExhausted)
		send(t, tr, example) // nothing is known of other requests
	})
}

func TestObserversSeeTheScopeThatTheServerBlames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := inOrder(says(429, "", "X-GitHub-Request-Id: 1", "X-RateLimit-Resource: core", "Retry-After: 1"), says(200, ""))
		var seen []string
		send(t, transport(t, base, cruisehttp.WithRetrierOptions(cruise.WithObserver(cruise.ObserverFunc(func(_ context.Context, e cruise.Event) {
			if e, ok := e.(cruise.ThrottleSeen); ok {
				seen = append(seen, e.Scope)
			}
		})))), example)
		assert.Equal(t, []string{"core"}, seen)
	})
}

func TestKeys(t *testing.T) {
	a := request(t, "GET", "http://API.example.com:8080/", nil, "Authorization: Bearer 1")
	b := request(t, "GET", "http://api.example.com:8080/", nil, "Authorization: Bearer 2")
	assert.Equal(t, "api.example.com:8080", cruisehttp.HostKey(a))
	assert.Equal(t, cruisehttp.HostKey(a), cruisehttp.HostKey(b))
	for url, want := range map[string]string{
		"http://api.example.com:80/":   "api.example.com",
		"https://api.example.com:443/": "api.example.com",
		"http://api.example.com:443/":  "api.example.com:443",
		"https://[::1]:443/":           "[::1]",
		"https://[2001:db8::443]/":     "[2001:db8::443]",
	} {
		assert.Equal(t, want, cruisehttp.HostKey(request(t, "GET", url, nil)))
	}
	key := cruisehttp.HeaderKey("Authorization")
	assert.NotEqual(t, key(a), key(b))
	assert.Equal(t, key(a), key(a))
	assert.NotContains(t, key(a), "Bearer")
	b.Header.Del("Authorization")
	assert.Equal(t, "api.example.com:8080", key(b))
}

func TestBuckets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limited := map[string]bool{}
		base := &server{start: time.Now(), answers: func(_ int, r *http.Request) (*http.Response, error) {
			bucket := strings.Split(r.URL.Path, "/")[1]
			if limited[bucket] {
				limited[bucket] = false
				return answer(429, "", "Retry-After: 10", "X-RateLimit-Bucket: "+bucket, "X-RateLimit-Scope: "+bucket), nil
			}
			if r.URL.RawQuery == "quiet" {
				return answer(200, ""), nil
			}
			return answer(200, "", "X-RateLimit-Bucket: "+bucket), nil
		}}
		tr := transport(t, base, cruisehttp.WithProfile(signal.Discord()), cruisehttp.WithBuckets("X-RateLimit-Bucket", nil))
		took := func(path string) time.Duration {
			begin := time.Now()
			send(t, tr, "http://api"+path)
			return time.Since(begin)
		}
		for _, path := range []string{"/a/1", "/a/2", "/b/1", "/a/2?quiet"} {
			assert.Zero(t, took(path))
		}
		limited["a"] = true
		done := make(chan time.Duration)
		go func() { done <- took("/a/1") }()
		synctest.Wait()
		assert.Zero(t, took("/b/1"), "another bucket")
		assert.InDelta(t, 10, took("/a/2").Seconds(), 2, "the same bucket by another route")
		<-done

		limited["a"] = true
		go func() { done <- took("/a/3") }() // its bucket is not known yet
		synctest.Wait()
		assert.InDelta(t, 10, took("/a/1").Seconds(), 2, "paused with it")
		<-done

		limited["global"] = true
		go func() { done <- took("/global/1") }()
		synctest.Wait()
		assert.InDelta(t, 10, took("/b/1").Seconds(), 2, "another bucket of the same host")
		<-done
	})
}

// Beyond the routes that are remembered, each new one makes one be forgotten, and no
// other leaves its paused bucket.
func TestBucketsOfMoreRoutesThanAreRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const routes = 4096
		headers, status := []string{"X-Bucket: a"}, 200
		base := &server{start: time.Now(), answers: func(int, *http.Request) (*http.Response, error) {
			return answer(status, "", append(headers, "Retry-After: 60")...), nil
		}}
		tr := transport(t, base, cruisehttp.WithBuckets("X-Bucket", nil))
		sent := func(route int) bool {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			before := base.count()
			resp, err := tr.RoundTrip(request(t, "GET", fmt.Sprint("http://api/", route), nil).WithContext(ctx))
			if err == nil {
				text(t, resp)
			}
			return base.count() > before
		}
		for route := range routes {
			assert.True(t, sent(route))
		}
		for _, bucket := range []string{"b", "a"} { // of a route that is known already
			headers = []string{"X-Bucket: " + bucket}
			assert.True(t, sent(0))
		}
		status = 429
		assert.True(t, sent(0), "pauses the bucket")
		forgotten := func() (n int) {
			headers = nil
			for route := range routes {
				if sent(route) {
					n++
				}
			}
			return n
		}
		assert.Zero(t, forgotten())
		headers = []string{"X-Bucket: a"}
		assert.True(t, sent(routes), "a new route")
		assert.Equal(t, 1, forgotten())
	})
}

func TestOptionsThatAreOutOfBounds(t *testing.T) {
	for want, opt := range map[string]cruisehttp.Option{
		"option 1 is nil":        nil,
		"option 2 is nil":        cruisehttp.WithRetrierOptions(cruise.WithMaxAttempts(1), nil),
		"WithRoundTripper(nil):": cruisehttp.WithRoundTripper(nil),
		"nil *http.Transport":    cruisehttp.WithRoundTripper((*http.Transport)(nil)),
		"test.roundTripper":      cruisehttp.WithRoundTripper(roundTripper(nil)),
		`WithScope("")`:          cruisehttp.WithScope("", cruisehttp.HostKey),
		`WithScope("a")`:         cruisehttp.WithScope("a", nil),
		`WithScope("bucket")`:    cruisehttp.WithScope("bucket", cruisehttp.HostKey),
		"WithBuckets":            cruisehttp.WithBuckets("", nil),
		"WithMaxScopes(0)":       cruisehttp.WithRetrierOptions(cruise.WithMaxScopes(0)),
		"profile without":        cruisehttp.WithProfile(signal.Profile{}),
		`"w": Waits`:             cruisehttp.WithProfile(signal.Profile{Name: "w", Waits: []signal.WaitHeader{{}}}),
		`"over": Waits`:          cruisehttp.WithProfile(signal.Profile{Name: "over", Waits: []signal.WaitHeader{{Name: "X", Over: -1}}}),
		`"unit": Waits`:          cruisehttp.WithProfile(signal.Profile{Name: "unit", Waits: []signal.WaitHeader{{Name: "X", Unit: 99}}}),
		`"b": BodyWaits`:         cruisehttp.WithProfile(signal.Profile{Name: "b", BodyWaits: []signal.WaitField{{}}}),
		`"unit": BodyWaits`:      cruisehttp.WithProfile(signal.Profile{Name: "unit", BodyWaits: []signal.WaitField{{Field: "x", Unit: 99}}}),
		`"t": TextWaits`:         cruisehttp.WithProfile(signal.Profile{Name: "t", TextWaits: []signal.WaitText{{}}}),
		`"unit": TextWaits`:      cruisehttp.WithProfile(signal.Profile{Name: "unit", TextWaits: []signal.WaitText{{After: "x", Unit: 99}}}),
		`"l": Limits`:            cruisehttp.WithProfile(signal.Profile{Name: "l", Limits: []signal.LimitHeaders{{}}}),
		`"unit": Limits`:         cruisehttp.WithProfile(signal.Profile{Name: "unit", Limits: []signal.LimitHeaders{{Used: "X", ResetUnit: 99}}}),
		`"window": Limits`:       cruisehttp.WithProfile(signal.Profile{Name: "window", Limits: []signal.LimitHeaders{{Used: "X", Window: -1}}}),
		`"r": Rules`:             cruisehttp.WithProfile(signal.Profile{Name: "r", Rules: []signal.Rule{{}}}),
		`"wait": Rules`:          cruisehttp.WithProfile(signal.Profile{Name: "wait", Rules: []signal.Rule{{Outcome: cruise.OutcomeThrottled, Wait: -1}}}),
		"WithLongWait(-1ns)":     cruisehttp.WithLongWait(-1),
		"WithIdempotencyHeader":  cruisehttp.WithIdempotencyHeader(""),
		"WithRetryStatuses w":    cruisehttp.WithRetryStatuses(),
		"WithRetryStatuses(200":  cruisehttp.WithRetryStatuses(404, 200),
		"WithBufferedBodies(0)":  cruisehttp.WithBufferedBodies(0),
		"WithHeaderTimeout":      cruisehttp.WithHeaderTimeout(0),
		"WithAttemptTimeout":     cruisehttp.WithAttemptTimeout(-1),
		"WithMaxRate(-1)":        cruisehttp.WithRetrierOptions(cruise.WithMaxRate(-1)),
		"WithMaxAttempts(0)":     cruisehttp.WithRetrierOptions(cruise.WithMaxAttempts(0)),
	} {
		_, err := cruisehttp.NewTransport(opt, cruisehttp.WithLongWait(0), cruisehttp.WithRetrierOptions(cruise.WithMaxElapsed(0)))
		for _, want := range []string{want, "WithLongWait(0s)", "WithMaxElapsed(0s)"} {
			assert.ErrorContains(t, err, want)
		}
		assert.Len(t, strings.Split(err.Error(), "\n"), 3, "each mistake is named once")
	}
	_, err := cruisehttp.NewTransport(cruisehttp.WithOnlyIdempotent(), cruisehttp.WithAnyMethod())
	assert.EqualError(t, err, "cruisehttp: WithAnyMethod beside WithOnlyIdempotent: want one of them")
}

// limiterOf is the limiter of a host.
func limiterOf(t *testing.T, tr *cruisehttp.Transport, host string) *cruise.AdaptiveLimiter {
	t.Helper()
	limiter, ok := tr.Retrier().Scope(cruisehttp.GlobalScope, host).Limiter().(*cruise.AdaptiveLimiter)
	require.True(t, ok)
	return limiter
}

// A crawler meets a host that is down beside a healthy one, a tenth of whose
// requests fail once. The healthy one gets its retries for as long as that lasts,
// and the dead one no more than its own budget gives.
func TestTransportRetriesBesideADeadHost(t *testing.T) {
	for name, down := range map[string]func() (*http.Response, error){
		"connection refused": fails(&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}),
		"503":                says(503, "down"),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				attempts := map[string]int{}
				tr := transport(t, roundTripper(func(r *http.Request) (*http.Response, error) {
					mu.Lock()
					defer mu.Unlock()
					host := r.URL.Host
					attempts[host]++
					first := attempts[host+r.URL.Path] == 0
					attempts[host+r.URL.Path]++
					switch {
					case host == "down.example.com":
						return down()
					case first && strings.HasSuffix(r.URL.Path, "0"):
						return answer(503, ""), nil
					}
					return answer(200, ""), nil
				}))
				const calls = 1000
				start := time.Now()
				var group sync.WaitGroup
				for _, host := range []string{"down.example.com", "up.example.com"} {
					for worker := range 8 {
						group.Go(func() {
							for i := worker; i < calls; i += 8 {
								resp, err := tr.RoundTrip(request(t, "GET", fmt.Sprintf("https://%s/%d", host, i), nil))
								if host == "up.example.com" && assert.NoError(t, err) {
									assert.Equal(t, 200, resp.StatusCode)
								}
								time.Sleep(100 * time.Millisecond)
							}
						})
					}
				}
				group.Wait()
				refill := int(time.Since(start).Seconds() * .1)
				assert.Equal(t, calls+calls/10, attempts["up.example.com"])
				assert.InDelta(t, calls+100, attempts["down.example.com"], float64(refill)+1)
			})
		})
	}
}
