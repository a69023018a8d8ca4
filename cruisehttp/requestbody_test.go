package cruisehttp_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/cruisehttp"
)

// By GetBody a base may take a copy beside the body, which a body that can seek does not allow.
func TestBasesGetNoCopyOfABodyThatCanSeek(t *testing.T) {
	base := roundTripper(func(r *http.Request) (*http.Response, error) {
		assert.Nil(t, r.GetBody)
		return answer(200, ""), nil
	})
	_, err := transport(t, base).RoundTrip(request(t, "POST", example, seekable("12345")))
	require.NoError(t, err)
}

// A transport that returns before it has closed the body is not done with it, but reads no more
// of it.
func TestTransportSendsABodyAgainThatWasNotClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent []string
		var last io.Reader
		base := roundTripper(func(r *http.Request) (*http.Response, error) {
			if last != nil {
				_, err := last.Read(make([]byte, 1))
				require.ErrorIs(t, err, http.ErrBodyReadAfterClose)
			}
			last = r.Body
			data, err := io.ReadAll(r.Body)
			require.NoError(t, err)
			if sent = append(sent, string(data)); len(sent) == 1 {
				return nil, io.ErrUnexpectedEOF
			}
			return answer(200, ""), nil
		})
		_, err := transport(t, base).RoundTrip(request(t, "PUT", example, seekable("12345")))
		require.NoError(t, err)
		assert.Equal(t, []string{"12345", "12345"}, sent)
	})
}

// A lateBody is one whose first Read takes a while, or lasts until it is closed.
type lateBody struct {
	*strings.Reader
	late   chan struct{} // the end of the first Read, nil once it has begun
	closed chan struct{}
}

func (b *lateBody) Read(p []byte) (int, error) {
	if late := b.late; late != nil {
		b.late = nil
		select {
		case <-late:
		case <-b.closed:
			return 0, os.ErrClosed
		}
	}
	return b.Reader.Read(p)
}

func (b *lateBody) Close() error {
	close(b.closed)
	return nil
}

// HTTP/2 closes a body in one goroutine while another still reads from it. That Read would move the
// body under the next attempt.
func TestTransportDoesNotSeekBeforeTheLastReadHasReturned(t *testing.T) {
	for _, tt := range []struct {
		name  string
		takes time.Duration // 0: until the body is closed
		sent  []string      // by the attempts that follow
		err   error
	}{
		{"a slow read", 500 * time.Millisecond, []string{"12345"}, nil},
		{"a read without end", 0, nil, cruisehttp.ErrBody},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				late := make(chan struct{})
				body := &lateBody{strings.NewReader("12345"), late, make(chan struct{})}
				if tt.takes > 0 {
					time.AfterFunc(tt.takes, func() { close(late) })
				}
				var sent []string
				first := true
				base := roundTripper(func(r *http.Request) (*http.Response, error) {
					if first {
						first = false
						go func() { _, _ = r.Body.Read(make([]byte, 9)) }()
						synctest.Wait()
						require.NoError(t, r.Body.Close())
						return nil, io.ErrUnexpectedEOF
					}
					time.Sleep(time.Second) // the first Read is over
					data, err := io.ReadAll(r.Body)
					require.NoError(t, err)
					require.NoError(t, r.Body.Close())
					sent = append(sent, string(data))
					return answer(200, ""), nil
				})
				start := time.Now()
				_, err := transport(t, base, cruisehttp.WithRetrierOptions(cruise.WithBackoff(cruise.Backoff{}))).RoundTrip(request(t, "PUT", example, body))
				if tt.err != nil {
					require.ErrorIs(t, err, tt.err)
					assert.Equal(t, time.Second, time.Since(start), "it is not waited for without end")
				} else {
					require.NoError(t, err)
				}
				assert.Equal(t, tt.sent, sent)
				<-body.closed // which ends a Read
			})
		})
	}
}

// A body that comes from elsewhere may stop coming, and need not heed that it is
// closed.
func TestTransportReadsABodyNoLongerThanItsContextLasts(t *testing.T) {
	why := errors.New("why")
	for _, tt := range []struct {
		name   string
		heeds  bool          // that it is closed
		cancel time.Duration // of the context; 0: never
		client time.Duration // timeout of a Client; 0: none
		is     []error
	}{
		{"a pipe, cancelled", true, 5 * time.Second, 0, []error{context.Canceled, why}},
		{"a plain reader, cancelled", false, 5 * time.Second, 0, []error{context.Canceled, why}},
		{"a pipe, timed out", true, 0, 5 * time.Second, []error{context.DeadlineExceeded}},
		{"a plain reader, timed out", false, 0, 5 * time.Second, []error{context.DeadlineExceeded}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				if tt.cancel > 0 {
					time.AfterFunc(tt.cancel, func() { cancel(why) })
				}
				from, to := io.Pipe()
				defer to.Close()
				go func() { _, _ = io.WriteString(to, "begin") }()
				body := &once{Reader: from}
				var sent io.Reader = body
				if tt.heeds {
					sent = &closing{ReadCloser: from, closed: func() { body.closed.Add(1) }}
				}
				base := inOrder(says(200, ""))
				// Timeouts of attempts do not bound the buffering.
				tr := transport(t, base, cruisehttp.WithBufferedBodies(100), cruisehttp.WithHeaderTimeout(time.Second),
					cruisehttp.WithAttemptTimeout(time.Second), cruisehttp.WithRetrierOptions(cruise.WithAttemptTimeout(time.Second)))
				client := &http.Client{Transport: tr, Timeout: tt.client}
				start := time.Now()
				_, err := client.Do(request(t, "POST", example, sent).WithContext(ctx))
				for _, is := range tt.is {
					require.ErrorIs(t, err, is)
				}
				assert.ErrorContains(t, err, "reading the request's body")
				assert.Equal(t, 5*time.Second, time.Since(start))
				assert.Zero(t, base.count())
				synctest.Wait()
				assert.EqualValues(t, 1, body.closed.Load())
			})
		})
	}
}

// An admission is valid only at its moment, and a slot in flight is for sending.
func TestTransportReadsABodyBeforeItStandsInLine(t *testing.T) {
	type call struct{ at, takes time.Duration } // the time of the call, and the time that its body takes
	paced := cruise.WithScopeLimiter(func(string, string) (cruise.Limiter, error) { return cruise.NewTokenBucket(1, 1) })
	for _, tt := range []struct {
		name  string
		opts  []cruise.Option
		calls []call
		first int             // status of the first answer
		want  []time.Duration // at which they are sent
	}{
		{"a pause begins meanwhile", []cruise.Option{paced}, []call{{0, 5 * time.Second}, {time.Second, 0}}, 429,
			[]time.Duration{time.Second, 31 * time.Second}},
		{"it takes long", nil, []call{{0, 5 * time.Second}, {100 * time.Millisecond, 0}, {200 * time.Millisecond, 0}}, 200,
			[]time.Duration{100 * time.Millisecond, 200 * time.Millisecond, 5 * time.Second}},
		{"many come at once", []cruise.Option{paced}, []call{{0, 9 * time.Second}, {0, 9 * time.Second}, {0, 9 * time.Second}}, 200,
			[]time.Duration{9 * time.Second, 10 * time.Second, 11 * time.Second}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base := inOrder(says(tt.first, "", "Retry-After: 30"), says(200, ""))
				tr := transport(t, base, cruisehttp.WithBufferedBodies(100), cruisehttp.WithRetrierOptions(tt.opts...))
				var group sync.WaitGroup
				for _, c := range tt.calls {
					group.Go(func() {
						time.Sleep(c.at)
						body, w := io.Pipe()
						time.AfterFunc(c.takes, func() {
							_, _ = io.WriteString(w, "body")
							_ = w.Close()
						})
						req := request(t, "POST", example, body)
						resp, err := tr.RoundTrip(req.WithContext(cruisehttp.ForbidRetry(req.Context())))
						if assert.NoError(t, err) {
							text(t, resp)
						}
					})
				}
				group.Wait()
				assert.Equal(t, tt.want, base.times)
				for _, body := range base.bodies {
					assert.Equal(t, "body", body)
				}
			})
		})
	}
}
