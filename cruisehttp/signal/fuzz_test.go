package signal_test

import (
	"bufio"
	"bytes"
	"net/http"
	"net/textproto"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/cruisehttp/internal/conformance"
	"github.com/a7df5faa/cruise/cruisehttp/signal"
)

func FuzzParseRetryAfter(f *testing.F) {
	for _, s := range []string{
		"120", "0", "-1", "1.5", "0.0001", "9999999999", "99999999999999999999", "NaN", "1e3", "2814, 2", "1795176090", "1795176090000",
		"Fri, 20 Nov 2026 12:01:30 GMT", "Friday, 20-Nov-26 12:01:30 GMT", "Fri Nov 20 12:01:30 2026", "Fri, 20 Nov 2026 12:01:30 PST",
	} {
		f.Add(s, now.Format(http.TimeFormat))
	}
	f.Add("60", "Thu, 01 Jan 1970 00:00:00 GMT")
	strict := regexp.MustCompile(`^[ \t]*[0-9]+(\.[0-9]+)?[ \t]*$`)
	f.Fuzz(func(t *testing.T, value, date string) {
		wait, ok := signal.ParseRetryAfter(http.Header{"Retry-After": {value}, "Date": {date}}, now)
		if wait < 0 || wait > signal.MaxWait {
			t.Fatalf("wait %v", wait)
		}
		if !ok && wait != 0 {
			t.Fatalf("no Retry-After, but a wait of %v", wait)
		}
		if !ok && strict.MatchString(value) {
			t.Fatalf("%q is a number of seconds", value)
		}
		if frac := wait % time.Second; ok && 0 < wait && wait < time.Millisecond && frac > 0 && strict.MatchString(value) {
			t.Fatalf("wait %v is no wait", wait)
		}
	})
}

// FuzzRead reads anything by every profile: nothing panics, no wait is negative
// or unbounded, and nothing makes a client faster than its own backoff.
func FuzzRead(f *testing.F) {
	for _, c := range conformance.Cases(f, "testdata/conformance.txt") {
		resp, body := conformance.Response(f, c.Input)
		var head bytes.Buffer
		if err := resp.Header.Write(&head); err != nil {
			f.Fatal(err)
		}
		f.Add(uint16(resp.StatusCode), head.String(), body)
	}
	all := profiles()
	paths := []string{"/graphql?uploadId=1", "/_bulk", "/v1/$batch", "/v1/sys/health"}
	f.Fuzz(func(t *testing.T, status uint16, head string, body []byte) {
		header, err := textproto.NewReader(bufio.NewReader(strings.NewReader(head + "\r\n\r\n"))).ReadMIMEHeader()
		if err != nil {
			return
		}
		req, err := http.NewRequest("POST", "https://api.example.com"+paths[len(body)%len(paths)], nil)
		if err != nil {
			t.Fatal(err)
		}
		resp := &http.Response{StatusCode: int(status), Header: http.Header(header), Request: req}
		before := len(resp.Header)
		for name, p := range all {
			s := p.Read(resp, body, now)
			checkSignal(t, name, s)
			if again := p.Read(resp, body, now); again.Outcome != s.Outcome || again.RetryAfter != s.RetryAfter || again.Scope != s.Scope {
				t.Fatalf("%s: the same response read twice: %+v and %+v", name, s, again)
			}
		}
		if len(resp.Header) != before {
			t.Fatal("the response was changed")
		}
	})
}

func checkSignal(t *testing.T, name string, s signal.Signal) {
	t.Helper()
	switch {
	case s.Outcome == cruise.OutcomeUnknown || s.Outcome == cruise.OutcomeDropped:
		t.Fatalf("%s: outcome %v", name, s.Outcome)
	case s.RetryAfter < 0 || s.RetryAfter > signal.MaxWait:
		t.Fatalf("%s: wait %v", name, s.RetryAfter)
	case s.RetryAfter > 0 && (s.Outcome == cruise.OutcomeSuccess || s.Outcome == cruise.OutcomePermanent) && !s.Brake:
		t.Fatalf("%s: %v with a wait of %v", name, s.Outcome, s.RetryAfter)
	case s.Outcome == cruise.OutcomeThrottled && s.RetryAfter > signal.DefaultLongWait && s.Over == 0:
		t.Fatalf("%s: a throttle of %v", name, s.RetryAfter)
	case s.Reason == "":
		t.Fatalf("%s: no reason", name)
	}
	for _, backoff := range []time.Duration{0, time.Millisecond, time.Hour, 1<<63 - 1} {
		if wait := s.Wait(backoff); wait < backoff {
			t.Fatalf("%s: a backoff of %v was cut to %v", name, backoff, wait)
		}
	}
	for _, l := range s.Limits {
		q := l.Quota()
		if l.Max < 0 || l.Remaining < -1 || l.Reset < -1 || l.Reset > signal.MaxWait || q.Remaining < 0 || q.Reset < 0 || q.Reset > signal.MaxWait {
			t.Fatalf("%s: limit %+v, quota %+v", name, l, q)
		}
	}
}

func FuzzRateLimitField(f *testing.F) {
	for _, s := range []string{
		`"default";r=50;t=30`, `"burst";q=100;w=60,"daily";q=1000;w=86400`, `"a";pk=:dHJ:;c="x \" \\"`, `limit=1, remaining=2`,
		`a;b=?1;c=@5;d=%"f%c3"`, `1.5;x`, `"x",`, `-999999999999999`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, value string) {
		err := signal.ParseList([]string{value})
		if err == nil && strings.TrimSpace(value) != "" {
			if signal.ParseList([]string{value, value}) != nil {
				t.Fatalf("%q is a list, but not twice", value)
			}
			if signal.ParseList([]string{value + ","}) == nil {
				t.Fatalf("%q may not end in a comma", value)
			}
		}
		for _, name := range []string{"RateLimit", "RateLimit-Policy", "RateLimit-Limit", "RateLimit-Remaining"} {
			h := http.Header{}
			h.Set(name, value)
			checkSignal(t, name, signal.Generic().Read(&http.Response{StatusCode: 429, Header: h}, nil, now))
		}
	})
}

func FuzzBody(f *testing.F) {
	f.Add([]byte(`{"a":{"b":[1,"x",true,null,{"c":{}}]}}`))
	f.Add([]byte(`<a><b>x</b><c/>y</a>`))
	f.Add([]byte("plain"))
	f.Add([]byte(`[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[`))
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, field := range signal.Fields(body) {
			if len(field.Path) > 32*129 || len(field.Value) > signal.MaxBody*2 {
				t.Fatalf("a path of %d bytes, a value of %d", len(field.Path), len(field.Value))
			}
		}
	})
}

func FuzzParts(f *testing.F) {
	f.Add([]byte("--b\r\nContent-Type: application/http\r\n\r\nHTTP/1.1 429 Too Many Requests\r\nRetry-After: 5\r\n\r\n{\"error\":{\"code\":1}}\r\n--b--"))
	f.Add([]byte("HTTP/1.0 200\n\n[1]\nHTTP/1.1 429\n--\n"))
	f.Add([]byte("--\nHTTP/1.1"))
	header := http.Header{"Content-Type": {"multipart/mixed; boundary=b"}}
	f.Fuzz(func(t *testing.T, body []byte) {
		fields := signal.FieldsOf(header, body)
		if len(fields) > 4096 {
			t.Fatalf("%d fields", len(fields))
		}
		for _, field := range fields {
			if len(field.Path) > 34*129 || len(field.Value) > signal.MaxBody*2 {
				t.Fatalf("a path of %d bytes, a value of %d", len(field.Path), len(field.Value))
			}
		}
	})
}

func FuzzGlob(f *testing.F) {
	f.Add("*.example.com", "api.example.com")
	f.Add("a*b*c", "aXbYbc")
	f.Fuzz(func(t *testing.T, pattern, s string) {
		for _, b := range []byte(pattern + s) {
			if b >= 0x80 {
				return // regexp folds more than ASCII
			}
		}
		parts := strings.Split(pattern, "*")
		for i := range parts {
			parts[i] = regexp.QuoteMeta(parts[i])
		}
		want := regexp.MustCompile(`(?is)\A` + strings.Join(parts, ".*") + `\z`).MatchString(s)
		if got := signal.Glob(pattern, s); got != want {
			t.Fatalf("Glob(%q, %q) = %v", pattern, s, got)
		}
	})
}

func FuzzSpan(f *testing.F) {
	for _, s := range []string{"6m0s", "2m59.56s", "12ms", "1h2m3.5s", "1d", "315576000000s", "05:47:12", "1µs", "-5s", "5", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, ok := signal.ParseSpan(s)
		if got < 0 || got > signal.MaxWait || !ok && got != 0 {
			t.Fatalf("%v, %v", got, ok)
		}
		want, err := time.ParseDuration(s)
		if err != nil || want <= 0 || want > signal.MaxWait || strings.HasPrefix(s, "+") {
			return
		}
		// A fraction is kept to a billionth of its unit: 3.6 µs of an hour.
		if off := (got - want).Abs(); ok && off > time.Duration(len(s))*4*time.Microsecond {
			t.Fatalf("%v instead of %v", got, want)
		}
	})
}
