package cruisegrpc

import (
	"strings"
	"testing"
	"time"

	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/a7df5faa/cruise"
)

// For any message, details and trailer of a server, waits and names are bounded, and an invalid
// pushback forbids a retry.
func FuzzClassify(f *testing.F) {
	const delay, day = "\n\x02\b\x05", "\n\x1b\x12\x19Quota exceeded, 9 per day."
	f.Add(uint32(codes.ResourceExhausted), "Quota exceeded for reads per day, a.googleapis.com", "RetryInfo", []byte(delay), "", false)
	f.Add(uint32(codes.ResourceExhausted), "grpc: received message larger than max (5 vs. 4)", "QuotaFailure", []byte(day), "0", false)
	f.Add(uint32(codes.Unavailable), proxy429, "ErrorInfo", []byte("\n\x01r\x12\x0egoogleapis.com"), "-1", true)
	f.Add(uint32(codes.Unavailable), "", "Help", []byte("\xff"), "4294967296", false)
	f.Add(uint32(codes.Aborted), "", "RetryInfo", []byte("\n\v\b\xff\xff\xff\xff\xff\xff\xff\xff\x7f"), "5,7", false)
	f.Add(uint32(99), reset, "", []byte(nil), " ", true)
	f.Fuzz(func(t *testing.T, code uint32, message, kind string, detail []byte, pushback string, limited bool) {
		err := status.FromProto(&spb.Status{Code: int32(code), Message: message, Details: []*anypb.Any{
			{TypeUrl: "type.googleapis.com/google.rpc." + kind, Value: detail},
		}}).Err()
		trailer, pushed := metadata.MD{}, []string(nil)
		if pushback != "" {
			pushed = strings.Split(pushback, ",")
			trailer.Set(PushbackKey, pushed...)
		}
		if limited {
			trailer.Set(envoyLimited, "true")
		}
		err = WithTrailer(err, trailer)
		for i, v := range []cruise.Verdict{Classify(err), ClassifyStrict(err)} {
			name := []string{"Classify", "ClassifyStrict"}[i]
			if v.RetryAfter < 0 || v.RetryAfter > maxWait || len(v.Scope) > maxScope {
				t.Errorf("%s: out of bounds: %+v", name, v)
			}
			switch v.Outcome {
			case cruise.OutcomeSuccess:
				if err != nil {
					t.Errorf("%s: an error is a success", name)
				}
			case cruise.OutcomeThrottled, cruise.OutcomeTransient:
				if len(pushed) > 1 || len(pushed) == 1 && strings.Trim(pushback, "+-0123456789") != "" {
					t.Errorf("%s: retried in spite of pushback %q", name, pushback)
				}
				if len(pushed) == 1 && v.RetryAfter%time.Millisecond > 1 {
					t.Errorf("%s: pushback %q is %v", name, pushback, v.RetryAfter)
				}
			case cruise.OutcomePermanent, cruise.OutcomeQuotaExhausted:
			default:
				t.Errorf("%s: outcome %v", name, v.Outcome)
			}
		}
	})
}
