package main

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/a7df5faa/cruise"
)

func TestGetTellsHowAnAttemptEnded(t *testing.T) {
	for _, tt := range []struct {
		name       string
		status     int
		retryAfter string
		want       cruise.Verdict
	}{
		{"answered", http.StatusOK, "", cruise.Verdict{Outcome: cruise.OutcomeSuccess}},
		{"throttled", http.StatusTooManyRequests, "", cruise.Verdict{Outcome: cruise.OutcomeThrottled}},
		{"throttled for a time", http.StatusTooManyRequests, "3", cruise.Verdict{Outcome: cruise.OutcomeThrottled, RetryAfter: 3 * time.Second}},
		{"out of order", http.StatusInternalServerError, "", cruise.Verdict{Outcome: cruise.OutcomeTransient}},
		{"not found", http.StatusNotFound, "", cruise.Verdict{Outcome: cruise.OutcomePermanent}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if tt.retryAfter != "" {
					w.Header().Set("Retry-After", tt.retryAfter)
				}
				w.WriteHeader(tt.status)
			}))
			defer server.Close()
			t.Setenv("URL", server.URL)
			assert.Equal(t, tt.want, cruise.Classify(get(t.Context(), server.Client(), false)))
		})
	}
}
