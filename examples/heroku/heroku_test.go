package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCompare(t *testing.T) {
	require.NoError(t, compare(t.Context(), 200, 20, 4, 60))
}

// What an interrupt kept from being done has not failed.
func TestCrowdEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	calls := 0
	done, failed := crowd(ctx, 1, 10, func() error {
		switch calls++; calls {
		case 2:
			return errors.New("status 500")
		case 5:
			cancel()
			return ctx.Err()
		}
		return nil
	})
	assert.Equal(t, []int64{3, 1}, []int64{done, failed})
	assert.Equal(t, 5, calls)
}

type busy struct{}

func (busy) RoundTrip(*http.Request) (*http.Response, error) {
	answer := httptest.NewRecorder()
	answer.WriteHeader(http.StatusTooManyRequests)
	return answer.Result(), nil
}

func TestPlainEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
		defer cancel()
		start := time.Now()
		assert.ErrorIs(t, plain(ctx, &http.Client{Transport: busy{}}, "http://example.com"), context.DeadlineExceeded)
		assert.Equal(t, time.Nanosecond, time.Since(start), "it slept on")
	})
}
