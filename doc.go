// Package cruise limits the rate of API calls on the client's side, retries them, and adapts to
// the API: it finds the allowed rate, slows every goroutine down on a rate-limit response, and
// says why a call failed.
//
// Make one [Retrier] for each API, and pass every call through it:
//
//	var api = cruise.Must(cruise.New()) // shared by all goroutines
//
//	err := api.Do(ctx, func(ctx context.Context) error {
//		return client.Call(ctx)
//	})
//
// Without options, a Retrier has an [AdaptiveLimiter], which paces all calls and pauses them
// after a rate-limit response. It makes each call up to 5 times, with a [Backoff] between
// attempts, and bounds retries by a [Budget]. [DoValue] returns the value of a call.
// [Retrier.Attempts] is a loop for code that does not fit in a function. Package cruisehttp has
// a Transport for http.Client.
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
// Every attempt passes the limiter, first or retry. Only retries draw on the Budget. Limiter,
// Backoff and Budget do not know each other, and each can be used alone.
//
// # Errors of calls
//
// The error of a call tells the Retrier how to go on. [Classify] understands errors with a
// method StatusCode or RetryAfter, and those of the AWS SDK: return them as they are. All other
// errors are retried without slowing down. If a client reports a 429 as a plain error, wrap it
// in [Throttled]; if another attempt cannot help, in [Permanent]. [Transient] and
// [QuotaExhausted] name the other cases.
//
// A wait given by [RetryAfter] is never cut short. [Report] passes on the quota that a response
// names, also after a success. The Transport of cruisehttp and the modules cruisegrpc, cruiseaws
// and cruisegoogle do all this by themselves.
//
// # Which option
//
//	a known rate                           WithLimiter(Must(NewTokenBucket(…)))
//	at most N calls in any window          WithLimiter(Must(NewSlidingWindow(…)))
//	one delay that all callers share       WithLimiter(Must(delay.New(…)))
//	at most a rate, less after a 429       WithMaxRate
//	limits by account, table, host         Retrier.Scope
//	calls that cost several units          WithCost, at Do
//	calls that yield to others             WithBackground, at Do
//	calls that must not run twice          WithoutRetries, at Do
//	bulk work that must get through        WithUncountedThrottles, with a deadline
//	a limit of time                        a context with a deadline, WithMaxElapsed
//	attempts that cannot hang              WithAttemptTimeout
//	more or fewer attempts                 WithMaxAttempts, which includes the first
//	another backoff                        WithBackoff(Must(NewBackoff(…)))
//	one limit for several Retriers         WithLimiter, WithBudget
//	one limit for many machines            WithLimiter(Must(cruiseredis.NewLimiter(…)))
//	errors that Classify does not know     Throttled, Permanent and so on, or WithClassifier
//	logs, metrics, a live page             WithObserver: cruiseslog, cruiseotel, cruisehttp/debug
//	retries without pacing                 WithoutLimiter
//
// Constructors return an error that names every invalid option. [Must] turns it into a panic,
// for options that are constants.
//
// # Errors of Do
//
// Do returns the call's own error unchanged if the first attempt fails permanently, otherwise an
// [*Error]. It matches its reason, such as [ErrAttemptsExhausted] or [context.DeadlineExceeded],
// and the last error of the call:
//
//	if e, ok := errors.AsType[*cruise.Error](err); ok && e.RetryAfter > 0 {
//		return scheduleIn(e.RetryAfter) // another call makes sense then
//	}
//
// A loop that calls Do again must wait after an error, since Do can refuse a call at once: for
// RetryAfter, or for a second.
//
// # Concurrency and time
//
// All exported types are safe for concurrent use, except [Attempt] and shared.State.
//
// There are no background goroutines, and nothing to close. Exceptions: a shared.Limiter runs a
// goroutine during a sync, cruiseredis may connect in the background for up to 5 s, and
// cruiseotel's Observer has a Close. Time is that of package time, without a clock to inject.
//
// # Tests
//
// Under testing/synctest waits take no time and are exact. Make a new Retrier for each test,
// since it keeps the rate that it has learnt.
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
//		// err is nil, and time.Since(begun) is two minutes
//	})
//
// Sockets do not work in there: give a cruisehttp.Transport a RoundTripper without a network,
// with cruisehttp.WithRoundTripper.
package cruise
