package signal_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/cruisehttp/internal/conformance"
	"github.com/a7df5faa/cruise/cruisehttp/signal"
)

var now = conformance.Now

// profiles returns the profiles of the package by name.
func profiles() map[string]signal.Profile {
	all := map[string]signal.Profile{"generic": signal.Generic(), "nginx": signal.Nginx()}
	for _, p := range signal.Generic().Providers {
		all[p.Name] = p
	}
	return all
}

func TestConformance(t *testing.T) {
	all := profiles()
	outcomes := map[string]cruise.Outcome{
		"success": cruise.OutcomeSuccess, "throttled": cruise.OutcomeThrottled, "quota": cruise.OutcomeQuotaExhausted,
		"transient": cruise.OutcomeTransient, "permanent": cruise.OutcomePermanent,
	}
	for _, c := range conformance.Cases(t, "testdata/conformance.txt") {
		t.Run(c.ID, func(t *testing.T) {
			p, ok := all[c.Profile]
			require.True(t, ok, "profile %q", c.Profile)
			resp, body := conformance.Response(t, c.Input)
			s := p.Read(resp, body, now)

			name, brake := strings.CutSuffix(c.Outcome, "+brake")
			require.Contains(t, outcomes, name)
			assert.Equal(t, outcomes[name].String(), s.Outcome.String(), "outcome, because of %s", s.Reason)
			assert.Equal(t, brake, s.Brake, "brake")

			waits := strings.Fields(c.Wait)
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
			checkLimit(t, c.Limit, s.Limits)
		})
	}
}

func checkLimit(t *testing.T, want string, limits []signal.Limit) {
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
