package shared

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/internal/calm"
	"github.com/a7df5faa/cruise/internal/clock"
	"github.com/a7df5faa/cruise/internal/limits"
)

const ms = time.Millisecond

var errBusy = errors.New("busy")

// steadyPause is a pause backoff without chance: 1 s, doubled to 8 s.
var steadyPause = cruise.Must(cruise.NewBackoff(cruise.WithBase(time.Second), cruise.WithMaxDelay(8*time.Second), cruise.WithJitter(cruise.NoJitter())))

func ok(context.Context) error { return nil }

// A call was let go, and is under way.
type call struct {
	l    *Limiter
	sent clock.Instant
	cost int
}

// letGo waits for a call of a cost.
func letGo(t *testing.T, l *Limiter, cost int) call {
	t.Helper()
	_, sent, err := limits.Admit(t.Context(), &l.queue, cost)
	require.NoError(t, err)
	return call{l, sent, cost}
}

func (c call) ends(o cruise.Outcome, asked time.Duration) {
	c.l.policy().Apply(cruise.Feedback{Outcome: o, Sent: c.sent.Time(), Cost: c.cost, RetryAfter: asked})
}

// calls lets n calls go, one after another, and succeed.
func calls(t *testing.T, l *Limiter, n int) {
	t.Helper()
	for range n {
		letGo(t, l, 1).ends(cruise.OutcomeSuccess, 0)
	}
}

// takesLong is for tests that are about the law alone, and take a minute under the race detector.
func takesLong(t *testing.T) {
	if calm.Raced || testing.Short() {
		t.Skip("it takes long, and others race as much")
	}
}
