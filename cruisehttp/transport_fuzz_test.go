package cruisehttp_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"net/textproto"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a7df5faa/cruise/cruisehttp"
	"github.com/a7df5faa/cruise/cruisehttp/internal/conformance"
)

// hostile is a base transport that follows the bytes of a script, one for each attempt, and then
// succeeds.
type hostile struct {
	script   []byte
	header   http.Header
	body     []byte
	attempts int
	open     atomic.Int64 // bodies of responses not closed
}

// statuses are the statuses of scripts; net/http takes any of three digits.
var statuses = [...]int{
	200, 202, 204, 206, 301, 304, 400, 401, 402, 403, 404, 408, 409, 413, 420, 421, 423, 425, 429, 429, 430, 449,
	500, 501, 502, 503, 503, 504, 509, 520, 529, 999,
}

func (h *hostile) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		_, _ = io.Copy(io.Discard, r.Body)
		_ = r.Body.Close()
	}
	step := byte(0)
	if h.attempts < len(h.script) {
		step = h.script[h.attempts]
	}
	h.attempts++
	var body io.Reader = bytes.NewReader(h.body)
	switch step / 32 {
	case 4: // slow
		body = io.MultiReader(slowly(3*time.Second), body)
	case 5: // breaks off
		body = io.MultiReader(body, failing{})
	case 6: // without end
		body = io.MultiReader(body, endless{})
	case 7:
		switch step % 5 {
		case 0:
			return nil, &net.OpError{Op: "dial", Err: errors.New("refused")}
		case 1:
			return nil, io.ErrUnexpectedEOF
		case 2: // hangs
			<-r.Context().Done()
			return nil, r.Context().Err()
		case 3: // breaks the rules of http.RoundTripper, as does the next one
			return nil, nil
		case 4:
			return &http.Response{StatusCode: statuses[step%32]}, nil
		}
	}
	h.open.Add(1)
	return &http.Response{
		StatusCode: statuses[step%32], Header: h.header.Clone(), ContentLength: -1, Request: r,
		Body: &closing{ReadCloser: io.NopCloser(body), closed: func() { h.open.Add(-1) }},
	}, nil
}

// slowly reads as nothing, after a while.
type slowly time.Duration

func (s slowly) Read([]byte) (int, error) {
	time.Sleep(time.Duration(s))
	return 0, io.EOF
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// FuzzTransport sends requests to servers that do anything. There must be no more attempts than
// allowed, no unreasonable wait and nothing left open, and the returned response must be readable
// from its first byte.
func FuzzTransport(f *testing.F) {
	for _, c := range conformance.Cases(f, "signal/testdata/conformance.txt") {
		resp, body := conformance.Response(f, c.Input)
		var head bytes.Buffer
		if err := resp.Header.Write(&head); err != nil {
			f.Fatal(err)
		}
		for i, status := range statuses {
			if status == resp.StatusCode {
				f.Add(byte(len(c.Input)), []byte{byte(i), byte(i)}, head.String(), body)
				break
			}
		}
	}
	f.Add(byte(1), []byte{18, 18, 18, 18, 18, 18, 18}, "Retry-After: 0\r\nX-Should-Retry: true\r\n", []byte("x"))
	f.Add(byte(1), []byte{227, 227, 227, 228, 228, 228, 229, 230}, "", []byte("x"))
	f.Add(byte(39), []byte{128 + 24}, "", []byte("x"))
	f.Add(byte(2), []byte{128 + 25, 160 + 25, 192 + 25, 224, 225, 226, 18}, "Retry-After: 1\r\n", []byte("x"))
	f.Fuzz(func(t *testing.T, kind byte, script []byte, head string, body []byte) {
		header, err := textproto.NewReader(bufio.NewReader(strings.NewReader(head + "\r\n\r\n"))).ReadMIMEHeader()
		if err != nil {
			return
		}
		synctest.Test(t, func(t *testing.T) {
			base := &hostile{script: script, header: http.Header(header), body: body}
			opts := []cruisehttp.Option{cruisehttp.WithHeaderTimeout(time.Minute)}
			if kind&8 != 0 {
				opts = append(opts, cruisehttp.WithQuotaResponses(), cruisehttp.WithBuckets("X-RateLimit-Bucket", nil))
			}
			if kind&16 != 0 {
				opts = append(opts, cruisehttp.WithBufferedBodies(3), cruisehttp.WithAttemptTimeout(time.Hour))
			}
			tr := transport(t, base, opts...)
			for range 3 { // the later ones may meet leftovers of the first
				before := base.attempts
				sent := &once{Reader: strings.NewReader("body")}
				req := request(t, []string{"GET", "POST"}[kind&1], "https://api.example.com/graphql?uploadId=1", sent)
				if kind&2 != 0 {
					req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("body")), nil }
				}
				if kind&4 != 0 {
					req.Header.Set("Idempotency-Key", "1")
				}
				begin := time.Now()
				resp, err := tr.RoundTrip(req)
				if took := time.Since(begin); took > 30*time.Minute {
					t.Fatalf("took %v", took)
				}
				if n := base.attempts - before; n > 5 {
					t.Fatalf("%d attempts", n)
				}
				if (resp == nil) == (err == nil) {
					t.Fatalf("response %v and error %v", resp, err)
				}
				if sent.closed.Load() != 1 {
					t.Fatalf("the request's body was closed %d times", sent.closed.Load())
				}
				synctest.Wait() // a body that is slow is closed behind the caller's back
				if resp != nil && resp.Body != nil {
					if base.open.Load() != 1 {
						t.Fatalf("%d bodies of responses are open", base.open.Load())
					}
					got, _ := io.ReadAll(io.LimitReader(resp.Body, int64(len(body))))
					if !bytes.Equal(got, body) {
						t.Fatalf("body %q instead of %q", got, body)
					}
					_ = resp.Body.Close()
					synctest.Wait()
				}
				if base.open.Load() != 0 {
					t.Fatalf("%d bodies of responses are left open", base.open.Load())
				}
			}
			time.Sleep(time.Minute) // for reading of slow bodies, which these do not interrupt, to end
		})
	})
}
