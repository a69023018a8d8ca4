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
// permanent, and the error code ENHANCE_YOUR_CALM of HTTP/2 (RFC 9113 section 7) is a
// throttle. nil is a success. It declines all others, which [cruise.Classify]
// understands: a cancellation is dropped, timeouts, resets and the rest are transient.
func Classify(err error) cruise.Verdict {
	if err == nil {
		return cruise.Verdict{Outcome: cruise.OutcomeSuccess}
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return cruise.Verdict{}
	}
	if permanentFailure(err) || unsendable(err) {
		return cruise.Verdict{Outcome: cruise.OutcomePermanent}
	}
	// The types of net/http for this are not exported.
	if strings.Contains(err.Error(), "ENHANCE_YOUR_CALM") {
		return cruise.Verdict{Outcome: cruise.OutcomeThrottled}
	}
	return cruise.Verdict{}
}

func permanentFailure(err error) bool {
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		return dns.IsNotFound && !dns.IsTemporary
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return true
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return true
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return true
	}
	if _, ok := errors.AsType[x509.CertificateInvalidError](err); ok {
		return true
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return true // the server speaks no TLS
	}
	if alert, ok := errors.AsType[tls.AlertError](err); ok {
		return permanentAlert(alert)
	}
	if _, ok := errors.AsType[*net.AddrError](err); ok {
		return true // an address that is none
	}
	return errors.Is(err, http.ErrSchemeMismatch)
}

// misuses are what net/http says of a request that it cannot send, in errors of no
// type. Looking at the request instead would blame one that a RoundTripper beneath
// completes, and miss what it spoils.
var misuses = []string{
	"unsupported protocol scheme ",
	"http: invalid header field ",
	"http: invalid method ",
	"http: invalid trailer field ",
	"http: nil Request.",
	"http: no Host in request URL",
}

// unsendable looks at the innermost error: what is around it quotes URLs and servers.
func unsendable(err error) bool {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			break
		}
		err = inner
	}
	text := strings.TrimPrefix(err.Error(), "net/")
	return slices.ContainsFunc(misuses, func(misuse string) bool { return strings.HasPrefix(text, misuse) })
}

// permanentAlert tells the alerts about certificates and versions (RFC 8446
// section 6.2) from those that a broken connection may cause.
func permanentAlert(a tls.AlertError) bool {
	switch a {
	case 40, 42, 43, 44, 45, 46, 48, 49, 70, 71, 112, 116, 120:
		return true
	}
	return false
}
