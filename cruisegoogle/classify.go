package cruisegoogle

import (
	"context"
	"errors"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"google.golang.org/api/googleapi"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/cruisegrpc"
	"github.com/a7df5faa/cruise/cruisehttp"
	"github.com/a7df5faa/cruise/cruisehttp/signal"
)

// Classify classifies an error of one of Google's clients, REST or gRPC. Use it with
// [cruise.WithClassifier] around calls of clients that accept neither an HTTP client nor an
// interceptor. It reads a [googleapi.Error] as [signal.Google] reads its response, and a gRPC
// status as [cruisegrpc.Classify] does, also within an APIError of gax. It declines all other
// errors, and errors marked by [cruise.Permanent] and its like.
func Classify(err error) cruise.Verdict {
	p := signal.Google()
	return classify(err, &p)
}

// Scopes that limits of Google Ads and AdWords belong to, for
// [cruise.Retrier.Scope]: see [ClassifyAds].
const (
	ScopeAccount   = "ACCOUNT"   // of one customer
	ScopeDeveloper = "DEVELOPER" // of the developer token, and so of all customers
)

// ClassifyAds is [Classify] for the Google Ads API and AdWords. Their limits belong to a customer
// or to the developer token, and the scope of a throttle is [ScopeAccount] or [ScopeDeveloper]. So
// with
//
//	developer, err := cruise.New(cruise.WithClassifier(cruisegoogle.ClassifyAds))
//	…
//	err = developer.Scope(cruisegoogle.ScopeAccount, customer).Do(ctx, call)
//
// the limit of one customer slows only that customer, and the limit of the developer token slows
// all customers.
//
// Beyond what Classify understands, it reads the quota errors of a GoogleAdsFailure
// in the details of a gRPC status. In the text of any error it finds a RateExceededError,
// with its rateScope and retryAfterSeconds, as SOAP clients return it:
// "[RateExceededError <rateName=…, rateScope=ACCOUNT, retryAfterSeconds=30>]".
//
// Give it to an interceptor of a gRPC client by [cruisegrpc.WithClassifier]. For an HTTP
// client of the Google Ads API see [AdsScopes], for clients that read the response
// themselves [AdsError].
func ClassifyAds(err error) cruise.Verdict {
	if v := adsFailure(err); v.Outcome != cruise.OutcomeUnknown && unmarked(err) {
		return v
	}
	p := signal.GoogleAds()
	if v := classify(err, &p); v.Outcome != cruise.OutcomeUnknown {
		return v
	}
	if !unmarked(err) || !strings.Contains(err.Error(), "RateExceededError") {
		return cruise.Verdict{}
	}
	v := cruise.Verdict{Outcome: cruise.OutcomeThrottled}
	if m := rateScope.FindStringSubmatch(err.Error()); m != nil {
		v.Scope = m[1]
	}
	if m := retrySeconds.FindStringSubmatch(err.Error()); m != nil {
		seconds, _ := strconv.ParseInt(m[1], 10, 64) // as many digits as fit
		v.RetryAfter = min(time.Duration(seconds)*time.Second, maxWait)
	}
	if v.RetryAfter > signal.DefaultLongWait {
		v.Outcome = cruise.OutcomeQuotaExhausted
	}
	return v
}

// maxWait bounds a server's wait, as in cruisehttp.
const maxWait = 365 * 24 * time.Hour

var (
	rateScope    = regexp.MustCompile(`rateScope\W{1,3}(ACCOUNT|DEVELOPER)`)
	retrySeconds = regexp.MustCompile(`retryAfterSeconds\W{1,3}(\d{1,9})`)
)

// AdsError returns the error of a response of the Google Ads API or AdWords, SOAP or JSON, for a
// call within a Retrier to return. It is a [*cruisehttp.ResponseError] with the verdict and scope
// that [ClassifyAds] describes, nil if the response is no error. body is the body of resp, as the
// caller has read it.
func AdsError(resp *http.Response, body []byte) error {
	now := time.Now()
	s := signal.GoogleAds().Read(resp, body, now)
	wait := s.Wait(0)
	err := &cruisehttp.ResponseError{Status: resp.Status, StatusCode: resp.StatusCode, Header: resp.Header, Body: body, Signal: s}
	if wait > 0 {
		err.Until = now.Add(wait)
	}
	hints := []cruise.Hint{cruise.RetryAfter(wait), cruise.InScope(s.Scope)}
	switch s.Outcome {
	case cruise.OutcomeSuccess:
		return nil
	case cruise.OutcomeThrottled:
		return cruise.Throttled(err, hints...)
	case cruise.OutcomeQuotaExhausted:
		return cruise.QuotaExhausted(err, hints...)
	case cruise.OutcomeTransient:
		return cruise.Transient(err, hints...)
	}
	return cruise.Permanent(err)
}

func classify(err error, p *signal.Profile) cruise.Verdict {
	e, ok := errors.AsType[*googleapi.Error](err)
	if !ok {
		return cruisegrpc.Classify(err)
	}
	if !unmarked(err) {
		return cruise.Verdict{}
	}
	s := p.Read(&http.Response{StatusCode: e.Code, Header: e.Header}, []byte(e.Body), time.Now())
	return cruise.Verdict{Outcome: s.Outcome, RetryAfter: s.Wait(0), Scope: s.Scope}
}

// unmarked reports whether err has no verdict of its own and is not the end of a context.
func unmarked(err error) bool {
	_, marked := errors.AsType[interface {
		error
		Verdict() cruise.Verdict
	}](err)
	return err != nil && !marked && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded)
}
