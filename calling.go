package cruise

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/a7df5faa/cruise/internal/clock"
	"github.com/a7df5faa/cruise/internal/limits"
)

// calling is one call on its way: the state of the loop that Do and Attempts share.
type calling struct {
	r      *Retrier
	ctx    context.Context // the caller's
	record *record         // nil if nothing needs it
	perCall
	started        clock.Instant
	waited         time.Duration // in the limiter, for the attempt
	sent           clock.Instant // when the limiter admitted it
	fnStarted      clock.Instant // when the call began, after a possibly slow observer; 0 without one
	attemptCtx     context.Context
	attempts       int           // made
	counted        int           // of them, towards the maximum
	paidBy         *Budget       // has paid for a retry that is not made yet; nil if none
	delay          time.Duration // of the last backoff
	uncountedDelay time.Duration // of the last backoff for an uncounted throttle
	doneVerdict    Verdict       // on the attempt, by Attempt.Done; zero before
	last           error         // of the call itself
	throttles      throttleStreak
}

// begin prepares the first attempt.
func (c *calling) begin(r *Retrier, ctx context.Context, opts []CallOption) error {
	c.r, c.ctx, c.attemptCtx = r, ctx, ctx
	switch {
	case r == nil || r.maxAttempts == 0:
		return errZeroRetrier
	case ctx == nil:
		return limits.ErrNilContext
	}
	c.perCall = r.perCall
	for _, o := range opts {
		if err := c.apply(o); err != nil {
			return err
		}
	}
	if r.observer != nil || c.maxElapsed > 0 || !r.path.limits() {
		c.started = clock.Now() // else the limiter returns the time
	}
	if ctx.Err() != nil {
		c.started = clock.Now()
		return c.giveUp(limits.ContextError(ctx), 0)
	}
	return nil
}

// admit prepares an attempt and waits for the limiter.
func (c *calling) admit() error {
	r := c.r
	c.attemptCtx = c.ctx
	if !r.unpaced || c.attempts > 0 || c.background || c.once || c.attemptTimeout > 0 || c.maxElapsed > 0 {
		c.attemptCtx = c.ensureRecord()
		if c.attempts > 0 {
			c.record.retries.Store(int64(c.attempts))
		}
	}
	var err error
	if c.waited, err = c.waitForLimiter(); err != nil {
		return err
	}
	c.attempts++
	c.paidBy = nil
	return nil
}

// waitForLimiter waits until the limiter admits the attempt, and returns the time waited.
func (c *calling) waitForLimiter() (waited time.Duration, err error) {
	r, ctx := c.r, c.attemptCtx
	if !r.path.limits() {
		c.sent = clock.Now()
		return 0, nil
	}
	if c.maxElapsed > 0 {
		bounded, cancel := context.WithDeadline(ctx, c.started.Add(c.maxElapsed).Time())
		defer cancel()
		ctx = bounded
	}
	if c.bounded {
		c.record.maxWaitUntil.Store(int64(clock.Now().Add(c.maxWait)))
		defer c.record.maxWaitUntil.Store(0) // it bounds no wait within the attempt
	}
	came, sent, err := r.path.admit(ctx, c.cost)
	c.sent = sent
	if c.started == 0 {
		if came == 0 { // refused at once
			came = clock.Now()
		}
		c.started = came
	}
	if err != nil {
		return 0, c.refused(err)
	}
	c.record.charged.Store(0)
	c.record.sent.Store(int64(sent))
	return c.sent.Sub(came), nil
}

// refused gives up since the limiter refused the call.
func (c *calling) refused(err error) error {
	c.leave()
	e := &Error{Reason: err}
	if by, ok := errors.AsType[*Error](err); ok && by != nil {
		e.RetryAfter, e.Paused, e.Ahead = by.RetryAfter, by.Paused, by.Ahead
		if err == by && by.Last == nil { // else err holds more
			e.Reason = by.Reason
		}
	}
	ended := c.ctx.Err() != nil
	if ended {
		e.Reason = limits.ContextError(c.ctx)
	} else if c.maxElapsed > 0 && errors.Is(e.Reason, context.DeadlineExceeded) {
		// The reason may be WithMaxElapsed, or a deadline of the limiter, such as its network's.
		left, why := c.timeLeft()
		if ended = left <= 0; ended || errors.Is(e.Reason, ErrDeadline) {
			e.Reason = why
		}
	}
	if ended {
		e.Paused = c.r.path.pauseLeft()
	}
	return c.end(e)
}

// timeLeft returns the time left for waiting, and the reason for giving up after it, nil if it has no
// end. It uses time.Until as contexts do, since the deadline may lack a monotonic reading.
func (c *calling) timeLeft() (left time.Duration, reason error) {
	left = clock.Never
	if c.maxElapsed > 0 {
		left, reason = c.maxElapsed-clock.Now().Sub(c.started), ErrMaxElapsed
	}
	if deadline, ok := c.ctx.Deadline(); ok {
		if until := time.Until(deadline); until <= left {
			left, reason = until, ErrDeadline
		}
	}
	return left, reason
}

// attempt calls fn. The limiter gets a result even if fn or an observer ends the goroutine.
func (c *calling) attempt(fn func(context.Context) error) error {
	returned := false
	c.doneVerdict = Verdict{}
	defer func() {
		if !returned {
			c.report(Verdict{Outcome: OutcomeDropped}, errPanicked)
		}
	}()
	if c.r.observer != nil {
		c.fnStarted = c.sent // should the observer end the goroutine
		notify(c.eventCtx(), c.r.observer, AttemptStarted{Attempt: c.attempts, Waited: c.waited})
		c.fnStarted = clock.Now()
	}
	if c.attemptTimeout > 0 {
		ctx, cancel := context.WithTimeoutCause(c.attemptCtx, c.attemptTimeout, c.timeoutCause)
		defer cancel()
		c.attemptCtx = ctx
	}
	err := fn(c.attemptCtx)
	returned = true
	return err
}

// settle learns from an attempt and says whether another one follows, after any backoff. If not,
// final is the error of the call.
func (c *calling) settle(err error) (again bool, final error) {
	if again, final = c.decide(err); !again {
		c.leave()
	}
	return again, final
}

// leave tells that a throttled call is not sent again.
func (c *calling) leave() {
	if c.throttles.n > 0 {
		c.r.path.with(func(n *node) { n.passes.observe(&Feedback{Outcome: OutcomeDropped}, &c.throttles) })
	}
}

// decide is settle without leave.
func (c *calling) decide(err error) (again bool, final error) {
	v := c.judge(err)
	r := c.r
	switch v.Outcome {
	case OutcomeSuccess:
		r.path.succeeded()
		return false, err
	case OutcomeDropped:
		switch nested := !r.nested && callOf(c.ctx) != nil; {
		case c.ctx.Err() == nil && c.attempts > 1:
			return false, c.giveUp(err, 0)
		case c.attempts == 1 && (c.ctx.Err() == nil || nested):
			return false, err // a part of the call was given up elsewhere
		}
		if c.attempts == 1 || !isEnd(c.ctx, err) {
			c.last = err // else that of the attempt before says more
		}
		return false, c.giveUp(limits.ContextError(c.ctx), 0)
	}
	c.last = err
	if c.ranOut() && isEnd(c.attemptCtx, err) {
		c.last = limits.WithCause(c.attemptCtx, err) // the caller has set no deadline
	}
	if !r.nested && callOf(c.ctx) != nil {
		return false, err // the outer Retrier decides
	}
	switch {
	case v.Outcome == OutcomeQuotaExhausted:
		return false, c.giveUp(ErrQuotaExhausted, v.RetryAfter)
	case v.Outcome == OutcomePermanent || v.NoRetry:
		if c.attempts == 1 {
			return false, err
		}
		return false, c.giveUp(ErrPermanent, 0)
	}
	if c.ctx.Err() != nil {
		return false, c.giveUp(limits.ContextError(c.ctx), v.RetryAfter)
	}
	if !r.uncountedThrottles || v.Outcome != OutcomeThrottled {
		c.counted++
	}
	if c.once || c.counted >= c.maxAttempts {
		return false, c.giveUpRetry(ErrAttemptsExhausted, v.RetryAfter)
	}
	if v.RetryAfter > r.maxServerDelay {
		return false, c.giveUp(ErrServerDelay, v.RetryAfter)
	}
	return c.backOff(v, err)
}

// backOff waits before a retry, if there is time and budget for one.
func (c *calling) backOff(v Verdict, err error) (again bool, final error) {
	r := c.r
	backoff, paced := r.backoff, false // by the limiter
	if v.Outcome == OutcomeThrottled {
		backoff = r.throttleBackoff
		paced = c.cost > 0 && !c.throttles.own && r.path.pausesFor(v.Scope)
		if backoff == nil && !paced {
			backoff = defaultThrottleBackoff
		}
	}
	wait := v.RetryAfter
	if backoff != nil {
		retry, delay := c.counted, &c.delay
		if r.uncountedThrottles && v.Outcome == OutcomeThrottled {
			retry, delay = c.attempts, &c.uncountedDelay
		}
		*delay = max(0, backoff(retry, *delay))
		wait = max(wait, *delay)
	}
	if left, reason := c.timeLeft(); reason != nil && wait >= left {
		return false, c.giveUpRetry(reason, wait)
	}
	if !paced || !r.uncountedThrottles { // see WithUncountedThrottles
		budget := r.Budget()
		if !budget.take() {
			return false, c.giveUpRetry(ErrBudgetExhausted, v.RetryAfter)
		}
		c.paidBy = budget
	}
	if paced && wait == v.RetryAfter {
		wait = 0 // the limiter pauses everyone as long: wait in its queue
	}
	if r.observer != nil {
		notify(c.eventCtx(), r.observer, RetryScheduled{Attempt: c.attempts + 1, Delay: wait, Reason: v.Outcome, Err: err})
	}
	began := clock.Now()
	if !sleep(c.ctx, wait) {
		return false, c.giveUp(limits.ContextError(c.ctx), max(0, v.RetryAfter-clock.Now().Sub(began)))
	}
	if left, reason := c.timeLeft(); reason != nil && left <= 0 { // the observer or the timer was late
		return false, c.giveUpRetry(reason, 0)
	}
	return true, nil
}

// judge finds the verdict on an attempt and reports it, even if the classifier panics.
func (c *calling) judge(err error) Verdict {
	v := Verdict{Outcome: OutcomeDropped}
	defer func() { c.report(v, err) }()
	if c.doneVerdict.Outcome != OutcomeUnknown {
		v = c.doneVerdict
	} else {
		v = c.verdict(err)
	}
	return v
}

func (c *calling) verdict(err error) Verdict {
	switch {
	case err == nil:
		return Verdict{Outcome: OutcomeSuccess}
	case err == errLeft:
		return Verdict{Outcome: OutcomeDropped}
	case err == errNotDone:
		return Verdict{Outcome: OutcomePermanent}
	case c.ctx.Err() != nil && isEnd(c.ctx, err):
		return Verdict{Outcome: OutcomeDropped}
	}
	v := c.classify(err)
	if matchesAny(err, c.r.permanent) {
		if !v.Outcome.refused() {
			return Verdict{Outcome: OutcomePermanent}
		}
		v.NoRetry = true
	}
	return v
}

// classify returns the verdict without [WithPermanent].
func (c *calling) classify(err error) Verdict {
	if c.r.classifier != nil && !alreadyRetried(err) {
		if v := c.r.classifier(err); v.valid() {
			v.RetryAfter = max(0, v.RetryAfter)
			return v
		}
	}
	v := Classify(err)
	if c.timeoutCause != nil && v.Outcome != OutcomeThrottled && c.timedOut(err) {
		v.Outcome = OutcomeTransient
	}
	return v
}

// matchesAny reports whether err is one of several.
func matchesAny(err error, targets []error) bool {
	return slices.ContainsFunc(targets, func(target error) (is bool) {
		defer func() { _ = recover() }() // methods of err may panic
		return errors.Is(err, target)
	})
}

// ranOut reports whether the attempt has used up its own timeout.
func (c *calling) ranOut() bool {
	return c.timeoutCause != nil && context.Cause(c.attemptCtx) == c.timeoutCause
}

// timedOut reports whether err, which is not marked, comes from the timeout of the attempt alone:
// it ended the attempt, or a limiter within saw that it would.
func (c *calling) timedOut(err error) (is bool) {
	defer func() { _ = recover() }() // methods of err may panic
	m, marked := errors.AsType[markedError](err)
	e, refused := m.(*Error)
	switch {
	case marked && (!refused || e == nil || e.Attempts > 0):
		return false
	case c.ranOut():
		return isEnd(c.attemptCtx, err)
	}
	end, _ := c.attemptCtx.Deadline()
	whole, ok := c.ctx.Deadline()
	left := c.attemptTimeout - clock.Now().Sub(c.sent)
	return refused && errors.Is(err, ErrDeadline) && (!ok || end.Before(whole)) && e.RetryAfter >= left
}

// isEnd reports whether err comes from the end of ctx.
func isEnd(ctx context.Context, err error) (is bool) {
	defer func() { _ = recover() }() // methods of err may panic
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Cause(ctx))
}

// alreadyRetried reports whether another Retrier has given up on err, or on an error joined with it,
// without a new mark since. A classifier would find the server's error within and retry again.
func alreadyRetried(err error) bool {
	var all tree
	all.add(err, oneError{})
	return slices.ContainsFunc(all.ways, func(n oneError) bool {
		e, ok := n.mark.(*Error)
		return ok && !e.singleAttempt()
	})
}

// report tells the result of an attempt to the limiter and the observer.
func (c *calling) report(v Verdict, err error) {
	r := c.r
	var took time.Duration
	if r.observer != nil { // measure before the limiter notifies the observer, which may be slow
		took = clock.Now().Sub(c.fnStarted)
	}
	if r.path.limits() && c.cost > 0 {
		f := Feedback{Outcome: v.Outcome, Sent: c.sent.Time(), Cost: c.cost, RetryAfter: v.RetryAfter, Scope: v.Scope}
		if c.record != nil {
			f.Cost = max(1, f.Cost+int(c.record.charged.Load()))
			if c.record.quota.Load() != nil {
				f.Quota = c.record.quota.Swap(nil)
			}
		}
		r.path.report(f, &c.throttles)
	}
	if r.observer != nil {
		notify(c.eventCtx(), r.observer, AttemptEnded{Attempt: c.attempts, Outcome: v.Outcome, Err: err, Took: took})
	}
}

// giveUpRetry is giveUp for a call that another attempt might help, after the limiter's pause.
func (c *calling) giveUpRetry(reason error, retryAfter time.Duration) error {
	if c.cost > 0 {
		retryAfter = max(retryAfter, c.r.path.pauseLeft())
	}
	return c.giveUp(reason, retryAfter)
}

func (c *calling) giveUp(reason error, retryAfter time.Duration) error {
	return c.end(&Error{Reason: reason, RetryAfter: retryAfter})
}

func (c *calling) end(e *Error) error {
	c.paidBy.refund()
	e.Attempts, e.Elapsed, e.Last = c.attempts, clock.Now().Sub(c.started), c.last
	if c.r.observer != nil {
		notify(c.eventCtx(), c.r.observer, GaveUp{Err: e})
	}
	return e
}

// ensureRecord returns the record of the call, made at its first use.
func (c *calling) ensureRecord() *record {
	if c.record == nil {
		c.record = &record{Context: c.ctx, retrier: c.r, background: c.background, cost: c.cost}
	}
	return c.record
}

// eventCtx returns the context of the call's events.
func (c *calling) eventCtx() context.Context { return (*eventContext)(c.ensureRecord()) }

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

var (
	errZeroRetrier = errors.New("cruise: Retrier not made by New")
	errPanicked    = errors.New("cruise: call panicked or exited its goroutine")
	errLeft        = errors.New("cruise: left the loop")
	errNotDone     = Permanent(errors.New("cruise: the loop's body did not call Done"))
)
