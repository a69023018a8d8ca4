package signal_test

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/cruisehttp/internal/conformance"
	"github.com/a7df5faa/cruise/cruisehttp/signal"
)

// A Transport reads quickly, and the same.
func TestReaderReadsAsTheProfile(t *testing.T) {
	for name, p := range profiles() {
		read := signal.Reading(&p)
		for _, c := range conformance.Cases(t, "testdata/conformance.txt") {
			resp, body := conformance.Response(t, c.Input)
			resp.Header[""] = []string{"1"} // which net/http never makes, and others may
			want, got := p.Read(resp, body, now), read(resp, body, now)
			if got.Outcome == cruise.OutcomeSuccess && got.Reason == "" {
				want.Reason = ""
			}
			assert.Equal(t, want, got, "%s by %s", c.ID, name)
		}
	}
}

// A Transport looks for the provider in another way than a profile, and finds the same.
func TestReaderFindsTheProviderThatTheProfileFinds(t *testing.T) {
	p := signal.Profile{Name: "ours", Providers: []signal.Profile{
		{Name: "first", Hosts: []string{"*.Example.com", "x.*.org", "*-api.test"}, Marks: []string{"X-First-*"}},
		{Name: "second", Hosts: []string{"api.example.com", "*.b.example.com", "b.test", "*.x.*.org"}, Marks: []string{"*.mark", "x-second"}},
		{Name: "third", Hosts: []string{"*.test", "*.example.com"}, Marks: []string{"X-Second", "*"}},
	}}
	read := signal.Reading(&p)
	for host, want := range map[string]string{
		"api.example.com": "first", "API.Example.COM": "first", "a.b.example.com": "first", ".example.com": "first",
		"example.com": "ours", "notexample.com": "ours", "x.y.org": "first", "q.x.y.org": "second", "org": "ours",
		"my-api.test": "first", "b.test": "second", "c.b.test": "third", "test": "ours",
	} {
		for mark, marked := range map[string]string{"": "ours", "X-First-Of-All": "first", "A.mark": "second", "X-Second": "second", "Y": "third"} {
			header, want := http.Header{}, want
			if mark != "" {
				header.Set(mark, "1")
			}
			if want == "ours" {
				want = marked
			}
			resp := &http.Response{StatusCode: 200, Header: header, Request: &http.Request{Method: "GET", URL: &url.URL{Host: host}}}
			assert.Equal(t, want, p.Read(resp, nil, now).Profile, "%s, %s", host, mark)
			assert.Equal(t, want, read(resp, nil, now).Profile, "%s, %s", host, mark)
		}
	}
}

// A profile is read by where nothing has been looked up before: for one response that
// would cost more than to read it.
func TestReadingOnceLooksUpNothingBefore(t *testing.T) {
	p := signal.Generic()
	resp, body := conformance.Response(t, "200 ~ url https://api.example.com/ ~ Content-Type: application/json ~ Server: x")
	assert.Less(t, testing.AllocsPerRun(100, func() { p.Read(resp, body, now) }), 15.)
	assert.Less(t, testing.AllocsPerRun(100, func() { p.WantsBody(resp) }), 5.)
}

func TestSuccessesThatSayNothingCostNoAllocation(t *testing.T) {
	p := signal.Generic()
	read := signal.Reading(&p)
	for _, input := range []string{
		"200", "204", "304",
		"200 ~ method POST ~ url https://api.example.com/v1/things ~ Content-Type: application/json ~ Server: x ~ Vary: y",
		"200 ~ url https://api.example.com/ ~ Content-Type: text/html; charset=utf-8 ~ X-Request-Id: 1 ~ Etag: 1 ~ X-Speed-Limit: 5",
		"200 ~ url https://api.stripe.com/v1/charges ~ Content-Type: application/json ~ Request-Id: 1",
	} {
		resp, body := conformance.Response(t, input)
		assert.Zero(t, testing.AllocsPerRun(100, func() { read(resp, body, now) }), input)
	}
}

func BenchmarkReadSuccess(b *testing.B) {
	generic := signal.Generic()
	for name, c := range map[string]struct {
		host   string
		header http.Header
	}{
		"plain": {"api.example.com", http.Header{
			"Content-Type": {"application/json"}, "Date": {"Fri, 20 Nov 2026 12:00:00 GMT"}, "Content-Length": {"100"},
			"Server": {"x"}, "Vary": {"Accept"}, "X-Request-Id": {"1"}, "Cache-Control": {"no-store"}, "Etag": {"1"},
		}},
		"github": {"api.github.com", http.Header{
			"Content-Type": {"application/json"}, "Date": {"Fri, 20 Nov 2026 12:00:00 GMT"}, "Server": {"github.com"}, "Vary": {"Accept"},
			"X-Ratelimit-Limit": {"5000"}, "X-Ratelimit-Remaining": {"4999"}, "X-Ratelimit-Reset": {"1795179600"},
			"X-Ratelimit-Used": {"1"}, "X-Ratelimit-Resource": {"core"}, "X-Github-Request-Id": {"1"},
		}},
	} {
		resp := &http.Response{StatusCode: 200, Header: c.header, Request: &http.Request{Method: "GET", URL: &url.URL{Host: c.host}}}
		b.Run(name+"/Profile", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				generic.Read(resp, nil, now)
			}
		})
		read := signal.Reading(&generic)
		b.Run(name+"/Transport", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				read(resp, nil, now)
			}
		})
	}
}
