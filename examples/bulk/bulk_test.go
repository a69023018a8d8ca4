package main

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestEveryItemIsDone(t *testing.T) {
	require.NoError(t, run(t.Context(), 0, 50, 8))
}

func TestAStopSaysHowToGoOn(t *testing.T) {
	ctx, cancel := context.WithTimeoutCause(t.Context(), 500*time.Millisecond, context.Canceled)
	defer cancel()
	stopped, stop := context.WithCancel(t.Context())
	context.AfterFunc(ctx, stop)
	begun := time.Now()
	assert.ErrorContains(t, run(stopped, 0, 100_000, 8), "stopped; go on with -from ")
	assert.Less(t, time.Since(begun), 20*time.Second)
}
