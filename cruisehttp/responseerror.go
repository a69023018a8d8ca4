package cruisehttp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/cruisehttp/signal"
)

// A ResponseError is a response that was no success. It is the last error in a [*cruise.Error], and
// the error that observers and classifiers of a Retrier see.
type ResponseError struct {
	Status     string // such as "429 Too Many Requests"
	StatusCode int
	// Header must not be changed. It is nil if it is larger than [signal.MaxBody] and the request
	// failed at once with the answer to an earlier request.
	Header http.Header
	// Body holds the bytes read of the body, at most [signal.MaxBody]. It is nil if the request
	// failed at once with the answer to an earlier request.
	Body []byte
	// Signal holds the response's information about throttling.
	Signal signal.Signal
	// Until is the time at which another try makes sense; zero if it is unknown.
	Until time.Time
	// NotRetried is the reason why the request was not sent again, although its outcome was worth a
	// retry: one of the Err variables of this package, or an error about the response if
	// [signal.Signal.Brake] is set; nil if it may be sent again.
	NotRetried error

	verdict cruise.Verdict // zero if the error was made by hand
}

// maxPhrase is the highest number of bytes of a server's phrase in an error.
const maxPhrase = 200

func unprintable(r rune) bool { return r == utf8.RuneError || !unicode.IsPrint(r) }

// sizeOf returns the size of a header in bytes.
func sizeOf(h http.Header) (n int) {
	for name, lines := range h {
		n += len(name)
		for _, line := range lines {
			n += len(line)
		}
	}
	return n
}

// Error returns the server's reason and the time until which it holds.
func (e *ResponseError) Error() string {
	text := "cruisehttp: " + e.Status
	if e.Status == "" || len(e.Status) > maxPhrase || strings.ContainsFunc(e.Status, unprintable) {
		text = fmt.Sprintf("cruisehttp: status %d", e.StatusCode)
	}
	if reason := e.Signal.Reason; reason != "" && reason != fmt.Sprintf("status %d", e.StatusCode) {
		if len(reason) > maxPhrase {
			reason = strings.ToValidUTF8(reason[:maxPhrase], "") + "..."
		}
		text += " (" + reason + ")"
	}
	if e.Signal.Scope != "" {
		text += fmt.Sprintf(", limit %q", e.Signal.Scope)
	}
	if !e.Until.IsZero() {
		text += ", until " + e.Until.UTC().Format(time.RFC3339)
	}
	if e.NotRetried != nil {
		text += ": " + e.NotRetried.Error()
	}
	return text
}

// Unwrap returns why the request was not retried, if there is a reason.
func (e *ResponseError) Unwrap() error { return e.NotRetried }

// HTTPStatusCode returns the status, for classifiers of other packages.
func (e *ResponseError) HTTPStatusCode() int { return e.StatusCode }

// Verdict returns what the response means to a [Transport]. A classifier may decide otherwise: see
// [cruise.ClassifyAs].
func (e *ResponseError) Verdict() cruise.Verdict {
	if e.verdict.Outcome != cruise.OutcomeUnknown {
		return e.verdict
	}
	wait := e.Signal.Wait(0)
	outcome := cmp.Or(e.Signal.Outcome, cruise.StatusOutcome(e.StatusCode, wait))
	return cruise.Verdict{Outcome: outcome, RetryAfter: wait, Scope: e.Signal.Scope}
}

// failure is an error of RoundTrip that is not the base's own. [http.Client]
// looks for Timeout no deeper than here, and clients of Google's for Temporary.
type failure struct{ err error }

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// Timeout reports whether a time has run out.
func (f *failure) Timeout() bool {
	if errors.Is(f.err, context.DeadlineExceeded) {
		return true
	}
	t, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](f.err)
	return ok && t.Timeout()
}

// Temporary returns Temporary of the base's error. A request that was given up is not temporary: it
// has been retried.
func (f *failure) Temporary() bool {
	if _, ok := errors.AsType[*cruise.Error](f.err); ok {
		return false
	}
	t, ok := errors.AsType[interface {
		error
		Temporary() bool
	}](f.err)
	return ok && t.Temporary()
}

// notRetried returns an error of the base with the reason why it was not retried.
func notRetried(err, why error) error { return &failure{fmt.Errorf("%w (%w)", err, why)} }

// timeoutError is the cause of a cancelled attempt that took too long, and its error.
type timeoutError struct {
	text string
	is   error // in the end context.DeadlineExceeded
}

func tookLong(after time.Duration, option string) error {
	return &timeoutError{fmt.Sprintf("cruisehttp: attempt took longer than %v (%s)", after, option), context.DeadlineExceeded}
}

// timedOut returns the error of an attempt in ctx, as a timeout if it was one.
func timedOut(ctx context.Context, err error) error {
	end := context.Cause(ctx)
	cause, ok := end.(*timeoutError)
	switch {
	case !ok && errors.Is(end, context.DeadlineExceeded) && errors.Is(err, context.Canceled):
		return end // the caller's deadline, which HTTP/2 takes for the cancellation that it came as
	case !ok:
		return err
	}
	text := err.Error()
	if !strings.Contains(text, cause.text) { // some return the cause itself
		text = cause.text + ": " + text
	}
	told := &timeoutError{text, cause.is}
	if unsent(err) {
		return Unsent(told)
	}
	return told
}

func (e *timeoutError) Error() string   { return e.text }
func (e *timeoutError) Unwrap() error   { return e.is }
func (e *timeoutError) Timeout() bool   { return true }
func (e *timeoutError) Temporary() bool { return true }

// timedBody ends the time of an attempt with its body.
type timedBody struct {
	io.ReadCloser
	ctx context.Context
	end func()
}

func (b *timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		if err != io.EOF {
			err = timedOut(b.ctx, err)
		}
		b.end()
	}
	return n, err
}

func (b *timedBody) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}

// upgraded is the connection that a 101 leaves to the caller. Only the caller decides how long it
// lasts.
type upgraded struct {
	io.ReadWriteCloser
	end func()
}

func (u *upgraded) Close() error {
	defer u.end()
	return u.ReadWriteCloser.Close()
}

// CloseWrite ends one direction, which a proxy passes on.
func (u *upgraded) CloseWrite() error {
	if conn, ok := u.ReadWriteCloser.(interface{ CloseWrite() error }); ok {
		return conn.CloseWrite()
	}
	return fmt.Errorf("cruisehttp: CloseWrite: %w", http.ErrNotSupported)
}
