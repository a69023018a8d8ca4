package cruisehttp_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/cruisehttp"
	"github.com/a7df5faa/cruise/cruisehttp/signal"
	"github.com/a7df5faa/cruise/delay"
	"github.com/a7df5faa/cruise/shared"
)

func TestTransportLearnsOfThrottlesThatItDoesNotRetry(t *testing.T) {
	for name, c := range map[string]struct {
		ctx  func(context.Context) context.Context
		resp func() (*http.Response, error)
	}{
		"the caller forbids it": {cruisehttp.ForbidRetry, says(429, "", "Retry-After: 20")},
		"the server forbids it": {func(ctx context.Context) context.Context { return ctx }, says(429, "", "Retry-After: 20", "X-Should-Retry: false")},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base := inOrder(c.resp, says(200, ""))
				tr := transport(t, base)
				req := request(t, "POST", example, nil)
				resp, err := tr.RoundTrip(req.WithContext(c.ctx(req.Context())))
				require.NoError(t, err)
				assert.Equal(t, 429, resp.StatusCode)
				text(t, resp)
				stats := limiterOf(t, tr, "api.example.com").Stats()
				assert.EqualValues(t, 1, stats.Throttles)
				assert.Equal(t, 20*time.Second, stats.PauseLeft)
			})
		})
	}
}

// Observers are told why a throttle is not retried: because of the response, be it a
// failure or a success of which a part is missing.
func TestThrottlesThatTheResponseSaysNotToRetry(t *testing.T) {
	for want, resp := range map[string]func() (*http.Response, error){
		`cruisehttp: 429 Too Many Requests (X-Should-Retry false): cruisehttp: not retried: by the response, the same request should not be sent again`: says(429, "", "X-Should-Retry: false"),
		`cruisehttp: 200 OK (field unprocesseditems.t.x): cruisehttp: not retried: by the response, the same request should not be sent again`:          says(200, `{"UnprocessedItems":{"t":[{"x":1}]}}`, "X-Amzn-Requestid: 1", "Content-Type: application/x-amz-json-1.0"),
	} {
		var got error
		tr := transport(t, inOrder(resp), cruisehttp.WithRetrierOptions(cruise.WithObserver(cruise.ObserverFunc(func(_ context.Context, e cruise.Event) {
			if e, ok := e.(cruise.AttemptEnded); ok {
				assert.Equal(t, cruise.OutcomeThrottled, e.Outcome)
				got = e.Err
			}
		}))))
		resp, err := tr.RoundTrip(request(t, "POST", example, nil, "X-Amz-Target: DynamoDB_20120810.BatchWriteItem"))
		require.NoError(t, err)
		text(t, resp)
		require.EqualError(t, got, want)
		answer, ok := errors.AsType[*cruisehttp.ResponseError](got)
		require.True(t, ok)
		assert.Error(t, answer.NotRetried)
	}
}

func TestTransportReportsQuotas(t *testing.T) {
	base := inOrder(says(200, "", "X-RateLimit-Limit: 100", "X-RateLimit-Remaining: 7", "X-RateLimit-Reset: 60"))
	tr := transport(t, base)
	resp, err := tr.RoundTrip(request(t, "GET", example, nil))
	require.NoError(t, err)
	text(t, resp)
	assert.Equal(t, &cruise.Quota{Limit: 100, Remaining: 7, Reset: time.Minute}, limiterOf(t, tr, "api.example.com").Stats().Quota)
}

func TestTransportParksAUsedUpQuota(t *testing.T) {
	for name, c := range map[string]struct {
		headers []string
		reason  error
		until   time.Duration
	}{
		"a day":              {[]string{"Retry-After: 86400"}, cruise.ErrQuotaExhausted, 24 * time.Hour},
		"beyond the maximum": {[]string{"Retry-After: 600"}, cruise.ErrServerDelay, 10 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base := inOrder(says(429, "no more", c.headers...), says(200, ""))
				tr := transport(t, base)
				start := time.Now()
				_, err := tr.RoundTrip(request(t, "GET", example, nil))
				check := func(err error, left time.Duration) *cruisehttp.ResponseError {
					require.ErrorIs(t, err, c.reason)
					e, ok := errors.AsType[*cruise.Error](err)
					require.True(t, ok)
					assert.Equal(t, left, e.RetryAfter)
					answer, ok := errors.AsType[*cruisehttp.ResponseError](err)
					require.True(t, ok)
					assert.Equal(t, 429, answer.StatusCode)
					assert.Equal(t, start.Add(c.until).Unix(), answer.Until.Unix())
					return answer
				}
				assert.Equal(t, "no more", string(check(err, c.until).Body))
				time.Sleep(time.Minute)
				body := &once{Reader: strings.NewReader("x")}
				_, err = tr.RoundTrip(request(t, "POST", example, body))
				check(err, c.until-time.Minute)
				assert.EqualValues(t, 1, body.closed.Load())
				assert.Equal(t, time.Minute, time.Since(start), "nobody slept")
				assert.Equal(t, 1, base.count())
				assert.Zero(t, base.open.Load())
				time.Sleep(c.until - time.Minute)
				resp, err := tr.RoundTrip(request(t, "GET", example, nil))
				require.NoError(t, err)
				text(t, resp)
			})
		})
	}
	t.Run("with the response", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			base := inOrder(says(429, "no more", "Retry-After: 86400"), says(200, ""))
			tr := transport(t, base, cruisehttp.WithQuotaResponses())
			resp, err := tr.RoundTrip(request(t, "GET", example, nil))
			require.NoError(t, err)
			assert.Equal(t, "no more", text(t, resp))
			_, err = tr.RoundTrip(request(t, "GET", example, nil))
			require.ErrorIs(t, err, cruise.ErrQuotaExhausted)
			limiterOf(t, tr, "api.example.com").Resume()
			resp, err = tr.RoundTrip(request(t, "GET", example, nil))
			require.NoError(t, err, "resumed by hand")
			text(t, resp)
		})
	})
}

// The answer to a request under way may report a shorter limit: the longer one holds.
func TestTheLongerOfTwoQuotasIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const day, minutes = 10 * time.Hour, 10 * time.Minute
		tr := transport(t, roundTripper(func(r *http.Request) (*http.Response, error) {
			switch r.URL.Path {
			case "/day":
				time.Sleep(time.Second)
				return answer(429, "", "Retry-After: 36000"), nil
			case "/minutes":
				time.Sleep(5 * time.Second)
				return answer(429, "", "Retry-After: 600"), nil
			}
			return answer(200, ""), nil
		}))
		for range 10 { // so that two may be in flight
			send(t, tr, example)
		}
		start := time.Now()
		var wg sync.WaitGroup
		for _, path := range []string{"/day", "/minutes"} {
			wg.Go(func() {
				_, err := tr.RoundTrip(request(t, "GET", "http://api.example.com"+path, nil))
				assert.Error(t, err)
			})
		}
		wg.Wait()
		for _, after := range []time.Duration{0, minutes + time.Minute} {
			time.Sleep(after)
			_, err := tr.RoundTrip(request(t, "GET", example, nil))
			require.ErrorIs(t, err, cruise.ErrQuotaExhausted)
			e, ok := errors.AsType[*cruise.Error](err)
			require.True(t, ok)
			assert.Equal(t, day+time.Second-time.Since(start), e.RetryAfter)
			_, ok = errors.AsType[*cruisehttp.ResponseError](err)
			assert.True(t, ok, "what the server said")
		}
	})
}

// Also where a limiter cannot pause, and only in the scope that the server blames.
func TestTransportParksTheBlamedScope(t *testing.T) {
	unpaused := cruise.WithScopeLimiter(func(string, string) (cruise.Limiter, error) { return rate.NewLimiter(rate.Inf, 1), nil })
	for _, c := range []struct {
		name   string
		blame  string
		parked bool // the other account as well
	}{
		{"the account", "ACCOUNT", false},
		{"the developer", "DEVELOPER", true},
		{"nobody", "", false},
	} {
		for name, opts := range map[string][]cruise.Option{"adaptive": nil, "x/time": {unpaused}} {
			t.Run(c.name+", "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					base := inOrder(says(429, `{"rateScope":"`+c.blame+`"}`, "Retry-After: 7200"), says(200, ""))
					tr := transport(t, base, cruisehttp.WithProfile(signal.GoogleAds()), cruisehttp.WithRetrierOptions(opts...),
						cruisehttp.WithScope("DEVELOPER", cruisehttp.HostKey), cruisehttp.WithScope("ACCOUNT", cruisehttp.HeaderKey("Account")))
					fails := func(account string) bool {
						resp, err := tr.RoundTrip(request(t, "GET", example, nil, "Account: "+account))
						if err == nil {
							text(t, resp)
							return false
						}
						_, known := errors.AsType[*cruisehttp.ResponseError](err)
						return known && errors.Is(err, cruise.ErrQuotaExhausted)
					}
					assert.True(t, fails("1"))
					assert.True(t, fails("1"))
					assert.Equal(t, c.parked, fails("2"))
					time.Sleep(2 * time.Hour)
					assert.False(t, fails("1"))
					assert.False(t, fails("2"))
				})
			})
		}
	}
}

// A bucket is paused whole also where the answer that says so is the first to name the
// bucket of its route.
func TestTransportParksTheNamedBucket(t *testing.T) {
	for _, c := range []struct {
		name    string
		verdict cruise.Verdict // of a classifier
		wait    time.Duration
		reason  error // nil: the response
	}{
		{"a used-up quota", cruise.Verdict{}, 2 * time.Hour, cruise.ErrQuotaExhausted},
		{"beyond the maximum", cruise.Verdict{}, 10 * time.Minute, cruise.ErrServerDelay},
		{"a used-up quota that is none", cruise.Verdict{Outcome: cruise.OutcomePermanent}, 2 * time.Hour, nil},
	} {
		for name, opts := range map[string][]cruise.Option{
			"adaptive": nil,
			"x/time":   {cruise.WithScopeLimiter(func(string, string) (cruise.Limiter, error) { return rate.NewLimiter(rate.Inf, 1), nil })},
		} {
			t.Run(c.name+", "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					throttled := ""
					base := &server{start: time.Now(), answers: func(_ int, r *http.Request) (*http.Response, error) {
						bucket := strings.Split(r.URL.Path, "/")[1]
						if bucket == throttled {
							return answer(429, "", fmt.Sprint("Retry-After: ", int(c.wait.Seconds())), "X-Bucket: "+bucket), nil
						}
						return answer(200, "", "X-Bucket: "+bucket), nil
					}}
					tr := transport(t, base, cruisehttp.WithBuckets("X-Bucket", nil),
						cruisehttp.WithRetrierOptions(append(opts, cruise.WithClassifier(func(error) cruise.Verdict { return c.verdict }))...))
					send(t, tr, "http://api/a/known")
					send(t, tr, "http://api/b/known")
					throttled = "a"
					for i, route := range []string{"new", "known", "new"} {
						resp, err := tr.RoundTrip(request(t, "GET", "http://api/a/"+route, nil))
						if c.reason == nil {
							require.NoError(t, err)
							text(t, resp)
							assert.Equal(t, 3+i, base.count())
							continue
						}
						require.ErrorIs(t, err, c.reason)
						e, ok := errors.AsType[*cruise.Error](err)
						require.True(t, ok)
						assert.Equal(t, c.wait, e.RetryAfter)
						_, ok = errors.AsType[*cruisehttp.ResponseError](err)
						assert.True(t, ok, "what the server said")
						assert.Equal(t, 3, base.count(), "nothing was sent after the first")
					}
					send(t, tr, "http://api/b/known")
					throttled = ""
					time.Sleep(c.wait)
					send(t, tr, "http://api/a/known")
				})
			})
		}
	}
}

// A parked scope with any limiter opens when it is resumed by hand, and only then.
func TestResumeOpensAParkedScope(t *testing.T) {
	for name, limiter := range map[string]func(scope, key string) (cruise.Limiter, error){
		"AdaptiveLimiter": func(string, string) (cruise.Limiter, error) { return cruise.NewAdaptiveLimiter() },
		"TokenBucket":     func(string, string) (cruise.Limiter, error) { return cruise.NewTokenBucket(10, 10) },
		"SlidingWindow": func(string, string) (cruise.Limiter, error) {
			return cruise.NewSlidingWindow(cruise.Window{Calls: 10, Per: time.Second})
		},
		"delay.Limiter": func(string, string) (cruise.Limiter, error) { return delay.New(delay.Responsive()) },
		"shared.Limiter": func(string, string) (cruise.Limiter, error) {
			return shared.New(shared.NewMemoryStore())
		},
	} {
		for _, host := range []string{"api.example.com", strings.Repeat("long.", 20) + "example.com"} {
			t.Run(name+", "+host, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					base := inOrder(says(429, "no more", "Retry-After: 86400"), says(200, ""))
					tr := transport(t, base, cruisehttp.WithRetrierOptions(cruise.WithScopeLimiter(limiter)))
					url := "http://" + host
					for _, left := range []time.Duration{24 * time.Hour, 23 * time.Hour} {
						_, err := tr.RoundTrip(request(t, "GET", url, nil))
						require.ErrorIs(t, err, cruise.ErrQuotaExhausted)
						e, ok := errors.AsType[*cruise.Error](err)
						require.True(t, ok)
						assert.Equal(t, left, e.RetryAfter)
						_, ok = errors.AsType[*cruisehttp.ResponseError](err)
						assert.True(t, ok, "what the server said")
						time.Sleep(time.Hour)
					}
					assert.Equal(t, 1, base.count())
					paused, ok := tr.Retrier().Scope(cruisehttp.GlobalScope, host).Limiter().(interface{ Resume() })
					require.True(t, ok)
					paused.Resume()
					send(t, tr, url)
					assert.Equal(t, 2, base.count())
				})
			})
		}
	}
}

// The classifier's verdict on a response decides how the request ends, and whether later requests
// are sent.
func TestTheClassifierDecidesOnAUsedUpQuota(t *testing.T) {
	day := says(429, "no more", "Retry-After: 86400")
	for _, c := range []struct {
		name     string
		resp     func() (*http.Response, error)
		verdict  cruise.Verdict
		attempts int
		reason   error // nil: the response
		left     time.Duration
		parked   bool
	}{
		{"declines", day, cruise.Verdict{}, 1, cruise.ErrQuotaExhausted, 24 * time.Hour, true},
		{"a quota of two hours", day, cruise.Verdict{Outcome: cruise.OutcomeQuotaExhausted, RetryAfter: 2 * time.Hour}, 1, cruise.ErrQuotaExhausted, 2 * time.Hour, true},
		{"permanent", day, cruise.Verdict{Outcome: cruise.OutcomePermanent}, 1, nil, 0, false},
		{"a throttle", day, cruise.Verdict{Outcome: cruise.OutcomeThrottled, RetryAfter: time.Second}, 2, nil, 0, false},
		{"a throttle for long", day, cruise.Verdict{Outcome: cruise.OutcomeThrottled, RetryAfter: 10 * time.Minute}, 1, cruise.ErrServerDelay, 10 * time.Minute, true},
		{"transient", day, cruise.Verdict{Outcome: cruise.OutcomeTransient}, 2, nil, 0, false},
		{"success", day, cruise.Verdict{Outcome: cruise.OutcomeSuccess}, 1, nil, 0, false},
		{"dropped", day, cruise.Verdict{Outcome: cruise.OutcomeDropped}, 1, nil, 0, false},
		{"a quota by status 403", says(403, "no more"), cruise.Verdict{Outcome: cruise.OutcomeQuotaExhausted, RetryAfter: time.Hour}, 1, cruise.ErrQuotaExhausted, time.Hour, true},
		{"a quota of unknown end", says(403, "no more"), cruise.Verdict{Outcome: cruise.OutcomeQuotaExhausted}, 1, cruise.ErrQuotaExhausted, 0, false},
	} {
		for name, limiter := range map[string][]cruise.Option{
			"adaptive": nil,
			"x/time":   {cruise.WithScopeLimiter(func(string, string) (cruise.Limiter, error) { return rate.NewLimiter(rate.Inf, 1), nil })},
		} {
			t.Run(c.name+", "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					base := inOrder(c.resp)
					tr := transport(t, base, cruisehttp.WithRetrierOptions(append(limiter, cruise.WithMaxAttempts(2),
						cruise.WithClassifier(func(error) cruise.Verdict { return c.verdict }))...))
					for range 2 {
						before := base.count()
						resp, err := tr.RoundTrip(request(t, "GET", example, nil))
						if c.reason == nil {
							require.NoError(t, err)
							assert.Equal(t, "no more", text(t, resp))
						} else {
							require.ErrorIs(t, err, c.reason)
							e, ok := errors.AsType[*cruise.Error](err)
							require.True(t, ok)
							assert.Equal(t, c.left, e.RetryAfter)
							_, ok = errors.AsType[*cruisehttp.ResponseError](err)
							assert.True(t, ok, "what the server said")
						}
						if before == 0 || !c.parked {
							assert.Equal(t, before+c.attempts, base.count())
						} else {
							assert.Equal(t, before, base.count(), "nothing was sent")
						}
						assert.Zero(t, base.open.Load(), "response bodies left open")
					}
				})
			})
		}
	}
}

// A long wait of a transient failure concerns one resource, with any kind of limiter.
func TestWaitsOfTransientFailuresParkNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := inOrder(says(423, "", "Retry-After: 900"), says(200, ""))
		tr := transport(t, base, cruisehttp.WithRetrierOptions(cruise.WithScopeLimiter(func(string, string) (cruise.Limiter, error) {
			return rate.NewLimiter(10, 1), nil
		})))
		_, err := tr.RoundTrip(request(t, "GET", example+"/locked", nil))
		require.ErrorIs(t, err, cruise.ErrServerDelay)
		send(t, tr, example+"/free")
	})
}

// A request that was cancelled because another host asks for a long wait proves nothing about its own
// host.
func TestWaitsAsCausesParkNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := inOrder(says(429, "", "Retry-After: 30"), says(200, ""))
		tr := transport(t, base)
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(&cruise.Error{Reason: cruise.ErrServerDelay, RetryAfter: time.Hour}) })
		_, err := tr.RoundTrip(request(t, "GET", example, nil).WithContext(ctx))
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, cruise.ErrServerDelay)
		send(t, tr, example)
		assert.Equal(t, 30*time.Second, time.Since(base.start).Truncate(time.Second))
	})
}

// A request that fails at once in a parked scope is reported like every other call given up.
func TestObserversHearOfParkedCalls(t *testing.T) {
	var gaveUp []error
	base := inOrder(says(429, "", "Retry-After: 86400"))
	tr := transport(t, base, cruisehttp.WithRetrierOptions(cruise.WithObserver(cruise.ObserverFunc(func(ctx context.Context, e cruise.Event) {
		if e, ok := e.(cruise.GaveUp); ok {
			assert.Equal(t, []cruise.ScopeKey{{Scope: cruisehttp.GlobalScope, Key: "api.example"}}, cruise.ScopeOf(ctx))
			gaveUp = append(gaveUp, e.Err)
		}
	}))))
	for range 3 {
		_, err := tr.RoundTrip(request(t, "GET", "https://api.example/", nil))
		require.Error(t, err)
	}
	assert.Len(t, gaveUp, 3)
}
