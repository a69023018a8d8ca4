package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/cruisehttp"
)

func TestPromptsAreAnswered(t *testing.T) {
	m := newModel()
	api := httptest.NewServer(m)
	defer api.Close()
	client := &http.Client{Transport: cruise.Must(cruisehttp.NewTransport(cruisehttp.WithAnyMethod()))}
	require.NoError(t, send(t.Context(), client, api.URL, 25, 20))
}

func TestTheModelTellsBothLimits(t *testing.T) {
	m := newModel()
	for range 10 {
		w := httptest.NewRecorder()
		m.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(strings.Repeat("word ", 1000))))
		require.Equal(t, http.StatusOK, w.Code)
	}
	w := httptest.NewRecorder()
	m.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(strings.Repeat("word ", 10_000))))
	assert.Equal(t, http.StatusTooManyRequests, w.Code)
	assert.Equal(t, "20", w.Header().Get("X-Ratelimit-Limit-Requests"))
	assert.Equal(t, "10000", w.Header().Get("X-Ratelimit-Limit-Tokens"))
	assert.NotEmpty(t, w.Header().Get("Retry-After-Ms"))
}
