// Package conformance holds the outcomes of responses, case by case, for tests.
package conformance

import (
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Now is the time of the table.
var Now = time.Date(2026, time.November, 20, 12, 0, 0, 0, time.UTC)

// A Case is a line of testdata/conformance.txt in package signal, which explains it.
type Case struct {
	ID, Profile, Input, Outcome, Wait, Limit, Source string
}

// Cases returns all lines of the table in a file.
func Cases(t testing.TB, file string) []Case {
	t.Helper()
	table, err := os.ReadFile(file)
	require.NoError(t, err)
	var cases []Case
	ids := map[string]bool{}
	for n, line := range strings.Split(string(table), "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		cells := strings.Split(line, "|")
		require.Len(t, cells, 7, "line %d: seven columns", n+1)
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		c := Case{cells[0], cells[1], cells[2], cells[3], cells[4], cells[5], cells[6]}
		require.NotEmpty(t, c.Source, "line %d: a source", n+1)
		require.False(t, ids[c.ID], "line %d: %s is there twice", n+1, c.ID)
		ids[c.ID] = true
		cases = append(cases, c)
	}
	return cases
}

// Response builds the response that an input describes, and its body.
func Response(t testing.TB, input string) (*http.Response, []byte) {
	t.Helper()
	parts := strings.Split(input, " ~ ")
	code, _, _ := strings.Cut(parts[0], " ")
	status, err := strconv.Atoi(code)
	require.NoError(t, err)
	req := &http.Request{Method: http.MethodGet, Header: http.Header{}, URL: &url.URL{Scheme: "https", Host: "api.example.com", Path: "/"}}
	resp := &http.Response{Status: parts[0], StatusCode: status, Header: http.Header{"Date": {Now.Format(http.TimeFormat)}}, Request: req}
	var body []byte
	dated := false
	for _, part := range parts[1:] {
		kind, rest, _ := strings.Cut(part, " ")
		switch kind {
		case "body":
			body = []byte(strings.ReplaceAll(rest, "⏎", "\r\n"))
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
