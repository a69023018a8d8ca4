package cruise

import (
	"context"
	"iter"
)

// An Attempt is one turn of a loop over [Retrier.Attempts].
type Attempt struct {
	c   *calling
	err error // given to Done
	why error // given to GiveUp
}

// Context returns the context for the call. With [WithAttemptTimeout] it ends with the turn of the
// loop, so read the body of a response before.
func (a *Attempt) Context() context.Context {
	if a.c == nil || a.c.attemptCtx == nil {
		return context.Background()
	}
	return a.c.attemptCtx
}

// Number returns the number of the attempt, 1 for the first, and 0 if none was made.
func (a *Attempt) Number() int {
	if a.c == nil {
		return 0
	}
	return a.c.attempts
}

// Done reports the error of the attempt, and returns the verdict on it. Every turn of the loop must
// end with it. The loop ends after Done(nil), and goes on while another attempt can help. An
// attempt without Done counts as permanent, and the loop ends with an error that says so.
func (a *Attempt) Done(err error) Verdict {
	if a.Number() == 0 { // none was made
		return Classify(err)
	}
	v := a.c.verdict(err)
	a.err, a.c.doneVerdict = err, v
	return v
}

// GiveUp tells observers by [GaveUp] why the caller leaves the loop, although another attempt might
// help: call it before a break. A nil reason is not told, and neither is one within a call of
// another Retrier, which may call again.
func (a *Attempt) GiveUp(reason error) { a.why = reason }

// Attempts runs [Retrier.Do] as a loop, for code that does not fit in a function:
//
//	for attempt, err := range retrier.Attempts(ctx) {
//		if err != nil {
//			return err // gave up
//		}
//		page, err = list(attempt.Context(), token)
//		attempt.Done(err)
//	}
//
// The error of the last turn is the error of Do. Always check err first: if it is non-nil, do not
// make the call, which would bypass limiter, attempts and budget.
//
// A break without Done drops the attempt, which then teaches nothing. A break after Done(err)
// reports err, and sends nothing again: see [Attempt.GiveUp].
func (r *Retrier) Attempts(ctx context.Context, opts ...CallOption) iter.Seq2[*Attempt, error] {
	return func(yield func(*Attempt, error) bool) {
		var c calling
		a := &Attempt{c: &c}
		if err := c.begin(r, ctx, opts); err != nil {
			yield(a, err)
			return
		}
		for {
			if err := c.admit(); err != nil {
				yield(a, err)
				return
			}
			left := false
			a.err, a.why = nil, nil
			err := c.attempt(func(context.Context) error {
				left = !yield(a, nil)
				switch {
				case c.doneVerdict.valid():
					return a.err
				case left:
					return errLeft
				}
				return errNotDone
			})
			if left {
				if c.judge(err).Outcome == OutcomeSuccess {
					r.path.succeeded()
				}
				if a.why != nil && (r.nested || callOf(c.ctx) == nil) {
					if c.doneVerdict.valid() {
						c.last = a.err
					}
					_ = c.giveUp(a.why, c.doneVerdict.RetryAfter) // for observers
				}
				c.leave()
				return
			}
			again, err := c.settle(err)
			if err != nil {
				yield(a, err)
			}
			if !again {
				return
			}
		}
	}
}
