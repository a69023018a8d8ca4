// Package cruiseotel reports cruise's calls and limiters to OpenTelemetry: as metrics, and as
// events on the spans of the calls. It needs only OpenTelemetry's API; the program chooses and sets
// up the SDK.
//
//	heroku, err := cruiseotel.New("heroku")
//	…
//	api, err := cruise.New(cruise.WithObserver(heroku))
//	…
//	heroku.Add(api)
//
// # Metrics
//
// All have the attribute cruise.api, the name given to [New].
//
//	name                     kind       unit        further attributes
//	cruise.attempts          counter    {attempt}   cruise.outcome
//	cruise.retries           counter    {retry}     cruise.reason: the outcome that failed
//	cruise.give_ups          counter    {call}      cruise.reason: attempts_exhausted, deadline …
//	cruise.throttles         counter    {throttle}  cruise.scope; cruise.limit: as the server named it, if it did
//	cruise.rate_cuts         counter    {cut}       cruise.scope; cruise.cause: throttle, quota, latency, set
//	cruise.pauses            counter    {pause}     cruise.scope
//	cruise.wait.duration     histogram  s           of each attempt, in the limiter
//	cruise.rate_limit        gauge      {call}/s    cruise.scope; not reported while there is none
//	cruise.pause.remaining   gauge      s           cruise.scope
//	cruise.queue.length      gauge      {call}      cruise.scope
//	cruise.budget.remaining  gauge      {retry}     the least of all Retriers and scopes; none without a budget
//	cruise.scopes            gauge      {scope}     limiters that are kept
//	cruise.store.degraded    gauge      {limiter}   those shared between machines that cannot reach their store
//
// The gauges are read when metrics are collected, from the Retriers given to [Observer.Add].
// Throttles, rate cuts and pauses are reported by a [cruise.AdaptiveLimiter], the default, or a
// shared.Limiter. If you make the limiter yourself, give it the Observer too.
//
// # Scopes
//
// cruise.scope is "all" for a Retrier's own limiter, else the names of the scopes, such as ACCOUNT
// or ACCOUNT/TABLE, without their keys: keys may be many, and may be confidential. For limiters
// with the same name the lowest limit, the longest pause and the sum of the queues are reported.
// [WithKeys] adds the keys. In any case there are at most [WithMaxScopes] values, always with "all"
// among them, and one more, "other", for all further scopes. In gauges, a scope in trouble takes
// the place of a scope without trouble for ten minutes. In counters the first scopes with trouble
// keep their places, since a series lasts as long as the program runs.
//
// # Spans
//
// On the span of the call's context, if it is recorded:
//
//	event            when                                      attributes
//	cruise.wait      an attempt has to stand in line           cruise.at_least, cruise.paused: s; cruise.ahead: cost
//	cruise.go        it goes, after a millisecond or more      cruise.attempt, cruise.waited: s
//	cruise.throttle  the server throttled it                   cruise.attempt
//	cruise.retry     it failed and another one will follow     cruise.attempt, cruise.reason, cruise.delay: s
//	cruise.give_up   no other one will                         cruise.reason, cruise.attempts, cruise.retry_after: s
//
// A call that waits for a pause to end gets a link to the span of the call that was throttled last,
// which most likely caused the pause.
package cruiseotel
