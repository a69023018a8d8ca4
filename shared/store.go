package shared

import (
	"context"
	"errors"
	"sync"

	"github.com/a7df5faa/cruise/internal/clock"
	"github.com/a7df5faa/cruise/internal/limits"
)

// A Store is the place where workers on many machines meet. It keeps the shared state of one
// scope: one rate, one stream of slots and one pause. A [Limiter] asks it a few times a second
// while calls go, and never while none is made. Module cruiseredis has a Store in Redis,
// [MemoryStore] is one for a single process.
type Store interface {
	// Sync carries out a request, atomically, and returns the answer: it calls [State.Sync], or
	// does the same, at the time of the store's clock. If it can only do the same as
	// [State.Report] and [State.Commit] atomically, it calls [News.Decide] in between.
	//
	// It must return when ctx ends, which is soon. It must not try again by itself: a request
	// whose answer got lost costs some slots at most, but a late one is stale. One goroutine at a
	// time calls it for each limiter.
	Sync(ctx context.Context, q Request) (Reply, error)
}

// A MemoryStore is a [Store] within a process: for tests, and for limiters that share a limit
// there although each has a queue.
//
// A MemoryStore is safe for concurrent use and must not be copied. Make one with [NewMemoryStore].
type MemoryStore struct {
	mu    sync.Mutex // guards the fields below
	begun clock.Instant
	state State
}

var _ Store = (*MemoryStore)(nil)

var errZeroStore = errors.New("cruise: MemoryStore not made by NewMemoryStore")

// NewMemoryStore returns the store of a new scope.
func NewMemoryStore() *MemoryStore { return &MemoryStore{begun: clock.Now()} }

// Sync carries out a request at once. It fails only if ctx has ended.
func (m *MemoryStore) Sync(ctx context.Context, q Request) (Reply, error) {
	if m.begun == 0 {
		return Reply{}, errZeroStore
	}
	if ctx == nil {
		return Reply{}, limits.ErrNilContext
	}
	if ctx.Err() != nil {
		return Reply{}, limits.ContextError(ctx)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state.Sync(clock.Now().Sub(m.begun), q), nil
}
