package signal

import (
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/a7df5faa/cruise"
)

// DefaultLongWait is the wait above which a throttle counts as a used-up quota: no call should
// sleep that long.
const DefaultLongWait = time.Hour

// maxScope bounds the bytes of a limit's name: more than ARNs have, and few enough for a label.
const maxScope = 1024

// A Signal holds a response's information about throttling.
type Signal struct {
	// Outcome of the attempt.
	Outcome cruise.Outcome
	// Brake means that the server is throttling, so slow down, although Outcome is not
	// OutcomeThrottled because this call must not be retried.
	Brake bool
	// RetryAfter is the wait that the server asks for, or that its quota is
	// known to need, between 0 and one year; 0 also if it asks for none.
	RetryAfter time.Duration
	// Asked means that the server named a wait, even if it is 0 or has passed.
	Asked bool
	// Floor is the least wait before another attempt if RetryAfter is 0, as the provider documents
	// it; 0 if it documents none.
	Floor time.Duration
	// Over bounds the wait to that much above the client's own backoff, if the provider wants it
	// so; 0 is no bound.
	Over time.Duration
	// Scope is the limit that the server blames; "" if it names none.
	Scope string
	// Quota reports to the limiter the limit that will stop the client first; nil if the response
	// reports none.
	Quota *cruise.Quota
	// Limits are all limits that the response reports, the one that will stop
	// the client first in front.
	Limits []Limit
	// Profile is the name of the profile by which the response was read.
	Profile string
	// ShouldRetry and ShouldNotRetry are the server's own instructions, by a header such as
	// X-Should-Retry, to send the request again or not.
	ShouldRetry, ShouldNotRetry bool
	// Reason names the part of the response that decided, such as `status 429` or `code
	// "ThrottlingException"`.
	Reason string
}

// Wait returns the time to wait before the next attempt, given the client's own backoff. The
// server's wait is a lower bound: no wait, not even 0, makes a client faster than its own backoff.
func (s Signal) Wait(backoff time.Duration) time.Duration {
	wait := s.RetryAfter
	if wait == 0 {
		wait = s.Floor
	}
	if s.Over > 0 && backoff < math.MaxInt64-s.Over {
		wait = min(wait, backoff+s.Over)
	}
	return max(0, backoff, wait)
}

// Read returns the Signal of resp. body holds the bytes read of its body, of which at most
// [MaxBody] count; nil is fine, and enough if WantsBody says no. now is the time at which the
// response came. Read does not change resp.
func (p Profile) Read(resp *http.Response, body []byte, now time.Time) Signal {
	return p.readAs(p.pick(resp), resp, body, now, DefaultLongWait)
}

// readAs reads by q, which p has picked.
func (p *Profile) readAs(q *Profile, resp *http.Response, body []byte, now time.Time, longWait time.Duration) Signal {
	r := p.reading(q, resp, now)
	r.longWait = longWait
	s := Signal{Profile: q.Name}
	if !cached(resp.Header) {
		r.readLimits(slices.Collect(maps.Keys(resp.Header)))
	}
	r.readHead()
	if len(body) > 0 && (resp.StatusCode < 200 || resp.StatusCode >= 400 || q.wantsBody(resp)) {
		r.readBody(body)
	}
	failed := resp.StatusCode < 200 || resp.StatusCode >= 400
	if failed {
		r.readWaits(&s)
	}
	r.decide(&s)
	if !failed && (s.Outcome != cruise.OutcomeSuccess || s.Brake) {
		r.readWaits(&s)
	}
	r.settle(&s)
	if s.Outcome != cruise.OutcomeSuccess || s.Brake {
		s.Scope = r.scope(s.Scope)
		s.Scope = s.Scope[:min(len(s.Scope), maxScope)]
	}
	r.report(&s)
	return s
}

// readWaits reads how long the server asks to wait. The longest wait in the header and the body
// counts.
func (r *reading) readWaits(s *Signal) {
	asked, wait, over := r.headerWait()
	s.Asked = s.Asked || asked
	if wait > s.RetryAfter {
		s.RetryAfter, s.Over = wait, over
	}
	if wait, ok := r.bodyWait(); ok {
		s.Asked = true
		if wait > s.RetryAfter {
			s.RetryAfter, s.Over = wait, 0
		}
	}
}

// reading begins to read resp by q, which p has picked.
func (p *Profile) reading(q *Profile, resp *http.Response, now time.Time) reading {
	r := reading{layers: []*Profile{q}, resp: resp, clock: serverClock(resp.Header, now)}
	if q != p {
		r.layers = append(r.layers, p)
	}
	if !p.whole {
		r.layers = append(r.layers, &base)
	}
	return r
}

// report ranks the limits.
func (r *reading) report(s *Signal) {
	slices.SortStableFunc(r.limits, rank)
	s.Limits = r.limits
	if len(s.Limits) > 0 {
		if l := s.Limits[0]; l.Remaining >= 0 && (l.Unit == "" || l.spent()) {
			s.Quota = new(l.Quota())
		}
	}
}

// A reading is one response on its way to a Signal.
type reading struct {
	layers   []*Profile // the provider's, then the rules for every server
	resp     *http.Response
	clock    time.Time // the server's
	longWait time.Duration
	limits   []Limit
	counted  []string // headers that count calls, of limits that have been read
	policies []policy
	fields   []field
	codes    []field // of the last part of their path, with clean values
	texts    []string

	refillWait time.Duration // until the buckets that the body reports hold enough
}

// readLimits reads the limits; names are the headers that may report any.
func (r *reading) readLimits(names []string) {
	r.policies = readPolicies(r.resp.Header)
	r.limits = r.rateLimits()
	for _, p := range r.layers {
		for i := range p.Limits {
			r.readFamily(&p.Limits[i], names)
		}
	}
	r.readVendors(names)
	for i := range r.limits {
		if l := &r.limits[i]; l.Name == "" && l.Window == 0 && l.Max > 0 {
			l.Window = windowOf(l.Max, r.policies)
		}
	}
}

// headerWait is the wait of the first header that asks for one.
func (r *reading) headerWait() (asked bool, wait, over time.Duration) {
	for _, p := range r.layers {
		for _, w := range p.Waits {
			lines := r.resp.Header.Values(w.Name)
			if w.Whole && slices.ContainsFunc(lines, func(s string) bool { return strings.Trim(s, "0123456789") != "" }) {
				continue
			}
			if w.Field != "" {
				lines = fieldOf(lines, w.Field)
			}
			d, ok := parseWaits(lines, w.Unit, r.clock)
			if d > 0 {
				return true, d, w.Over
			}
			asked = asked || ok
		}
	}
	return asked, 0, 0
}

// readHead reads an error without a body, as in answers to HEAD. Some servers put it into the
// reason phrase, as in "503 Slow Down".
func (r *reading) readHead() {
	status := r.resp.StatusCode
	if _, phrase, ok := strings.Cut(r.resp.Status, " "); ok && status >= 400 && phrase != http.StatusText(status) {
		r.texts = append(r.texts, trim(phrase[:min(len(phrase), maxField)]))
	}
	for _, p := range r.layers {
		for _, name := range p.CodeHeaders {
			lines, _ := within(r.resp.Header.Values(name))
			for _, v := range lines {
				r.codes = append(r.codes, field{strings.ToLower(name), cleanCode(v)})
			}
		}
	}
}

func (r *reading) readBody(body []byte) {
	r.fields = parseBody(r.resp.Header, body)
	for _, f := range r.fields {
		if f.path == "" {
			r.texts = append(r.texts, f.value)
		}
	}
	for _, p := range r.layers {
		for _, pattern := range p.TextFields {
			for _, f := range r.at(pattern) {
				r.texts = append(r.texts, f.value)
			}
		}
		for _, pattern := range p.CodeFields {
			for _, f := range r.at(pattern) {
				r.codes = append(r.codes, field{f.name(), cleanCode(f.value)})
			}
		}
	}
	for _, p := range r.layers {
		for _, refill := range p.Refills {
			if l, wait, ok := r.refill(refill); ok {
				r.limits = append(r.limits, l)
				r.refillWait = max(r.refillWait, wait)
			}
		}
	}
}

// at returns the fields that a pattern names. Of alternatives, "code|__type", the
// first that is there counts.
func (r *reading) at(pattern string) (found []field) {
	for alternative := range strings.SplitSeq(pattern, "|") {
		for _, f := range r.fields {
			if f.path != "" && f.atPath(alternative) {
				found = append(found, f)
			}
		}
		if len(found) > 0 {
			break
		}
	}
	return found
}

// cleanCode cuts a code out of its wrapping: a namespace before a "#", a URL after a ":", the side
// at fault after a ";", or a URL that ends with the code.
func cleanCode(s string) string {
	s = trim(s)
	if hasPrefixFold(s, "http://") || hasPrefixFold(s, "https://") {
		s = strings.TrimRight(s, "/#")
		return s[strings.LastIndexAny(s, "#/")+1:]
	}
	if i := strings.IndexAny(s, ":;"); i >= 0 {
		s = s[:i]
	}
	return s[strings.LastIndexByte(s, '#')+1:]
}

// fieldOf returns the values of a field of JSON in the lines of a header.
func fieldOf(lines []string, path string) (values []string) {
	lines, _ = within(lines)
	for _, line := range lines {
		for _, f := range jsonFields([]byte(line)) {
			if f.atPath(path) {
				values = append(values, f.value)
			}
		}
	}
	return values
}

// usualWaits are names of fields by which an error says how long to wait, at most two levels
// down.
var usualWaits = map[string]Unit{
	"retry_after": Auto, "retryafter": Auto, "retry-after": Auto, "retry_in": Auto, "retryin": Auto, "retrydelay": Auto, "retry_delay": Auto,
	"retry_at": Auto, "retryat": Auto, "reset_in": Auto, "reset_after": Auto, "reset_at": Auto, "resets_at": Auto,
	"retry_after_seconds": Seconds, "retryafterseconds": Seconds, "retry_after_secs": Seconds, "retry_after_sec": Seconds,
	"retry_after_s": Seconds, "retryaftersec": Seconds, "retryaftersecs": Seconds, "estimated_time": Seconds,
	"reset_in_seconds": Seconds, "resets_in_seconds": Seconds, "seconds_until_reset": Seconds, "retry_in_seconds": Seconds, "retryinseconds": Seconds, "backoff_seconds": Seconds,
	"wait_seconds": Seconds, "waitseconds": Seconds,
	"retry_after_ms": Milliseconds, "retryafterms": Milliseconds, "retry_after_millis": Milliseconds, "retryaftermillis": Milliseconds,
	"retry_after_milliseconds": Milliseconds, "retryaftermilliseconds": Milliseconds, "retry_in_ms": Milliseconds, "backoff_ms": Milliseconds,
}

// usualWait returns the wait in a field of one of the usual names. It ignores a wait of 0: some
// servers send the field with every error.
func (r *reading) usualWait(f field) (time.Duration, bool) {
	if r.resp.StatusCode < 400 || strings.Count(f.path, ".") > 2 {
		return 0, false
	}
	unit, ok := usualWaits[f.name()]
	if !ok {
		return 0, false
	}
	d, ok := parseWait(f.value, unit, r.clock)
	if unit == Auto && bare(f.value) {
		d = min(d, knock)
	}
	return d, ok && d > 0
}

// bodyWait is the longest wait that the body asks for.
func (r *reading) bodyWait() (longest time.Duration, ok bool) {
	take := func(d time.Duration, valid bool) {
		if valid {
			longest, ok = max(longest, d), true
		}
	}
	for _, p := range r.layers {
		for _, w := range p.BodyWaits {
			for _, f := range r.fields {
				if f.atPath(w.Field) {
					take(parseWait(f.value, w.Unit, r.clock))
				}
			}
		}
		for _, w := range p.TextWaits {
			for _, text := range r.texts {
				take(waitInText(text, w.After, w.Unit, r.clock))
			}
		}
	}
	for _, f := range r.fields {
		take(r.usualWait(f))
	}
	take(r.refillWait, r.refillWait > 0)
	return longest, ok
}

// refill reads a bucket, as a limit on calls of the cost of this one, and the
// wait until it holds enough for one more.
func (r *reading) refill(f Refill) (l Limit, wait time.Duration, ok bool) {
	var cost, now, most, rate float64
	for _, v := range [...]struct {
		field string
		value *float64
	}{{f.Cost, &cost}, {f.Now, &now}, {f.Max, &most}, {f.PerSecond, &rate}} {
		i := slices.IndexFunc(r.fields, func(fd field) bool { return fd.atPath(v.field) })
		if i < 0 {
			return l, 0, false
		}
		digits, negative := strings.CutPrefix(r.fields[i].value, "-") // a bucket may be overdrawn
		n, valid := parseDecimal(digits)
		if !valid {
			return l, 0, false
		}
		if *v.value = float64(n.whole) + float64(n.nano)/1e9; negative {
			*v.value = -*v.value
		}
	}
	if rate <= 0 || cost <= 0 || cost > most {
		return l, 0, false // no wait will ever fill the bucket enough
	}
	after := func(points float64) time.Duration {
		// A microsecond is far below the resolution of servers, and above the rounding error of the
		// division.
		return min(maxWait, time.Duration(min(maxWait.Seconds(), math.Ceil(max(0, points)/rate*1e6)/1e6)*1e9))
	}
	l = Limit{Name: "cost", Max: floor(most / cost), Remaining: floor(max(0, now) / cost), Reset: after(most - now), Window: after(most)}
	return l, after(cost - now), true
}

// floor makes a number of calls of a float, which may be more than an int holds.
func floor(f float64) int {
	if f >= math.MaxInt32 {
		return math.MaxInt32
	}
	return int(f)
}

// decide finds the outcome.
func (r *reading) decide(s *Signal) {
	status := r.resp.StatusCode
	asked := time.Duration(0)
	if s.Asked {
		asked = max(1, s.RetryAfter) // even a wait of 0 tells that it is about the rate
	}
	s.Outcome, s.Reason = cruise.StatusOutcome(status, asked), fmt.Sprintf("status %d", status)
	if long, ok := r.violated(); ok {
		s.Outcome, s.Reason = cruise.OutcomeQuotaExhausted, fmt.Sprintf("policy %q", long.Name)
		s.RetryAfter = max(s.RetryAfter, long.Reset)
		s.Asked = s.Asked || long.Reset >= 0
	} else if rule, why := r.match(); rule != nil {
		s.Outcome, s.Brake, s.Scope, s.Floor = rule.Outcome, rule.Brake, rule.Scope, rule.Floor
		if why != "" {
			s.Reason = why
		}
		wait := rule.Wait
		if rule.Until != nil {
			wait = max(wait, until(rule.Until(r.clock), r.clock))
		}
		if wait > s.RetryAfter {
			s.RetryAfter, s.Over = min(wait, maxWait), 0
		}
	} else if s.Outcome == cruise.OutcomePermanent && r.refusedBySpent() {
		s.Outcome, s.Reason = cruise.OutcomeThrottled, "nothing remaining"
	}
	if status >= 400 {
		r.once(s)
		r.override(s)
	}
}

// maySpent are the statuses of an error that may mean a limit which is used up. Others, such as
// 404, are answers that came with the last call that was left.
var maySpent = [...]int{400, 402, 403, 418, 420, 430}

// refusedBySpent tells whether an error that looks permanent is about a limit on calls: one is
// used up, and will be renewed. Where a whole window is one call, each answer says so.
func (r *reading) refusedBySpent() bool {
	status := r.resp.StatusCode
	if !slices.Contains(maySpent[:], status) || !slices.ContainsFunc(r.limits, func(l Limit) bool {
		return l.spent() && l.Unit == "" && l.Reset > 0 && l.Max != 1
	}) {
		return false
	}
	_, about := r.findCode([]string{"*invalid*", "*validation*", "*malformed*", "*missing*", "*unsupported*"})
	return !about
}

// once prevents the retry of a request that carries a nonce of the server: ACME answers each of
// them with the next nonce, and refuses the old one (RFC 8555 section 6.5). A long wait there
// concerns one name or account, so no other request slows down for it.
func (r *reading) once(s *Signal) {
	req := r.resp.Request
	if req == nil || req.Method != http.MethodPost || s.Outcome == cruise.OutcomePermanent || !hasHeader(r.resp.Header, "Replay-Nonce") {
		return
	}
	s.Brake = s.Outcome == cruise.OutcomeThrottled && s.RetryAfter <= r.longWait
	s.Outcome, s.Reason = cruise.OutcomePermanent, "header Replay-Nonce"
}

// shouldRetry are the headers by which a server itself says whether to retry.
var shouldRetry = [...]string{"X-Should-Retry", "Stripe-Should-Retry"}

// override obeys the headers by which a server itself says whether to retry.
func (r *reading) override(s *Signal) {
	for _, name := range shouldRetry {
		switch strings.ToLower(trim(r.resp.Header.Get(name))) {
		case "true":
			s.ShouldRetry = true
			if s.Outcome == cruise.OutcomePermanent {
				s.Outcome, s.Reason = cruise.OutcomeTransient, name+" true"
			}
		case "false":
			s.ShouldNotRetry = true
			switch s.Outcome {
			case cruise.OutcomeThrottled:
				s.Brake = true // still a throttle for all other requests
				fallthrough
			case cruise.OutcomeTransient:
				s.Outcome, s.Reason = cruise.OutcomePermanent, name+" false"
			}
		}
	}
}

// settle finds the wait that goes with the outcome.
func (r *reading) settle(s *Signal) {
	switch s.Outcome {
	case cruise.OutcomeThrottled, cruise.OutcomeTransient:
		if s.Asked || s.RetryAfter > 0 {
			break
		}
		if reset, ok := r.reset(s.Outcome); ok {
			s.Asked, s.RetryAfter = true, reset
		} else if s.Outcome == cruise.OutcomeThrottled && r.longSpent() {
			s.Outcome = cruise.OutcomeQuotaExhausted
		}
	case cruise.OutcomeQuotaExhausted:
	default:
		if !s.Brake {
			s.Asked, s.RetryAfter, s.Over, s.Floor = false, 0, 0, 0
		}
	}
	if s.Outcome == cruise.OutcomeThrottled && s.RetryAfter > r.longWait && s.Over == 0 {
		s.Outcome = cruise.OutcomeQuotaExhausted
	}
}

// reset returns the wait until the used-up limits are renewed. If no reported limit is used up,
// another limit stopped the call, and its reset is unknown. If a throttle reports a limit's reset
// without a remaining, that limit counts as used up.
func (r *reading) reset(o cruise.Outcome) (wait time.Duration, ok bool) {
	some := false
	for _, l := range r.limits {
		some = some || l.Remaining > 0
		if l.spent() && l.Reset >= 0 {
			wait, ok = max(wait, l.Reset), true
		}
	}
	if ok || some || o != cruise.OutcomeThrottled {
		return wait, ok
	}
	for _, l := range r.limits {
		if l.Remaining < 0 && l.Reset > 0 {
			wait, ok = max(wait, l.Reset), true
		}
	}
	return wait, ok
}

// longSpent reports whether a limit with a long window is used up until an unknown time.
func (r *reading) longSpent() bool {
	return slices.ContainsFunc(r.limits, func(l Limit) bool { return l.spent() && l.Reset < 0 && l.Window >= long })
}

// violated returns a policy with a long window that was violated, by a problem document of the IETF
// draft.
func (r *reading) violated() (Limit, bool) {
	for _, f := range r.fields {
		if f.path != "violated-policies" {
			continue
		}
		for _, p := range r.policies {
			if p.name != f.value || p.window < long {
				continue
			}
			i := slices.IndexFunc(r.limits, func(l Limit) bool { return l.Name == p.name && l.Reset >= 0 })
			if i >= 0 {
				return r.limits[i], true
			}
			return Limit{Name: p.name, Reset: -1}, true
		}
	}
	return Limit{}, false
}

// scope is the limit that the response blames, or else the rule.
func (r *reading) scope(ofRule string) string {
	if ofRule != "" {
		return ofRule
	}
	for _, p := range r.layers {
		for _, pattern := range p.ScopeFields {
			for _, f := range r.fields {
				if f.atPath(pattern) {
					return f.value
				}
			}
		}
		for _, name := range p.ScopeHeaders {
			if v := trim(r.resp.Header.Get(name)); v != "" {
				return v
			}
		}
	}
	return ""
}
