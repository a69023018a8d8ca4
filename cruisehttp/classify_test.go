package cruisehttp_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/cruisehttp"
)

func TestClassify(t *testing.T) {
	wrap := func(err error) error { return &url.Error{Op: "Get", URL: "https://x", Err: err} }
	for _, c := range []struct {
		name string
		err  error
		want cruise.Outcome
	}{
		{"nothing", nil, cruise.OutcomeSuccess},
		{"cancelled", wrap(context.Canceled), cruise.OutcomeDropped},
		{"timeout", wrap(context.DeadlineExceeded), cruise.OutcomeTransient},
		{"no such host", wrap(&net.OpError{Op: "dial", Err: &net.DNSError{IsNotFound: true}}), cruise.OutcomePermanent},
		{"resolver busy", wrap(&net.DNSError{IsTemporary: true}), cruise.OutcomeTransient},
		{"resolver busy, no such host meanwhile", wrap(&net.DNSError{IsNotFound: true, IsTemporary: true}), cruise.OutcomeTransient},
		{"resolver broken", wrap(&net.DNSError{}), cruise.OutcomeTransient},
		{"unknown authority", wrap(x509.UnknownAuthorityError{}), cruise.OutcomePermanent},
		{"verification", wrap(&tls.CertificateVerificationError{Err: errors.New("x")}), cruise.OutcomePermanent},
		{"expired", wrap(x509.CertificateInvalidError{Reason: x509.Expired}), cruise.OutcomePermanent},
		{"wrong host", wrap(fmt.Errorf("x: %w", x509.HostnameError{Certificate: &x509.Certificate{}})), cruise.OutcomePermanent},
		{"no TLS", wrap(tls.RecordHeaderError{}), cruise.OutcomePermanent},
		{"plain HTTP", wrap(http.ErrSchemeMismatch), cruise.OutcomePermanent},
		{"certificate refused", wrap(&net.OpError{Op: "remote error", Err: tls.AlertError(42)}), cruise.OutcomePermanent},
		{"internal error of TLS", wrap(&net.OpError{Op: "remote error", Err: tls.AlertError(80)}), cruise.OutcomeTransient},
		{"end of file", wrap(io.EOF), cruise.OutcomeTransient},
		{"no such scheme", wrap(errors.New(`unsupported protocol scheme "x"`)), cruise.OutcomePermanent},
		{"no such scheme, says the server", wrap(errors.New(`malformed HTTP response "unsupported protocol scheme "`)), cruise.OutcomeTransient},
		{"no such scheme, says the URL", &url.Error{Op: "Get", URL: "https://x/?http: invalid method ", Err: io.EOF}, cruise.OutcomeTransient},
		{"no such port", wrap(&net.OpError{Op: "dial", Err: &net.AddrError{Err: "invalid port", Addr: "99999"}}), cruise.OutcomePermanent},
		{"refused", wrap(&net.OpError{Op: "dial", Err: errors.New("connection refused")}), cruise.OutcomeTransient},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := cruisehttp.Classify(c.err)
			if v.Outcome == cruise.OutcomeUnknown {
				v = cruise.Classify(c.err)
			}
			assert.Equal(t, c.want.String(), v.Outcome.String())
		})
	}
}
