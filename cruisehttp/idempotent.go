package cruisehttp

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/a7df5faa/cruise"
)

// Why a request was not retried, although its failure was worth it: see also
// [ErrBody].
var (
	// ErrNotIdempotent: sent again, the request might do its work twice. Give it
	// an Idempotency-Key, or a context of [AllowRetry]. Where it was not sent at all,
	// let what failed before say so by [Unsent].
	ErrNotIdempotent = errors.New("cruisehttp: not retried: the method is not idempotent and the request has no Idempotency-Key")
	// ErrForbidden: the request has a context of [ForbidRetry].
	ErrForbidden = errors.New("cruisehttp: not retried: its context forbids it")
)

type retryKey struct{}

// AllowRetry returns a context whose requests may be sent again after any
// failure that is worth it, whatever their method: doing their work twice does
// no harm. [WithOnlyIdempotent] does not hold for them.
func AllowRetry(ctx context.Context) context.Context {
	return context.WithValue(ctx, retryKey{}, true)
}

// ForbidRetry returns a context whose requests are sent once, but for what an
// [http.Transport] does by itself: see [Transport]. They are paced, and
// what they meet teaches the limiter. A [cruise.Retrier] around them makes them again with
// its own call, unless that is [cruise.WithoutRetries].
func ForbidRetry(ctx context.Context) context.Context {
	return context.WithValue(ctx, retryKey{}, false)
}

// idempotent tells whether a request can be sent twice: by its method, which is idempotent
// by RFC 9110 section 9.2.2, or one that only reads of WebDAV (RFC 4918, 3253 and 5323), or
// QUERY; or by its Idempotency-Key.
func idempotent(req *http.Request) bool {
	switch req.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete,
		"PROPFIND", "REPORT", "SEARCH", "QUERY":
		return true
	}
	// Like net/http: one without values says it too, and is not sent.
	for _, name := range [...]string{"Idempotency-Key", "X-Idempotency-Key"} {
		if v, ok := req.Header[name]; ok && (len(v) == 0 || v[0] != "") {
			return true
		}
	}
	return false
}

// refusal is why the request must not be sent again, nil if it may. safe: it was
// not processed, for all that is known.
func (x *exchange) refusal(safe bool) error {
	allowed, said := x.req.Context().Value(retryKey{}).(bool)
	switch {
	case said && !allowed:
		return ErrForbidden
	case !allowed && !safe && !idempotent(x.req):
		return ErrNotIdempotent
	case !x.payload.again:
		return ErrBody
	}
	return nil
}

// unprocessed tells whether the server surely has not done what the request
// asked for: it was throttled, or the server wants it sent again.
func (x *exchange) unprocessed(v cruise.Verdict) bool {
	return !x.t.onlyIdempotent && (v.Outcome == cruise.OutcomeThrottled || x.signal.ShouldRetry)
}

// Unsent marks the error of a [WithBase] that came before anything of the request was sent,
// such as that of its source of tokens: the request is sent again, if the error is worth it,
// whatever its method. Errors of an [http.Transport] need no such mark; but where its
// TLSNextProto names protocols, only those of connecting and of HTTP/2 are known to be such.
// It returns nil for a nil err.
func Unsent(err error) error {
	if err == nil {
		return nil
	}
	return &unsentError{failure{err}}
}

type unsentError struct{ failure }

// A connecting watches a request of a [http.Transport], which sends nothing before it has
// got a connection. Other bases may ask for one and send by another way.
type connecting struct{ asked, got atomic.Bool }

func (c *connecting) watch(r *http.Request) *http.Request {
	return r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
		GetConn: func(string) { c.asked.Store(true) },
		GotConn: func(httptrace.GotConnInfo) { c.got.Store(true) },
	}))
}

// unsent tells whether nothing was sent. A protocol that somebody has put into TLSNextProto
// may send without a word, on a connection of another request too. A clone has none but those.
func (c *connecting) unsent(base *http.Transport) bool {
	return c.asked.Load() && !c.got.Load() && len(base.Clone().TLSNextProto) == 0
}

// roundTrip is that of the base, and marks what was not sent where that decides on a retry.
func (x *exchange) roundTrip(r *http.Request) (*http.Response, error) {
	base, ok := x.t.base.(*http.Transport)
	if !ok || x.refusal(false) == nil || x.refusal(true) != nil {
		return x.t.base.RoundTrip(r)
	}
	// It sends again by itself what it could not send on a connection that had been closed
	// meanwhile, if it can have the body again. Other bases may want a copy beside the body.
	if seeker := x.payload.seeker; seeker != nil {
		r.GetBody = func() (io.ReadCloser, error) { return seeker.rewind(r.Context()) }
	}
	c := &connecting{}
	resp, err := base.RoundTrip(c.watch(r))
	// A Client knows a server without TLS by the type of this one, which nothing may wrap.
	if _, plain := err.(tls.RecordHeaderError); err != nil && !plain && c.unsent(base) {
		err = Unsent(err)
	}
	return resp, err
}

// unsent tells whether an error came before anything of the request was sent, or the
// server says that it has not begun with it (RFC 9113 section 8.7). Of several errors
// that are joined all must be such: a base may have tried one server after the other.
func unsent(err error) bool {
	switch e := err.(type) {
	case nil:
		return false
	case *unsentError:
		return true
	case *net.OpError:
		return slices.Contains([]string{"dial", "proxyconnect", "socks connect"}, e.Op)
	case interface{ Unwrap() []error }:
		all := e.Unwrap()
		return len(all) > 0 && !slices.ContainsFunc(all, func(err error) bool { return !unsent(err) })
	case interface{ Unwrap() error }:
		return unsent(e.Unwrap())
	}
	// The types of net/http for this are not exported.
	text := strings.TrimPrefix(err.Error(), "http2: Transport: cannot retry err [")
	return text == "net/http: TLS handshake timeout" ||
		strings.HasPrefix(text, "http2: Transport received Server's graceful shutdown GOAWAY") ||
		strings.HasPrefix(text, "stream error: ") && strings.Contains(text, "; REFUSED_STREAM; received from peer")
}
