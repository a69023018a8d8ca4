package cruise

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// Defaults of a [Retrier].
const (
	DefaultMaxAttempts    = 5
	DefaultMaxServerDelay = 5 * time.Minute
)

// Unlimited is what [WithMaxAttempts] takes for no limit.
const Unlimited = math.MaxInt

// A Retrier makes calls: each attempt passes the limiter, tells it how it ended,
// and is followed by another one where that is worth it.
//
// A Retrier is safe for concurrent use: make one for each API, and share it. It
// is made by [New] and must not be copied.
type Retrier struct {
	_ noCopy
	config
	learner Learner // the limiter, if it learns
	bare    bool    // an attempt that succeeds needs nothing done
}

type noCopy struct{}

func (*noCopy) Lock()   {}
func (*noCopy) Unlock() {}

// defaultThrottleBackoff is for throttles where no limiter pauses.
var defaultThrottleBackoff = Must(NewBackoff(WithBase(time.Second), WithMaxDelay(20*time.Second)))

// New returns a Retrier. Without options it has an [AdaptiveLimiter] of its own,
// a [Backoff] of 100 ms doubled to 20 s with full jitter, 5 attempts, waits of
// at most 5 minutes that a server may ask for, and a [Budget] of its own.
//
// A [LimiterOption] tunes the limiter that the Retrier makes. The error names
// every option that is out of bounds or contradicts another.
func New(opts ...Option) (*Retrier, error) {
	r := &Retrier{config: config{maxServerDelay: DefaultMaxServerDelay, backoff: defaultBackoff}}
	c := &r.config
	for i, opt := range opts {
		if opt == nil {
			c.fail("option %d is nil", i+1)
			continue
		}
		opt.retrier(c)
	}
	if !c.limiterSet {
		if c.observer != nil {
			c.limiterOpts = append(c.limiterOpts, WithObserver(c.observer))
		}
		limiter, err := NewAdaptiveLimiter(c.limiterOpts...)
		if err != nil {
			c.errs = append(c.errs, err)
		}
		c.limiter = limiter
	} else if len(c.limiterOpts) > 0 {
		c.fail("options of a limiter beside WithLimiter or WithoutLimiter: give them to NewAdaptiveLimiter")
	}
	if !c.budgetSet {
		c.budget = Must(NewBudget(DefaultBudgetCapacity, DefaultBudgetRatio, DefaultBudgetRefill))
	}
	if c.maxAttempts == 0 {
		c.maxAttempts = DefaultMaxAttempts
		if n := c.backoff.Retries(); n > 0 {
			c.maxAttempts = min(n, Unlimited-1) + 1
		}
	}
	if len(c.errs) > 0 {
		return nil, errors.Join(c.errs...)
	}
	r.learner, _ = c.limiter.(Learner)
	c.scopes = newScopes(c)
	r.bare = c.limiter == nil && c.observer == nil && c.attemptTimeout == 0 && c.maxElapsed == 0
	return r, nil
}

// Limiter returns the limiter that attempts pass, nil if there is none. That of a
// scope is its innermost, which may be another one after a long time without a
// call.
func (r *Retrier) Limiter() Limiter {
	if s, ok := r.limiter.(*scopeLimiter); ok {
		return s.own()
	}
	return r.limiter
}

// Budget returns what retries are paid from, nil if nothing limits them.
func (r *Retrier) Budget() *Budget { return r.budget }

var (
	errNilFunc     = errors.New("cruise: nil function to call")
	errZeroRetrier = errors.New("cruise: Retrier not made by New")
	errLeft        = errors.New("cruise: left the loop")
	errPanicked    = errors.New("cruise: call panicked or exited its goroutine")
)

// Do makes a call, again where that is worth it, and returns nil when it has
// succeeded. fn should use the context that it is given.
//
// When the call fails, Do returns what fn returned, untouched, if that was
// permanent, or the caller's own cancellation, on the first attempt. Else it
// returns an [*Error], which has a reason and wraps the last error of fn. It
// returns at once when the next wait cannot end before the context's deadline.
//
// fn is called from the caller's goroutine. Its panics pass through, after the
// limiter has been told.
func (r *Retrier) Do(ctx context.Context, fn func(context.Context) error, opts ...CallOption) error {
	if r == nil {
		return errZeroRetrier
	}
	if ctx == nil {
		return errNilContext
	}
	if fn == nil {
		return errNilFunc
	}
	var c calling
	if r.bare && len(opts) == 0 && ctx.Err() == nil {
		err := fn(ctx)
		if err == nil {
			r.budget.success()
			return nil
		}
		c.started = clock()
		c.r, c.ctx, c.attempts = r, ctx, 1
		if again, err := c.settle(err); !again {
			return err
		}
	} else if err := c.begin(r, ctx, opts); err != nil {
		return err
	}
	for {
		if err := c.admit(); err != nil {
			return err
		}
		if again, err := c.settle(c.attempt(fn)); !again {
			return err
		}
	}
}

// DoValue is [Retrier.Do] for a function that returns a value. It returns the
// value of the last attempt, with an error too.
func DoValue[T any](ctx context.Context, r *Retrier, fn func(context.Context) (T, error), opts ...CallOption) (value T, err error) {
	if fn == nil {
		return value, errNilFunc
	}
	err = r.Do(ctx, func(ctx context.Context) (err error) {
		value, err = fn(ctx)
		return err
	}, opts...)
	return value, err
}

// An Attempt is one turn of a loop over [Retrier.Attempts].
type Attempt struct {
	c     *calling
	ended bool
	err   error
}

// Context is for the call to use.
func (a *Attempt) Context() context.Context { return a.c.attemptCtx }

// Number is 1 for the first attempt.
func (a *Attempt) Number() int { return a.c.attempts }

// Done tells how the attempt ended. Every turn of the loop must end with it; the
// loop ends after Done(nil), and goes on where another attempt is worth it.
func (a *Attempt) Done(err error) { a.ended, a.err = true, err }

var errNotDone = errors.New("cruise: the loop's body did not call Done")

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
// The error of the last turn is what Do would return. A body that leaves the
// loop without Done drops the attempt, which then teaches nothing.
func (r *Retrier) Attempts(ctx context.Context, opts ...CallOption) iter.Seq2[*Attempt, error] {
	return func(yield func(*Attempt, error) bool) {
		var c calling
		a := &Attempt{c: &c}
		switch {
		case r == nil:
			yield(a, errZeroRetrier)
			return
		case ctx == nil:
			yield(a, errNilContext)
			return
		}
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
				return Permanent(errNotDone)
			})
			if left {
				if c.learn(err).Outcome == OutcomeSuccess {
					r.budget.success()
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

// calling is one call on its way: the loop that Do and Attempts share.
type calling struct {
	r          *Retrier
	ctx        context.Context // the caller's
	record     *record         // nil if nothing needs it
	cost       int
	background bool
	started    time.Time
	sent       time.Time // when the limiter let the attempt go
	attemptCtx context.Context
	attempts   int  // made
	counted    int  // of them, towards the maximum
	paid       bool // from the budget, for a retry that is not made yet
	delay      time.Duration
	last       error // of the call itself
}

// begin prepares the first attempt.
func (c *calling) begin(r *Retrier, ctx context.Context, opts []CallOption) error {
	c.r, c.ctx, c.cost = r, ctx, 1
	if r.observer != nil || r.maxElapsed > 0 || r.learner == nil {
		c.started = clock() // else the limiter tells when the call came
	}
	if r.maxAttempts == 0 {
		return errZeroRetrier
	}
	for _, o := range opts {
		if o.costSet {
			c.cost = o.cost
		}
		c.background = c.background || o.background
	}
	if err := checkCost(c.cost); err != nil {
		return err
	}
	if ctx.Err() != nil {
		c.started = clock()
		return c.giveUp(contextError(ctx), 0)
	}
	return nil
}

// admit waits for the limiter and begins an attempt.
func (c *calling) admit() error {
	r := c.r
	c.attemptCtx = c.ctx
	if !r.bare || c.attempts > 0 {
		if c.record == nil {
			c.record = &record{Context: c.ctx, maxPause: r.maxServerDelay, background: c.background}
		}
		c.record.attempt.Store(int64(c.attempts + 1))
		c.attemptCtx = c.record
	}
	waited, err := c.pass()
	if err != nil {
		return err
	}
	c.attempts++
	c.paid = false
	if r.observer != nil {
		notify(c.ctx, r.observer, AttemptStarted{Attempt: c.attempts, Waited: waited})
	}
	return nil
}

// pass waits for the limiter.
func (c *calling) pass() (waited time.Duration, err error) {
	r, ctx := c.r, c.attemptCtx
	if r.limiter == nil {
		c.sent = clock()
		return 0, nil
	}
	if r.maxElapsed > 0 {
		bounded, cancel := context.WithDeadline(ctx, satAdd(c.started, r.maxElapsed))
		defer cancel()
		ctx = bounded
	}
	var came time.Time
	if a, ok := r.limiter.(admitter); ok {
		came, c.sent, err = a.admit(ctx, c.cost)
	} else {
		came = clock()
		err = r.limiter.WaitN(ctx, c.cost)
		c.sent = clock()
	}
	if c.started.IsZero() {
		if came.IsZero() { // refused at the door
			came = clock()
		}
		c.started = came
	}
	if err != nil {
		return 0, c.refused(ctx, err)
	}
	return c.sent.Sub(came), nil
}

// refused gives up because the limiter let the call not go, with ctx.
func (c *calling) refused(ctx context.Context, err error) error {
	reason, wait := err, time.Duration(0)
	if e, ok := errors.AsType[*Error](err); ok {
		reason, wait = e.Reason, e.RetryAfter
	} else if l, ok := c.r.limiter.(*rate.Limiter); ok && ctx.Err() == nil {
		reason = ErrDeadline // it says so in text alone
		if c.cost > l.Burst() {
			reason = fmt.Errorf("%w: %w", ErrCost, err)
		}
	}
	switch {
	case c.ctx.Err() != nil:
		reason = contextError(c.ctx)
	case c.r.maxElapsed > 0 && errors.Is(reason, context.DeadlineExceeded):
		_, reason = c.left()
	}
	return c.giveUp(reason, wait)
}

// left is the time left for waiting, and the reason for which there is no more;
// nil if there is no end to it. The deadline may lack a monotonic reading, so
// the clock is read as contexts do.
func (c *calling) left() (left time.Duration, reason error) {
	left = never
	if c.r.maxElapsed > 0 {
		left, reason = c.r.maxElapsed-clock().Sub(c.started), ErrMaxElapsed
	}
	if deadline, ok := c.ctx.Deadline(); ok {
		if until := time.Until(deadline); until <= left {
			left, reason = until, ErrDeadline
		}
	}
	return left, reason
}

// attempt calls fn. Should fn not return, the limiter is told all the same.
func (c *calling) attempt(fn func(context.Context) error) error {
	if c.r.attemptTimeout > 0 {
		ctx, cancel := context.WithTimeout(c.attemptCtx, c.r.attemptTimeout)
		defer cancel()
		c.attemptCtx = ctx
	}
	returned := false
	defer func() {
		if !returned {
			c.teach(Verdict{Outcome: OutcomeDropped}, errPanicked)
		}
	}()
	err := fn(c.attemptCtx)
	returned = true
	return err
}

// settle learns from an attempt and says whether another one will follow, after
// any backoff. If not, err is what the call ends with.
func (c *calling) settle(err error) (again bool, final error) {
	v := c.learn(err)
	r := c.r
	switch v.Outcome {
	case OutcomeSuccess:
		r.budget.success()
		return false, err
	case OutcomeDropped:
		if c.attempts == 1 {
			return false, err
		}
		return false, c.giveUp(withCause(c.ctx, err), 0)
	}
	c.last = err
	if !r.nested && callOf(c.ctx) != nil {
		return false, err // the outer Retrier decides
	}
	switch v.Outcome {
	case OutcomePermanent:
		if c.attempts == 1 {
			return false, err
		}
		return false, c.giveUp(ErrPermanent, 0)
	case OutcomeQuotaExhausted:
		return false, c.giveUp(ErrQuotaExhausted, v.RetryAfter)
	}
	if c.ctx.Err() != nil {
		return false, c.giveUp(contextError(c.ctx), v.RetryAfter)
	}
	if !r.freeThrottles || v.Outcome != OutcomeThrottled {
		c.counted++
	}
	if c.counted >= r.maxAttempts {
		return false, c.giveUp(ErrAttemptsExhausted, v.RetryAfter)
	}
	if v.RetryAfter > r.maxServerDelay {
		return false, c.giveUp(ErrServerDelay, v.RetryAfter)
	}
	return c.backOff(v, err)
}

// backOff waits before a retry, if there is time and budget for one.
func (c *calling) backOff(v Verdict, err error) (again bool, final error) {
	r := c.r
	backoff := &r.backoff
	if v.Outcome == OutcomeThrottled {
		backoff = r.throttleBackoff
		if backoff == nil && (c.cost == 0 || !r.pausesFor(v.Scope)) {
			backoff = &defaultThrottleBackoff
		}
	}
	wait := v.RetryAfter
	if backoff != nil {
		c.delay = backoff.Delay(c.attempts, c.delay)
		wait = max(wait, c.delay)
	}
	if left, reason := c.left(); reason != nil && wait >= left {
		return false, c.giveUp(reason, wait)
	}
	if !r.budget.take() {
		return false, c.giveUp(ErrBudgetExhausted, v.RetryAfter)
	}
	c.paid = true
	if backoff == nil {
		wait = 0 // the limiter pauses for everyone: its line is the place to wait
	}
	if r.observer != nil {
		notify(c.ctx, r.observer, RetryScheduled{Attempt: c.attempts + 1, Delay: wait, Reason: v.Outcome, Err: err})
	}
	if !sleep(c.ctx, wait) {
		return false, c.giveUp(contextError(c.ctx), v.RetryAfter)
	}
	return true, nil
}

// pausesFor reports whether the limiter pauses everyone for a throttle that names
// a scope.
func (r *Retrier) pausesFor(scope string) bool {
	if s, ok := r.learner.(*scopeLimiter); ok {
		return s.pausesFor(scope)
	}
	return r.learner != nil
}

// learn finds out what an attempt means, and tells whom it concerns, even should
// the classifier panic.
func (c *calling) learn(err error) Verdict {
	v := Verdict{Outcome: OutcomeDropped}
	defer func() { c.teach(v, err) }()
	v = c.verdict(err)
	return v
}

func (c *calling) verdict(err error) Verdict {
	switch {
	case err == nil:
		return Verdict{Outcome: OutcomeSuccess}
	case err == errLeft:
		return Verdict{Outcome: OutcomeDropped}
	case c.ctx.Err() != nil && isEnd(c.ctx, err):
		return Verdict{Outcome: OutcomeDropped}
	}
	if c.r.classifier != nil && !retried(err) {
		if v := c.r.classifier(err); v.Outcome != OutcomeUnknown && v.Outcome <= OutcomeDropped {
			v.RetryAfter = max(0, v.RetryAfter)
			return v
		}
	}
	return Classify(err)
}

// isEnd reports whether err comes from the end of ctx.
func isEnd(ctx context.Context, err error) (is bool) {
	defer func() { _ = recover() }() // of the methods of err
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Cause(ctx))
}

// retried reports whether another Retrier has given up on err, and nobody has
// marked it anew. A classifier that looks for the server's error would find it
// in there, and retries would multiply.
func retried(err error) (is bool) {
	defer func() { _ = recover() }() // of the methods of err
	if m, ok := errors.AsType[markedError](err); ok {
		_, is = m.(*Error)
	}
	return is
}

// teach tells the limiter and the observer how an attempt ended.
func (c *calling) teach(v Verdict, err error) {
	r := c.r
	if r.learner != nil && c.cost > 0 {
		f := Feedback{Outcome: v.Outcome, Sent: c.sent, Cost: c.cost, RetryAfter: v.RetryAfter, Scope: v.Scope}
		if c.record != nil && c.record.quota.Load() != nil {
			f.Quota = c.record.quota.Swap(nil)
		}
		r.learner.Learn(f)
	}
	if r.observer != nil {
		notify(c.ctx, r.observer, AttemptEnded{Attempt: c.attempts, Outcome: v.Outcome, Err: err, Took: clock().Sub(c.sent)})
	}
}

func (c *calling) giveUp(reason error, retryAfter time.Duration) error {
	if c.paid {
		c.r.budget.refund()
	}
	e := &Error{Reason: reason, Attempts: c.attempts, Elapsed: clock().Sub(c.started), RetryAfter: retryAfter, Last: c.last}
	if c.r.observer != nil {
		notify(c.ctx, c.r.observer, GaveUp{Err: e})
	}
	return e
}

// sleep waits for d, and reports whether ctx is still good.
func sleep(ctx context.Context, d time.Duration) bool {
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	return ctx.Err() == nil
}

// record is the context of a call's attempts. It marks what runs under a Retrier,
// carries reports up to it, and tells limiters which attempt comes.
type record struct {
	context.Context
	attempt    atomic.Int64          // which is under way; a call may outlive its attempt
	maxPause   time.Duration         // longest pause to wait for
	background bool                  // yields to calls that are not
	quota      atomic.Pointer[Quota] // reported, for the limiter
}

type recordKey struct{}

// Value finds the record itself under its key.
func (r *record) Value(key any) any {
	if key == (recordKey{}) {
		return r
	}
	return r.Context.Value(key)
}

func callOf(ctx context.Context) *record {
	r, _ := ctx.Value(recordKey{}).(*record)
	return r
}

// Report tells the limiter of the [Retrier] that made ctx what quota the server
// reported: call it from within the call, with the headers of any response. The
// last report of an attempt counts. Without a Retrier, or with a negative
// Remaining, it does nothing.
func Report(ctx context.Context, q Quota) {
	if ctx == nil || q.Remaining < 0 {
		return
	}
	if r := callOf(ctx); r != nil {
		r.quota.Store(new(q))
	}
}
