package cruise

import (
	"context"
	"errors"
	"iter"
)

// An Attempt is one turn of a loop over [Retrier.Attempts].
type Attempt struct {
	c     *calling
	ended bool
	err   error
}

// Context is for the call to use. With [WithAttemptTimeout] it ends with the turn of the
// loop, so that the body of a response must be read before.
func (a *Attempt) Context() context.Context {
	if a.c == nil || a.c.attemptCtx == nil {
		return context.Background()
	}
	return a.c.attemptCtx
}

// Number is 1 for the first attempt, and 0 if none was made.
func (a *Attempt) Number() int {
	if a.c == nil {
		return 0
	}
	return a.c.attempts
}

// Done tells how the attempt ended, and returns what the [Retrier] makes of that. Every
// turn of the loop must end with it; the loop ends after Done(nil), and goes on where
// another attempt is worth it. An attempt without it counts as permanent, and the loop
// ends with an error that says so.
func (a *Attempt) Done(err error) Verdict {
	if a.Number() == 0 { // none was made
		return Classify(err)
	}
	v := a.c.verdict(err)
	a.ended, a.err, a.c.said = true, err, v
	return v
}

var errNotDone = Permanent(errors.New("cruise: the loop's body did not call Done"))

// Attempts is [Retrier.Do] as a loop, for code that does not fit in a function:
//
//	for attempt, err := range retrier.Attempts(ctx) {
//		if err != nil {
//			return err // gave up
//		}
//		page, err = list(attempt.Context(), token)
//		attempt.Done(err)
//	}
//
// The error of the last turn is what Do would return. A turn with an error is no attempt: a
// body that does not look makes one call more there, past limiter, attempts and budget.
// A nil ctx, a Retrier that was not made by [New] and an option out of bounds are an error of
// the first turn that is no [*Error].
//
// A body that leaves the loop without Done drops the attempt, which then teaches nothing;
// one that leaves it after Done(err) has taught what err means, and sends nothing again.
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
			a.ended, a.err = false, nil
			err := c.attempt(func(context.Context) error {
				left = !yield(a, nil)
				switch {
				case a.ended:
					return a.err
				case left:
					return errLeft
				}
				return errNotDone
			})
			if left {
				if c.learn(err).Outcome == OutcomeSuccess {
					r.path.succeeded()
				}
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
