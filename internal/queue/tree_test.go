package queue

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/a7df5faa/cruise/internal/clock"
	"github.com/a7df5faa/cruise/internal/pacer"
)

// A limiter may get a place below another one while a third gets one below it: then all
// three have one lock.
func TestQueueAdoptsWhileItIsAdopted(t *testing.T) {
	var root, middle, inner Queue
	middle.own.Lock() // holds up its adoption in the middle
	var wg sync.WaitGroup
	wg.Go(func() { middle.Adopt(&root) })
	for !middle.adopted.Load() {
		runtime.Gosched()
	}
	wg.Go(func() { inner.Adopt(&middle) })
	for range 1000 { // enough for that to end, were it not held up
		runtime.Gosched()
	}
	middle.own.Unlock()
	wg.Wait()
	assert.Same(t, &root.own, middle.root())
	assert.Same(t, &root.own, inner.root())
}

// Calls that already wait when their limiter gets a parent count in the parent, too.
func TestQueueAdoptsThoseInLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root, inner := newBucket(rate.Inf, 1), newBucket(1, 1)
		require.NoError(t, inner.WaitN(t.Context(), 1))
		for range 3 {
			go func() { assert.NoError(t, inner.WaitN(t.Context(), 1)) }()
		}
		synctest.Wait()
		require.True(t, inner.Adopt(&root.Queue))
		calls := func() int {
			root.Lock()
			defer root.Unlock()
			return root.calls
		}
		assert.Equal(t, 3, calls())
		time.Sleep(time.Minute)
		assert.Zero(t, calls())
	})
}

// A queue whose next call changes its class takes a new place in its parent each time. That buys it
// no more than two turns at once.
func TestTurnGrantsTwiceTheLargestCostAtMost(t *testing.T) {
	const cost = 3
	synctest.Test(t, func(t *testing.T) {
		root, inner := newBucket(1./3600, cost), newBucket(rate.Inf, cost)
		require.True(t, inner.Adopt(&root.Queue))
		require.NoError(t, inner.WaitN(t.Context(), cost))
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		wait := func(ctx context.Context) {
			all.Go(func() { assert.ErrorIs(t, inner.WaitN(ctx, cost), context.Canceled) })
			synctest.Wait()
		}
		wait(ctx)
		for range 5 {
			retry, leave := context.WithCancel(attemptContext(ctx, 2, clock.Never))
			wait(retry)
			leave()
			synctest.Wait()
		}
		inner.Lock()
		assert.EqualValues(t, 2*cost, inner.granted)
		inner.Unlock()
		cancel()
		all.Wait()
	})
}

// A policy that another process may pause is asked again every five seconds while an ancestor holds
// up the next call.
func TestPolicyIsAskedWhileAnAncestorHoldsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root, inner := newBucket(1./3600, 1), &bucket{tokens: pacer.NewBucket(rate.Inf, 1)}
		asked := &peeked{Policy: &inner.tokens}
		inner.Init(asked, Config{Resumed: func(clock.Instant) time.Duration { return clock.Never }})
		require.True(t, inner.Adopt(&root.Queue))
		require.NoError(t, inner.WaitN(t.Context(), 1))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { assert.ErrorIs(t, inner.WaitN(ctx, 1), context.Canceled) }()
		time.Sleep(time.Second)
		for range 3 {
			before := asked.n.Load()
			time.Sleep(5 * time.Second)
			assert.Greater(t, asked.n.Load(), before)
		}
	})
}

// peeked counts how often its policy is asked.
type peeked struct {
	Policy
	n atomic.Int64
}

func (p *peeked) Peek(now clock.Instant, n int) time.Duration {
	p.n.Add(1)
	return p.Policy.Peek(now, n)
}
