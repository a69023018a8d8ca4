package queue

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/a7df5faa/cruise/internal/calm"
)

// A crowd that leaves gives up its places in the queue: the next call waits for its own turn only.
func TestQueueCrowdLeaves(t *testing.T) {
	crowd := 100_000
	if calm.Raced {
		crowd = 10_000 // a waiting goroutine takes more than 10 KB then
	}
	synctest.Test(t, func(t *testing.T) {
		b := newBucket(100, 1)
		require.NoError(t, b.WaitN(t.Context(), 1))
		ctx, cancel := context.WithCancel(t.Context())
		var left atomic.Int64
		var wg sync.WaitGroup
		for range crowd {
			wg.Go(func() {
				if errors.Is(b.WaitN(ctx, 1), context.Canceled) {
					left.Add(1)
				}
			})
		}
		synctest.Wait()
		require.Equal(t, crowd, b.waitingNow())
		start := time.Now()
		cancel()
		wg.Wait()
		assert.EqualValues(t, crowd, left.Load())
		require.NoError(t, b.WaitN(t.Context(), 1))
		assert.Equal(t, 10*ms, time.Since(start))
		checkEmpty(t, &b.Queue)
	})
}

// However a cancellation and a turn race, a call either goes and is counted, or
// leaves and is not.
func TestQueueCancellationRacesWithTurn(t *testing.T) {
	const calls, burst = 2000, 500
	b := newBucket(1e-6, burst) // no token refills during the test
	b.pauseFor(time.Hour)
	var went, left atomic.Int64
	var wg, ready sync.WaitGroup
	cancels := make([]context.CancelFunc, calls)
	ready.Add(calls)
	for i := range calls {
		ctx, cancel := context.WithCancel(t.Context())
		cancels[i] = cancel
		wg.Go(func() {
			ready.Done()
			switch err := b.WaitN(ctx, 1); {
			case err == nil:
				went.Add(1)
			case errors.Is(err, context.Canceled):
				left.Add(1)
			default:
				assert.NoError(t, err)
			}
		})
	}
	ready.Wait()
	rand.Shuffle(calls, func(i, j int) { cancels[i], cancels[j] = cancels[j], cancels[i] })
	wg.Go(func() {
		for _, cancel := range cancels {
			cancel()
		}
	})
	b.resume()
	assert.NoError(t, b.SetLimit(1e6)) // turns come quickly from now on
	wg.Wait()
	assert.EqualValues(t, calls, went.Load()+left.Load())
	checkEmpty(t, &b.Queue)
}

// A waiter that is let go while it is about to leave still goes, since its token is taken.
func TestQueueLetsGoWhoIsAboutToLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBucket(1, 1)
		require.NoError(t, b.WaitN(t.Context(), 1))
		ctx, cancel := context.WithCancel(t.Context())
		went := make(chan error)
		go func() { went <- b.WaitN(ctx, 1) }()
		synctest.Wait()
		b.Lock()
		cancel()
		now := b.Now()
		b.tokens.SetLimit(now, rate.Inf)
		b.Reschedule(now)
		b.Unlock()
		assert.NoError(t, <-went)
	})
}

// A race with a cancellation wastes no token: after each race, the bucket has given exactly one
// token for each call that went.
func TestQueueCancellationLosesNoToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBucket(10, 1)
		require.NoError(t, b.WaitN(t.Context(), 1))
		for round := range 200 {
			start := time.Now()
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(100*ms, cancel) // at the very moment of its turn
			err := b.WaitN(ctx, 1)
			want := 100 * ms // the token of this moment is taken
			if err != nil {
				want = 0
			}
			at := time.Since(start)
			require.Equal(t, 100*ms, at, "round %d", round)
			require.NoError(t, b.WaitN(t.Context(), 1))
			require.Equal(t, want, time.Since(start)-at, "round %d: %v", round, err)
		}
	})
}
