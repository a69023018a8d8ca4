package cruise

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Reasons for which a [Retrier] gives up, and a limiter refuses a call. Match
// them with [errors.Is].
var (
	// ErrAttemptsExhausted: as many attempts as [WithMaxAttempts] allows have failed, or
	// the only one of [WithoutRetries].
	ErrAttemptsExhausted = errors.New("cruise: attempts exhausted")
	// ErrBudgetExhausted: the [Budget] has no retry left. It is a limit of this
	// client, not an answer of the server.
	ErrBudgetExhausted = errors.New("cruise: retry budget of this client exhausted")
	// ErrMaxElapsed: the next attempt would start later than [WithMaxElapsed] allows.
	ErrMaxElapsed = errors.New("cruise: time of WithMaxElapsed used up")
	// ErrMaxWait: the limiter would have kept the call waiting for longer than [WithMaxWait]
	// allows, or has done so. The RetryAfter of the [*Error] is how long it would have been from
	// now, as far as that is known.
	ErrMaxWait = errors.New("cruise: wait for the limiter longer than WithMaxWait allows")
	// ErrServerDelay: the server asked for a longer wait than [WithMaxServerDelay] allows,
	// or a pause that is in force, other than for a quota, lasts longer.
	ErrServerDelay = errors.New("cruise: told to wait for longer than WithMaxServerDelay allows")
	// ErrQuotaExhausted: a long quota of the server is used up. With the wait that the
	// server told, later calls behind that limiter fail by it too, unless
	// [WithMaxServerDelay] allows them to wait; those of other workers of a shared.Limiter
	// fail by ErrServerDelay.
	ErrQuotaExhausted = errors.New("cruise: quota of the server used up")
	// ErrPermanent: an attempt after the first failed for good. A first attempt that does
	// is returned as it is, and does not match: match the call's own error, which both do.
	ErrPermanent = errors.New("cruise: permanent failure")
	// ErrDeadline: the next wait cannot end before the context's deadline, so it
	// was not begun. It matches [context.DeadlineExceeded] too.
	ErrDeadline error = &sentinel{"cruise: wait would pass the deadline", context.DeadlineExceeded}
	// ErrCost: the call costs more than the limiter can ever admit at once.
	ErrCost = errors.New("cruise: cost above what the limiter ever admits at once")
)

// sentinel is an error that is also another one.
type sentinel struct {
	text string
	is   error
}

func (s *sentinel) Error() string { return s.text }
func (s *sentinel) Unwrap() error { return s.is }

// attemptTimeoutError is the end of an attempt by [WithAttemptTimeout].
type attemptTimeoutError struct{ after time.Duration }

func (e *attemptTimeoutError) Error() string {
	return fmt.Sprintf("cruise: attempt took longer than %v (WithAttemptTimeout)", e.after)
}
func (e *attemptTimeoutError) Unwrap() error   { return context.DeadlineExceeded }
func (e *attemptTimeoutError) Timeout() bool   { return true }
func (e *attemptTimeoutError) Temporary() bool { return true }

// Error is what Do returns when it gave up on a call.
//
// [errors.Is] and [errors.As] see both the Reason and the Last error, so a
// server's error is never hidden by a deadline or a cancellation.
// [errors.Unwrap] returns nil, as for every error that wraps several.
type Error struct {
	// Reason is one of the Err variables of this package. ErrCost is wrapped, with the
	// costs. Where the context ended it is [context.Canceled] or
	// [context.DeadlineExceeded], with its cause; otherwise it is the error of the
	// limiter that refused the call.
	Reason error
	// Attempts is how often the call was made, 0 or more.
	Attempts int
	// Elapsed is the time since Do was called; without limiter, observer and
	// limits of time, since the first attempt ended, as nobody read the clock.
	Elapsed time.Duration
	// RetryAfter is how long it will be until another try makes sense, where
	// that is known: the wait that the server asked for, what is left of a pause, or
	// the backoff; 0 means unknown, or that the context ended: then see Paused.
	RetryAfter time.Duration
	// Paused is for how long everyone is still paused, and Ahead what the calls cost that
	// surely go first, where a limiter did not let the call go; 0 where that is not known.
	Paused time.Duration
	Ahead  int
	// Last is the last error of the call itself; nil if it was never made.
	Last error
}

// Error says why the call was given up, and what the call itself said last.
func (e *Error) Error() string {
	if e == nil {
		return "cruise: nil *Error"
	}
	var text string
	switch {
	case e.Attempts == 0 && e.Elapsed < time.Millisecond: // it was refused at once
		text = fmt.Sprintf("cruise: call not made: %v", trimmed{e.Reason})
	case e.Attempts == 0:
		text = fmt.Sprintf("cruise: call not made, after a wait of %v: %v", fourDigits(e.Elapsed), trimmed{e.Reason})
	case e.Attempts == 1:
		text = fmt.Sprintf("cruise: gave up after 1 attempt in %v: %v", fourDigits(e.Elapsed), trimmed{e.Reason})
	default:
		text = fmt.Sprintf("cruise: gave up after %d attempts in %v: %v", e.Attempts, fourDigits(e.Elapsed), trimmed{e.Reason})
	}
	if e.Paused > 0 {
		text += fmt.Sprintf(": everyone is paused for %v", fourDigits(e.Paused))
	}
	if e.Ahead > 0 {
		text += fmt.Sprintf(": %d ahead in line", e.Ahead)
	}
	if e.RetryAfter > 0 {
		text += fmt.Sprintf(" (try again in %v)", fourDigits(e.RetryAfter))
	}
	if e.Last != nil {
		text += fmt.Sprintf(": %v", e.Last)
	}
	return text
}

// Unwrap returns the reason and the last error, leaving out what is nil.
func (e *Error) Unwrap() []error {
	errs := make([]error, 0, 2)
	if e == nil {
		return errs
	}
	if e.Reason != nil {
		errs = append(errs, e.Reason)
	}
	if e.Last != nil {
		errs = append(errs, e.Last)
	}
	return errs
}

// Verdict is what [Classify] makes of e: permanent, with the wait, as whoever gave up has
// retried already. Where the call was to have one attempt only, it is that of the last error.
func (e *Error) Verdict() Verdict {
	v := Verdict{Outcome: OutcomePermanent}
	if e.madeOnce() {
		v = Classify(e.Last)
	}
	if e != nil {
		v.RetryAfter = max(0, v.RetryAfter, e.RetryAfter)
	}
	return v
}

// madeOnce reports whether the call was to have one attempt only.
func (e *Error) madeOnce() bool {
	return e != nil && e.Attempts == 1 && e.Reason == ErrAttemptsExhausted && e.Last != nil
}

// trimmed prints an error of this package without the prefix that the message
// around it already has.
type trimmed struct{ err error }

func (t trimmed) String() string {
	if t.err == nil {
		return "no reason"
	}
	return strings.TrimPrefix(t.err.Error(), "cruise: ")
}

// A wrapper is an error with the verdict that its author gave it.
type wrapper struct {
	err     error
	verdict Verdict
}

func (w *wrapper) Error() string { return w.err.Error() }
func (w *wrapper) Unwrap() error { return w.err }

// Verdict is that of the wrapper; without a wait or a scope with those of the wrapped error.
func (w *wrapper) Verdict() Verdict {
	v, inner := w.verdict, Classify(w.err)
	v.RetryAfter = cmp.Or(v.RetryAfter, inner.RetryAfter)
	v.Scope = cmp.Or(v.Scope, inner.Scope)
	return v
}

// A Hint tells more of what the server said: see [RetryAfter] and [InScope].
type Hint func(*Verdict)

// RetryAfter is the wait that the server asked for, such as RetryAfter(30*time.Second). A
// negative wait counts as none.
func RetryAfter(d time.Duration) Hint {
	return func(v *Verdict) { v.RetryAfter = d }
}

// InScope names the limit that the server blamed, such as "ACCOUNT".
func InScope(scope string) Hint {
	return func(v *Verdict) { v.Scope = scope }
}

// Throttled marks err as the server's word to slow down: the limiter cuts its
// rate, everyone behind it pauses, and the call is retried. It returns nil for
// a nil err.
func Throttled(err error, hints ...Hint) error {
	return wrap(err, OutcomeThrottled, hints)
}

// QuotaExhausted marks err as the end of a long quota: the call is not retried, and
// with [RetryAfter] everyone behind the limiter pauses until then. Calls that may not
// wait so long fail at once, with [ErrQuotaExhausted] or [ErrDeadline] and the time left.
// It returns nil for a nil err.
func QuotaExhausted(err error, hints ...Hint) error {
	return wrap(err, OutcomeQuotaExhausted, hints)
}

// Transient marks err as worth a retry, and as no fault of the rate: no limiter slows
// down for it. With [RetryAfter], the retry waits at least that long. It returns nil for a
// nil err.
func Transient(err error, hints ...Hint) error {
	return wrap(err, OutcomeTransient, hints)
}

// Permanent marks err as not worth a retry. After a first attempt Do returns it without
// an [*Error] around it. It hides from the limiter that err was a throttle: where one is not
// to be sent again, say [Throttled] in a call [WithoutRetries], or leave the loop of
// [Retrier.Attempts] after Done. It returns nil for a nil err.
func Permanent(err error) error {
	return wrap(err, OutcomePermanent, nil)
}

func wrap(err error, o Outcome, hints []Hint) error {
	if err == nil {
		return nil
	}
	w := &wrapper{err: err}
	for _, hint := range hints {
		if hint != nil {
			hint(&w.verdict)
		}
	}
	w.verdict.Outcome = o
	w.verdict.RetryAfter = max(0, w.verdict.RetryAfter)
	return w
}
