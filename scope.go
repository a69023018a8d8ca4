package cruise

import (
	"context"
	"encoding/binary"
	"errors"
	"hash/maphash"
	"math"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Defaults of the scopes of a [Retrier].
const (
	DefaultMaxScopes = 10_000           // limiters kept
	DefaultScopeIdle = 30 * time.Minute // without a call, after which one is forgotten
)

// WithScopeLimiter makes the limiter of each key of each scope: see
// [Retrier.Scope]. It must make a new one each time, and may be called from many
// goroutines at once. Default: an [AdaptiveLimiter] with the same options as the
// one that the Retrier makes for itself.
func WithScopeLimiter(limiter func(scope, key string) (Limiter, error)) Option {
	return option(func(c *config) {
		if limiter == nil {
			c.fail("WithScopeLimiter(nil): want a function")
		}
		c.scopeLimiter = limiter
	})
}

// WithMaxScopes is how many limiters of scopes are kept, 1 or more. When there
// are more, the least recently used are forgotten, with what they have learned,
// except those in use or paused. Default 10,000.
func WithMaxScopes(n int) Option {
	return option(func(c *config) {
		if n < 1 {
			c.fail("WithMaxScopes(%d): want 1 or more", n)
		}
		c.maxScopes = n
	})
}

// WithScopeIdle is after how long without a call the limiter of a scope may be
// forgotten, above 0. Default 30 minutes.
func WithScopeIdle(d time.Duration) Option {
	return option(func(c *config) {
		if d <= 0 {
			c.fail("WithScopeIdle(%v): want above 0", d)
		}
		c.scopeIdle = d
	})
}

// Scope returns a Retrier like r, whose calls obey a limiter of their own too:
// that of the key in the scope, such as a customer's number in "ACCOUNT", made
// when first used. Any text is a key. Scopes may be nested, in any depth:
//
//	developer.Scope("ACCOUNT", id).Scope("TABLE", table).Do(ctx, call)
//
// A call goes when its own limiter and all those around it let it; until then
// it holds nothing of any of them. What it teaches:
//
//   - a throttle that names a scope ([InScope]) pauses and cuts the limiter of
//     that scope only; a name that is not a scope of the call is that of the
//     outermost limiter;
//   - a throttle that names none, the innermost;
//   - a success, all of them; a [Quota], the innermost.
//
// So the limit of one customer never slows the others, and that of the
// developer slows all. Budget, options and observer are those of r.
//
// A scope's Retrier is cheap: make one for each call, or keep it. Limiters are
// kept as [WithMaxScopes] and [WithScopeIdle] say, never forgotten while a call
// waits, is in flight, or a pause is in force.
//
// Between limiters of other packages, which cannot be asked without taking, a
// call waits one after the other, outermost first, and so it does for a
// [DelayLimiter]; those of this package come last, all at one moment.
func (r *Retrier) Scope(scope, key string) *Retrier {
	if r == nil || r.scopes == nil {
		return r // Do will say so
	}
	parent, _ := r.limiter.(*scopeLimiter)
	s := &Retrier{config: r.config}
	l := &scopeLimiter{scopes: r.scopes, parent: parent, scope: scope, key: key}
	s.limiter, s.learner = l, l
	return s
}

// scopeLimiter is the limiter of a scope's Retrier: it finds the limiter of its
// key anew for each call, as that may have been forgotten.
type scopeLimiter struct {
	scopes     *scopes
	parent     *scopeLimiter // nil if in the outermost scope
	scope, key string
}

var (
	_ Learner  = (*scopeLimiter)(nil)
	_ admitter = (*scopeLimiter)(nil)
)

// scopes keeps the limiters of all scopes below one limiter.
//
// Its lock may be held while that of a room is taken, never the other way round,
// and no code of others runs under it.
type scopes struct {
	make     func(scope, key string) (Limiter, error)
	max      int
	idle     time.Duration
	root     Limiter // nil if none
	rootRoom *room   // of root, nil if none that can have rooms below it

	mu      sync.Mutex // guards the fields below and the entries
	entries map[scopeID]*scopeEntry
	recent  scopeEntry // ring of entries, the most recently used next
}

type scopeID struct {
	parent     *scopeEntry
	scope, key string
}

// scopeEntry is a limiter of a key.
type scopeEntry struct {
	id         scopeID
	limiter    Limiter
	room       *room // of limiter, in the tree; nil if limiter is asked before
	uses       int   // calls that wait or are in flight, and entries below
	used       time.Time
	next, prev *scopeEntry
}

func newScopes(c *config) *scopes {
	s := &scopes{make: c.scopeLimiter, max: c.maxScopes, idle: c.scopeIdle, root: c.limiter}
	if s.make == nil {
		opts := c.limiterOpts
		if c.limiterSet && c.observer != nil {
			opts = append(opts, WithObserver(c.observer))
		}
		s.make = func(string, string) (Limiter, error) { return NewAdaptiveLimiter(opts...) }
	}
	if s.max == 0 {
		s.max = DefaultMaxScopes
	}
	if s.idle == 0 {
		s.idle = DefaultScopeIdle
	}
	if h, ok := s.root.(housed); ok {
		s.rootRoom = h.house()
	}
	s.recent.next, s.recent.prev = &s.recent, &s.recent
	return s
}

// housed is a limiter whose room may be part of a tree.
type housed interface {
	Learner
	house() *room
	maxCost() int
}

func (b *TokenBucket) house() *room     { return &b.room }
func (s *SlidingWindow) house() *room   { return &s.room }
func (a *AdaptiveLimiter) house() *room { return &a.room }

func (b *TokenBucket) maxCost() int   { return b.tokens.lim.Burst() }
func (s *SlidingWindow) maxCost() int { return s.spans.most }

func (a *AdaptiveLimiter) maxCost() int {
	if a.burst > 0 {
		return a.burst
	}
	return math.MaxInt
}

// Keys above this length are kept as their hash.
const longKey = 64

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

var errNilScopeLimiter = errors.New("cruise: WithScopeLimiter's function returned a nil Limiter")
var errUsedScopeLimiter = errors.New("cruise: WithScopeLimiter's function returned a limiter that has a scope already")

// use returns the entry of l, made if need be, with one use more. Every use must
// be followed by an unuse.
func (s *scopes) use(l *scopeLimiter) (*scopeEntry, error) {
	for {
		s.mu.Lock()
		now := clock()
		e, missing, parent := s.find(l, now)
		if e != nil {
			e.uses++
			s.forget(now)
			s.mu.Unlock()
			return e, nil
		}
		s.mu.Unlock()
		limiter, err := s.make(missing.scope, missing.key)
		if err != nil {
			return nil, err
		}
		if limiter == nil {
			return nil, errNilScopeLimiter
		}
		s.mu.Lock()
		err = s.insert(parent, missing, limiter)
		s.mu.Unlock()
		if err != nil {
			return nil, err
		}
	}
}

func (s *scopes) unuse(e *scopeEntry) {
	s.mu.Lock()
	e.uses--
	s.mu.Unlock()
}

// find returns the entry of l, or which of the scopes around it has none yet, and
// the entry around that.
func (s *scopes) find(l *scopeLimiter, now time.Time) (e *scopeEntry, missing *scopeLimiter, parent *scopeEntry) {
	if l.parent != nil {
		if parent, missing, e = s.find(l.parent, now); missing != nil {
			return nil, missing, e
		}
	}
	key := l.key
	if len(key) > longKey {
		key = shortKey(key)
	}
	e = s.entries[scopeID{parent, l.scope, key}]
	if e == nil {
		return nil, l, parent
	}
	e.used = now
	s.touch(e)
	return e, nil, parent
}

// insert makes an entry, unless there is one by now, or the parent has gone.
func (s *scopes) insert(parent *scopeEntry, l *scopeLimiter, limiter Limiter) error {
	now := clock()
	if parent != nil && s.entries[parent.id] != parent {
		return nil
	}
	id := scopeID{parent, strings.Clone(l.scope), shortKey(l.key)}
	if s.entries[id] != nil {
		return nil
	}
	e := &scopeEntry{id: id, limiter: limiter, used: now}
	if h, ok := limiter.(housed); ok {
		e.room = h.house()
		above := s.rootRoom
		for p := parent; p != nil; p = p.id.parent {
			if p.room != nil {
				above = p.room
				break
			}
		}
		if !e.room.adopt(above) {
			return errUsedScopeLimiter
		}
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

// touch makes e the most recently used.
func (s *scopes) touch(e *scopeEntry) {
	e.prev.next, e.next.prev = e.next, e.prev
	e.prev, e.next = &s.recent, s.recent.next
	e.prev.next, e.next.prev = e, e
}

// forget drops what is too old or too much, a few at a time, so that no call pays
// for many.
func (s *scopes) forget(now time.Time) {
	for range 4 {
		e := s.recent.prev
		if e == &s.recent || len(s.entries) <= s.max && now.Sub(e.used) <= s.idle {
			return
		}
		if e.uses > 0 || e.room != nil && e.room.paused() {
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

// chain calls f for each limiter around a call, the innermost first, with its
// room if that is in the tree and the name of its scope.
func (s *scopes) chain(e *scopeEntry, f func(l Limiter, r *room, scope string)) {
	for ; e != nil; e = e.id.parent {
		f(e.limiter, e.room, e.id.scope)
	}
	if s.root != nil {
		f(s.root, s.rootRoom, "")
	}
}

// WaitN waits until a call of cost n may go.
func (l *scopeLimiter) WaitN(ctx context.Context, n int) error {
	_, _, err := l.admit(ctx, n)
	return err
}

func (l *scopeLimiter) admit(ctx context.Context, n int) (came, sent time.Time, err error) {
	if came, sent, err = free(ctx, n); n <= 0 || err != nil {
		return came, sent, err
	}
	sent = time.Time{}
	e, err := l.scopes.use(l)
	if err != nil {
		return came, sent, err
	}
	passed := 0 // limiters asked before the tree
	defer func() {
		if sent.IsZero() {
			l.scopes.drop(e, n, passed)
		}
	}()
	var inner *room
	var before []Limiter // the innermost first
	l.scopes.chain(e, func(lim Limiter, r *room, _ string) {
		switch {
		case r == nil:
			before = append(before, lim)
		case n > lim.(housed).maxCost():
			err = costError(n, lim.(housed).maxCost())
		case inner == nil:
			inner = r
		}
	})
	if err != nil {
		return came, sent, err
	}
	for i := range before {
		if err := waitFor(ctx, before[len(before)-1-i], n); err != nil {
			return came, time.Time{}, err
		}
		passed++
	}
	if inner == nil {
		return came, clock(), nil
	}
	_, sent, err = inner.enter(ctx, n)
	return came, sent, err
}

// waitFor waits for a limiter of whatever make.
func waitFor(ctx context.Context, lim Limiter, n int) error {
	err := lim.WaitN(ctx, n)
	if x, ok := lim.(*rate.Limiter); ok && err != nil && ctx.Err() == nil && n <= x.Burst() {
		return &Error{Reason: ErrDeadline}
	}
	return err
}

// drop gives up a call that was not let go, after some limiters that are asked
// before the tree let it.
func (s *scopes) drop(e *scopeEntry, n, passed int) {
	var before []Limiter
	s.chain(e, func(lim Limiter, r *room, _ string) {
		if r == nil {
			before = append(before, lim)
		}
	})
	for i := range passed {
		if x, ok := before[len(before)-1-i].(Learner); ok {
			x.Learn(Feedback{Outcome: OutcomeDropped, Cost: n})
		}
	}
	s.unuse(e)
}

// Learn tells each limiter what concerns it.
func (l *scopeLimiter) Learn(f Feedback) {
	if f.Cost <= 0 {
		return
	}
	s := l.scopes
	s.mu.Lock()
	e, _, _ := s.find(l, clock())
	s.mu.Unlock()
	if e == nil {
		return // of a call that was never let go
	}
	defer s.unuse(e)
	blamed := s.blamed(e, f)
	i := 0
	s.chain(e, func(lim Limiter, _ *room, _ string) {
		its := f
		if i != blamed {
			its.Quota, its.RetryAfter = nil, 0
			if f.Outcome == OutcomeThrottled || f.Outcome == OutcomeQuotaExhausted {
				its.Outcome = OutcomeDropped
			}
		}
		i++
		if x, ok := lim.(Learner); ok {
			x.Learn(its)
		}
	})
}

// blamed is the place in the chain of the limiter that a feedback is about.
func (s *scopes) blamed(e *scopeEntry, f Feedback) (place int) {
	if f.Scope == "" {
		return 0
	}
	i, found := 0, false
	s.chain(e, func(_ Limiter, _ *room, scope string) {
		if !found {
			place, found = i, scope == f.Scope
		}
		i++
	})
	return place
}

// pausesFor reports whether a limiter pauses for a throttle that names a scope.
func (l *scopeLimiter) pausesFor(scope string) bool {
	e, err := l.scopes.use(l)
	if err != nil {
		return false
	}
	defer l.scopes.unuse(e)
	blamed, i, learns := l.scopes.blamed(e, Feedback{Scope: scope}), 0, false
	l.scopes.chain(e, func(lim Limiter, _ *room, _ string) {
		if i == blamed {
			_, learns = lim.(Learner)
		}
		i++
	})
	return learns
}

// own is the limiter of the key.
func (l *scopeLimiter) own() Limiter {
	e, err := l.scopes.use(l)
	if err != nil {
		return nil
	}
	defer l.scopes.unuse(e)
	return e.limiter
}
