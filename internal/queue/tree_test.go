package queue

import (
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"
)

// A limiter may get a place below another one while a third gets one below it: then all
// three have one lock.
func TestQueueAdoptsWhileItIsAdopted(t *testing.T) {
	var root, middle, inner Queue
	middle.mu.own.Lock() // holds up its adoption in the middle
	var wg sync.WaitGroup
	wg.Go(func() { middle.Adopt(&root) })
	for !middle.adopted.Load() {
		runtime.Gosched()
	}
	wg.Go(func() { inner.Adopt(&middle) })
	for range 1000 { // enough for that to end, were it not held up
		runtime.Gosched()
	}
	middle.mu.own.Unlock()
	wg.Wait()
	assert.Same(t, &root.mu.own, middle.mu.root())
	assert.Same(t, &root.mu.own, inner.mu.root())
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
