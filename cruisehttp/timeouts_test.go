package cruisehttp_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/cruisehttp"
)

// The error of a timeout says once which one it was.
func TestTransportNamesTheTimeout(t *testing.T) {
	for want, opt := range map[string]cruisehttp.Option{
		"cruisehttp: attempt took longer than 1s (WithHeaderTimeout)":  cruisehttp.WithHeaderTimeout(time.Second),
		"cruisehttp: attempt took longer than 1s (WithAttemptTimeout)": cruisehttp.WithAttemptTimeout(time.Second),
		"cruise: attempt took longer than 1s (WithAttemptTimeout)":     cruisehttp.WithRetrierOptions(cruise.WithAttemptTimeout(time.Second)),
	} {
		for name, tt := range map[string]struct {
			end  func(context.Context) error // the result of the base
			more string
		}{
			"cause": {context.Cause, ""}, // as http.Transport does
			"error": {context.Context.Err, ": context canceled"},
		} {
			t.Run(want+", "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					base := roundTripper(func(r *http.Request) (*http.Response, error) {
						<-r.Context().Done()
						return nil, tt.end(r.Context())
					})
					client := &http.Client{Transport: transport(t, base, opt, cruisehttp.WithRetrierOptions(cruise.WithMaxAttempts(1)))}
					_, err := client.Get(example)
					assert.EqualError(t, err, `Get "`+example+`": cruise: gave up after 1 attempt in 1s: attempts exhausted: `+want+tt.more)
					assert.ErrorIs(t, err, context.DeadlineExceeded)
					timeout, ok := err.(net.Error)
					assert.True(t, ok && timeout.Timeout())
				})
			})
		}
	}
}

// A client above may send a request again if the network's error is temporary, but not
// one that has been given up here.
func TestTransportTellsTemporaryErrors(t *testing.T) {
	for name, tt := range map[string]struct {
		method string
		err    error
		want   bool
	}{
		"sent once":             {"POST", os.ErrDeadlineExceeded, true},
		"sent once, for good":   {"POST", io.ErrUnexpectedEOF, false},
		"given up":              {"GET", os.ErrDeadlineExceeded, false},
		"given up at its limit": {"GET", context.DeadlineExceeded, false},
	} {
		t.Run(name, func(t *testing.T) {
			base := roundTripper(func(*http.Request) (*http.Response, error) { return nil, &net.OpError{Op: "read", Err: tt.err} })
			client := &http.Client{Transport: transport(t, base, cruisehttp.WithRetrierOptions(cruise.WithMaxAttempts(1)))}
			_, err := client.Do(request(t, tt.method, example, nil))
			require.ErrorIs(t, err, tt.err)
			temporary, ok := errors.Unwrap(err).(interface{ Temporary() bool })
			assert.Equal(t, tt.want, ok && temporary.Temporary())
		})
	}
}

// An error marked by Unsent keeps its text and its chain, and nil stays nil.
func TestUnsentHidesNothing(t *testing.T) {
	err := cruisehttp.Unsent(&net.OpError{Op: "read", Err: os.ErrDeadlineExceeded})
	for is, want := range map[net.Error]bool{err.(net.Error): true, cruisehttp.Unsent(io.EOF).(net.Error): false} {
		assert.Equal(t, want, is.Timeout(), is)
		assert.Equal(t, want, is.Temporary(), is) //lint:ignore SA1019 net/http's clients of old ask for it
	}
	assert.EqualError(t, err, "read: i/o timeout")
	require.NoError(t, cruisehttp.Unsent(nil))
}

// An attempt that ends when its time is up has nothing to do with the one after it.
func TestTransportTellsTimeoutsOfAttemptsApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		attempts := 0
		base := roundTripper(func(*http.Request) (*http.Response, error) {
			attempts++
			time.Sleep(time.Second)
			return answer(503, ""), nil
		})
		tr := transport(t, base, cruisehttp.WithRetrierOptions(cruise.WithAttemptTimeout(time.Second), cruise.WithMaxAttempts(1000),
			cruise.WithBackoff(cruise.Backoff{}), cruise.WithoutBudget()))
		resp, err := tr.RoundTrip(request(t, "GET", example, nil))
		require.NoError(t, err)
		assert.Equal(t, 503, resp.StatusCode)
		assert.Equal(t, 1000, attempts)
	})
}

// The body of an attempt that takes too long says so, too.
func TestTransportNamesTheTimeoutOfABody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := roundTripper(func(r *http.Request) (*http.Response, error) {
			resp := answer(200, "")
			body, w := io.Pipe()
			context.AfterFunc(r.Context(), func() { _ = w.CloseWithError(context.Cause(r.Context())) })
			resp.Body = body
			return resp, nil
		})
		resp, err := transport(t, base, cruisehttp.WithAttemptTimeout(time.Second)).RoundTrip(request(t, "GET", example, nil))
		require.NoError(t, err)
		_, err = io.ReadAll(resp.Body)
		assert.EqualError(t, err, "cruisehttp: attempt took longer than 1s (WithAttemptTimeout)")
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.NoError(t, resp.Body.Close())
	})
}

// Some servers tell of errors in the body of a 200, which is looked at, for no longer than
// the body of an error. The caller may take longer.
func TestTransportTimeoutsEndWithTheHeadOfASuccess(t *testing.T) {
	for name, opt := range map[string]cruisehttp.Option{
		"header":  cruisehttp.WithHeaderTimeout(time.Second),
		"attempt": cruisehttp.WithRetrierOptions(cruise.WithAttemptTimeout(time.Second)),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base := roundTripper(func(req *http.Request) (*http.Response, error) {
					resp := answer(200, "", "Content-Type: application/json")
					r, w := io.Pipe()
					context.AfterFunc(req.Context(), func() { _ = w.CloseWithError(req.Context().Err()) })
					time.AfterFunc(1500*time.Millisecond, func() {
						_, _ = io.WriteString(w, `{"ok":true}`)
						_ = w.Close()
					})
					resp.Body = r
					return resp, nil
				})
				resp, err := transport(t, base, opt).RoundTrip(request(t, "GET", "http://slack.com/api/conversations.history", nil))
				require.NoError(t, err)
				assert.Equal(t, `{"ok":true}`, text(t, resp))
			})
		})
	}
}

// The deadline of the caller is no cancellation, though attempts have an end of their own
// and HTTP/2 tells only that their context has ended.
func TestTransportTellsOfTheCallersDeadline(t *testing.T) {
	for name, base := range map[string]roundTripper{
		"before the head": func(req *http.Request) (*http.Response, error) {
			<-req.Context().Done()
			return nil, req.Context().Err()
		},
		"before the end": func(req *http.Request) (*http.Response, error) {
			resp := answer(200, "")
			r, w := io.Pipe()
			context.AfterFunc(req.Context(), func() { _ = w.CloseWithError(req.Context().Err()) })
			resp.Body = r
			return resp, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				tr := transport(t, base, cruisehttp.WithRetrierOptions(cruise.WithAttemptTimeout(time.Hour)))
				resp, err := tr.RoundTrip(request(t, "GET", example, nil).WithContext(ctx))
				if err == nil {
					_, err = io.ReadAll(resp.Body)
					assert.NoError(t, resp.Body.Close())
				}
				assert.ErrorIs(t, err, context.DeadlineExceeded)
				assert.NotErrorIs(t, err, context.Canceled)
			})
		})
	}
}
