package cruisehttp_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/cruisehttp"
)

// A request that a server accepts once is not sent again unchanged: the second answer would hide
// the first.
func TestRequestsWithANonceAreSentOnce(t *testing.T) {
	for name, c := range map[string]struct {
		headers []string
		sends   int
	}{
		"ACME":                  {[]string{"Content-Type: application/jose+json"}, 1},
		"DPoP":                  {[]string{"DPoP: eyJ0"}, 1},
		"Digest":                {[]string{`Authorization: Digest username="u", nonce="n", nc=00000001`}, 1},
		"OAuth 1.0":             {[]string{`Authorization: OAuth oauth_nonce="n", oauth_signature="s"`}, 1},
		"Hawk":                  {[]string{`Authorization: Hawk id="i", nonce="n"`}, 1},
		"a header named so":     {[]string{"X-Auth-Nonce: 1"}, 1},
		"Kraken":                {[]string{"API-Sign: s"}, 1},
		"a bearer token":        {[]string{"Authorization: Bearer OAuth oauth_nonce"}, 2},
		"OAuth without a nonce": {[]string{"Authorization: OAuth token"}, 2},
		"JSON":                  {[]string{"Content-Type: application/json"}, 2},
	} {
		for _, method := range []string{"GET", "POST"} {
			t.Run(name+", "+method, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					base := inOrder(says(429, "slow down", "Retry-After: 20"), says(200, ""))
					tr := transport(t, base, cruisehttp.WithAnyMethod())
					resp, err := tr.RoundTrip(request(t, method, example, nil, c.headers...))
					require.NoError(t, err)
					assert.Equal(t, c.sends, base.count())
					if c.sends == 1 {
						assert.Equal(t, 429, resp.StatusCode)
						assert.Equal(t, "slow down", text(t, resp))
						assert.Equal(t, 20*time.Second, limiterOf(t, tr, "api.example.com").Stats().PauseLeft, "all others wait")
						return
					}
					text(t, resp)
				})
			})
		}
	}
}

func TestANonceThatWasNeverSentIsSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := inOrder(fails(&net.OpError{Op: "dial", Err: errors.New("refused")}), says(200, ""))
		resp, err := transport(t, base).RoundTrip(request(t, "POST", example, nil, "DPoP: x"))
		require.NoError(t, err)
		text(t, resp)
		assert.Equal(t, 2, base.count())
	})
	synctest.Test(t, func(t *testing.T) {
		base := inOrder(fails(errors.New("connection reset")), says(200, ""))
		_, err := transport(t, base).RoundTrip(request(t, "GET", example, nil, "DPoP: x"))
		require.ErrorIs(t, err, cruisehttp.ErrNonce)
		assert.Equal(t, 1, base.count())
	})
	synctest.Test(t, func(t *testing.T) {
		base := inOrder(says(429, ""), says(200, ""))
		req := request(t, "POST", example, nil, "DPoP: x")
		resp, err := transport(t, base).RoundTrip(req.WithContext(cruisehttp.AllowRetry(req.Context())))
		require.NoError(t, err)
		text(t, resp)
		assert.Equal(t, 2, base.count(), "the caller knows better")
	})
}

// ACME's answer brings the next nonce, so the client gets it as it is.
func TestACME(t *testing.T) {
	const problem = `{"type":"urn:ietf:params:acme:error:rateLimited","status":429}`
	for wait, pause := range map[string]time.Duration{"30": 30 * time.Second, "86400": 0} {
		synctest.Test(t, func(t *testing.T) {
			base := inOrder(says(429, problem, "Replay-Nonce: next", "Retry-After: "+wait), says(400, "badNonce"))
			tr := transport(t, base)
			resp, err := tr.RoundTrip(request(t, "POST", example, strings.NewReader("{}"), "Content-Type: application/jose+json"))
			require.NoError(t, err)
			assert.Equal(t, 429, resp.StatusCode)
			assert.Equal(t, wait, resp.Header.Get("Retry-After"))
			assert.Equal(t, problem, text(t, resp))
			assert.Equal(t, 1, base.count())
			assert.Equal(t, pause, limiterOf(t, tr, "api.example.com").Stats().PauseLeft)
		})
	}
}

// A disruption budget concerns one pod: only its eviction waits.
func TestA429OfOneCallStopsNoOtherCall(t *testing.T) {
	const status = `{"kind":"Status","reason":"TooManyRequests","details":{"causes":[{"reason":"DisruptionBudget"}]},"code":429}`
	synctest.Test(t, func(t *testing.T) {
		evictions := 0
		base := &server{start: time.Now(), answers: func(_ int, r *http.Request) (*http.Response, error) {
			if strings.HasSuffix(r.URL.Path, "/eviction") {
				if evictions++; evictions < 3 {
					return answer(429, status, "Retry-After: 10"), nil
				}
			}
			return answer(200, ""), nil
		}}
		tr := transport(t, base)
		evicted := make(chan time.Duration, 1)
		go func() {
			resp, err := tr.RoundTrip(request(t, "POST", example+"/eviction", strings.NewReader("{}")))
			if assert.NoError(t, err) {
				assert.Equal(t, 200, resp.StatusCode)
				text(t, resp)
			}
			evicted <- time.Since(base.start)
		}()
		synctest.Wait()
		for range 5 {
			send(t, tr, example)
		}
		assert.Less(t, time.Since(base.start), 5*time.Second)
		stats := limiterOf(t, tr, "api.example.com").Stats()
		assert.Zero(t, stats.Throttles)
		assert.Zero(t, stats.PauseLeft)
		assert.GreaterOrEqual(t, <-evicted, 20*time.Second)
	})
}

// The status of a health check describes another server.
func TestHealthIsAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := inOrder(says(429, `{"standby":true}`))
		tr := transport(t, base)
		resp, err := tr.RoundTrip(request(t, "GET", "http://api.example.com/v1/sys/health", nil))
		require.NoError(t, err)
		assert.Equal(t, `{"standby":true}`, text(t, resp))
		assert.Equal(t, 1, base.count())
		assert.Zero(t, limiterOf(t, tr, "api.example.com").Stats().Throttles)
	})
}

// A page that says so in words is a throttle of this provider, which wants ten minutes.
func TestAThrottleWithAPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := inOrder(says(403, "<!DOCTYPE html><title>Request Rate Threshold Exceeded</title>", "Content-Type: text/html"), says(200, ""))
		tr := transport(t, base, cruisehttp.WithRetrierOptions(cruise.WithMaxServerDelay(15*time.Minute)))
		resp, err := tr.RoundTrip(request(t, "GET", "https://www.sec.gov/Archives/x.txt", nil))
		require.NoError(t, err)
		assert.Equal(t, 200, resp.StatusCode)
		text(t, resp)
		assert.GreaterOrEqual(t, time.Since(base.start), 10*time.Minute)
	})
}

// Even a huge number in a header does not stop requests for days.
func TestNoNumberParksAHostForDays(t *testing.T) {
	for header, within := range map[string]time.Duration{
		"X-Rate-Limit-Reset: 600000":                 3 * time.Hour, // milliseconds, perhaps
		"Retry-After: 9999999999":                    24 * time.Hour,
		"Retry-After: Sun, 01 Jan 2300 00:00:00 GMT": 24 * time.Hour,
		"X-RateLimit-Reset: 99999999999999999999":    24 * time.Hour,
	} {
		synctest.Test(t, func(t *testing.T) {
			base := inOrder(says(429, "", header), says(200, ""))
			tr := transport(t, base)
			_, err := tr.RoundTrip(request(t, "GET", example, nil))
			require.ErrorIs(t, err, cruise.ErrQuotaExhausted, header)
			time.Sleep(within - time.Second)
			_, err = tr.RoundTrip(request(t, "GET", example, nil))
			require.ErrorIs(t, err, cruise.ErrQuotaExhausted, header)
			assert.Equal(t, 1, base.count(), header)
			time.Sleep(2 * time.Second)
			resp, err := tr.RoundTrip(request(t, "GET", example, nil))
			require.NoError(t, err, header)
			text(t, resp)
			assert.Equal(t, 2, base.count(), header)
		})
	}
}

func TestRequestsThatMayBeSentAgain(t *testing.T) {
	anyMethod, header := cruisehttp.WithAnyMethod(), cruisehttp.WithIdempotencyHeader("x-request-uuid")
	statuses := cruisehttp.WithRetryStatuses(404, 409)
	for name, c := range map[string]struct {
		method, header string
		opts           []cruisehttp.Option
		first          func() (*http.Response, error)
		sends          int
		waits          time.Duration
	}{
		"a POST":                       {method: "POST", first: says(503, ""), sends: 1},
		"any method":                   {method: "POST", first: says(503, ""), opts: []cruisehttp.Option{anyMethod}, sends: 2},
		"any method, reset":            {method: "PATCH", first: fails(errors.New("reset")), opts: []cruisehttp.Option{anyMethod}, sends: 2},
		"any method, permanent":        {method: "POST", first: says(400, ""), opts: []cruisehttp.Option{anyMethod}, sends: 1},
		"a header":                     {method: "POST", header: "X-Request-Uuid: 1", first: says(503, ""), opts: []cruisehttp.Option{header}, sends: 2},
		"a header, missing":            {method: "POST", first: says(503, ""), opts: []cruisehttp.Option{header}, sends: 1},
		"a header, empty":              {method: "POST", header: "X-Request-Uuid: ", first: says(503, ""), opts: []cruisehttp.Option{header}, sends: 1},
		"a header beside the usual":    {method: "POST", header: "Idempotency-Key: 1", first: says(503, ""), opts: []cruisehttp.Option{header}, sends: 2},
		"a status":                     {method: "GET", first: says(404, ""), opts: []cruisehttp.Option{statuses}, sends: 2},
		"a status with a wait":         {method: "GET", first: says(404, "", "Retry-After: 7"), opts: []cruisehttp.Option{statuses}, sends: 2, waits: 7 * time.Second},
		"another status":               {method: "GET", first: says(410, ""), opts: []cruisehttp.Option{statuses}, sends: 1},
		"a status of a POST":           {method: "POST", first: says(404, ""), opts: []cruisehttp.Option{statuses}, sends: 1},
		"a status that the server has": {method: "GET", first: says(404, "", "X-Should-Retry: false"), opts: []cruisehttp.Option{statuses}, sends: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base := inOrder(c.first, says(200, ""))
				tr := transport(t, base, c.opts...)
				var headers []string
				if c.header != "" {
					headers = append(headers, c.header)
				}
				resp, err := tr.RoundTrip(request(t, c.method, example, nil, headers...))
				require.NoError(t, err)
				text(t, resp)
				assert.Equal(t, c.sends, base.count())
				assert.GreaterOrEqual(t, time.Since(base.start), c.waits)
				assert.Zero(t, limiterOf(t, tr, "api.example.com").Stats().PauseLeft)
			})
		})
	}
}

// signed is a signer as a base: each attempt has a date and a nonce of its own.
type signed struct {
	http.RoundTripper
	n *int
}

func (s signed) RoundTrip(req *http.Request) (*http.Response, error) {
	*s.n++
	req = req.Clone(req.Context())
	req.Header.Set("X-Signed-At", time.Now().Format(time.RFC3339))
	req.Header.Set("X-Nonce", fmt.Sprint(*s.n))
	return s.RoundTripper.RoundTrip(req)
}

// bearer is a source of tokens as a base, as oauth2.Transport is one: a token lasts a minute.
type bearer struct {
	http.RoundTripper
	expires time.Time
}

func (b *bearer) RoundTrip(req *http.Request) (*http.Response, error) {
	if time.Now().After(b.expires) {
		b.expires = time.Now().Add(time.Minute)
	}
	req = req.Clone(req.Context())
	req.Header.Set("Authorization", "Bearer "+b.expires.Format(time.RFC3339))
	return b.RoundTripper.RoundTrip(req)
}

// strict is a server that throttles the first request for two minutes, and then refuses
// signatures older than a minute, tokens that have expired, and a nonce that it knows.
func strict() *server {
	seen := map[string]bool{}
	return &server{start: time.Now(), answers: func(n int, r *http.Request) (*http.Response, error) {
		at, _ := time.Parse(time.RFC3339, r.Header.Get("X-Signed-At"))
		token, _ := time.Parse(time.RFC3339, strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
		nonce := r.Header.Get("X-Nonce")
		switch {
		case !at.IsZero() && time.Since(at) > time.Minute, !token.IsZero() && time.Now().After(token), nonce != "" && seen[nonce]:
			return answer(401, ""), nil
		}
		seen[nonce] = true
		if n == 1 {
			return answer(429, "", "Retry-After: 120"), nil
		}
		return answer(200, ""), nil
	}}
}

// Signatures and tokens must be fresh when the request is sent, so signers and token sources go
// beneath the Transport. Above it, signatures and tokens grow old while the request waits.
func TestSignersAndTokensGoBeneath(t *testing.T) {
	for name, beneath := range map[string]func(http.RoundTripper) http.RoundTripper{
		"signer": func(base http.RoundTripper) http.RoundTripper { return signed{base, new(int)} },
		"tokens": func(base http.RoundTripper) http.RoundTripper { return &bearer{RoundTripper: base} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base := strict()
				resp, err := transport(t, beneath(base)).RoundTrip(request(t, "GET", example, nil))
				require.NoError(t, err)
				text(t, resp)
				assert.Equal(t, 200, resp.StatusCode)
				assert.Equal(t, 2, base.count())
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		above := &bearer{RoundTripper: transport(t, strict())}
		resp, err := above.RoundTrip(request(t, "GET", example, nil))
		require.NoError(t, err)
		text(t, resp)
		assert.Equal(t, 401, resp.StatusCode, "the token was one of two minutes ago")
	})
}

type traced struct {
	http.RoundTripper
	spans *[]time.Duration
}

func (s traced) RoundTrip(req *http.Request) (*http.Response, error) {
	began := time.Now()
	resp, err := s.RoundTripper.RoundTrip(req.WithContext(context.WithValue(req.Context(), traced{}, true)))
	*s.spans = append(*s.spans, time.Since(began))
	return resp, err
}

// Tracing above sees one request with its waits, and beneath each attempt.
func TestTracingGoesAboveAndBeneath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls, attempts []time.Duration
		base := inOrder(says(429, "", "Retry-After: 20"), says(200, ""))
		tr := traced{transport(t, traced{base, &attempts}), &calls}
		resp, err := tr.RoundTrip(request(t, "GET", example, nil))
		require.NoError(t, err)
		text(t, resp)
		require.Len(t, calls, 1)
		assert.GreaterOrEqual(t, calls[0], 20*time.Second)
		assert.Len(t, attempts, 2)
		for _, took := range attempts {
			assert.Zero(t, took)
		}
	})
}

func TestWithoutRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := inOrder(says(429, "no", "Retry-After: 1", "Retry-After-Ms: 900", "X-Other: 1"))
		var seen *cruisehttp.ResponseError
		tr := transport(t, base, cruisehttp.WithoutRetryAfter(), cruisehttp.WithRetrierOptions(cruise.WithObserver(cruise.ObserverFunc(func(_ context.Context, e cruise.Event) {
			if e, ok := e.(cruise.AttemptEnded); ok {
				seen, _ = errors.AsType[*cruisehttp.ResponseError](e.Err)
			}
		}))))
		resp, err := tr.RoundTrip(request(t, "GET", example, nil))
		require.NoError(t, err)
		assert.Equal(t, "no", text(t, resp))
		assert.Equal(t, http.Header{"X-Other": {"1"}}, resp.Header)
		assert.Equal(t, 5, base.count())
		assert.Equal(t, "1", seen.Header.Get("Retry-After"))
	})
}
