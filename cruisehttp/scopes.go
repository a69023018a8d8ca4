package cruisehttp

import (
	"container/list"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/a7df5faa/cruise"
)

// HostKey is the default key: the host and port of the request's URL, in lower
// case.
func HostKey(req *http.Request) string {
	if req.URL == nil {
		return ""
	}
	return strings.ToLower(req.URL.Host)
}

// HeaderKey is a key for servers whose limits belong to a token or an account:
// the host, and a digest of the request's header of that name, such as
// "Authorization". The value itself is not kept.
func HeaderKey(name string) func(*http.Request) string {
	return func(req *http.Request) string {
		value := req.Header.Get(name)
		if value == "" {
			return HostKey(req)
		}
		sum := sha256.Sum256([]byte(value))
		return HostKey(req) + " " + hex.EncodeToString(sum[:8])
	}
}

// A scope is whatever the server counts together: one Retrier, with its limiter.
type scope struct {
	retrier *cruise.Retrier

	// The fields below are guarded by the mutex of the scopes.
	key     string
	users   int
	used    time.Time
	paused  time.Time // until when the server asked everyone to wait
	parked  time.Time // until when calls fail at once
	answer  *ResponseError
	reason  error
	element *list.Element // nil of the shared one
}

// scopes are all scopes of a Transport, a bounded number of them.
type scopes struct {
	make func() (*cruise.Retrier, error)
	max  int
	idle time.Duration

	mu     sync.Mutex
	byKey  map[string]*scope
	recent list.List         // of *scope, the latest used in front
	shared *scope            // for whom there is no room
	routes map[string]string // to the key that the server's bucket of a route has
}

// enter returns the scope of a key, for leave to be called on.
func (s *scopes) enter(key string) *scope {
	s.mu.Lock()
	defer s.mu.Unlock()
	sc := s.byKey[key]
	if sc == nil {
		sc = s.add(key)
	}
	sc.users++
	if sc.element != nil {
		s.recent.MoveToFront(sc.element)
	}
	return sc
}

func (s *scopes) leave(sc *scope) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sc.users--
	sc.used = time.Now()
}

// add makes a scope, and room for it. Where only scopes that must not be
// forgotten are left, the key shares one scope with all others without room.
func (s *scopes) add(key string) *scope {
	now := time.Now()
	for e := s.recent.Back(); e != nil; {
		sc, next := e.Value.(*scope), e.Prev()
		crowded := len(s.byKey) >= s.max
		if !crowded && (sc.users > 0 || now.Sub(sc.used) < s.idle) {
			break // those in front were used later
		}
		if sc.forgettable(now) {
			s.recent.Remove(e)
			delete(s.byKey, sc.key)
		}
		e = next
	}
	if len(s.byKey) >= s.max {
		return s.shared
	}
	retrier, err := s.make()
	if err != nil {
		return s.shared // cannot be: NewTransport has tried the options
	}
	sc := &scope{retrier: retrier, key: key, used: now}
	sc.element = s.recent.PushFront(sc)
	s.byKey[key] = sc
	return sc
}

// forgettable: nobody uses the scope and nobody is kept waiting by it.
func (sc *scope) forgettable(now time.Time) bool {
	return sc.users == 0 && !now.Before(sc.paused) && !now.Before(sc.parked) && sc.pauseLeft() <= 0
}

// pauseLeft is the pause that the limiter itself tells of.
func (sc *scope) pauseLeft() time.Duration {
	if a, ok := sc.retrier.Limiter().(*cruise.AdaptiveLimiter); ok {
		return a.Stats().PauseLeft
	}
	return 0
}

// pause remembers that the server asked everyone to wait.
func (s *scopes) pause(sc *scope, wait time.Duration) {
	if wait <= 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if until := time.Now().Add(wait); until.After(sc.paused) {
		sc.paused = until
	}
}

// park makes all calls fail at once, for wait, with the same answer.
func (s *scopes) park(sc *scope, wait time.Duration, reason error, answer *ResponseError) {
	if wait <= 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if until := time.Now().Add(wait); until.After(sc.parked) {
		sc.parked, sc.reason, sc.answer = until, reason, answer
	}
}

// parkedError is how calls fail in a parked scope, nil where none does.
func (s *scopes) parkedError(sc *scope) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sc.parked.IsZero() {
		return nil
	}
	left := time.Until(sc.parked)
	if _, tells := sc.retrier.Limiter().(*cruise.AdaptiveLimiter); tells {
		left = min(left, sc.pauseLeft()) // somebody may have resumed it
	}
	if left <= 0 {
		sc.parked, sc.answer, sc.reason = time.Time{}, nil, nil
		return nil
	}
	return &cruise.Error{Reason: sc.reason, RetryAfter: left, Last: sc.answer}
}

// limiter returns the limiter of a key, nil if there is none.
func (s *scopes) limiter(key string) cruise.Limiter {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sc := s.byKey[key]; sc != nil {
		return sc.retrier.Limiter()
	}
	return nil
}

// all returns all scopes, of which key and retrier never change.
func (s *scopes) all() []*scope {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*scope, 0, len(s.byKey)+1)
	for _, sc := range s.byKey {
		all = append(all, sc)
	}
	if s.shared != nil && (s.shared.users > 0 || !s.shared.used.IsZero()) {
		all = append(all, s.shared)
	}
	return all
}

// bucketKey returns the key under which the server's bucket of a route is kept,
// the route itself while no response has named the bucket.
func (s *scopes) bucketKey(route string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if key, ok := s.routes[route]; ok {
		return key
	}
	return route
}

// assign remembers the bucket of a route.
func (s *scopes) assign(route, key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.routes[route] == key {
		return
	}
	if s.routes == nil || len(s.routes) >= 4*s.max {
		s.routes = map[string]string{} // learned again soon
	}
	s.routes[route] = key
}
