package cruisehttp

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/a7df5faa/cruise"
)

// HostKey returns the key of the default scope: the host and port of the request's URL, in lower
// case, without the port if it is the scheme's default.
func HostKey(req *http.Request) string {
	if req.URL == nil {
		return ""
	}
	host := strings.ToLower(req.URL.Host)
	switch req.URL.Scheme {
	case "http":
		host = strings.TrimSuffix(host, ":80")
	case "https":
		host = strings.TrimSuffix(host, ":443")
	}
	return host
}

// HeaderKey returns a key function for servers whose limits belong to a token or an account. The
// key is the host with a digest of the named request header, such as "Authorization". The value
// itself is not kept. A request without the header has the key of its host.
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

// GlobalScope is the name of the default scope, of everything that goes to one
// host; some servers blame a limit of that name.
const GlobalScope = "global"

// BucketScope is the name of the innermost scope with [WithBuckets].
const BucketScope = "bucket"

// A level is one of the scopes that a request is in.
type level struct {
	name string
	key  func(*http.Request) string
}

// keys returns the keys of the scopes that a request is in, the outermost first;
// where one is "", there is no scope of that name around the request.
func (t *Transport) keys(req *http.Request) []string {
	keys := make([]string, len(t.levels), len(t.levels)+1)
	for i, l := range t.levels {
		keys[i] = l.key(req)
	}
	if t.bucketHeader == "" {
		return keys
	}
	return append(keys, t.buckets.of(routeOf(keys, t.bucketRoute(req))))
}

// scope returns the Retrier of the scope with these keys.
func (t *Transport) scope(keys []string) *cruise.Retrier {
	r := t.retrier
	for i, key := range keys {
		switch {
		case key == "":
		case i < len(t.levels):
			r = r.Scope(t.levels[i].name, key)
		default:
			r = r.Scope(BucketScope, key)
		}
	}
	return r
}

// blamed returns how many of the keys lead to the scope that the server blames: the scope of that
// name, or else the innermost scope of the request.
func (t *Transport) blamed(name string, keys []string) int {
	i := slices.IndexFunc(t.levels, func(l level) bool { return l.name == name })
	if i >= 0 && keys[i] != "" {
		return i + 1
	}
	n := len(keys)
	for n > 1 && keys[n-1] == "" {
		n--
	}
	return n
}

// inScope returns the hint that names the blamed scope to the limiters: "" is the innermost. If the
// Transport has one scope only, observers get the server's name for it.
func (t *Transport) inScope(name string, keys []string) cruise.Hint {
	if n := t.blamed(name, keys); n <= len(t.levels) && t.levels[n-1].name == name || len(keys) == 1 && t.retrier.Limiter() == nil {
		return cruise.InScope(name)
	}
	return cruise.InScope("")
}

// path returns one key for the scope with these keys.
func path(keys []string) string { return strings.Join(keys, "\x00") }

// routeOf returns one key for a route within the scopes with these keys.
func routeOf(keys []string, route string) string { return path(append(slices.Clip(keys), route)) }

// buckets remembers the names that a server has for its limits on routes.
type buckets struct {
	mu    sync.Mutex
	names map[string]string // by route
}

// The bounds of the memory of buckets.
const (
	maxRoutes = 4096
	maxBucket = 256 // bytes of a name; longer ones are no names
)

// of returns the bucket of a route: the route itself while no response has named it.
func (b *buckets) of(route string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if name, ok := b.names[route]; ok {
		return name
	}
	return route
}

func (b *buckets) learn(route, name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.names[route] == name || len(name) > maxBucket {
		return
	}
	if b.names == nil {
		b.names = map[string]string{}
	}
	if _, known := b.names[route]; !known && len(b.names) >= maxRoutes {
		for other := range b.names { // one is learned again soon; all at once would leave their paused buckets
			delete(b.names, other)
			break
		}
	}
	b.names[route] = strings.Clone(name) // without the rest of the response
}

// lot caches the answers of servers in scopes whose quota is used up. It need not keep all of them:
// the limiters of these scopes are paused, and refuse calls by themselves.
type lot struct {
	mu     sync.Mutex
	parked map[string]parked // by path
}

type parked struct {
	until  time.Time
	reason error
	answer *ResponseError
}

// maxParked is the highest number of answers in a lot.
const maxParked = 1024

func (l *lot) park(path string, p parked) {
	l.mu.Lock()
	defer l.mu.Unlock()
	old, known := l.parked[path]
	if known && old.until.After(p.until) {
		return // p was under way, and reports a shorter limit
	}
	if !known && len(l.parked) >= maxParked {
		now := time.Now()
		for path, p := range l.parked {
			if !now.Before(p.until) {
				delete(l.parked, path)
			}
		}
		if len(l.parked) >= maxParked {
			return
		}
	}
	if l.parked == nil {
		l.parked = map[string]parked{}
	}
	l.parked[path] = p
}

// find returns the answer of the outermost parked scope, and the number of keys that lead to it.
func (l *lot) find(keys []string) (p parked, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.parked) == 0 {
		return p, 0
	}
	for n := 1; n <= len(keys); n++ {
		if p, ok := l.parked[path(keys[:n])]; ok {
			return p, n
		}
	}
	return p, 0
}

func (l *lot) leave(path string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.parked, path)
}

// parkedError returns the error of a call in a parked scope; nil if none of its scopes is parked.
func (t *Transport) parkedError(ctx context.Context, keys []string) error {
	for {
		p, n := t.lot.find(keys)
		if n == 0 {
			return nil
		}
		left := time.Until(p.until)
		if l, ok := t.scope(keys[:n]).Limiter().(interface{ PauseLeft() time.Duration }); ok {
			left = min(left, l.PauseLeft()) // the limiter may have been resumed
		}
		if left > 0 {
			return t.scope(keys).Refuse(ctx, p.reason, left, p.answer)
		}
		t.lot.leave(path(keys[:n]))
	}
}
