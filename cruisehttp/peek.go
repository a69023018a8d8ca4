package cruisehttp

import (
	"bytes"
	"io"
	"net/http"
	"time"
)

// spliced is a body of which the first bytes have been read, and perhaps all:
// then err is how it ended.
type spliced struct {
	head []byte
	err  error
	rest io.ReadCloser
}

func (s *spliced) Read(p []byte) (int, error) {
	if len(s.head) > 0 {
		n := copy(p, s.head)
		s.head = s.head[n:]
		return n, nil
	}
	if s.err != nil {
		return 0, s.err
	}
	return s.rest.Read(p)
}

func (s *spliced) Close() error { return s.rest.Close() }

// late is a body whose first bytes are still being read.
type late struct {
	ready chan struct{} // closed when they have been
	spliced
}

func (l *late) Read(p []byte) (int, error) {
	<-l.ready
	return l.spliced.Read(p)
}

// bodyPatience is how long to wait for the body of an error, or for what is left
// of it.
const bodyPatience = 2 * time.Second

// peek reads at most limit bytes of the body of resp and puts them back. Of a
// body that is not there in time it returns nothing.
func peek(resp *http.Response, limit int) []byte {
	if resp.Body == nil || resp.Body == http.NoBody || resp.ContentLength == 0 {
		return nil
	}
	body := &late{ready: make(chan struct{}), spliced: spliced{rest: resp.Body}}
	size := int64(bytes.MinRead)
	if resp.ContentLength > 0 {
		size += min(resp.ContentLength, int64(limit))
	}
	go func() { // ends with the body at the latest
		defer close(body.ready)
		head := bytes.NewBuffer(make([]byte, 0, size))
		_, err := head.ReadFrom(io.LimitReader(body.rest, int64(limit)))
		if err == nil && head.Len() < limit {
			err = io.EOF
		}
		body.head, body.err = head.Bytes(), err
	}()
	patience := time.NewTimer(bodyPatience)
	defer patience.Stop()
	select {
	case <-body.ready:
		resp.Body = &body.spliced
		return body.head
	case <-patience.C:
		resp.Body = body
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
	switch body := resp.Body.(type) {
	case *spliced:
		body.head, unread = nil, body.err == nil
	case *late:
		unread = false
	}
	if unread {
		patience := time.AfterFunc(bodyPatience, func() { _ = resp.Body.Close() })
		_, _ = io.CopyN(io.Discard, resp.Body, drainLimit)
		patience.Stop()
	}
	_ = resp.Body.Close()
}
