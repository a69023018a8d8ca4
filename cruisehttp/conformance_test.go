package cruisehttp_test

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/cruisehttp"
)

var now = time.Date(2026, time.November, 20, 12, 0, 0, 0, time.UTC)

// profiles are those of the package by name.
func profiles() map[string]cruisehttp.Profile {
	all := map[string]cruisehttp.Profile{"generic": cruisehttp.Generic(), "nginx": cruisehttp.Nginx()}
	for _, p := range cruisehttp.Generic().Providers {
		all[p.Name] = p
	}
	return all
}

// A conformanceCase is a line of testdata/conformance.txt, which explains it.
type conformanceCase struct {
	id, profile, input, outcome, wait, limit, source string
}

func conformanceCases(t testing.TB) []conformanceCase {
	t.Helper()
	text, err := os.ReadFile("testdata/conformance.txt")
	require.NoError(t, err)
	var cases []conformanceCase
	ids := map[string]bool{}
	for n, line := range strings.Split(string(text), "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		cells := strings.Split(line, "|")
		require.Len(t, cells, 7, "line %d: seven columns", n+1)
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		c := conformanceCase{cells[0], cells[1], cells[2], cells[3], cells[4], cells[5], cells[6]}
		require.NotEmpty(t, c.source, "line %d: a source", n+1)
		require.False(t, ids[c.id], "line %d: %s is there twice", n+1, c.id)
		ids[c.id] = true
		cases = append(cases, c)
	}
	return cases
}

// response builds what an input describes.
func response(t testing.TB, input string) (*http.Response, []byte) {
	t.Helper()
	parts := strings.Split(input, " ~ ")
	code, _, _ := strings.Cut(parts[0], " ")
	status, err := strconv.Atoi(code)
	require.NoError(t, err)
	req := &http.Request{Method: http.MethodGet, Header: http.Header{}, URL: &url.URL{Scheme: "https", Host: "api.example.com", Path: "/"}}
	resp := &http.Response{Status: parts[0], StatusCode: status, Header: http.Header{"Date": {now.Format(http.TimeFormat)}}, Request: req}
	var body []byte
	dated := false
	for _, part := range parts[1:] {
		kind, rest, _ := strings.Cut(part, " ")
		switch kind {
		case "body":
			body = []byte(rest)
			continue
		case "method":
			req.Method = rest
			continue
		case "url":
			req.URL, err = url.Parse(rest)
			require.NoError(t, err)
			continue
		case "no":
			resp.Header.Del("Date")
			continue
		case "req":
			name, value, _ := strings.Cut(rest, ":")
			req.Header.Add(name, strings.TrimSpace(value))
			continue
		}
		name, value, ok := strings.Cut(part, ":")
		require.True(t, ok, part)
		if strings.EqualFold(name, "Date") && !dated {
			resp.Header.Del("Date")
			dated = true
		}
		resp.Header.Add(name, strings.ReplaceAll(strings.TrimSpace(value), "␠", " "))
	}
	return resp, body
}

func TestConformance(t *testing.T) {
	all := profiles()
	outcomes := map[string]cruise.Outcome{
		"success": cruise.OutcomeSuccess, "throttled": cruise.OutcomeThrottled, "quota": cruise.OutcomeQuotaExhausted,
		"transient": cruise.OutcomeTransient, "permanent": cruise.OutcomePermanent,
	}
	for _, c := range conformanceCases(t) {
		t.Run(c.id, func(t *testing.T) {
			p, ok := all[c.profile]
			require.True(t, ok, "profile %q", c.profile)
			resp, body := response(t, c.input)
			s := p.Read(resp, body, now)

			name, brake := strings.CutSuffix(c.outcome, "+brake")
			require.Contains(t, outcomes, name)
			assert.Equal(t, outcomes[name].String(), s.Outcome.String(), "outcome, because of %s", s.Reason)
			assert.Equal(t, brake, s.Brake, "brake")

			waits := strings.Fields(c.wait)
			if waits[0] == "none" {
				assert.Zero(t, s.RetryAfter, "wait")
				assert.False(t, s.Asked, "asked")
			} else {
				want, err := time.ParseDuration(waits[0])
				require.NoError(t, err)
				assert.Equal(t, want, s.RetryAfter, "wait")
			}
			if waits[0] == "0s" {
				assert.True(t, s.Asked, "asked")
			}
			got := map[string]string{"floor": s.Floor.String(), "over": s.Over.String(), "scope": s.Scope, "as": s.Profile}
			for _, check := range waits[1:] {
				key, want, _ := strings.Cut(check, "=")
				if d, err := time.ParseDuration(want); err == nil {
					want = d.String()
				}
				assert.Equal(t, want, got[key], key)
			}
			checkLimit(t, c.limit, s.Limits)
		})
	}
}

func checkLimit(t *testing.T, want string, limits []cruisehttp.Limit) {
	t.Helper()
	if want == "" {
		return
	}
	if want == "-" {
		assert.Empty(t, limits, "limits")
		return
	}
	require.NotEmpty(t, limits, "limits")
	l := limits[0]
	number := func(n, unknown int) string {
		if n == unknown {
			return "-"
		}
		return strconv.Itoa(n)
	}
	span := func(d, unknown time.Duration) string {
		if d == unknown {
			return "-"
		}
		return d.String()
	}
	checks := strings.Fields(want)
	cells := strings.Split(checks[0], "/")
	require.Len(t, cells, 3, want)
	if d, err := time.ParseDuration(cells[2]); err == nil {
		cells[2] = d.String()
	}
	assert.Equal(t, strings.Join(cells, "/"), fmt.Sprintf("%s/%s/%s", number(l.Max, 0), number(l.Remaining, -1), span(l.Reset, -1)), "limit")
	got := map[string]string{"w": span(l.Window, 0), "name": l.Name, "unit": l.Unit}
	for _, check := range checks[1:] {
		key, want, _ := strings.Cut(check, "=")
		if d, err := time.ParseDuration(want); err == nil {
			want = d.String()
		}
		assert.Equal(t, want, got[key], key)
	}
}
