package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/a7df5faa/cruise"
)

func TestServersBucket(t *testing.T) {
	start := time.Unix(0, 0)
	a := newAPI(serverConfig{rate: 2, bucket: 3})
	for i, step := range []struct {
		at   time.Duration
		left int
		ok   bool
	}{
		{0, 2, true},
		{0, 1, true},
		{0, 0, true},
		{0, 0, false},
		{499 * time.Millisecond, 0, false}, // a refusal takes nothing
		{500 * time.Millisecond, 0, true},
		{time.Hour, 2, true}, // no more than the bucket holds
	} {
		left, ok := a.take(start.Add(step.at))
		assert.Equal(t, step.left, left, "step %d", i)
		assert.Equal(t, step.ok, ok, "step %d", i)
	}
}

func TestServerAnswersLikeHeroku(t *testing.T) {
	server, err := startServer(serverConfig{rate: .01, bucket: 1})
	require.NoError(t, err)
	defer server.Close()
	for _, want := range []struct {
		status    int
		remaining string
	}{{200, "0"}, {429, "0"}} {
		resp, err := http.Get(server.url)
		require.NoError(t, err)
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		assert.Equal(t, want.status, resp.StatusCode)
		assert.Equal(t, want.remaining, resp.Header.Get("RateLimit-Remaining"))
		assert.Empty(t, resp.Header.Get("Retry-After"))
		assert.Contains(t, string(body), `"id":`)
	}
}

func TestGet(t *testing.T) {
	for _, c := range []struct {
		status     int
		retryAfter string
		want       cruise.Verdict
	}{
		{200, "", cruise.Verdict{Outcome: cruise.OutcomeSuccess}},
		{429, "", cruise.Verdict{Outcome: cruise.OutcomeThrottled}},
		{429, "3", cruise.Verdict{Outcome: cruise.OutcomeThrottled, RetryAfter: 3 * time.Second}},
		{503, "", cruise.Verdict{Outcome: cruise.OutcomeTransient}},
		{503, "1", cruise.Verdict{Outcome: cruise.OutcomeThrottled, RetryAfter: time.Second}},
		{404, "", cruise.Verdict{Outcome: cruise.OutcomePermanent}},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if c.retryAfter != "" {
				w.Header().Set("Retry-After", c.retryAfter)
			}
			w.WriteHeader(c.status)
		}))
		err := (&app{client: server.Client(), url: server.URL}).get(t.Context())
		server.Close()
		assert.Equal(t, c.want, cruise.Classify(err), "status %d", c.status)
	}
}

func tiny(t *testing.T, args ...string) config {
	c, err := parse(append([]string{"-requests=40", "-workers=4", "-rate=200", "-bucket=5", "-latency=1ms"}, args...), io.Discard)
	require.NoError(t, err)
	return c
}

func TestRun(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{}, {"-hints"}, {"-compare=false"}} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			c := tiny(t, args...)
			require.NoError(t, run(t.Context(), c, &out, false))
			assert.Regexp(t, `(?m)^cruise +40 of 40 `, out.String())
			if c.compare {
				assert.Regexp(t, `(?m)^plain backoff +40 of 40 .* none$`, out.String())
			} else {
				assert.NotContains(t, out.String(), "plain")
			}
		})
	}
}

func TestDebugServesAPageToWatch(t *testing.T) {
	t.Parallel()
	c := tiny(t, "-debug=:0", "-requests=1000")
	assert.Equal(t, "127.0.0.1:0", c.debug, "not to the world")
	reader, writer := io.Pipe()
	done := make(chan error, 1)
	go func() {
		done <- run(t.Context(), c, writer, false)
		writer.Close()
	}()
	lines := bufio.NewScanner(reader)
	require.True(t, lines.Scan())
	url, found := strings.CutPrefix(lines.Text(), "watch it at ")
	require.True(t, found, lines.Text())
	go func() {
		for lines.Scan() {
		}
	}()
	resp, err := http.Get(url + "?format=json")
	require.NoError(t, err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Contains(t, string(body), `"name": "plain backoff"`)
	require.NoError(t, <-done)
	_, err = http.Get(url)
	assert.Error(t, err, "ends with the program")
}

func TestRunOnATerminal(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	require.NoError(t, run(t.Context(), tiny(t), &out, true))
	assert.Contains(t, out.String(), "\r[####################] 40/40")
	for line := range strings.SplitSeq(out.String(), "\r") {
		if bar, _, _ := strings.Cut(line, "\n"); strings.HasPrefix(bar, "[") {
			assert.Less(t, len(bar), 80)
		}
	}
}

func TestRunEndsWithTheTableWhenInterrupted(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
	}))
	defer server.Close()
	c, err := parse([]string{"-url", server.URL}, io.Discard)
	require.NoError(t, err)
	var out strings.Builder
	require.NoError(t, run(ctx, c, &out, false))
	assert.Contains(t, out.String(), "0 of 300")
}

func TestRunStopsAtAFailure(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	c, err := parse([]string{"-url", server.URL}, io.Discard)
	require.NoError(t, err)
	var out strings.Builder
	require.ErrorContains(t, run(t.Context(), c, &out, false), "404 Not Found")
	assert.Contains(t, out.String(), "0 of 300")
}

func TestFlags(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"-requests 0", "-requests 0: want 1 to 1000000"},
		{"-workers 1001", "-workers 1001: want 1 to 1000"},
		{"-rate NaN", "-rate NaN: want 0.01 to 10000 requests per second"},
		{"-rate 0", "-rate 0: want 0.01 to 10000 requests per second"},
		{"-bucket 0", "-bucket 0: want 1 to 1000000"},
		{"-latency -1s", "-latency -1s: want 0 to 10s"},
		{"-url ftp://x", `-url "ftp://x": want http://… or https://…`},
		{"-url http://", `-url "http://": want http://… or https://…`},
		{"-url http://x -rate 5", "-rate is about the server on this machine: it does not go with -url"},
		{"-url http://x -compare", "-compare is about the server on this machine: it does not go with -url"},
		{"-debug 6060", `-debug "6060": want a port, such as :6060, or host:port`},
		{"more", `unexpected argument "more": all options are flags, see -h`},
		{"-nonsense", "flag provided but not defined: -nonsense"},
		{"-rate fast", `invalid value "fast" for flag -rate: parse error`},
	} {
		_, err := parse(strings.Fields(c.args), io.Discard)
		assert.EqualError(t, err, c.want, c.args)
	}
	var usage strings.Builder
	_, err := parse([]string{"-h"}, &usage)
	require.Error(t, err)
	assert.Contains(t, usage.String(), "-workers workers")
}
