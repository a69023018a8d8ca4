package cruise

import (
	"encoding/binary"
	"errors"
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/a7df5faa/cruise/internal/clock"
	"github.com/a7df5faa/cruise/internal/nils"
	"github.com/a7df5faa/cruise/internal/queue"
)

// scopes keeps the limiters of all scopes below one limiter.
//
// Its lock may be held while that of a queue is taken, never the other way round,
// and no code of others runs under it.
type scopes struct {
	make    func(*scopeLimiter) (Limiter, error)
	max     int
	idle    time.Duration
	budgets bool        // each key has a budget of its own
	root    *scopeEntry // around all entries, and none of them; nil if there is no limiter

	mu      sync.Mutex // guards the fields below and the entries
	entries map[scopeID]*scopeEntry
	recent  scopeEntry // ring of entries, the most recently used next

	spent atomic.Bool // there is a key with a budget; else success costs nothing
}

type scopeID struct {
	parent     *scopeEntry
	scope, key string
}

// scopeEntry is a limiter of a key, and what its retries are paid from.
type scopeEntry struct {
	id         scopeID
	limiter    Limiter
	queue      *queue.Queue // of limiter, in the tree; nil if limiter is of another package, and asked before
	uses       int          // calls that wait or are in flight, and entries below
	used       clock.Instant
	resume     clock.Instant          // until when the server last asked for a pause
	budget     atomic.Pointer[Budget] // nil until there is a retry
	next, prev *scopeEntry
}

func newScopes(c *config) *scopes {
	s := &scopes{max: c.maxScopes, idle: c.scopeIdle, budgets: !c.budgetSet}
	if c.limiter != nil {
		s.root = &scopeEntry{limiter: c.limiter, queue: queueOf(c.limiter)}
	}
	custom, observer, opts := c.scopeLimiter, c.observer, slices.Clip(c.limiterOpts)
	s.make = func(l *scopeLimiter) (Limiter, error) {
		switch {
		case custom != nil:
			return custom(l.scope, l.key)
		case observer != nil:
			return NewAdaptiveLimiter(append(opts, WithObserver(newScopeObserver(observer, l)))...)
		}
		return NewAdaptiveLimiter(opts...)
	}
	if s.max == 0 {
		s.max = DefaultMaxScopes
	}
	if s.idle == 0 {
		s.idle = DefaultScopeIdle
	}
	s.recent.next, s.recent.prev = &s.recent, &s.recent
	return s
}

// queueOf returns the queue of a limiter of this package; nil if l is none, or was not made by
// its constructor.
func queueOf(l Limiter) *queue.Queue {
	if own, ok := ownOf(l); ok && own.house().Ready() {
		return own.house()
	}
	return nil
}

// Keys above a length are kept as their hash.
const (
	longKey   = 64
	digestLen = 16 // of the hash; what follows is 0
)

var keySeeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

// shortKey is a key of bounded length that holds no memory of the caller's.
func shortKey(key string) string {
	if len(key) <= longKey {
		return strings.Clone(key)
	}
	sum := make([]byte, 0, longKey+1)
	for _, seed := range keySeeds {
		sum = binary.LittleEndian.AppendUint64(sum, maphash.String(seed, key))
	}
	return string(sum[:longKey+1]) // longer than any that is kept as it is
}

var (
	errNilScopeLimiter  = errors.New("cruise: WithScopeLimiter's function returned a nil Limiter")
	errUsedScopeLimiter = errors.New("cruise: WithScopeLimiter's function returned a limiter that has a scope already")
)

// use returns the entry of l, made if need be, with one use more. Every use must
// be followed by an unuse.
func (s *scopes) use(l *scopeLimiter) (*scopeEntry, error) {
	for {
		e, missing := s.enter(l)
		if missing == nil {
			return e, nil
		}
		limiter, err := s.make(missing)
		if err != nil {
			return nil, err
		}
		if nils.Is(limiter) {
			return nil, errNilScopeLimiter
		}
		if err := s.insert(e, missing, limiter); err != nil {
			return nil, err
		}
	}
}

// enter is find that counts a use of the entry.
func (s *scopes) enter(l *scopeLimiter) (e *scopeEntry, missing *scopeLimiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := clock.Now()
	if e, missing = s.find(l, now); missing != nil {
		return e, missing
	}
	e.uses++
	few := 0
	for x := l; x != nil; x = x.parent {
		few += 4
	}
	s.forget(now, few)
	return e, nil
}

func (s *scopes) unuse(e *scopeEntry) {
	s.mu.Lock()
	e.uses--
	s.mu.Unlock()
}

// find is lookUp that makes the entry of l the most recently used, with those around it.
func (s *scopes) find(l *scopeLimiter, now clock.Instant) (e *scopeEntry, missing *scopeLimiter) {
	if e, missing = s.lookUp(l); missing != nil {
		return e, missing
	}
	for x := e; x != s.root; x = x.id.parent {
		x.used = now
		s.touch(x) // later than all within it
	}
	return e, nil
}

// lookUp returns the entry of l. Where l or a scope around it has none yet, it returns the
// outermost that has none, and the entry around that.
func (s *scopes) lookUp(l *scopeLimiter) (e *scopeEntry, missing *scopeLimiter) {
	parent := s.root
	if l.parent != nil {
		if parent, missing = s.lookUp(l.parent); missing != nil {
			return parent, missing
		}
	}
	key := l.key
	if len(key) > longKey {
		key = shortKey(key)
	}
	if e = s.entries[scopeID{parent, l.scope, key}]; e == nil {
		return parent, l
	}
	return e, nil
}

// insert makes an entry, unless there is one by now, or the parent has gone.
func (s *scopes) insert(parent *scopeEntry, l *scopeLimiter, limiter Limiter) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := clock.Now()
	if parent != s.root && s.entries[parent.id] != parent {
		return nil
	}
	id := scopeID{parent, strings.Clone(l.scope), shortKey(l.key)}
	if s.entries[id] != nil {
		return nil
	}
	e := &scopeEntry{id: id, limiter: limiter, queue: queueOf(limiter), used: now}
	if e.queue != nil && !e.queue.Adopt(parent.nearest()) {
		return errUsedScopeLimiter
	}
	if s.entries == nil {
		s.entries = make(map[scopeID]*scopeEntry)
	}
	s.entries[id] = e
	if parent != nil {
		parent.uses++
	}
	e.next, e.prev = e, e
	s.touch(e)
	return nil
}

// nearest returns the queue in the tree that is the nearest to a call, nil if there is none.
func (e *scopeEntry) nearest() *queue.Queue {
	for ; e != nil; e = e.id.parent {
		if e.queue != nil {
			return e.queue
		}
	}
	return nil
}

// blamed is the entry, of those around a call, whose scope a server blames; or the next one
// further out whose limiter can learn, where that one's cannot.
func (e *scopeEntry) blamed(scope string) *scopeEntry {
	for scope != "" && e.id.scope != scope && e.id.parent != nil {
		e = e.id.parent
	}
	for x := e; x != nil; x = x.id.parent {
		if _, learns := x.limiter.(Learner); learns {
			return x
		}
	}
	return e
}

// blame returns the entry of l, which is in use, and that whose scope a server blames.
func (s *scopes) blame(l *scopeLimiter, f ending) (e, blamed *scopeEntry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := clock.Now()
	e, _ = s.find(l, now)
	blamed = e.blamed(f.scope)
	if f.outcome.stops() {
		blamed.resume = max(blamed.resume, now.Add(f.retryAfter))
	}
	return e, blamed
}

// paused reports whether the limiter lets nobody go. One that is not of this package is
// not asked, since no other's code runs under the lock: it pauses for as long as it was
// told that the server asks for.
func (e *scopeEntry) paused(now clock.Instant) bool {
	if own, ok := ownOf(e.limiter); ok {
		_, pause := own.house().Report()
		return pause > 0
	}
	return now < e.resume
}

// counts reports whether calls that went still count against the limiter's limit.
func (e *scopeEntry) counts() bool {
	if x, ok := e.limiter.(*rate.Limiter); ok {
		return x.Limit() != rate.Inf && x.Tokens() < float64(x.Burst())
	}
	return e.queue != nil && e.queue.Counts()
}

// touch makes e the most recently used.
func (s *scopes) touch(e *scopeEntry) {
	e.prev.next, e.next.prev = e.next, e.prev
	e.prev, e.next = &s.recent, s.recent.next
	e.prev.next, e.next.prev = e, e
}

// forget drops what is too old or too much, few at a time, so that no call pays for
// many, but more than a call can add. An entry comes here before those around it, which
// are in use as long as it is kept.
func (s *scopes) forget(now clock.Instant, few int) {
	for range few {
		e := s.recent.prev
		if len(s.entries) <= s.max && now.Sub(e.used) <= s.idle {
			return
		}
		tooMany := len(s.entries) > s.max
		if e.uses > 0 || e.paused(now) || !tooMany && e.counts() {
			s.touch(e) // asked again in its turn
			continue
		}
		delete(s.entries, e.id)
		e.prev.next, e.next.prev = e.next, e.prev
		if e.id.parent != nil {
			e.id.parent.uses--
		}
	}
}
