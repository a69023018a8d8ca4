package cruisehttp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/textproto"
	"slices"
	"time"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/cruisehttp/signal"
)

// A Transport is an [http.RoundTripper] that keeps requests to their server's rate limit, and
// retries failed requests if that is safe:
//
//	client := &http.Client{Transport: cruise.Must(cruisehttp.NewTransport())}
//
// Every attempt passes the limiter of its scope, which is the host unless [WithScope] says
// otherwise. A [signal.Profile] reads the response: a throttle pauses the whole scope, and reported
// limits set the pace before the first throttle.
//
// A failure is retried if it is worth a retry and if the work cannot be done twice, because
//
//   - the method is idempotent, or the request has an Idempotency-Key, or the header of
//     [WithIdempotencyHeader],
//   - the server throttled it, or says by HTTP/2 that it has not begun it,
//   - nothing of it was sent: see [Unsent],
//   - or doing it twice does no harm, by [AllowRetry] or [WithAnyMethod].
//
// A request with a nonce, which a server accepts once, is sent again only if nothing of it was
// sent: see [ErrNonce]. Headers by which a server says whether to retry are obeyed. The body is
// sent again by GetBody, else by its Seek method, else from the buffer of [WithBufferedBodies],
// else not at all. Each scope has its own [cruise.Budget] for retries: a host that is down takes
// none from the others.
//
// Within one attempt an [http.Transport] itself sends a request of any method again at once in
// three cases: the connection had been closed meanwhile, an HTTP/2 server has not begun the
// request, or the server answers with a PROTOCOL_ERROR of HTTP/2. Only a body that can be read once
// prevents it.
//
// When no retry is possible, or no further one, RoundTrip returns the last response as it came, its
// body open; see also [WithoutRetryAfter]. A [cruise.GaveUp] tells observers the reason, such as
// [ErrNotIdempotent]; cruiseslog logs it. RoundTrip returns an error if there is no response, if a
// quota is used up, or if the server asks for a longer wait than [cruise.WithMaxServerDelay]
// allows: a [*cruise.Error] with the wait and the [*ResponseError]. From then until the quota is
// renewed, all new requests of the scope fail at once with the same answer. Requests that already
// wait in the queue fail with the same reason.
//
// The http.Client and its Jar see only the returned response: a cookie that a server sets with an
// error is not sent with the retry.
//
// The Transport reads the body of an error before it returns the response: at most 64 KiB, for at
// most 2 seconds and half of the time to the deadline. The caller still gets the whole body. A
// longer or slower body keeps its connection until the next attempt, as the response may be the
// last one. HTTP/2 shares the connection meanwhile; HTTP/1.1 closes it then. If a server sends such
// bodies over HTTP/1.1, set MaxConnsPerHost of an [http.Transport] above the number of requests
// that wait for a retry, or no other request gets a connection meanwhile.
//
// A Timeout of the http.Client bounds all of it: the wait for the limiter, every
// attempt, and reading the body. [WithHeaderTimeout] and [WithAttemptTimeout] bound one
// attempt. Waits end with the context of the request; its Cancel channel, which is
// deprecated, ends attempts only.
//
// A Transport is safe for concurrent use and must not be copied. It needs no
// Close.
type Transport struct {
	config
	reader  *signal.Reader
	retrier *cruise.Retrier // around all scopes
	buckets buckets
	lot     lot
}

// NewTransport returns a Transport. Its error names every option that is out of bounds, including
// the options within [WithRetrierOptions].
func NewTransport(opts ...Option) (*Transport, error) {
	c, err := newConfig(opts)
	retrier, errRetrier := cruise.New(append([]cruise.Option{cruise.WithoutLimiter()}, c.options...)...)
	reader, errReader := signal.NewReader(c.profile, c.longWait)
	if err := errors.Join(err, errReader, errRetrier); err != nil {
		return nil, err
	}
	return &Transport{config: *c, reader: reader, retrier: retrier}, nil
}

// Retrier returns the [cruise.Retrier] around all scopes. Its [cruise.Retrier.Scope]
// leads to a scope of requests, to look at or to steer its limiter, by default a
// [*cruise.AdaptiveLimiter], or to make other calls under the same limit:
//
//	limiter := transport.Retrier().Scope(cruisehttp.GlobalScope, "api.example.com").Limiter()
func (t *Transport) Retrier() *cruise.Retrier { return t.retrier }

// CloseIdleConnections closes the idle connections of the base, if it can.
func (t *Transport) CloseIdleConnections() {
	if base, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		base.CloseIdleConnections()
	}
}

var errZeroTransport = errors.New("cruisehttp: Transport not made by NewTransport")

// RoundTrip sends a request, and repeats it if that is worth it: see [Transport].
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if t == nil || t.retrier == nil {
		if req.Body != nil {
			req.Body.Close()
		}
		return nil, errZeroTransport
	}
	x := exchange{t: t, req: req, came: time.Now(), payload: newPayload(req)}
	defer x.payload.done()
	x.keys = t.keys(req)
	if err := t.parkedError(req.Context(), x.keys); err != nil {
		return nil, &failure{err}
	}
	// Buffer the body before the request enters the queue: the admission is only valid at its
	// moment.
	if err := x.payload.buffer(t.buffer); err != nil {
		return nil, &failure{err}
	}
	return x.run()
}

// An exchange is one request on its way.
type exchange struct {
	t       *Transport
	req     *http.Request
	came    time.Time
	payload payload
	keys    []string // of its scopes

	// The result of the last attempt. One of the two is nil.
	resp *http.Response
	err  error

	signal signal.Signal  // of resp
	answer *ResponseError // made of resp, if it was no success
	named  []string       // keys of the bucket that resp names, if it was sent under another name
}

// run makes attempts until one of them is the last. Should a rule or a classifier panic, it
// closes the response.
func (x *exchange) run() (*http.Response, error) {
	returned := false
	defer func() {
		if !returned && x.resp != nil && x.resp.Body != nil {
			_ = x.resp.Body.Close()
		}
	}()
	for attempt, gaveUp := range x.t.scope(x.keys).Attempts(x.req.Context(), optionsOf(x.req.Context())...) {
		if gaveUp != nil {
			x.resp, x.err = x.gaveUp(gaveUp)
			break
		}
		if !x.attempt(attempt) {
			break
		}
	}
	returned = true
	if x.t.noRetryAfter && x.resp != nil && x.resp.StatusCode >= 400 {
		x.resp.Header = x.resp.Header.Clone() // an observer may have the other one
		for _, name := range [...]string{"Retry-After", "Retry-After-Ms", "X-Ms-Retry-After-Ms"} {
			x.resp.Header.Del(name)
		}
	}
	return x.resp, x.err
}

// attempt sends the request once. It reports whether the Retrier decides how to go on. If not,
// RoundTrip returns resp and err.
func (x *exchange) attempt(a *cruise.Attempt) bool {
	r := x.req.WithContext(a.Context())
	if x.req.URL != nil { // Google's transports write an API key into it, and errors quote the caller's URL
		r.URL = new(*x.req.URL)
	}
	if err := x.fill(a, r); err != nil {
		if x.err != nil {
			x.err = notRetried(x.err, err)
		}
		a.GiveUp(err)
		return false // without Done: the server was not asked
	}
	discard(x.resp)
	x.resp, x.err, x.answer, x.signal, x.named = nil, nil, nil, signal.Signal{}, nil
	began := time.Now()
	resp, err := x.send(a, r)
	switch {
	case err != nil:
		discard(resp) // against the rules of http.RoundTripper
		return x.failed(a, err)
	case resp == nil:
		return x.failed(a, cruise.Permanent(fmt.Errorf("cruisehttp: %T returned neither a response nor an error", x.t.base)))
	}
	resp.Request = x.req
	x.resp = resp
	var body []byte
	x.signal = x.t.reader.Read(resp, time.Now(), func() []byte {
		body = peek(resp, x.patience(a, began))
		return body
	})
	x.t.extend(&x.signal, resp)
	return x.judge(a, body)
}

// patience returns how long to wait for the body of the response to an attempt: no longer than the
// attempt may take for its head, unless only the body can show an error.
func (x *exchange) patience(a *cruise.Attempt, began time.Time) time.Duration {
	left := bodyPatience
	if x.resp.StatusCode < 400 {
		return left
	}
	if x.t.headerTimeout > 0 {
		left = min(left, x.t.headerTimeout-time.Since(began))
	}
	if deadline, ok := a.Context().Deadline(); ok {
		left = min(left, time.Until(deadline))
	}
	if deadline, ok := x.req.Context().Deadline(); ok {
		left = min(left, time.Until(deadline)/2) // after all of it the response would be lost
	}
	return left
}

func (x *exchange) fill(a *cruise.Attempt, r *http.Request) error {
	if a.Number() == 1 {
		x.payload.first(r)
		return nil
	}
	return x.payload.next(a.Context(), r)
}

// failed ends an attempt that got no response.
func (x *exchange) failed(a *cruise.Attempt, err error) bool {
	x.err = err
	if ctx := x.req.Context(); ctx.Err() != nil {
		if !errors.Is(err, ctx.Err()) && !errors.Is(err, context.Cause(ctx)) { // net/http has its own error for it
			x.err = &failure{fmt.Errorf("%w: %w", ended(ctx), err)}
		}
		a.Done(x.err)
		return true
	}
	select {
	//lint:ignore SA1019 a Client with a Timeout closes it too, now and then before the context ends
	case <-x.req.Cancel:
		return false // dropped: it teaches nothing
	default:
	}
	v := Classify(err)
	if v.Outcome == cruise.OutcomeUnknown {
		v = cruise.Classify(err)
	}
	told := err
	switch v.Outcome {
	case cruise.OutcomePermanent:
		told = cruise.Permanent(err)
	case cruise.OutcomeThrottled:
		told = cruise.Throttled(err)
	}
	if !worthIt(a.Done(told)) {
		return true
	}
	became := unknown
	if unsent(err) {
		became = notSent
	}
	if why := x.refusal(became); why != nil {
		x.err = notRetried(err, why)
		a.GiveUp(why)
		return false
	}
	return true
}

// judge ends an attempt that got a response.
func (x *exchange) judge(a *cruise.Attempt, body []byte) bool {
	s := &x.signal
	if s.Quota != nil {
		cruise.Report(a.Context(), *s.Quota)
	}
	if x.t.bucketHeader != "" {
		x.learnBucket()
	}
	if s.Outcome == cruise.OutcomeSuccess && !s.Brake {
		a.Done(nil)
		return true
	}
	wait := s.Wait(0)
	// However long the server says that a quota is used up, one request a day tries again.
	v := cruise.Verdict{Outcome: s.Outcome, RetryAfter: min(wait, maxPark)}
	x.t.inScope(s.Scope, x.keys)(&v)
	switch {
	case s.Brake:
		v.Outcome = cruise.OutcomeThrottled
	case v.Outcome == cruise.OutcomeUnknown, v.Outcome == cruise.OutcomeDropped:
		return false // by a rule: it teaches nothing
	}
	x.answer = &ResponseError{Status: x.resp.Status, StatusCode: x.resp.StatusCode, Header: x.resp.Header, Body: body, Signal: *s, verdict: v}
	if wait > 0 {
		x.answer.Until = time.Now().Add(wait)
	}
	switch v := a.Done(x.answer); { // which a classifier of the Retrier's own may have the word on
	case s.Brake:
		x.answer.NotRetried = errBrake
	case worthIt(v):
		x.answer.NotRetried = x.refusal(x.fate(v))
		a.GiveUp(x.answer.NotRetried)
	}
	return x.answer.NotRetried == nil
}

// maxPark is the longest pause of a scope for one response.
const maxPark = 24 * time.Hour

// extend makes a failure transient if it has a status of [WithRetryStatuses], unless the server
// forbids retries.
func (t *Transport) extend(s *signal.Signal, resp *http.Response) {
	if s.Outcome != cruise.OutcomePermanent || s.Brake || s.ShouldNotRetry || !slices.Contains(t.statuses, resp.StatusCode) {
		return
	}
	s.Outcome = cruise.OutcomeTransient
	s.RetryAfter, s.Asked = signal.ParseRetryAfter(resp.Header, time.Now())
}

// worthIt reports whether a retry is worth it.
func worthIt(v cruise.Verdict) bool {
	return !v.NoRetry && (v.Outcome == cruise.OutcomeThrottled || v.Outcome == cruise.OutcomeTransient)
}

// errBrake is the error of a throttled request that must not be repeated: the server says so, or it
// has done a part of it.
var errBrake = errors.New("cruisehttp: not retried: by the response, the same request should not be sent again")

// learnBucket remembers the bucket that the response names, and pauses it too if
// the request was throttled in it under another name.
func (x *exchange) learnBucket() {
	name := textproto.TrimString(x.resp.Header.Get(x.t.bucketHeader))
	last := len(x.keys) - 1
	if name == "" || len(name) > maxBucket || name == x.keys[last] {
		return
	}
	x.t.buckets.learn(routeOf(x.keys[:last], x.t.bucketRoute(x.req)), name)
	if x.t.blamed(x.signal.Scope, x.keys) <= last {
		return
	}
	x.named = append(slices.Clone(x.keys[:last]), name)
	if x.signal.Outcome == cruise.OutcomeThrottled {
		x.pauseNamed(x.signal.Wait(0))
	}
}

func (x *exchange) pauseNamed(wait time.Duration) {
	if l, ok := x.t.scope(x.named).Limiter().(interface{ Pause(time.Duration) }); ok {
		l.Pause(wait)
	}
}

// gaveUp ends the exchange with the Retrier's error.
func (x *exchange) gaveUp(err error) (*http.Response, error) {
	if x.resp == nil {
		if _, ok := errors.AsType[*cruise.Error](err); ok || x.err == nil {
			return nil, &failure{err}
		}
		return nil, x.err // the error of the only attempt, without its verdict
	}
	wait, reason := x.reason(err)
	if reason != nil && wait > 0 {
		x.park(wait, reason)
	}
	if x.req.Context().Err() == nil && (reason == nil || x.t.quotaResponses) {
		return x.resp, nil
	}
	discard(x.resp)
	if _, ok := errors.AsType[*cruise.Error](err); !ok { // another Retrier is in charge, or no retry was worth it
		if reason == nil {
			reason = ended(x.req.Context())
		}
		err = &cruise.Error{Reason: reason, Attempts: 1, Elapsed: time.Since(x.came), RetryAfter: wait, Last: x.answer}
	}
	return nil, &failure{err}
}

// park keeps the answer for later requests to the blamed scope, as long as it holds.
func (x *exchange) park(wait time.Duration, reason error) {
	if reason == cruise.ErrServerDelay && x.signal.Outcome == cruise.OutcomeTransient {
		return // it concerns one resource, and pauses no other request
	}
	answer := *x.answer
	answer.Body = nil // too large to keep for days
	if sizeOf(answer.Header) > signal.MaxBody {
		answer.Header = nil
	}
	answer.Header = answer.Header.Clone() // the caller may change the header of its response
	p := parked{time.Now().Add(wait), reason, &answer}
	if scope := x.keys[:x.t.blamed(answer.Signal.Scope, x.keys)]; scope[len(scope)-1] != "" {
		x.t.lot.park(path(scope), p)
	}
	if x.named != nil {
		x.pauseNamed(wait)
		x.t.lot.park(path(x.named), p)
	}
}

// ended returns the error of an ended context, with its cause if there is one.
func ended(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == err {
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// reason returns the reason to turn a response into an error, nil if there is none, and how long it
// will hold, 0 if that is unknown.
func (x *exchange) reason(err error) (wait time.Duration, reason error) {
	e, ok := errors.AsType[*cruise.Error](err)
	switch {
	case !ok:
		// Another Retrier acts on the verdict, so report nothing.
		if x.signal.Outcome == cruise.OutcomeQuotaExhausted && cruise.Nested(x.req.Context()) {
			return x.signal.Wait(0), cruise.ErrQuotaExhausted
		}
	case e.Reason == cruise.ErrQuotaExhausted, e.Reason == cruise.ErrServerDelay: // themselves, not as the cause of a context
		if e.Paused > 0 {
			return 0, e.Reason // refused in the queue, because of another response
		}
		return e.RetryAfter, e.Reason
	}
	return 0, nil
}

// send sends r, bounded by the timeouts.
func (x *exchange) send(a *cruise.Attempt, r *http.Request) (*http.Response, error) {
	// A timeout of the Retrier's ends with the attempt, even if the caller's deadline is
	// sooner and the only one to be seen.
	ofRetrier := a.Context().Done() != x.req.Context().Done()
	if x.t.headerTimeout == 0 && x.t.attemptTimeout == 0 && !ofRetrier {
		return x.roundTrip(r)
	}
	return x.sendTimed(a, r, ofRetrier)
}

func (x *exchange) sendTimed(a *cruise.Attempt, r *http.Request, ofRetrier bool) (*http.Response, error) {
	attempt, caller := a.Context(), x.req.Context() // a is another one by the time that a function is called
	ctx := attempt
	if ofRetrier {
		ctx = context.WithoutCancel(ctx) // which would cut the body
	}
	ctx, cancel := context.WithCancelCause(ctx)
	none := func() bool { return false }
	cancelAfter := func(d time.Duration, option string) (stop func() bool) {
		if d == 0 {
			return none
		}
		return time.AfterFunc(d, func() { cancel(tookLong(d, option)) }).Stop
	}
	stopHeader := cancelAfter(x.t.headerTimeout, "WithHeaderTimeout")
	stopAttempt := cancelAfter(x.t.attemptTimeout, "WithAttemptTimeout")
	stopRetrier, leaveCaller := none, none
	if ofRetrier {
		leaveCaller = context.AfterFunc(caller, func() { cancel(context.Cause(caller)) })
		stopRetrier = context.AfterFunc(attempt, func() {
			cause := context.Cause(attempt)
			if caller.Err() == nil {
				cause = &timeoutError{cause.Error(), cause}
			}
			cancel(cause)
		})
	}
	end := func() {
		stopAttempt()
		leaveCaller()
		cancel(context.Canceled)
	}
	hasBody := false
	defer func() {
		stopHeader()
		stopRetrier()
		if !hasBody {
			end()
		}
	}()
	resp, err := x.roundTrip(r.WithContext(ctx))
	if err != nil {
		return resp, timedOut(ctx, err)
	}
	if resp == nil || resp.Body == nil || resp.Body == http.NoBody {
		return resp, nil
	}
	hasBody = true
	if resp.StatusCode != http.StatusSwitchingProtocols {
		resp.Body = &timedBody{ReadCloser: resp.Body, ctx: ctx, end: end}
		return resp, nil
	}
	stopAttempt()
	if conn, ok := resp.Body.(io.ReadWriteCloser); ok {
		resp.Body = &upgraded{conn, end}
	}
	return resp, nil
}
