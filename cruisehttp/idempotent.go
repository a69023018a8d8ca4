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
	// ErrNotIdempotent: sent again, the request might do its work twice. Give it an
	// Idempotency-Key, or a context of [AllowRetry]. If the base failed before it sent anything,
	// mark its error by [Unsent].
	ErrNotIdempotent = errors.New("cruisehttp: not retried: the method is not idempotent and the request has no Idempotency-Key")
	// ErrNonce: the request carries a nonce that a server accepts once, such as the signed requests
	// of ACME, DPoP, HTTP Digest and OAuth 1.0. Sign it beneath the Transport, in its base, so that
	// each attempt has its own nonce.
	ErrNonce = errors.New("cruisehttp: not retried: the request carries a nonce that can be used once")
	// ErrForbidden: the request has a context of [ForbidRetry].
	ErrForbidden = errors.New("cruisehttp: not retried: its context forbids it")
)

type retryKey struct{}

// AllowRetry returns a context whose requests may be sent again after any failure worth a retry,
// with any method and nonce. Use it if doing the work twice does no harm. [WithOnlyIdempotent] does
// not hold for these requests. [WithAnyMethod] does the same for all requests of a Transport.
func AllowRetry(ctx context.Context) context.Context {
	return context.WithValue(ctx, retryKey{}, true)
}

// ForbidRetry returns a context whose requests are sent once, apart from the repeats of an
// [http.Transport] itself: see [Transport]. They are paced, and the limiter learns from their
// results. A [cruise.Retrier] around them may still repeat them with its own call, unless that call
// is [cruise.WithoutRetries].
func ForbidRetry(ctx context.Context) context.Context {
	return context.WithValue(ctx, retryKey{}, false)
}

// idempotent reports whether a request can be sent twice. Its method must be idempotent by RFC 9110
// section 9.2.2, or a reading method of WebDAV (RFC 4918, 3253 and 5323), or QUERY; or the request
// must have an Idempotency-Key, or the header of [WithIdempotencyHeader].
func (t *Transport) idempotent(req *http.Request) bool {
	switch req.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete,
		"PROPFIND", "REPORT", "SEARCH", "QUERY":
		return true
	}
	// As in net/http, a header without values counts too, and is not sent.
	has := func(name string) bool {
		v, ok := req.Header[name]
		return ok && (len(v) == 0 || v[0] != "")
	}
	return has("Idempotency-Key") || has("X-Idempotency-Key") || slices.ContainsFunc(t.keyHeaders, has)
}

// carriesNonce reports whether a server would refuse the request if it saw it twice: it is signed
// with a nonce (RFC 7616, RFC 5849, RFC 8555, RFC 9449, Hawk, Kraken), or has a header that is
// named so.
func carriesNonce(h http.Header) bool {
	for name, values := range h {
		switch {
		case len(values) == 0:
		case len(name) >= len("Nonce") && strings.EqualFold(name[len(name)-len("Nonce"):], "Nonce"), name == "Dpop", name == "Api-Sign":
			return true
		case name == "Content-Type":
			if strings.HasPrefix(strings.ToLower(values[0]), "application/jose+json") {
				return true
			}
		case name == "Authorization":
			scheme, rest, _ := strings.Cut(values[0], " ")
			switch strings.ToLower(scheme) {
			case "digest", "hawk":
				return true
			case "oauth":
				return strings.Contains(rest, "oauth_nonce")
			}
		}
	}
	return false
}

// A fate tells how far a failed request got.
type fate int

const (
	notSent fate = iota
	refused      // the server has seen the request, and surely not done its work
	unknown
)

// refusal returns the reason why the request must not be sent again, nil if it may.
func (x *exchange) refusal(f fate) error {
	allowed, said := x.req.Context().Value(retryKey{}).(bool)
	switch {
	case said && !allowed:
		return ErrForbidden
	case !allowed && f == unknown && !x.t.anyMethod && !x.t.idempotent(x.req):
		return ErrNotIdempotent
	case !allowed && f != notSent && carriesNonce(x.req.Header):
		return ErrNonce
	case !x.payload.again:
		return ErrBody
	}
	return nil
}

// fate returns the fate of the request. It is refused if the server surely has not done its work:
// the request was throttled, or refused with 429, or the server wants it sent again.
func (x *exchange) fate(v cruise.Verdict) fate {
	if !x.t.onlyIdempotent && (v.Outcome == cruise.OutcomeThrottled || x.signal.ShouldRetry || x.resp.StatusCode == http.StatusTooManyRequests) {
		return refused
	}
	return unknown
}

// Unsent marks an error of the RoundTripper beneath that came before any of the request was sent,
// such as an error of its source of tokens. If the error is worth a retry, the request is sent again
// with any method. Errors of an [http.Transport] need no mark. But if its TLSNextProto names
// protocols, only its errors of connecting and of HTTP/2 are known to be unsent. Unsent returns nil
// for a nil err.
func Unsent(err error) error {
	if err == nil {
		return nil
	}
	return &unsentError{failure{err}}
}

type unsentError struct{ failure }

// A connecting watches a request of an [http.Transport], which sends nothing before it has a
// connection. Other bases may ask for a connection and send by another way.
type connecting struct{ asked, got atomic.Bool }

func (c *connecting) watch(r *http.Request) *http.Request {
	return r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
		GetConn: func(string) { c.asked.Store(true) },
		GotConn: func(httptrace.GotConnInfo) { c.got.Store(true) },
	}))
}

// unsent reports whether nothing was sent. A foreign protocol in TLSNextProto may send without
// telling, also on a connection of another request. A clone of an http.Transport has only foreign
// ones there.
func (c *connecting) unsent(base *http.Transport) bool {
	return c.asked.Load() && !c.got.Load() && len(base.Clone().TLSNextProto) == 0
}

// roundTrip calls RoundTrip of the base. It marks errors of unsent requests if the mark decides on
// a retry.
func (x *exchange) roundTrip(r *http.Request) (*http.Response, error) {
	base, ok := x.t.base.(*http.Transport)
	if !ok || x.refusal(unknown) == nil || x.refusal(notSent) != nil {
		return x.t.base.RoundTrip(r)
	}
	// An http.Transport sends a request again by itself if the connection had been closed meanwhile
	// and it can get the body again. Other bases may want a copy beside the body.
	if seeker := x.payload.seeker; seeker != nil {
		r.GetBody = func() (io.ReadCloser, error) { return seeker.rewind(r.Context()) }
	}
	c := &connecting{}
	resp, err := base.RoundTrip(c.watch(r))
	// A Client recognises a server without TLS by the type of this error, so it must not be
	// wrapped.
	if _, plain := err.(tls.RecordHeaderError); err != nil && !plain && c.unsent(base) {
		err = Unsent(err)
	}
	return resp, err
}

// unsent reports whether an error came before any of the request was sent, or the server says that
// it has not begun it (RFC 9113 section 8.7). If several errors are joined, this must hold for all:
// a base may have tried one server after the other.
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
