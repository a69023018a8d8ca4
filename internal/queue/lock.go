package queue

import (
	"sync"
	"sync/atomic"
)

// A treeLock is the lock of a queue, or that of the tree that the queue is in. A queue may get
// a parent while a goroutine looks at it, so a goroutine that has got a lock asks whether it is
// still the right one.
type treeLock struct {
	own sync.Mutex
	of  atomic.Pointer[sync.Mutex]
}

func (l *treeLock) Lock() {
	for {
		m := l.root()
		m.Lock()
		if m == l.root() {
			return
		}
		m.Unlock()
	}
}

func (l *treeLock) Unlock() { l.root().Unlock() }

func (l *treeLock) root() *sync.Mutex {
	if m := l.of.Load(); m != nil {
		return m
	}
	return &l.own
}

// While no call waits, the lock is held for a tenth of a microsecond. So a call that finds it taken
// looks again a few times, a microsecond apart, before it is parked. A sync.Mutex does so too, but
// parks at once if other goroutines are ready to run; then eight of them got half as many calls
// through. Looks in quicker succession would let processors take the queue's memory from each other
// at every call.
const (
	looks   = 4
	between = 3000 // turns of an empty loop
)

// lockPatiently is Lock for the path on which calls crowd.
func (l *treeLock) lockPatiently() {
	m := l.root()
	for range looks {
		if m.TryLock() {
			if m == l.root() {
				return
			}
			m.Unlock()
			break
		}
		for range between {
		}
	}
	l.Lock()
}
