package cruisehttp

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/a7df5faa/cruise/cruisehttp/signal"
)

// peeked is a body whose first bytes are read ahead.
type peeked struct {
	ready  chan struct{} // closed when they have been read
	err    error         // the body's end, if it came within the head; valid when ready
	rest   io.ReadCloser // the bytes after the head; valid when ready
	enough atomic.Bool   // no more is to be read ahead
	closed atomic.Bool

	mu    sync.Mutex
	head  []byte // the bytes read so far
	given int    // bytes of the head that the caller has
}

func (p *peeked) Read(b []byte) (int, error) {
	n := p.take(b)
	if n == 0 {
		<-p.ready
		n = p.take(b)
	}
	switch {
	case p.closed.Load():
		return 0, http.ErrBodyReadAfterClose
	case n > 0:
		return n, nil
	case p.err != nil:
		return 0, p.err
	}
	return p.rest.Read(b)
}

func (p *peeked) take(b []byte) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := copy(b, p.head[p.given:])
	p.given += n
	return n
}

// readAhead reads at most signal.MaxBody, until there is enough.
func (p *peeked) readAhead(size int) {
	defer close(p.ready)
	defer func() {
		if v := recover(); v != nil { // no other code could recover, and the program would end
			p.err = fmt.Errorf("cruisehttp: reading the body panicked: %v", v)
		}
	}()
	head := make([]byte, 0, size)
	for p.err == nil && len(head) < signal.MaxBody && !p.enough.Load() {
		head = slices.Grow(head, 1)
		var n int
		n, p.err = p.rest.Read(head[len(head):min(cap(head), signal.MaxBody)])
		head = head[:len(head)+n]
		p.mu.Lock()
		p.head = head
		p.mu.Unlock()
	}
}

// Close does not wait for a Read that goes on. Close of a body that net/http unpacks waits, until
// the gzip header has come.
func (p *peeked) Close() error {
	p.closed.Store(true)
	select {
	case <-p.ready:
		return p.rest.Close()
	default:
	}
	if timed, ok := p.rest.(*timedBody); ok {
		timed.end() // and the Read with it
	}
	go func() { _ = p.rest.Close() }()
	return nil
}

// bodyPatience is the longest wait for the body of an error, or for the rest of it.
const bodyPatience = 2 * time.Second

// peek reads at most signal.MaxBody of the body of resp and puts it back. It returns nothing if the
// body does not come in time.
func peek(resp *http.Response, patience time.Duration) []byte {
	if resp.Body == nil || resp.Body == http.NoBody || resp.ContentLength == 0 {
		return nil
	}
	body := &peeked{ready: make(chan struct{}), rest: resp.Body}
	resp.Body = body
	size := bytes.MinRead
	if resp.ContentLength > 0 {
		size += int(min(resp.ContentLength, signal.MaxBody))
	}
	go body.readAhead(size) // ends with the body at the latest
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-body.ready:
		return body.head
	case <-timer.C:
		body.enough.Store(true) // the caller gets the rest as it comes
		return nil
	}
}

// drainLimit is the number of bytes read from a discarded response, so that its connection can be
// used again.
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
			body.given, unread = len(body.head), body.err == nil && !body.enough.Load()
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
