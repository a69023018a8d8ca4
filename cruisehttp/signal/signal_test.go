package signal_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/cruisehttp/internal/conformance"
	"github.com/a7df5faa/cruise/cruisehttp/signal"
	"github.com/a7df5faa/cruise/internal/calm"
)

func TestParseRetryAfterIgnoresEverythingElse(t *testing.T) {
	wait, ok := signal.ParseRetryAfter(http.Header{"Retry-After-Ms": {"5"}, "X-Ratelimit-Reset": {"5"}}, now)
	assert.False(t, ok)
	assert.Zero(t, wait)
}

func TestParseRetryAfterTwoDigitYears(t *testing.T) {
	for _, c := range []struct {
		value string
		want  time.Duration
	}{
		{"Saturday, 20-Nov-27 12:00:00 GMT", 8760 * time.Hour},
		{"Friday, 20-Nov-26 12:00:10 GMT", 10 * time.Second},
		{"Sunday, 20-Nov-77 12:00:00 GMT", 0},                 // more than 50 years ahead: the past
		{"Wednesday, 20-Nov-69 12:00:00 GMT", signal.MaxWait}, // the standard library would say 1969
	} {
		t.Run(c.value, func(t *testing.T) {
			wait, ok := signal.ParseRetryAfter(http.Header{"Retry-After": {c.value}}, now)
			assert.True(t, ok)
			assert.Equal(t, c.want, wait)
		})
	}
}

func TestWaitIsNeverShorterThanTheBackoff(t *testing.T) {
	for _, c := range []struct {
		name          string
		signal        signal.Signal
		backoff, want time.Duration
	}{
		{"nothing asked", signal.Signal{}, time.Second, time.Second},
		{"zero asked", signal.Signal{Asked: true}, time.Second, time.Second},
		{"less asked", signal.Signal{Asked: true, RetryAfter: time.Millisecond}, time.Second, time.Second},
		{"more asked", signal.Signal{Asked: true, RetryAfter: time.Minute}, time.Second, time.Minute},
		{"floor", signal.Signal{Floor: time.Minute}, time.Second, time.Minute},
		{"floor where zero was asked", signal.Signal{Asked: true, Floor: time.Minute}, time.Second, time.Minute},
		{"floor gives way to what was asked", signal.Signal{RetryAfter: 2 * time.Second, Floor: time.Minute}, time.Second, 2 * time.Second},
		{"bounded above the backoff", signal.Signal{RetryAfter: 10 * time.Second, Over: 5 * time.Second}, 50 * time.Millisecond, 5050 * time.Millisecond},
		{"within the bound", signal.Signal{RetryAfter: 1500 * time.Millisecond, Over: 5 * time.Second}, 50 * time.Millisecond, 1500 * time.Millisecond},
		{"below the backoff, bounded", signal.Signal{RetryAfter: 10 * time.Millisecond, Over: 5 * time.Second}, 50 * time.Millisecond, 50 * time.Millisecond},
		{"a year, bounded", signal.Signal{RetryAfter: signal.MaxWait, Over: 5 * time.Second}, time.Second, 6 * time.Second},
		{"no overflow", signal.Signal{RetryAfter: time.Second, Over: 5 * time.Second}, 1<<63 - 1, 1<<63 - 1},
		{"negative backoff", signal.Signal{}, -1, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			assert.Equal(t, c.want, c.signal.Wait(c.backoff))
		})
	}
}

func TestQuotaNeverPacesAboveTheLimit(t *testing.T) {
	for _, c := range []struct {
		name  string
		limit signal.Limit
		want  cruise.Quota
	}{
		{"window ends", signal.Limit{Max: 100, Remaining: 50, Reset: 30 * time.Second, Window: time.Minute}, cruise.Quota{Limit: 100, Remaining: 50, Reset: 30 * time.Second}},
		{"r/t is no rate", signal.Limit{Max: 10000, Remaining: 10000, Reset: 10 * time.Second, Window: 1000 * time.Second}, cruise.Quota{Limit: 10000, Remaining: 10000, Reset: 1000 * time.Second}},
		{"little left", signal.Limit{Max: 100, Remaining: 1, Reset: 30 * time.Second, Window: time.Minute}, cruise.Quota{Limit: 100, Remaining: 1, Reset: 30 * time.Second}},
		{"no reset", signal.Limit{Max: 100, Remaining: 20, Reset: -1, Window: 6 * time.Hour}, cruise.Quota{Limit: 100, Remaining: 20, Reset: 72 * time.Minute}},
		{"no window", signal.Limit{Remaining: 2400, Reset: -1}, cruise.Quota{Remaining: 2400}},
		{"used up", signal.Limit{Max: 40, Remaining: 0, Reset: 500 * time.Millisecond, Window: 20 * time.Second}, cruise.Quota{Limit: 40, Reset: 500 * time.Millisecond}},
		{"rounded up", signal.Limit{Max: 3, Remaining: 1, Reset: -1, Window: time.Second}, cruise.Quota{Limit: 3, Remaining: 1, Reset: 333333334}},
		{"huge", signal.Limit{Max: 1, Remaining: math.MaxInt, Reset: -1, Window: time.Hour}, cruise.Quota{Limit: 1, Remaining: math.MaxInt, Reset: signal.MaxWait}},
	} {
		t.Run(c.name, func(t *testing.T) {
			assert.Equal(t, c.want, c.limit.Quota())
		})
	}
}

func TestSuccessReportsTheLimitThatStopsFirst(t *testing.T) {
	for _, c := range []struct {
		name, input string
		want        *cruise.Quota
	}{
		{"none", "200", nil},
		{"one", "200 ~ X-RateLimit-Limit: 60 ~ X-RateLimit-Remaining: 30 ~ X-RateLimit-Reset: 60", &cruise.Quota{Limit: 60, Remaining: 30, Reset: time.Minute}},
		{"the slower of two", `200 ~ RateLimit: "second";r=9;t=1, "day";r=10;t=3600`, &cruise.Quota{Remaining: 10, Reset: time.Hour}},
		{"used up before all", `200 ~ RateLimit: "a";r=0;t=1, "b";r=1;t=3600`, &cruise.Quota{Reset: time.Second}},
		{"the later of two used up", `200 ~ RateLimit: "a";r=0;t=1, "b";r=0;t=3`, &cruise.Quota{Reset: 3 * time.Second}},
		{"tokens are no calls", "200 ~ X-RateLimit-Remaining-Tokens: 5 ~ X-RateLimit-Reset-Tokens: 1m", nil},
		{"no tokens, no calls", "200 ~ X-RateLimit-Remaining-Tokens: 0 ~ X-RateLimit-Reset-Tokens: 1m", &cruise.Quota{Reset: time.Minute}},
		{"concurrency is no quota", `200 ~ RateLimit: "c";r=0;t=60 ~ RateLimit-Policy: "c";q=10;qu="concurrent-requests"`, nil},
		{"also on errors", "404 ~ X-RateLimit-Remaining: 3 ~ X-RateLimit-Reset: 60", &cruise.Quota{Remaining: 3, Reset: time.Minute}},
	} {
		t.Run(c.name, func(t *testing.T) {
			resp, body := conformance.Response(t, c.input)
			assert.Equal(t, c.want, signal.Generic().Read(resp, body, now).Quota)
		})
	}
}

func TestGoogleDaysBeginAtMidnightInLosAngeles(t *testing.T) {
	for _, c := range []struct{ name, now, day, month string }{
		{"winter", "2026-11-20T12:00:00Z", "2026-11-21T08:00:00Z", "2026-12-01T08:00:00Z"},
		{"summer", "2026-07-01T12:00:00Z", "2026-07-02T07:00:00Z", "2026-08-01T07:00:00Z"},
		{"at midnight", "2026-11-21T08:00:00Z", "2026-11-22T08:00:00Z", "2026-12-01T08:00:00Z"},
		{"just before", "2026-11-21T07:59:59Z", "2026-11-21T08:00:00Z", "2026-12-01T08:00:00Z"},
		{"into winter", "2026-11-01T07:00:00Z", "2026-11-02T08:00:00Z", "2026-12-01T08:00:00Z"},
		{"new year", "2026-12-31T20:00:00Z", "2027-01-01T08:00:00Z", "2027-01-01T08:00:00Z"},
	} {
		t.Run(c.name, func(t *testing.T) {
			at := func(s string) time.Time {
				parsed, err := time.Parse(time.RFC3339, s)
				require.NoError(t, err)
				return parsed
			}
			assert.Equal(t, at(c.day), signal.NextPacificDay(at(c.now)).UTC())
			assert.Equal(t, at(c.month), signal.NextPacificMonth(at(c.now)).UTC())
		})
	}
}

func TestReadLooksAtNoMoreThanMaxBody(t *testing.T) {
	resp, _ := conformance.Response(t, "403 ~ url https://bigquery.googleapis.com/")
	reason := `"error":{"errors":[{"reason":"rateLimitExceeded"}]}`
	padding := strings.Repeat("x", signal.MaxBody)

	early := signal.Generic().Read(resp, []byte(`{`+reason+`,"padding":"`+padding+`"}`), now)
	assert.Equal(t, cruise.OutcomeThrottled, early.Outcome, "the body is cut in the middle of a value")
	late := signal.Generic().Read(resp, []byte(`{"padding":"`+padding+`",`+reason+`}`), now)
	assert.Equal(t, cruise.OutcomePermanent, late.Outcome)
}

func TestReadUnderstandsGzip(t *testing.T) {
	var body bytes.Buffer
	zip := gzip.NewWriter(&body)
	_, err := io.WriteString(zip, `{"error":{"errors":[{"reason":"rateLimitExceeded"}]},"x":"`+strings.Repeat("y", 1000)+`"}`)
	require.NoError(t, err)
	require.NoError(t, zip.Close())
	resp, _ := conformance.Response(t, "403 ~ url https://bigquery.googleapis.com/ ~ Content-Encoding: gzip")
	for name, body := range map[string][]byte{"whole": body.Bytes(), "cut": body.Bytes()[:body.Len()-12]} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, cruise.OutcomeThrottled, signal.Generic().Read(resp, body, now).Outcome)
		})
	}
	for name, coding := range map[string]string{"an alias of RFC 9110": "x-gzip", "in capitals": "GZIP"} {
		resp.Header.Set("Content-Encoding", coding)
		assert.Equal(t, cruise.OutcomeThrottled, signal.Generic().Read(resp, body.Bytes(), now).Outcome, name)
	}
	resp.Header.Set("Content-Encoding", "gzip")
	plain := []byte(`{"error":{"errors":[{"reason":"rateLimitExceeded"}]}}`)
	resp.Uncompressed = true
	assert.Equal(t, cruise.OutcomeThrottled, signal.Generic().Read(resp, plain, now).Outcome, "unpacked, and its header left")
	resp.Uncompressed = false
	assert.Equal(t, cruise.OutcomePermanent, signal.Generic().Read(resp, []byte("not gzip"), now).Outcome)
}

func TestFields(t *testing.T) {
	type fields = []signal.BodyField
	for _, c := range []struct {
		name, body string
		want       fields
	}{
		{"empty", "  ", nil},
		{"json", `{"A":{"b":[1,"x",true,null,{"c":2.50}]},"d":""}`, fields{{"a.b", "1"}, {"a.b", "x"}, {"a.b", "true"}, {"a.b.c", "2.50"}, {"d", ""}}},
		{"json array", `[{"a":1}]`, fields{{"a", "1"}}},
		{"json string", `"slow down"`, fields{{"", "slow down"}}},
		{"json with a byte order mark", "\ufeff{\"a\":1}", fields{{"a", "1"}}},
		{"json cut off", `{"a":1,"b":"unfin`, fields{{"a", "1"}}},
		{"json then garbage", `{"a":1} trailing`, fields{{"a", "1"}}},
		{"xml", `<?xml version="1.0" encoding="iso-8859-1"?><Error xmlns="urn:x"><Code>SlowDown</Code><d:M xmlns:d="y"> a &lt; b </d:M></Error>`, fields{{"error.code", "SlowDown"}, {"error.m", "a < b"}}},
		{"xml cut off", `<Error><Code>SlowDown</Code><Mess`, fields{{"error.code", "SlowDown"}}},
		{"html", "<!DOCTYPE html><html><body>x</body></html>", fields{{"", "<!DOCTYPE html><html><body>x</body></html>"}}},
		{"text", " Too many ", fields{{"", "Too many"}}},
		{"broken", "{broken", fields{{"", "{broken"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			assert.Equal(t, c.want, signal.Fields([]byte(c.body)))
		})
	}
}

// The parts of a batch are read without knowing the boundary.
func TestPartsOfABatch(t *testing.T) {
	type fields = []signal.BodyField
	header := http.Header{"Content-Type": {"Multipart/Mixed; boundary=b"}}
	for _, c := range []struct {
		name, body string
		want       fields
	}{
		{"one", "--b\nContent-Type: application/http\n\nHTTP/1.1 429 Too Many\nRetry-After: 5\n\n{\"a\":\n1}\n--b--", fields{{"parts.status", "429"}, {"parts.headers.retry-after", "5"}, {"parts.body.a", "1"}}},
		{"two", "--b\n\nHTTP/1.1 200\n\n--b\n\nHTTP/1.1 503 x\n\n--b--", fields{{"parts.status", "200"}, {"parts.status", "503"}}},
		{"cut off", "--b\n\nHTTP/1.1 429 x\n\n{\"a\":1,", fields{{"parts.status", "429"}, {"parts.body.a", "1"}}},
		{"a body that looks like a response", "--b\n\nHTTP/1.1 200 OK\n\nHTTP/1.1 429 x\n--b--", fields{{"parts.status", "200"}}},
		{"none", "--b\n\nx\n--b--", fields{{"", "--b\n\nx\n--b--"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			assert.Equal(t, c.want, signal.FieldsOf(header, []byte(c.body)))
		})
	}
}

func TestProfilesCanBeExtended(t *testing.T) {
	mine := signal.Profile{
		Name:   "prisjakt",
		Hosts:  []string{"api.prisjakt.example"},
		Limits: []signal.LimitHeaders{{Max: "X-Rate-Limit-Limit", Remaining: "X-Rate-Limit-Remaining", Reset: "X-Rate-Limit-Reset", ResetUnit: signal.Milliseconds}},
		Waits:  []signal.WaitHeader{{Name: "X-RateLimit-Retry-After"}},
		Rules:  []signal.Rule{{Status: []int{418}, Outcome: cruise.OutcomeThrottled, Scope: "teapot"}},
	}
	p := signal.Generic()
	p.Providers = append([]signal.Profile{mine}, p.Providers...)

	resp, _ := conformance.Response(t, "418 ~ url https://api.prisjakt.example/ ~ X-Rate-Limit-Limit: 10 ~ X-Rate-Limit-Remaining: 0 ~ X-Rate-Limit-Reset: 600000")
	s := p.Read(resp, nil, now)
	assert.Equal(t, cruise.OutcomeThrottled, s.Outcome)
	assert.Equal(t, 10*time.Minute, s.RetryAfter)
	assert.Equal(t, "teapot", s.Scope)
	assert.Equal(t, "prisjakt", s.Profile)
	assert.Len(t, s.Limits, 1, "the rules for every server do not read the same header again")

	resp.Header.Set("X-RateLimit-Retry-After", "5")
	assert.Equal(t, 5*time.Second, p.Read(resp, nil, now).RetryAfter)

	resp, _ = conformance.Response(t, "418 ~ url https://api.example.com/")
	assert.Equal(t, cruise.OutcomePermanent, p.Read(resp, nil, now).Outcome)
	assert.Len(t, signal.Generic().Providers, len(p.Providers)-1, "a profile is a copy")
}

// Some servers throttle by a redirect to a page, or accept a request and don't do it.
func TestRulesForSuccessesNeedNoBody(t *testing.T) {
	p := signal.Generic()
	p.CodeHeaders = []string{"Code"}
	p.Rules = []signal.Rule{
		{Status: []int{302}, Header: []string{"Location: */sorry/*"}, Outcome: cruise.OutcomeThrottled},
		{Status: []int{200}, Code: []string{"code=SlowDown"}, Outcome: cruise.OutcomeThrottled},
		{Outcome: cruise.OutcomeDropped},
	}
	read := signal.Reading(&p)
	for input, want := range map[string]cruise.Outcome{
		"302 ~ Location: https://example.com/sorry/index ~ Retry-After: 5": cruise.OutcomeThrottled,
		"302 ~ Location: https://example.com/":                             cruise.OutcomeSuccess,
		"200 ~ Code: SlowDown":                                             cruise.OutcomeSuccess, // that of a body counts, of an Embedded
		"404":                                                              cruise.OutcomeDropped,
	} {
		resp, _ := conformance.Response(t, input)
		s := p.Read(resp, nil, now)
		assert.Equal(t, want, s.Outcome, input)
		assert.Equal(t, want == cruise.OutcomeThrottled, s.RetryAfter == 5*time.Second, input)
		assert.Equal(t, want, read(resp, nil, now).Outcome, input)
	}
}

func TestWantsBody(t *testing.T) {
	for _, c := range []struct {
		input string
		want  bool
	}{
		{"200", false},
		{"200 ~ Content-Type: application/json", false},
		{"302", false},
		{"101", false},
		{"400", true},
		{"503", true},
		{"200 ~ method POST ~ url https://api.github.com/graphql ~ Content-Type: application/json", true},
		{"200 ~ method POST ~ url https://api.github.com/graphql ~ Content-Type: text/event-stream", false},
		{"200 ~ method GET ~ url https://api.github.com/user ~ Content-Type: application/json", false},
		{"200 ~ method POST ~ url https://slack.com/api/chat.postMessage ~ Content-Type: application/json", true},
		{"200 ~ method PUT ~ url https://b.s3.amazonaws.com/k ~ req X-Amz-Copy-Source: /a/k ~ Content-Type: application/xml", true},
		{"200 ~ method PUT ~ url https://b.s3.amazonaws.com/k ~ Content-Type: application/xml", false},
	} {
		t.Run(c.input, func(t *testing.T) {
			resp, _ := conformance.Response(t, c.input)
			assert.Equal(t, c.want, signal.Generic().WantsBody(resp))
		})
	}
	assert.False(t, signal.Generic().WantsBody(&http.Response{StatusCode: 200}), "no request known")
}

func BenchmarkRead(b *testing.B) {
	p := signal.Generic()
	for _, c := range []struct{ name, input string }{
		{"success without limits", "200 ~ Content-Type: application/json ~ Server: x ~ Vary: y ~ ETag: z"},
		{"success with limits", "200 ~ url https://api.github.com/ ~ Content-Type: application/json ~ X-RateLimit-Limit: 5000 ~ X-RateLimit-Remaining: 4980 ~ X-RateLimit-Used: 20 ~ X-RateLimit-Reset: 1795178400 ~ X-RateLimit-Resource: core"},
		{"throttle with a body", `429 ~ url https://bigquery.googleapis.com/ ~ body {"error":{"code":429,"status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"53s"}]}}`},
	} {
		b.Run(c.name, func(b *testing.B) {
			resp, body := conformance.Response(b, c.input)
			b.ReportAllocs()
			for b.Loop() {
				p.Read(resp, body, now)
			}
		})
	}
}

// A server may send 10 MiB of headers, by net/http's default. To read them takes
// little time and leaves next to nothing behind.
func TestHeadersWithoutEnd(t *testing.T) {
	if calm.Raced {
		t.Skip("nothing in it races, and it is about time")
	}
	const size = 4 << 20
	many := func(format, value string) http.Header {
		h := http.Header{}
		for i, n := 0, 0; n < size; i++ {
			name := fmt.Sprintf(format, i)
			h.Set(name, value)
			n += len(name) + 5
		}
		return h
	}
	resets := http.Header{}
	for i := range 64 {
		resets.Set(fmt.Sprintf("X-Ratelimit-Remaining-%d", i), "0")
		resets.Set(fmt.Sprintf("X-Ratelimit-Reset-%d", i), strings.Repeat("a1,", 2700))
	}
	shared := http.Header{}
	for i := range 64 {
		shared.Set(fmt.Sprintf("X-Ratelimit-Remaining-%d", i), "0"+strings.Repeat(",0", 30))
		shared.Set(fmt.Sprintf("X-Ratelimit-Reset-%d", i), "1"+strings.Repeat(",1", 30))
	}
	list := func(member string) string { return strings.TrimSuffix(strings.Repeat(member, size/len(member)), ",") }
	for name, h := range map[string]http.Header{
		"waits":            {"Retry-After": {list("a1,")}},
		"lines of waits":   {"Retry-After": strings.Split(list("a1,"), ",")},
		"resets":           {"X-Ratelimit-Reset": {list("a1,")}, "X-Ratelimit-Remaining": {"0"}},
		"spans":            {"X-Ratelimit-Reset": {list("1s")}, "X-Ratelimit-Remaining": {"0"}},
		"limits":           {"Ratelimit": {list(`"a";r=1,`)}, "Ratelimit-Policy": {list(`"b";q=1,`)}},
		"parameters":       {"Ratelimit": {`"a";r=1` + list(";a=1")}},
		"policies":         {"Ratelimit-Policy": {list("1;w=1,")}, "X-Ratelimit-Remaining": {"0"}, "X-Ratelimit-Limit": {"5"}},
		"remaining":        {"X-Ratelimit-Remaining": {list("a;b;,")}},
		"names of limits":  many("X-Ratelimit-Remaining-%d", "1"),
		"names in between": many("X-Ratelimit-%d-Remaining", "1"),
		"limits of no use": many("X-Ratelimit-Remaining-%d", "x"),
		"resets of limits": resets,
		"shared headers":   shared,
		"codes":            {"X-Amzn-Errortype": strings.Split(list("a#b:c,"), ",")},
		"a date":           {"Date": {list("1")}},
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			for _, code := range []int{200, 429} {
				s := signal.Generic().Read(&http.Response{StatusCode: code, Header: h}, nil, now)
				assert.LessOrEqual(t, len(s.Limits), 70)
			}
			assert.Less(t, time.Since(start), 10*time.Second, "with the square of the size it would take minutes")
		})
	}
}

// In virtual time it is the year 2000, and servers' clocks stand there, too.
func TestUnixTimesInVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := time.Now().Add(2 * time.Minute)
		for header, value := range map[string]int64{
			"X-Ratelimit-Reset": at.Unix(),
			"Retry-After":       at.Unix(),
			"Ratelimit-Reset":   at.UnixMilli(),
		} {
			resp, _ := conformance.Response(t, fmt.Sprintf("429 ~ no date ~ %s: %d ~ X-Ratelimit-Remaining: 0 ~ Ratelimit-Remaining: 0", header, value))
			assert.Equal(t, 2*time.Minute, signal.Generic().Read(resp, nil, time.Now()).RetryAfter, header)
		}
		resp, _ := conformance.Response(t, fmt.Sprintf("429 ~ no date ~ Retry-After: %d", at.UnixMilli()))
		assert.Equal(t, 2*time.Minute, signal.Generic().Read(resp, nil, time.Now()).RetryAfter)
	})
}

// The rules for every server also supplement a user's own profile.
func TestProvidersOfOnesOwn(t *testing.T) {
	p := signal.Profile{Name: "ours", Providers: []signal.Profile{signal.GitHub(), signal.Stripe()}}
	for _, url := range []string{"https://api.github.com/x", "https://api.example.com/x"} {
		resp, _ := conformance.Response(t, "429 ~ url "+url+" ~ Retry-After: 30 ~ X-RateLimit-Remaining: 0")
		s := p.Read(resp, nil, time.Now())
		assert.Equal(t, 30*time.Second, s.RetryAfter, url)
		assert.NotEmpty(t, s.Limits, url)
		resp, _ = conformance.Response(t, "503 ~ url "+url+" ~ Retry-After: 30")
		assert.Equal(t, cruise.OutcomeThrottled, p.Read(resp, nil, time.Now()).Outcome, url)
	}
}
