// Package cruise is adaptive cruise control for API calls: it finds the rate that
// a throttling API gives, keeps to it, brakes for every caller the moment the
// server says stop, retries what is worth retrying, and says why it gave up.
//
// Make one [Retrier] for each API, and pass every call through it:
//
//	var api = cruise.Must(cruise.New()) // shared by all goroutines
//
//	err := api.Do(ctx, func(ctx context.Context) error {
//		return client.Call(ctx)
//	})
//
// Without options it has an [AdaptiveLimiter], which paces all calls and pauses them when
// one is throttled; makes each call up to 5 times, with a [Backoff] between attempts; and
// pays retries from a [Budget]. [DoValue] is for calls that return a value,
// [Retrier.Attempts] for loops.
//
// # The loop
//
//	          ┌───────────────────────────── Retrier.Do ──────────────────────────────┐
//	caller ─▶ │ Limiter.WaitN ─▶ call(ctx) ─▶ Classify ─▶ Learner.Learn ─▶ done? ─────│─▶ result
//	          │   (pace, pause)               (Outcome)    (halve, grow)     │        │
//	          │        ▲                                                     ▼        │
//	          │        └───────────── Backoff.Delay ◀──── Budget ◀──── worth a retry? │
//	          └───────────────────────────────────────────────────────────────────────┘
//
// Every attempt passes the limiter, first or retry; only retries are paid from
// the [Budget]. The limiter knows nothing of retries, the [Backoff] nothing of
// rates, and each can be used without the others.
//
// # What the server says
//
// A call says by its error what came of an attempt: [Throttled], [Transient],
// [Permanent], [QuotaExhausted], or any error that [Classify] understands, such
// as those of the AWS SDK. Any other error is a failure worth another attempt, and no
// throttle: where a 429 comes as one, nobody slows down. A wait that the server asks for,
// given by [RetryAfter], is never cut short. [Report] passes on the quota that a response
// names, on success too. The Transport of package cruisehttp does all that for an
// http.Client; the modules cruisegrpc, cruiseaws and cruisegoogle do it for gRPC,
// the AWS SDK and the clients of Google's APIs.
//
// # Which option
//
//	a known rate                          WithLimiter(Must(NewTokenBucket(…)))
//	at most N calls in any window         WithLimiter(Must(NewSlidingWindow(…)))
//	one delay that all callers share      WithLimiter(Must(delay.New(…)))
//	no more than a rate, less if need be  WithMaxRate
//	limits by account, table, host        Retrier.Scope
//	calls that cost several units         WithCost, at Do
//	calls that yield to others            WithBackground, at Do
//	calls that must not be sent twice     WithoutRetries, at Do
//	bulk work that must get through       WithUncountedThrottles, with a deadline
//	an answer within a time               a context with a deadline, WithMaxElapsed
//	no attempt that hangs                 WithAttemptTimeout
//	more or fewer attempts                WithMaxAttempts, which counts the first one, too
//	exponential backoff of your own       WithBackoff(Must(NewBackoff(…)))
//	one limit for several Retriers        WithLimiter, WithBudget
//	one limit for many machines           WithLimiter(Must(cruiseredis.NewLimiter(…)))
//	errors that Classify does not know    Throttled, Permanent and so on, or WithClassifier
//	to see what happens                   WithObserver: cruiseslog, cruiseotel, cruisehttp/debug
//	retries alone, without pacing         WithoutLimiter
//	code that does not fit in a function  Retrier.Attempts
//
// Constructors return an error too, as options may be out of bounds. [Must] turns that
// into a panic, for options that are constants.
//
// # Errors
//
// What Do returns is the call's own error if the first attempt failed for good,
// else an [*Error]. It matches its reason, such as [ErrAttemptsExhausted] or
// [context.DeadlineExceeded], and the last error of the call:
//
//	if e, ok := errors.AsType[*cruise.Error](err); ok && e.RetryAfter > 0 {
//		return scheduleIn(e.RetryAfter) // when another try makes sense
//	}
//
// # Concurrency and time
//
// All exported types are safe for concurrent use, except that an [Attempt]
// belongs to its loop, and a [SharedState] to its [Store], for one sync at a time.
// No goroutine outlives the last caller that waits, but for a sync of a
// [SharedLimiter] that is under way, and one by which cruiseredis connects, for 5 s at
// most, after a sync that took too long. So nothing needs a Close. Time is that of
// package time, without a clock to inject.
//
// # Tests
//
// Under testing/synctest waits take no time, and are exact. Make a new Retrier for each
// test: what one has learnt lasts.
//
//	synctest.Test(t, func(t *testing.T) {
//		api := cruise.Must(cruise.New())
//		begun, calls := time.Now(), 0
//		err := api.Do(t.Context(), func(context.Context) error {
//			if calls++; calls < 3 {
//				return cruise.Throttled(errors.New("429"), cruise.RetryAfter(time.Minute))
//			}
//			return nil
//		})
//		// err is nil, and time.Since(begun) two minutes
//	})
//
// Sockets do not work in there: give a cruisehttp.Transport a RoundTripper of the test's
// own, with cruisehttp.WithBase.
package cruise
