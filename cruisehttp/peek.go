package cruisehttp

import (
	"bytes"
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

// peeked is a body whose first bytes have been read, or still are.
type peeked struct {
	ready  chan struct{} // closed when they have been; until then nobody else looks at them
	head   []byte
	err    error // how the body ended, if those were all
	rest   io.ReadCloser
	closed atomic.Bool
}

func (p *peeked) Read(b []byte) (int, error) {
	<-p.ready
	switch {
	case p.closed.Load():
		return 0, http.ErrBodyReadAfterClose
	case len(p.head) > 0:
		n := copy(b, p.head)
		p.head = p.head[n:]
		return n, nil
	case p.err != nil:
		return 0, p.err
	}
	return p.rest.Read(b)
}

func (p *peeked) Close() error {
	p.closed.Store(true)
	return p.rest.Close()
}

// bodyPatience is how long to wait for the body of an error, or for what is left
// of it.
const bodyPatience = 2 * time.Second

// peek reads at most MaxBody of the body of resp and puts it back. Of a body that
// is not there in time it returns nothing.
func peek(resp *http.Response, patience time.Duration) []byte {
	if resp.Body == nil || resp.Body == http.NoBody || resp.ContentLength == 0 {
		return nil
	}
	body := &peeked{ready: make(chan struct{}), rest: resp.Body}
	resp.Body = body
	size := int64(bytes.MinRead)
	if resp.ContentLength > 0 {
		size += min(resp.ContentLength, MaxBody)
	}
	go func() { // ends with the body at the latest
		defer close(body.ready)
		head := bytes.NewBuffer(make([]byte, 0, size))
		_, err := head.ReadFrom(io.LimitReader(body.rest, MaxBody))
		if err == nil && head.Len() < MaxBody {
			err = io.EOF
		}
		body.head, body.err = head.Bytes(), err
	}()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-body.ready:
		return body.head
	case <-timer.C:
		return nil
	}
}

// drainLimit is how much of a response that nobody wants is read, so that its
// connection can be used again.
const drainLimit = 4 << 10

// discard drains and closes a response.
func discard(resp *http.Response) {
	if resp == nil || resp.Body == nil {
		return
	}
	unread := true
	if body, ok := resp.Body.(*peeked); ok {
		select {
		case <-body.ready:
			body.head, unread = nil, body.err == nil
		default:
			unread = false
		}
	}
	if unread {
		patience := time.AfterFunc(bodyPatience, func() { _ = resp.Body.Close() })
		_, _ = io.CopyN(io.Discard, resp.Body, drainLimit)
		patience.Stop()
	}
	_ = resp.Body.Close()
}
