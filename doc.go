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
// after a rate-limit response. The Retrier makes each call up to 5 times, with a [Backoff] between
// attempts, and a [Budget] bounds its retries. [DoValue] returns the value of a call.
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
// Every attempt waits for the limiter. Only retries draw on the Budget. Limiter, Backoff and Budget
// do not know each other, and each can be used alone.
//
// # Errors of calls
//
// The error of a call tells the Retrier how to go on. [Classify] understands errors with a
// method StatusCode or RetryAfter, and those of the AWS SDK: return them as they are. After
// any other error the call is retried, and nothing slows down. If a client reports a 429 as a plain
// error, wrap it in [Throttled]. If another attempt cannot help, wrap the error in [Permanent]. See
// also [Transient] and [QuotaExhausted].
//
// A wait given by [RetryAfter] is never cut short. [Report] passes on the quota that a response
// names, also after a success. The Transport of cruisehttp and the modules cruisegrpc, cruiseaws
// and cruisegoogle do all this by themselves.
//
// # Which option
//
// The most common ones, of which docs/options.md in the repository has all:
//
//	a known rate                           WithLimiter(Must(NewTokenBucket(…)))
//	at most N calls in any window          WithLimiter(Must(NewSlidingWindow(…)))
//	at most a rate, less after a 429       WithMaxRate
//	limits by account, table, host         Retrier.Scope
//	calls that cost several units          WithCost, at Do
//	calls that must not run twice          WithoutRetries, at Do
//	bulk work that must get through        WithUncountedThrottles, with a deadline
//	an end after some time                 a context with a deadline, WithMaxElapsed
//	more or fewer attempts                 WithMaxAttempts, which includes the first
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
// [*Error]. [errors.Is] finds its reason in it, such as [ErrAttemptsExhausted] or
// [context.DeadlineExceeded], and the last error of the call. Do can refuse a call at once. So a
// loop that calls Do again must wait after an error: for its RetryAfter, or a second if that is 0.
//
// # Concurrency and time
//
// All exported types are safe for concurrent use, except [Attempt] and shared.State.
//
// There are no background goroutines, and nothing to close, with three exceptions. A
// shared.Limiter runs a goroutine during a sync. Module cruiseredis may connect in the background
// for up to 5 s. The Observer of cruiseotel has a Close. The clock is that of package time: no
// other can be given.
//
// # Tests
//
// Under testing/synctest waits take no time and are exact. A Retrier keeps the rate that it has
// learnt, so make a new one for each test. The README has an example. Sockets do not work under
// synctest. So give a cruisehttp.Transport a RoundTripper that uses no network, by
// cruisehttp.WithRoundTripper.
package cruise
