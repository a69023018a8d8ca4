package cruisegoogle

import (
	"iter"
	"strings"
	"time"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/cruisehttp/signal"
)

// Field numbers of google/ads/googleads/v17/errors/errors.proto, the same in all versions. Its Go
// code has a package for each version, and not every program should link it, so messages are read
// by number.
const (
	failureErrors    = 1  // GoogleAdsFailure.errors
	errorCode        = 1  // GoogleAdsError.error_code
	errorDetails     = 5  // GoogleAdsError.details
	codeQuota        = 11 // ErrorCode.quota_error
	detailsQuota     = 4  // ErrorDetails.quota_error_details
	quotaRateScope   = 1  // QuotaErrorDetails.rate_scope
	quotaRetryDelay  = 3  // QuotaErrorDetails.retry_delay
	rateScopeAccount = 2
	rateScopeDevel   = 3
)

// Values of QuotaErrorEnum.
const (
	quotaResourceExhausted    = 2
	quotaAccessProhibited     = 3
	quotaTemporarilyExhausted = 4
	quotaShortTermConsumption = 5
	quotaLongTermConsumption  = 6
	quotaPaymentsProfile      = 7
)

// adsFailure returns the verdict on the quota errors of a GoogleAdsFailure among the details of a
// gRPC status, the worst if there are several. It declines errors without a GoogleAdsFailure.
func adsFailure(err error) cruise.Verdict {
	s, _ := status.FromError(err) // without details if err holds no status
	var v cruise.Verdict
	for _, detail := range s.Proto().GetDetails() {
		if !strings.HasSuffix(detail.GetTypeUrl(), ".errors.GoogleAdsFailure") {
			continue
		}
		for failure := range submessages(detail.GetValue(), failureErrors) {
			q := adsQuota(failure)
			if q.Outcome > v.Outcome || q.Outcome == v.Outcome && q.RetryAfter > v.RetryAfter {
				v = q // outcomes are in the order of how bad these are
			}
		}
	}
	return v
}

// adsQuota returns the verdict on a GoogleAdsError about a quota.
func adsQuota(failure []byte) (v cruise.Verdict) {
	for code := range submessages(failure, errorCode) {
		switch number(code, codeQuota) {
		case quotaTemporarilyExhausted, quotaShortTermConsumption:
			v.Outcome = cruise.OutcomeThrottled
		case quotaResourceExhausted, quotaLongTermConsumption:
			v.Outcome = cruise.OutcomeQuotaExhausted
		case quotaPaymentsProfile:
			v.Outcome, v.RetryAfter = cruise.OutcomeQuotaExhausted, 7*24*time.Hour
		case quotaAccessProhibited:
			v.Outcome = cruise.OutcomePermanent
		}
	}
	for details := range submessages(failure, errorDetails) {
		for quota := range submessages(details, detailsQuota) {
			switch number(quota, quotaRateScope) {
			case rateScopeAccount:
				v.Scope = ScopeAccount
			case rateScopeDevel:
				v.Scope = ScopeDeveloper
			}
			for delay := range submessages(quota, quotaRetryDelay) {
				var d durationpb.Duration
				if proto.Unmarshal(delay, &d) == nil {
					v.RetryAfter = max(v.RetryAfter, min(d.AsDuration(), maxWait))
				}
			}
		}
	}
	if v.Outcome == cruise.OutcomeThrottled && v.RetryAfter > signal.DefaultLongWait {
		v.Outcome = cruise.OutcomeQuotaExhausted
	}
	return v
}

// submessages yields the values of a field that holds messages. It stops at the first field that
// cannot be read.
func submessages(b []byte, field protowire.Number) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for len(b) > 0 {
			num, kind, n := protowire.ConsumeTag(b)
			if n < 0 {
				return
			}
			b = b[n:]
			if num == field && kind == protowire.BytesType {
				value, n := protowire.ConsumeBytes(b)
				if n < 0 || !yield(value) {
					return
				}
				b = b[n:]
				continue
			}
			if n = protowire.ConsumeFieldValue(num, kind, b); n < 0 {
				return
			}
			b = b[n:]
		}
	}
}

// number returns the value of a number's field, 0 if it is missing.
func number(b []byte, field protowire.Number) (value uint64) {
	for len(b) > 0 {
		num, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return value
		}
		b = b[n:]
		if num == field && kind == protowire.VarintType {
			value, _ = protowire.ConsumeVarint(b)
		}
		if n = protowire.ConsumeFieldValue(num, kind, b); n < 0 {
			return value
		}
		b = b[n:]
	}
	return value
}
