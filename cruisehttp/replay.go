package cruisehttp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"sync"
	"time"
)

// ErrBody says that a request was not retried because its body can be read only once. Set
// [http.Request.GetBody], which [http.NewRequest] does for buffers and strings, give it an
// [io.ReadCloser] with a Seek method, such as an [os.File], or use [WithBufferedBodies]. A
// RoundTripper around the Transport may hide Seek, as that of otelhttp does.
var ErrBody = errors.New("cruisehttp: not retried: the request's body cannot be sent again without GetBody, Seek or WithBufferedBodies")

// A payload is the body of a request, for each of its attempts.
type payload struct {
	req     *http.Request
	given   bool          // nothing is left to close here
	body    io.ReadCloser // for the first attempt, if it is not the request's own body
	getBody func() (io.ReadCloser, error)
	seeker  *seekBody
	again   bool // it can be given once more
}

func newPayload(req *http.Request) payload {
	p := payload{req: req}
	switch {
	case req.Body == nil || req.Body == http.NoBody:
		p.again, p.given = true, true
	case req.GetBody != nil:
		p.getBody, p.again = req.GetBody, true
	default:
		if seeker, ok := req.Body.(io.Seeker); ok {
			if start, err := seeker.Seek(0, io.SeekCurrent); err == nil {
				p.seeker, p.again = &seekBody{body: req.Body, seeker: seeker, start: start}, true
			}
		}
	}
	return p
}

// buffer reads the body into memory if it cannot be sent again otherwise and has at most limit
// bytes. If the context has already ended, the Retrier reports that.
func (p *payload) buffer(limit int64) error {
	if p.again || p.req.ContentLength > limit || limit == 0 || p.req.Context().Err() != nil {
		return nil
	}
	data, err := p.read(limit)
	if err != nil {
		return fmt.Errorf("cruisehttp: reading the request's body: %w", err)
	}
	if int64(len(data)) > limit {
		p.body = struct {
			io.Reader
			io.Closer
		}{io.MultiReader(bytes.NewReader(data), p.req.Body), p.req.Body}
		return nil
	}
	p.given = true
	if err := p.req.Body.Close(); err != nil {
		return fmt.Errorf("cruisehttp: closing the request's body: %w", err)
	}
	p.again = true
	p.getBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil }
	p.body, _ = p.getBody()
	return nil
}

// read reads up to limit+1 bytes while the request's context lasts. Like net/http it reads in one
// goroutine and closes the body in another: a Read may go on although the body is closed, and a
// Close may wait for the Read.
func (p *payload) read(limit int64) ([]byte, error) {
	var data []byte
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		data, err = io.ReadAll(io.LimitReader(p.req.Body, min(limit, math.MaxInt64-1)+1))
	}()
	ctx := p.req.Context()
	select {
	case <-done:
		return data, err
	case <-ctx.Done():
		p.given = true
		go p.req.Body.Close()
		return nil, ended(ctx)
	}
}

// first gives r, a copy of the request, the body of the first attempt.
func (p *payload) first(r *http.Request) {
	switch {
	case p.seeker != nil:
		r.Body = p.seeker.turn()
	case p.body != nil:
		r.Body, r.GetBody = p.body, p.getBody
	}
	p.given = true
}

// next gives r the body once more.
func (p *payload) next(ctx context.Context, r *http.Request) error {
	switch {
	case p.getBody != nil:
		body, err := p.getBody()
		if err == nil && body == nil {
			err = errors.New("it returned nil")
		}
		if err != nil {
			p.again = false
			return fmt.Errorf("cruisehttp: not retried: GetBody: %w", err)
		}
		r.Body, r.GetBody = body, p.getBody
	case p.seeker != nil:
		body, err := p.seeker.rewind(ctx)
		if err != nil {
			p.again = false
			return err
		}
		r.Body = body
	}
	return nil
}

// done closes the body if no attempt does.
func (p *payload) done() {
	switch {
	case p.seeker != nil:
		p.seeker.done()
	case !p.given:
		p.given = true
		_ = p.req.Body.Close()
	}
}

// seekBody gives one body to several attempts, one after the other. A transport
// may go on reading after RoundTrip has returned, and a Read may still be under way after
// the body was closed: until that has returned, the next attempt must wait.
type seekBody struct {
	body   io.ReadCloser
	seeker io.Seeker
	start  int64

	mu   sync.Mutex // guards the fields below and the fields of the turns; no foreign code runs under it
	last *seekTurn  // of the attempt under way; nil before
	over bool
}

// closePatience is how long the last Read of an attempt that has failed may take, before its
// request counts as one that cannot be sent again.
const closePatience = time.Second

// turn returns the body for one attempt.
func (s *seekBody) turn() io.ReadCloser {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = &seekTurn{of: s, left: make(chan struct{})}
	return s.last
}

// rewind returns the body for another attempt, and closes the last attempt's.
func (s *seekBody) rewind(ctx context.Context) (io.ReadCloser, error) {
	s.mu.Lock()
	last := s.last
	s.mu.Unlock()
	if last != nil {
		// If the server answered before the body was sent, the transport closes the body only with
		// the response.
		_ = last.Close()
		patience := time.NewTimer(closePatience)
		defer patience.Stop()
		select {
		case <-last.left:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-patience.C:
			return nil, fmt.Errorf("%w: it is still being read", ErrBody)
		}
	}
	if _, err := s.seeker.Seek(s.start, io.SeekStart); err != nil {
		return nil, fmt.Errorf("cruisehttp: not retried: Seek: %w", err)
	}
	return s.turn(), nil
}

// done closes the body, now or as soon as the last attempt has closed it.
func (s *seekBody) done() {
	s.mu.Lock()
	now := !s.over && (s.last == nil || s.last.closed) // else the attempt will close it
	s.over = true
	s.mu.Unlock()
	if now {
		_ = s.body.Close() // which ends a Read that goes on
	}
}

type seekTurn struct {
	of      *seekBody
	reading int // Reads under way
	closed  bool
	left    chan struct{} // closed when it is closed and no Read is under way
}

func (t *seekTurn) Read(p []byte) (int, error) {
	t.of.mu.Lock()
	closed := t.closed
	if !closed {
		t.reading++
	}
	t.of.mu.Unlock()
	if closed {
		return 0, http.ErrBodyReadAfterClose
	}
	defer t.hasRead()
	return t.of.body.Read(p)
}

func (t *seekTurn) hasRead() {
	t.of.mu.Lock()
	defer t.of.mu.Unlock()
	t.reading--
	t.leave()
}

func (t *seekTurn) Close() error {
	t.of.mu.Lock()
	first, over := !t.closed, t.of.over
	if first {
		t.closed = true
		t.leave()
	}
	t.of.mu.Unlock()
	if first && over {
		return t.of.body.Close()
	}
	return nil
}

// leave lets the next attempt have the body if this one is done with it; mu must be held.
func (t *seekTurn) leave() {
	if t.closed && t.reading == 0 {
		close(t.left)
	}
}
