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

// ErrBody is why a request was not retried: its body can be read only once. Set
// [http.Request.GetBody], which [http.NewRequest] does for buffers and strings,
// give it a body with a Seek method, or use [WithBufferedBodies].
var ErrBody = errors.New("cruisehttp: not retried: the request's body cannot be sent again without GetBody, Seek or WithBufferedBodies")

// A payload is the body of a request, for each of its attempts.
type payload struct {
	req     *http.Request
	buffer  int64 // longest body to read into memory
	given   bool  // an attempt has been given a body, and so has to close it
	getBody func() (io.ReadCloser, error)
	seeker  *seekBody
	again   bool // it can be given once more
}

func newPayload(req *http.Request, buffer int64) payload {
	p := payload{req: req, buffer: buffer}
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

// first gives r, a copy of the request, the body of the first attempt.
func (p *payload) first(r *http.Request) error {
	switch {
	case p.given:
	case p.seeker != nil:
		r.Body = p.seeker.turn()
	case p.getBody == nil && p.buffer > 0 && p.req.ContentLength <= p.buffer:
		if err := p.fill(r); err != nil {
			return err
		}
	}
	p.given = true
	return nil
}

// fill reads the body into memory, if it is short enough.
func (p *payload) fill(r *http.Request) error {
	data, err := io.ReadAll(io.LimitReader(p.req.Body, min(p.buffer, math.MaxInt64-1)+1))
	if err != nil {
		return fmt.Errorf("cruisehttp: reading the request's body: %w", err)
	}
	if int64(len(data)) > p.buffer {
		r.Body = &spliced{head: data, rest: p.req.Body}
		return nil
	}
	if err := p.req.Body.Close(); err != nil {
		p.given = true
		return fmt.Errorf("cruisehttp: closing the request's body: %w", err)
	}
	p.again = true
	p.getBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil }
	r.Body, _ = p.getBody()
	r.GetBody = p.getBody
	return nil
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

// done closes what no attempt closes.
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
// may go on reading after RoundTrip has returned: until it closes the body, the
// next attempt must wait.
type seekBody struct {
	body   io.ReadCloser
	seeker io.Seeker
	start  int64

	mu    sync.Mutex
	taken chan struct{} // closed with the body of the attempt under way; nil before
	over  bool
}

// closePatience is how long a transport may take to close the body of an attempt
// that has failed, before its request counts as one that cannot be sent again.
const closePatience = time.Second

// turn is the body for one attempt.
func (s *seekBody) turn() io.ReadCloser {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken = make(chan struct{})
	return &seekTurn{of: s, closed: s.taken}
}

func (s *seekBody) rewind(ctx context.Context) (io.ReadCloser, error) {
	s.mu.Lock()
	taken := s.taken
	s.mu.Unlock()
	if taken != nil {
		patience := time.NewTimer(closePatience)
		defer patience.Stop()
		select {
		case <-taken:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-patience.C:
			return nil, fmt.Errorf("%w: the transport has not closed it", ErrBody)
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
	defer s.mu.Unlock()
	if s.over {
		return
	}
	s.over = true
	if s.taken != nil {
		select {
		case <-s.taken:
		default:
			return // the attempt will close it
		}
	}
	_ = s.body.Close()
}

type seekTurn struct {
	of     *seekBody
	closed chan struct{}
	once   sync.Once
}

func (t *seekTurn) Read(p []byte) (int, error) {
	select {
	case <-t.closed:
		return 0, http.ErrBodyReadAfterClose
	default:
		return t.of.body.Read(p)
	}
}

func (t *seekTurn) Close() (err error) {
	t.once.Do(func() {
		t.of.mu.Lock()
		defer t.of.mu.Unlock()
		close(t.closed)
		if t.of.over {
			err = t.of.body.Close()
		}
	})
	return err
}
