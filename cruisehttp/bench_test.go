package cruisehttp_test

import (
	"net/http"
	"testing"
)

func BenchmarkRoundTrip(b *testing.B) {
	resp := answer(200, "")
	base := roundTripper(func(*http.Request) (*http.Response, error) { return resp, nil })
	req := request(b, "GET", example, nil)
	b.Run("base", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _ = base.RoundTrip(req)
		}
	})
	tr := transport(b, base)
	b.Run("Transport", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _ = tr.RoundTrip(req)
		}
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
