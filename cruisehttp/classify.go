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

	"github.com/a7df5faa/cruise"
)

// Classify tells what an error of an [http.Client] or [http.RoundTripper] means,
// as a [cruise.Classifier]: a name that does not exist, a certificate that is
// not trusted, a server that speaks no TLS and a request that net/http cannot send are
// permanent; the error code ENHANCE_YOUR_CALM of HTTP/2 (RFC 9113 section 7) is a throttle;
// what a proxy answers instead of connecting means what its status does, by
// [cruise.StatusOutcome]. nil is a success. It declines all others, which [cruise.Classify]
// understands: a cancellation is dropped, timeouts, resets and the rest are transient.
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

// statusOf is the status of a phrase, which is all that net/http keeps of the answer of a proxy
// to CONNECT; 0 if it is none.
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
		is[*net.AddrError](err) || // an address that is none
		errors.Is(err, http.ErrSchemeMismatch) {
		return true
	}
	return permanentAlert(err)
}

func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// misuses are what net/http says of a request that it cannot send, in errors of no
// type. Looking at the request instead would blame one that a RoundTripper beneath
// completes, and miss what it spoils.
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

// innermost is the text of the innermost error: what is around it quotes URLs and servers.
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

// permanentAlerts are about certificates and versions, unlike those that a broken
// connection may cause (RFC 8446 section 6.2).
var permanentAlerts = []tls.AlertError{40, 42, 43, 44, 45, 46, 48, 49, 70, 71, 112, 116, 120}

func permanentAlert(err error) bool {
	text := innermost(err) // those of TCP are of a type that is not exported
	if alert, ok := errors.AsType[tls.AlertError](err); ok {
		text = alert.Error()
	}
	return slices.ContainsFunc(permanentAlerts, func(a tls.AlertError) bool { return a.Error() == text })
}
