package shared

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/internal/calm"
	"github.com/a7df5faa/cruise/internal/clock"
	"github.com/a7df5faa/cruise/internal/limits"
)

// faultyStore is a store whose next answers can be spoilt.
type faultyStore struct {
	Store
	mu    sync.Mutex
	fault func(context.Context, Request) (Reply, error) // nil: none
	syncs int
	last  Request
}

func newFaultyStore() *faultyStore { return &faultyStore{Store: NewMemoryStore()} }

func (f *faultyStore) Sync(ctx context.Context, q Request) (Reply, error) {
	f.mu.Lock()
	f.syncs++
	f.last = q
	fault, store := f.fault, f.Store
	f.mu.Unlock()
	if fault != nil {
		return fault(ctx, q)
	}
	return store.Sync(ctx, q)
}

func (f *faultyStore) fails(fault func(context.Context, Request) (Reply, error)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fault = fault
}

var errDown = errors.New("store is down")

func down(context.Context, Request) (Reply, error) { return Reply{}, errDown }

// hangs answers after an hour, whatever its context says.
func hangs(context.Context, Request) (Reply, error) {
	time.Sleep(time.Hour)
	return Reply{}, errDown
}

// fleet is some workers that share a store.
func fleet(t *testing.T, store Store, n int, opts ...Option) []*Limiter {
	t.Helper()
	workers := make([]*Limiter, n)
	for i := range workers {
		var err error
		workers[i], err = New(store, opts...)
		require.NoError(t, err)
	}
	return workers
}

// steady is a rate that neither grows nor falls.
func steady(limit rate.Limit) []Option {
	return []Option{cruise.WithInitialRate(limit), cruise.WithMaxRate(limit), cruise.WithTuning(cruise.Tuning{MinRate: limit})}
}

// drive makes calls of all workers in closed loops until ctx ends, and returns
// when they were sent.
func drive(ctx context.Context, workers []*Limiter, callers int) func() []time.Time {
	var mu sync.Mutex
	var sent []time.Time
	var wg sync.WaitGroup
	for _, s := range workers {
		for range callers {
			wg.Go(func() {
				for s.WaitN(ctx, 1) == nil {
					at := time.Now()
					mu.Lock()
					sent = append(sent, at)
					mu.Unlock()
					time.Sleep(time.Millisecond)
					s.Learn(cruise.Feedback{Outcome: cruise.OutcomeSuccess, Sent: at, Cost: 1})
				}
			})
		}
	}
	return func() []time.Time {
		wg.Wait()
		return sent
	}
}

// countIn counts the times from a moment on, for a while.
func countIn(times []time.Time, from time.Time, d time.Duration) (n int) {
	for _, at := range times {
		if !at.Before(from) && at.Before(from.Add(d)) {
			n++
		}
	}
	return n
}

func nearStore() *distantStore { return &distantStore{Store: NewMemoryStore(), rtt: ms} }

// load has callers make one call after the other until ctx ends, 60 ms each.
func load(ctx context.Context, group *sync.WaitGroup, l *Limiter, srv *tokenServer, callers int) {
	for range callers {
		group.Go(func() {
			for l.WaitN(ctx, 1) == nil {
				f := cruise.Feedback{Outcome: cruise.OutcomeThrottled, Sent: time.Now(), Cost: 1}
				time.Sleep(30 * ms)
				if srv.admits() {
					f.Outcome = cruise.OutcomeSuccess
				}
				time.Sleep(30 * ms)
				l.Learn(f)
			}
		})
	}
}

const ms = time.Millisecond

var errBusy = errors.New("busy")

// steadyPause is a pause backoff without chance: 1 s, doubled to 8 s.
var steadyPause = cruise.Must(cruise.NewBackoff(cruise.WithBase(time.Second), cruise.WithMaxDelay(8*time.Second), cruise.NoJitter()))

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
