package cruisegrpc

import (
	"cmp"
	"errors"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/cruisehttp/signal"
	"github.com/a7df5faa/cruise/internal/signals"
)

// PushbackKey is the trailer in which a server says when to retry, in
// milliseconds (gRFC A6).
const PushbackKey = "grpc-retry-pushback-ms"

// LongWait is the wait above which a throttle is a used-up quota: there is no
// point in slowing down for it, nor in keeping a call waiting.
const LongWait = time.Hour

// Bounds of a server's words, as in cruisehttp. A wait is no longer than a year. The name of a
// limit may become a label of metrics, so it is no longer than 1 KiB. The text searched in a
// message, and in all details together, is bounded too, as searching takes time.
const (
	maxWait  = 365 * 24 * time.Hour
	maxScope = 1 << 10
	maxText  = signal.MaxBody
)

// Classify classifies a gRPC status error. Use it with [cruise.WithClassifier] around calls without
// an [Interceptor]. It declines errors that hold no gRPC status, and errors marked by
// [cruise.Permanent] and its like.
//
//	OK                   success
//	UNAVAILABLE          transient; throttled with RetryInfo, with pushback, for
//	                     the HTTP status 429 of a proxy, or with a trailer
//	                     x-envoy-ratelimited; permanent for a certificate that is
//	                     not trusted
//	RESOURCE_EXHAUSTED   throttled, except
//	                       a message, or metadata, over its size limit: permanent
//	                       ErrorInfo RESOURCE_QUOTA_EXCEEDED, or a quota of
//	                       something else than calls, such as storage: permanent
//	                       a disk, or a database of etcd, that is full: permanent
//	                       a quota per day or month: quota exhausted
//	                       HTTP/2's FLOW_CONTROL_ERROR: transient
//	ABORTED              permanent; transient with RetryInfo or pushback
//	CANCELLED            dropped; permanent with a trailer or details, as the server has
//	                     answered then
//	DEADLINE_EXCEEDED    transient
//	INTERNAL             permanent; transient for a stream that HTTP/2 reset
//	others               permanent
//
// Classify sees the trailer given by [WithTrailer]. The wait comes from a [PushbackKey] trailer,
// else from RetryInfo. Pushback of n milliseconds is exact, and 0 means at once; a negative or
// unparsable value, or several, forbid a retry. A throttle with a wait above [LongWait] is a
// used-up quota. A quota per day outranks any wait: for Google's services the wait lasts until
// midnight in Los Angeles.
func Classify(err error) cruise.Verdict { return classify(err, false, time.Now()) }

// ClassifyStrict is [Classify], but RESOURCE_EXHAUSTED without RetryInfo, pushback or a
// trailer x-envoy-ratelimited is permanent, as AIP-194 and OTLP advise: the resource may
// be exhausted for hours.
func ClassifyStrict(err error) cruise.Verdict { return classify(err, true, time.Now()) }

// WithTrailer adds the trailer of a call, as [google.golang.org/grpc.Trailer] got it, to the call's
// error, so that [Classify] can read it, and knows whether the server or the caller cancelled a
// CANCELLED call. It returns nil for a nil err. An [Interceptor] does this by itself.
func WithTrailer(err error, trailer metadata.MD) error {
	if err == nil {
		return nil
	}
	return &attemptError{err: err, trailer: trailer, alone: true}
}

func classify(err error, strict bool, now time.Time) cruise.Verdict {
	if err == nil {
		return cruise.Verdict{Outcome: cruise.OutcomeSuccess}
	}
	a, _ := errors.AsType[*attemptError](err)
	s, ok := status.FromError(err)
	// cruise calls an unknown error transient. Any other verdict comes from a mark on the error.
	if !ok || cruise.Classify(err) != (cruise.Verdict{Outcome: cruise.OutcomeTransient}) {
		return cruise.Verdict{}
	}
	if s.Code() == codes.Canceled && !a.answered() && len(s.Proto().GetDetails()) == 0 {
		return cruise.Verdict{Outcome: cruise.OutcomeDropped}
	}
	if a != nil && a.ended && (s.Code() == codes.Canceled || s.Code() == codes.DeadlineExceeded) {
		return cruise.Verdict{Outcome: cruise.OutcomeDropped}
	}
	v := verdict(s, a.pushed(), strict, now)
	if a != nil && a.unsent && v.Outcome == cruise.OutcomeThrottled {
		v.Outcome, v.Scope = cruise.OutcomeTransient, "" // by another server, such as a token server
	}
	// A reset refuses nothing, not even with ENHANCE_YOUR_CALM.
	maybeDone := v.Outcome == cruise.OutcomeTransient || v.Outcome == cruise.OutcomeThrottled && strings.Contains(s.Message(), reset)
	if a != nil && a.unsafe && maybeDone {
		a.once.Store(true)
		return cruise.Verdict{Outcome: cruise.OutcomePermanent}
	}
	return v
}

// verdict implements the table in the comment of Classify.
func verdict(s *status.Status, push pushback, strict bool, now time.Time) cruise.Verdict {
	if push.stop {
		return cruise.Verdict{Outcome: cruise.OutcomePermanent}
	}
	d := detailsOf(s)
	if push.given {
		// A wait of 0 would mean no wait, and be replaced by a guess.
		d.asked, d.wait = true, max(1, push.wait)
	}
	v := cruise.Verdict{Outcome: cruise.OutcomePermanent, RetryAfter: d.wait, Scope: d.scope}
	switch s.Code() {
	case codes.OK:
		v.Outcome = cruise.OutcomeSuccess
	case codes.Unavailable:
		switch {
		case d.asked, push.limited, strings.Contains(s.Message(), proxy429):
			v.Outcome = cruise.OutcomeThrottled
		case !strings.Contains(s.Message(), untrusted):
			v.Outcome = cruise.OutcomeTransient
		}
	case codes.ResourceExhausted:
		v.Outcome = exhausted(s, d, strict && !push.limited)
		if v.Outcome == cruise.OutcomeQuotaExhausted {
			v.RetryAfter = d.until(now)
		}
	case codes.Aborted:
		if d.asked {
			v.Outcome = cruise.OutcomeTransient
		}
	case codes.DeadlineExceeded:
		v.Outcome = cruise.OutcomeTransient
	case codes.Internal:
		if containsAny(s.Message(), brokenStream) {
			v.Outcome = cruise.OutcomeTransient
		}
	}
	switch {
	case v.Outcome == cruise.OutcomeThrottled && v.RetryAfter > LongWait:
		v.Outcome = cruise.OutcomeQuotaExhausted
	case v.Outcome == cruise.OutcomePermanent, v.Outcome == cruise.OutcomeSuccess:
		return cruise.Verdict{Outcome: v.Outcome}
	}
	return v
}

// exhausted returns the outcome of RESOURCE_EXHAUSTED.
func exhausted(s *status.Status, d details, strict bool) cruise.Outcome {
	switch {
	case containsAny(strings.ToLower(head(s.Message(), maxText)), signals.Oversized, signals.Full):
		return cruise.OutcomePermanent
	case strings.Contains(s.Message(), brokenFlow):
		return cruise.OutcomeTransient
	case d.reason == "RESOURCE_QUOTA_EXCEEDED", d.allocation:
		return cruise.OutcomePermanent // an allocation, not a rate
	case d.long:
		return cruise.OutcomeQuotaExhausted
	case strict && !d.asked:
		return cruise.OutcomePermanent
	}
	return cruise.OutcomeThrottled
}

// Texts that gRPC itself writes. There is nothing else to know them by.
const (
	proxy429   = "unexpected HTTP status code received from server: 429"
	untrusted  = "authentication handshake failed: tls: failed to verify certificate"
	reset      = "stream terminated by RST_STREAM"
	brokenFlow = reset + " with error code: FLOW_CONTROL_ERROR"
)

var brokenStream = []string{
	reset,
	"HTTP/2 error code: INTERNAL_ERROR",
	"Connection closed with unknown cause",
	"Received unexpected EOS on DATA frame from server",
}

func containsAny(s string, lists ...[]string) bool {
	for _, parts := range lists {
		for _, p := range parts {
			if strings.Contains(s, p) {
				return true
			}
		}
	}
	return false
}

// details holds the information of a status's details about waiting.
type details struct {
	asked  bool          // there is a RetryInfo, or pushback
	wait   time.Duration // 0 if none
	reason string        // of ErrorInfo
	scope  string        // the limit that is to blame
	long   bool          // it is one per day or month
	month  bool
	// The limit is on something that calls hold, such as storage, and not on calls.
	allocation bool

	google bool // its days begin in Los Angeles
	room   int  // how much more text is searched, in bytes
}

// The names of limits, their units such as "1/d/{project}", and texts about them. signal.Google
// looks for the same in JSON.
var (
	dayLimit   = regexp.MustCompile(`(?i)per[-_ ]?day|daily`)
	monthLimit = regexp.MustCompile(`(?i)per[-_ ]?month|monthly`)
	dayUnit    = regexp.MustCompile(`(?i)^1/d`)
	monthUnit  = regexp.MustCompile(`(?i)^1/mo`)
	// A unit such as "1/{project}", without a time, is of an allocation.
	unitOfRate = regexp.MustCompile(`(?i)^1/(s|min|h|d|mo)\b`)
	spaceLimit = regexp.MustCompile(`(?i)^(storage|disk)[-_ ]?(bytes|space|size|quota|limit|capacity|full)`)
	spaceText  = regexp.MustCompile(`(?i)\b(storage|disk)( space)? (quota|limit|capacity|is full)|\b(out of|insufficient) (disk|storage)|\bdatabase (size|space) `)
	dayText    = regexp.MustCompile(`(?is)quota exceeded.*per day|daily limit.*exceeded|exhausted .* per day\.`)
)

func detailsOf(s *status.Status) (d details) {
	d.room = maxText
	said := dayText.MatchString(head(s.Message(), maxText))
	d.google = strings.Contains(s.Message(), ".googleapis.com")
	for _, detail := range s.Details() {
		switch detail := detail.(type) {
		case *errdetails.RetryInfo:
			delay := detail.GetRetryDelay()
			if delay != nil && delay.CheckValid() != nil {
				break // its parts contradict each other, so the wait is unknown
			}
			d.asked = true
			if delay != nil {
				d.wait = max(d.wait, min(delay.AsDuration(), maxWait))
			}
		case *errdetails.QuotaFailure:
			for _, v := range detail.GetViolations() {
				if d.room == 0 {
					break
				}
				d.blame(v.GetQuotaId(), "", v.GetSubject())
				description := d.look(v.GetDescription())
				said = said || dayText.MatchString(description)
				d.allocation = d.allocation || spaceLimit.MatchString(head(v.GetQuotaId(), maxScope)) || spaceText.MatchString(description)
				d.google = d.google || strings.HasSuffix(v.GetApiService(), "googleapis.com") ||
					strings.Contains(v.GetQuotaMetric(), ".googleapis.com/")
			}
		case *errdetails.ErrorInfo:
			d.reason = detail.GetReason()
			limit, unit := detail.GetMetadata()["quota_limit"], detail.GetMetadata()["quota_unit"]
			d.blame(limit, unit, "")
			d.allocation = d.allocation || spaceLimit.MatchString(head(d.reason, maxScope)) || spaceLimit.MatchString(head(limit, maxScope)) ||
				strings.HasPrefix(unit, "1/") && !unitOfRate.MatchString(head(unit, maxScope))
			d.google = d.google || detail.GetDomain() == "googleapis.com"
		}
	}
	d.long = d.long || said
	return d
}

// look returns the part of a detail's text to search, within the bound. An empty text takes time as
// well.
func (d *details) look(text string) string {
	text = head(text, d.room)
	d.room = max(0, d.room-len(text)-1)
	return text
}

func head(s string, n int) string { return s[:min(len(s), n)] }

// blame notes the limit that a detail names. A long one outranks a short one.
func (d *details) blame(limit, unit, subject string) {
	name := cmp.Or(limit, subject)
	limit, unit = d.look(limit), d.look(unit)
	month := monthLimit.MatchString(limit) || monthUnit.MatchString(unit)
	long := month || dayLimit.MatchString(limit) || dayUnit.MatchString(unit)
	if d.scope == "" || long && !d.long {
		d.scope = head(name, maxScope)
	}
	d.long = d.long || long
	d.month = d.month || month
}

// until returns the time until a used-up quota is renewed, 0 if unknown. A short RetryInfo next to
// it belongs to another limit.
func (d details) until(now time.Time) time.Duration {
	var wait time.Duration
	switch {
	case d.google && d.month:
		wait = signal.NextPacificMonth(now).Sub(now)
	case d.google:
		wait = signal.NextPacificDay(now).Sub(now)
	}
	if d.wait > LongWait {
		wait = max(wait, d.wait)
	}
	return wait
}

// envoyLimited is the trailer of a call that Envoy's own limit refused: by default with
// UNAVAILABLE.
const envoyLimited = "x-envoy-ratelimited"

// pushback is a server's request in its trailer.
type pushback struct {
	given, stop bool
	wait        time.Duration
	limited     bool // by Envoy
}

func (e *attemptError) pushed() (p pushback) {
	if e == nil {
		return p
	}
	p.limited = len(e.trailer.Get(envoyLimited)) > 0
	values := e.trailer.Get(PushbackKey)
	if len(values) == 0 {
		return p
	}
	ms, err := strconv.ParseInt(values[0], 10, 64)
	if err != nil || ms < 0 || ms > math.MaxInt32 || len(values) > 1 {
		p.stop = true
		return p
	}
	p.given, p.wait = true, time.Duration(ms)*time.Millisecond
	return p
}
