package cruisehttp

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/cruisehttp/signal"
)

// Classify classifies the error of an [http.Client] or [http.RoundTripper]. It suits
// [cruise.WithClassifier]. A name that does not exist, a certificate that is not trusted, a server that
// speaks no TLS and a request that net/http cannot send are permanent. The error code
// ENHANCE_YOUR_CALM of HTTP/2 (RFC 9113 section 7) is a throttle. A proxy's refusal to connect is
// classified by its status, as [cruise.StatusOutcome] has it. nil is a success. Classify declines
// all other errors, which [cruise.Classify] understands: a cancellation is dropped; timeouts,
// resets and the rest are transient.
func Classify(err error) cruise.Verdict {
	if err == nil {
		return cruise.Verdict{Outcome: cruise.OutcomeSuccess}
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return cruise.Verdict{}
	}
	text := innermost(err)
	if permanentFailure(err) || unsendable(text) {
		return cruise.Verdict{Outcome: cruise.OutcomePermanent}
	}
	// The types of net/http for this are not exported.
	if strings.Contains(err.Error(), "ENHANCE_YOUR_CALM") {
		return cruise.Verdict{Outcome: cruise.OutcomeThrottled}
	}
	if status := statusOf(text); status > 0 {
		return cruise.Verdict{Outcome: cruise.StatusOutcome(status, 0)}
	}
	return cruise.Verdict{}
}

// VerdictOf returns the verdict on a response by its status and header, as an SDK's error keeps
// them. [signal.Generic] reads them, with all waits and quotas in the header. The header may be
// nil. VerdictOf declines a status below 300. With [cruise.ClassifyAs] it makes a classifier for an
// SDK in one line:
//
//	cruise.ClassifyAs(func(e *googleapi.Error) cruise.Verdict { return cruisehttp.VerdictOf(e.Code, e.Header) })
//	cruise.ClassifyAs(func(e *azcore.ResponseError) cruise.Verdict { return cruisehttp.VerdictOf(e.StatusCode, e.RawResponse.Header) })
//	cruise.ClassifyAs(func(e *github.RateLimitError) cruise.Verdict { return cruisehttp.VerdictOf(e.Response.StatusCode, e.Response.Header) })
//	cruise.ClassifyAs(func(e *github.AbuseRateLimitError) cruise.Verdict { return cruisehttp.VerdictOf(429, e.Response.Header) })
//	cruise.ClassifyAs(func(e *github.ErrorResponse) cruise.Verdict { return cruisehttp.VerdictOf(e.Response.StatusCode, e.Response.Header) })
//	cruise.ClassifyAs(func(e *stripe.Error) cruise.Verdict { return cruisehttp.VerdictOf(e.HTTPStatusCode, e.LastResponse.Header) })
//	cruise.ClassifyAs(func(e *openai.Error) cruise.Verdict { return cruisehttp.VerdictOf(e.StatusCode, e.Response.Header) })
//	cruise.ClassifyAs(func(e *anthropic.Error) cruise.Verdict { return cruisehttp.VerdictOf(e.StatusCode, e.Response.Header) })
//	cruise.ClassifyAs(func(e minio.ErrorResponse) cruise.Verdict { return cruisehttp.VerdictOf(e.StatusCode, nil) })
//	cruise.ClassifyAs(func(e *discordgo.RESTError) cruise.Verdict { return cruisehttp.VerdictOf(e.Response.StatusCode, e.Response.Header) })
//	cruise.ClassifyAs(func(e *vault.ResponseError) cruise.Verdict { return cruisehttp.VerdictOf(e.StatusCode, nil) })
//	cruise.ClassifyAs(func(e twirp.Error) cruise.Verdict { return cruisehttp.VerdictOf(twirp.ServerHTTPStatusFromErrorCode(e.Code()), nil) })
//
// An error that keeps no status tells the outcome itself:
//
//	cruise.ClassifyAs(func(e *discordgo.RateLimitError) cruise.Verdict {
//		return cruise.Verdict{Outcome: cruise.OutcomeThrottled, RetryAfter: e.RetryAfter}
//	})
//	cruise.ClassifyAs(func(e *connect.Error) (v cruise.Verdict) {
//		if e.Code() == connect.CodeResourceExhausted {
//			v.Outcome = cruise.OutcomeThrottled
//		}
//		return v
//	})
//	cruise.ClassifyAs(func(e kafka.Error) (v cruise.Verdict) {
//		if e == kafka.ThrottlingQuotaExceeded {
//			v.Outcome = cruise.OutcomeThrottled
//		}
//		return v
//	})
//
// Where an SDK takes an [http.RoundTripper], prefer a [Transport], which sees every attempt.
func VerdictOf(status int, header http.Header) cruise.Verdict {
	if status < 300 {
		return cruise.Verdict{}
	}
	s := generic().Read(&http.Response{StatusCode: status, Header: header}, nil, time.Now())
	return cruise.Verdict{Outcome: s.Outcome, RetryAfter: s.Wait(0), Scope: s.Scope}
}

var generic = sync.OnceValue(signal.Generic)

// statusOf returns the status of a phrase, 0 if there is none. net/http keeps only the phrase of a
// proxy's answer to CONNECT.
func statusOf(phrase string) int {
	for status := 400; status < 600 && phrase != ""; status++ {
		if http.StatusText(status) == phrase {
			return status
		}
	}
	return 0
}

func permanentFailure(err error) bool {
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		return dns.IsNotFound && !dns.IsTemporary
	}
	if is[*tls.CertificateVerificationError](err) || is[x509.UnknownAuthorityError](err) ||
		is[x509.HostnameError](err) || is[x509.CertificateInvalidError](err) ||
		is[tls.RecordHeaderError](err) || // the server speaks no TLS
		is[*net.AddrError](err) || // an invalid address
		errors.Is(err, http.ErrSchemeMismatch) {
		return true
	}
	return permanentAlert(err)
}

func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// misuses are the texts of net/http's untyped errors for requests that it cannot send. A look at
// the request itself would blame requests that a RoundTripper beneath completes, and miss requests
// that it spoils.
var misuses = []string{
	"unsupported protocol scheme ",
	"http: invalid header ",
	"http: invalid method ",
	"http: invalid trailer ",
	"http: nil Request.",
	"http: no Host in request URL",
	"http: can't write control character in Request.URL",
	"http: Request.ContentLength=",
	"http: ContentLength=",
	"http2: request body larger than specified content length",
	"invalid Connection request header",
	"invalid Host header",
	"invalid Trailer key ",
	"invalid Transfer-Encoding request header",
	"invalid Upgrade request header",
	"invalid request :path ",
	"request header list larger than peer's advertised limit",
}

// innermost returns the text of the innermost error. The errors around it quote URLs and servers.
func innermost(err error) string {
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(err) {
		err = inner
	}
	return err.Error()
}

func unsendable(text string) bool {
	text = strings.TrimPrefix(text, "net/")
	return slices.ContainsFunc(misuses, func(misuse string) bool { return strings.HasPrefix(text, misuse) })
}

// permanentAlerts are the TLS alerts about certificates and versions. A broken connection does not
// cause them (RFC 8446 section 6.2).
var permanentAlerts = []tls.AlertError{40, 42, 43, 44, 45, 46, 48, 49, 70, 71, 112, 116, 120}

func permanentAlert(err error) bool {
	text := innermost(err) // net/http does not export the type of its TCP errors
	if alert, ok := errors.AsType[tls.AlertError](err); ok {
		text = alert.Error()
	}
	return slices.ContainsFunc(permanentAlerts, func(a tls.AlertError) bool { return a.Error() == text })
}
