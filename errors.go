package cruise

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Reasons for which a [Retrier] gives up, and a limiter refuses a call. Match them with [errors.Is].
var (
	// ErrAttemptsExhausted: all attempts that [WithMaxAttempts] or [WithoutRetries] allows failed.
	ErrAttemptsExhausted = errors.New("cruise: attempts exhausted")
	// ErrBudgetExhausted: the [Budget] has no retry left. It is a limit of this client.
	ErrBudgetExhausted = errors.New("cruise: retry budget of this client exhausted")
	// ErrMaxElapsed: the next attempt would start later than [WithMaxElapsed] allows.
	ErrMaxElapsed = errors.New("cruise: time of WithMaxElapsed used up")
	// ErrMaxWait: the wait for the limiter is longer than [WithMaxWait] allows.
	ErrMaxWait = errors.New("cruise: wait for the limiter longer than WithMaxWait allows")
	// ErrServerDelay: the server asked for a longer wait than [WithMaxServerDelay] allows, or the
	// current pause lasts longer, other than one for a quota.
	ErrServerDelay = errors.New("cruise: told to wait for longer than WithMaxServerDelay allows")
	// ErrQuotaExhausted: a long quota of the server is used up. If the server told the wait, later
	// calls behind that limiter fail with this error too, unless [WithMaxServerDelay] lets them
	// wait. Calls of other workers of a shared.Limiter fail with ErrServerDelay.
	ErrQuotaExhausted = errors.New("cruise: quota of the server used up")
	// ErrPermanent: an attempt after the first failed permanently. The error of a first attempt is
	// returned unchanged and does not match: match the call's own error, which works for both.
	ErrPermanent = errors.New("cruise: permanent failure")
	// ErrDeadline: the next wait cannot end before the context's deadline, so it was not begun. It
	// matches [context.DeadlineExceeded] too.
	ErrDeadline error = &timeout{"cruise: wait would pass the deadline"}
	// ErrCost: the call costs more than the limiter can ever admit at once.
	ErrCost = errors.New("cruise: cost above what the limiter ever admits at once")
)

// timeout is an error that matches [context.DeadlineExceeded] too.
type timeout struct{ text string }

func (t *timeout) Error() string   { return t.text }
func (t *timeout) Unwrap() error   { return context.DeadlineExceeded }
func (t *timeout) Timeout() bool   { return true }
func (t *timeout) Temporary() bool { return true }

// Error is the error of a call on which Do gave up. [errors.Is] and [errors.As] see both the Reason
// and the Last error, so a deadline or a cancellation never hides a server's error.
type Error struct {
	// Reason is one of the Err variables of this package. ErrCost is wrapped, with the costs. If
	// the context ended, Reason is [context.Canceled] or [context.DeadlineExceeded], with its
	// cause. Otherwise it is the error of the limiter that refused the call.
	Reason   error
	Attempts int // made, 0 or more
	// Elapsed is the time since Do was called. Without limiter, observer and limits of time, it
	// counts from the end of the first attempt.
	Elapsed time.Duration
	// RetryAfter is the time until another try makes sense: the wait that the server asked for, the
	// rest of a pause, or the backoff. 0 means unknown, or that the context ended: then see Paused.
	RetryAfter time.Duration
	// Paused is the time left of the current pause, and Ahead the total cost of the calls queued in
	// front, if a limiter refused the call. 0 means unknown.
	Paused time.Duration
	Ahead  int
	Last   error // of the call itself; nil if no attempt was made
}

// Error returns the reason and the call's last error in words.
func (e *Error) Error() string {
	if e == nil {
		return "cruise: nil *Error"
	}
	text := "cruise: call not made"
	switch {
	case e.Attempts == 1:
		text = fmt.Sprintf("cruise: gave up after 1 attempt in %v", fourDigits(e.Elapsed))
	case e.Attempts > 1:
		text = fmt.Sprintf("cruise: gave up after %d attempts in %v", e.Attempts, fourDigits(e.Elapsed))
	case e.Elapsed >= time.Millisecond: // else it was refused at once
		text += fmt.Sprintf(", after a wait of %v", fourDigits(e.Elapsed))
	}
	reason := "no reason"
	if e.Reason != nil {
		reason = strings.TrimPrefix(fmt.Sprint(e.Reason), "cruise: ") // whose method may panic
	}
	text += ": " + reason
	if e.Paused > 0 {
		text += fmt.Sprintf(": everyone is paused for %v", fourDigits(e.Paused))
	}
	if e.Ahead > 0 {
		text += fmt.Sprintf(": %d ahead in line", e.Ahead)
	}
	if e.RetryAfter > 0 {
		text += fmt.Sprintf(" (try again in %v)", fourDigits(e.RetryAfter))
	}
	if last := fmt.Sprint(e.Last); e.Last != nil && last != fmt.Sprint(e.Reason) {
		text += ": " + last
	}
	return text
}

// Unwrap returns the reason and the last error, without nils.
func (e *Error) Unwrap() []error {
	if e == nil {
		return nil
	}
	return slices.DeleteFunc([]error{e.Reason, e.Last}, func(err error) bool { return err == nil })
}

// Verdict returns the verdict of [Classify] on e: permanent, with the wait, since the Retrier that
// gave up has already retried. If that Retrier was limited to one attempt, the last error decides.
func (e *Error) Verdict() Verdict {
	v := Verdict{Outcome: OutcomePermanent}
	if e.singleAttempt() {
		v = Classify(e.Last)
	}
	if e != nil {
		v.RetryAfter = max(0, v.RetryAfter, e.RetryAfter)
	}
	return v
}

// singleAttempt reports whether the call was limited to one attempt.
func (e *Error) singleAttempt() bool {
	return e != nil && e.Attempts == 1 && e.Reason == ErrAttemptsExhausted && e.Last != nil
}

// A wrapper is an error with a verdict chosen by its author.
type wrapper struct {
	err     error
	verdict Verdict
}

func (w *wrapper) Error() string { return w.err.Error() }
func (w *wrapper) Unwrap() error { return w.err }

// Verdict returns the wrapper's verdict, with a wait or scope of the wrapped error if it has none.
func (w *wrapper) Verdict() Verdict {
	v, inner := w.verdict, Classify(w.err)
	v.RetryAfter = cmp.Or(v.RetryAfter, inner.RetryAfter)
	v.Scope = cmp.Or(v.Scope, inner.Scope)
	return v
}

// A Hint adds to a verdict: see [RetryAfter] and [InScope].
type Hint func(*Verdict)

// RetryAfter sets the wait that the server asked for. A negative wait counts as none.
func RetryAfter(d time.Duration) Hint {
	return func(v *Verdict) { v.RetryAfter = d }
}

// InScope names the limit that the server blamed, such as "ACCOUNT".
func InScope(scope string) Hint {
	return func(v *Verdict) { v.Scope = scope }
}

// Throttled marks err as a throttle: the limiter cuts its rate, everyone behind it pauses, and the
// call is retried. It returns nil for a nil err.
func Throttled(err error, hints ...Hint) error {
	return wrap(err, OutcomeThrottled, hints)
}

// QuotaExhausted marks err as the end of a long quota: the call is not retried, and with
// [RetryAfter] everyone behind the limiter pauses until then. A call that may not wait that long
// fails at once, with [ErrQuotaExhausted] or [ErrDeadline]. It returns nil for a nil err.
func QuotaExhausted(err error, hints ...Hint) error {
	return wrap(err, OutcomeQuotaExhausted, hints)
}

// Transient marks err as worth a retry, and as unrelated to the rate: no limiter slows down for it.
// With [RetryAfter], the retry waits at least that long. It returns nil for a nil err.
func Transient(err error, hints ...Hint) error {
	return wrap(err, OutcomeTransient, hints)
}

// Permanent marks err as not worth a retry. After a first attempt Do returns it without an [*Error]
// around it. It hides a throttle from the limiter: to report one without a retry, return
// [Throttled] in a call [WithoutRetries]. It returns nil for a nil err.
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
