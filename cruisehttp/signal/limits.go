package signal

import (
	"cmp"
	"math"
	"math/bits"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/a7df5faa/cruise"
)

// A Limit is one limit that a response reported.
type Limit struct {
	// Name is the server's name for the limit, such as "core", "tokens" or "daily"; "" if it has no
	// name.
	Name string
	// Unit is the unit that the limit counts: "" for requests, else "tokens", "bytes", "cost" or
	// "concurrent".
	Unit string
	// Max is the number of units in a whole window; 0 if not reported.
	Max int
	// Remaining is the number of units left until Reset; -1 if not reported.
	Remaining int
	// Reset is the time from now until Remaining is whole again; -1 if not reported.
	Reset time.Duration
	// Window is the length of the window; 0 if not reported.
	Window time.Duration
}

// maxLimits bounds the limits that are read of a response, including empty ones: Azure and OpenAI
// send up to ten.
const maxLimits = 64

// long is the shortest window that counts as long when it is used up until an unknown time.
const long = 24 * time.Hour

// spent reports whether the limit is used up and will be renewed by time.
func (l Limit) spent() bool { return l.Remaining == 0 && l.Unit != "concurrent" }

// Quota returns l for a limiter. Its Reset is stretched so that the limiter derives no pace above
// the limit's own: 10,000 calls remaining of 10,000 per 1,000 s, to be reset in 10 s, are no reason
// to send 1,000 a second.
func (l Limit) Quota() cruise.Quota {
	q := cruise.Quota{Limit: max(0, l.Max), Remaining: max(0, l.Remaining), Reset: max(0, l.Reset)}
	if l.Max > 0 && l.Window > 0 && l.Remaining > 0 {
		q.Reset = max(q.Reset, scale(l.Window, l.Remaining, l.Max))
	}
	return q
}

// scale returns d*n/of, rounded up, at most maxWait; d, n and of are positive.
func scale(d time.Duration, n, of int) time.Duration {
	hi, lo := bits.Mul64(uint64(d), uint64(n))
	if hi >= uint64(of) {
		return maxWait
	}
	whole, rest := bits.Div64(hi, lo, uint64(of))
	if rest > 0 {
		whole++
	}
	return time.Duration(min(whole, uint64(maxWait)))
}

// rank orders limits by how soon they stop a client: used-up limits first, the latest reset in
// front, then the other limits by their pace.
func rank(a, b Limit) int {
	return cmp.Or(
		cmp.Compare(a.class(), b.class()),
		cmp.Compare(a.pace(), b.pace()),
		cmp.Compare(a.Remaining, b.Remaining),
		cmp.Compare(b.Reset, a.Reset),
	)
}

func (l Limit) class() int {
	switch {
	case l.Remaining < 0:
		return 3
	case l.spent():
		return 0
	case l.Unit == "":
		return 1
	default:
		return 2 // a call takes more than one token; their number is unknown
	}
}

// pace returns the calls per second until the reset.
func (l Limit) pace() float64 {
	if l.Remaining <= 0 {
		return 0
	}
	q := l.Quota()
	if q.Reset == 0 {
		return math.Inf(1)
	}
	return float64(q.Remaining) / q.Reset.Seconds()
}

// LimitHeaders names the headers by which a server reports one limit, or a family of limits: a "*"
// in Remaining matches any text in the header's name, and stands for the same text in Max and
// Reset. Several limits may share their headers, as in "0, 14523" and "1, 1419704": values at the
// same place belong together. A limit with a maximum of 0 is ignored. Leave headers empty that a
// server does not send.
type LimitHeaders struct {
	// Max, Remaining and Reset are the names of the headers, such as
	// X-RateLimit-Limit, X-RateLimit-Remaining and X-RateLimit-Reset.
	Max, Remaining, Reset string
	// Used holds the number of calls made, for servers that send no Remaining;
	// with Max, or in one value as in "32/40".
	Used string
	// ResetAfter is the header that holds the time from now to the reset. It is preferred to Reset.
	ResetAfter string
	// ResetUnit is the unit of Reset and ResetAfter; Auto if zero.
	ResetUnit Unit
	// Name is the header that holds the name of the limit.
	Name string
	// Unit is the unit that the limit counts; see Limit.Unit. If it is empty, a family's name
	// decides: a name with "token" in it counts tokens.
	Unit string
	// Window is the length of the window, if it is known for the server. A family's name may be
	// "second", "minute", "hour", "day", "month" or "year".
	Window time.Duration
	// Interval is the header that holds the length of the window: in milliseconds if its
	// name ends in "Ms" or "Milliseconds", else as Auto says.
	Interval string
	// Bucket means that calls come back one by one, Max in every Window, not all at once.
	Bucket bool
}

var windowNames = map[string]time.Duration{
	"second": time.Second, "minute": time.Minute, "hour": time.Hour,
	"day": 24 * time.Hour, "daily": 24 * time.Hour, "week": 7 * 24 * time.Hour,
	"month": 30 * 24 * time.Hour, "monthly": 30 * 24 * time.Hour, "year": 365 * 24 * time.Hour,
}

// readFamily reads the limits that the response reports by these headers. names are
// its headers that may report limits.
func (r *reading) readFamily(lh *LimitHeaders, names []string) {
	counter := cmp.Or(lh.Remaining, lh.Used)
	prefix, suffix, family := strings.Cut(counter, "*")
	if !family {
		if slices.ContainsFunc(names, lh.has) {
			r.readLimit(lh, "")
		}
		return
	}
	start := len(r.limits)
	for _, name := range names {
		if len(r.counted) >= maxLimits {
			break
		}
		if len(name) >= len(counter) && glob(counter, name) {
			r.readLimit(lh, name[len(prefix):len(name)-len(suffix)])
		}
	}
	// The order of a map would make the result differ from call to call.
	slices.SortStableFunc(r.limits[start:], func(a, b Limit) int { return strings.Compare(a.Name, b.Name) })
}

// has reports whether the header is one that every limit needs.
func (lh *LimitHeaders) has(name string) bool {
	return equalFold(name, lh.Remaining) || equalFold(name, lh.Used) || equalFold(name, lh.Reset) || equalFold(name, lh.ResetAfter)
}

// header returns the name and the lines of the header that matches a pattern. star replaces the
// "*".
func (r *reading) header(pattern, star string) (name string, lines []string) {
	if pattern == "" {
		return "", nil
	}
	if star != "" {
		pattern = strings.Replace(pattern, "*", star, 1)
	}
	name = http.CanonicalHeaderKey(pattern)
	return name, r.resp.Header[name]
}

// readLimit reads the limit of one set of headers, unless it was read before.
func (r *reading) readLimit(lh *LimitHeaders, star string) {
	start := len(r.limits)
	r.parseLimit(lh, star)
	for i := start; i < len(r.limits); i++ {
		if l := &r.limits[i]; lh.ResetUnit == Auto && l.Remaining <= 0 && l.Reset > max(knock, l.Window) && r.doubtful(lh, star) {
			l.Reset = knock
		}
	}
}

// doubtful reports whether a reset is a number of an unknown unit.
func (r *reading) doubtful(lh *LimitHeaders, star string) bool {
	for _, pattern := range [...]string{lh.ResetAfter, lh.Reset} {
		_, lines := r.header(pattern, star)
		for _, line := range lines {
			if slices.ContainsFunc(strings.Split(line, ","), bare) {
				return true
			}
		}
	}
	return false
}

func (r *reading) parseLimit(lh *LimitHeaders, star string) {
	counter, remaining := r.header(lh.Remaining, star)
	counterUsed, used := r.header(lh.Used, star)
	resetAfter, after := r.header(lh.ResetAfter, star)
	resetAt, reset := r.header(lh.Reset, star)
	if remaining == nil && used == nil { // only then the reset tells limits apart
		counter, counterUsed = resetAfter, resetAt
	}
	for _, name := range [...]string{counter, counterUsed} {
		if name == "" || r.resp.Header[name] == nil {
			continue
		}
		if slices.Contains(r.counted, name) {
			return
		}
		r.counted = append(r.counted, name)
	}
	l := Limit{Name: strings.ToLower(star), Unit: lh.Unit, Remaining: -1, Reset: -1, Window: lh.Window}
	if _, lines := r.header(lh.Name, star); len(lines) > 0 {
		l.Name = trim(lines[0])
	}
	if l.Unit == "" && strings.Contains(l.Name, "token") {
		l.Unit = "tokens"
	}
	if l.Unit == "" && strings.Contains(l.Name, "concurren") {
		l.Unit = "concurrent"
	}
	l.Window = cmp.Or(windowNames[l.Name], l.Window)
	if name, lines := r.header(lh.Interval, star); len(lines) > 0 {
		unit := Auto
		if strings.HasSuffix(name, "Ms") || strings.HasSuffix(name, "Milliseconds") {
			unit = Milliseconds
		}
		if d, ok := parseWait(lines[0], unit, r.clock); ok {
			l.Window = d
		}
	}
	_, most := r.header(lh.Max, star)
	resets := [...][]string{after, reset}
	for _, lines := range resets {
		if d, ok := parseWaits(lines, lh.ResetUnit, r.clock); ok {
			l.Reset = d
			break
		}
	}
	if l.Reset < 0 && lh.Reset != "" && remaining != nil {
		for _, end := range [...]string{"time", "-Time", "-At"} { // RateLimit-ResetTime of Yelp and GitLab
			if _, lines := r.header(lh.Reset+end, star); lines != nil {
				if d, ok := parseWaits(lines, Auto, r.clock); ok {
					l.Reset = d
				}
			}
		}
	}
	if several, ok := l.several(most, remaining, resets[:], lh.ResetUnit, r.clock); ok {
		room := max(0, maxLimits-len(r.limits))
		r.limits = append(r.limits, several[:min(len(several), room)]...)
		return
	}
	if n, window, ok := parseMax(most); ok {
		if n == 0 {
			return // nothing is limited, so nothing is used up
		}
		l.Max, l.Window = n, cmp.Or(window, l.Window)
	}
	if n, window, ok := parseRemaining(remaining); ok {
		l.Remaining, l.Window = n, cmp.Or(window, l.Window)
	} else if n, of, ok := parseUsed(used); ok {
		if l.Max = cmp.Or(of, l.Max); l.Max > 0 {
			l.Remaining = max(0, l.Max-n)
		}
	} else {
		l.pairs(remaining, r.clock)
	}
	if lh.Bucket && l.Remaining == 0 && l.Reset < 0 && l.Max > 0 && l.Window > 0 {
		l.Reset = scale(l.Window, 1, l.Max)
	}
	if l.Remaining >= 0 || l.Reset > 0 { // else it says nothing
		r.limits = append(r.limits, l)
	}
}

// pairs reads a limit in one value, such as "total=100; remaining=0; resets=41".
func (l *Limit) pairs(lines []string, clock time.Time) {
	if len(lines) == 0 || len(lines[0]) > maxField {
		return
	}
	for part := range strings.FieldsFuncSeq(lines[0], func(c rune) bool { return c == ';' || c == ',' }) {
		key, value, _ := strings.Cut(part, "=")
		n, ok := parseCount(value)
		switch strings.ToLower(trim(key)) {
		case "limit", "total", "max":
			l.Max = n
		case "remaining", "left":
			if ok {
				l.Remaining = n
			}
		case "reset", "resets", "reset_in", "resets_in":
			if d, ok := parseWait(value, Auto, clock); ok {
				l.Reset = d
			}
		}
	}
}

// vendor cuts the name of a header such as X-Acme-RateLimit-Remaining behind its "RateLimit"; ok
// reports whether the header may belong to a family of limits that no profile names.
func vendor(name string) (front string, ok bool) {
	if len(name) < len("RateLimit") {
		return "", false
	}
	switch name[len(name)-1] { // most names end here
	case 'g', 'G':
		ok = hasSuffixFold(name, "-remaining")
	case 't', 'T':
		ok = hasSuffixFold(name, "-reset") || hasSuffixFold(name, "limit")
	}
	if !ok || hasPrefixFold(name, "x-ratelimit") || hasPrefixFold(name, "ratelimit") {
		return "", false
	}
	for _, word := range [...]string{"ratelimit", "rate-limit"} {
		if i := indexFold(name, word); i == 0 || i > 0 && name[i-1] == '-' {
			return name[:i+len(word)], true
		}
	}
	return "", false
}

// maxVendors bounds the number of vendors' prefixes that are read.
const maxVendors = 8

// readVendors reads limits whose headers have a vendor's prefix, and other limits that the profiles
// do not name.
func (r *reading) readVendors(names []string) {
	var fronts []string
	for _, name := range names {
		front, ok := vendor(name)
		if ok && len(fronts) < maxVendors && !slices.Contains(fronts, front) {
			fronts = append(fronts, front)
		}
	}
	slices.Sort(fronts)
	for _, front := range fronts {
		most := front + "-Limit"
		if !hasHeader(r.resp.Header, most) {
			most = front + "-Max"
		}
		interval := front + "-Interval-Milliseconds"
		if !hasHeader(r.resp.Header, interval) {
			interval = front + "-Interval"
		}
		start := len(r.limits)
		for _, family := range [...]LimitHeaders{
			{Max: most, Remaining: front + "-Remaining", Used: front + "-Used", Reset: front + "-Reset", ResetAfter: front + "-Reset-After", Interval: interval},
			{Remaining: front},
			{Max: front + "-Limit-*", Remaining: front + "-Remaining-*", Reset: front + "-Reset-*"},
			{Max: front + "-*-Limit", Remaining: front + "-*-Remaining", Reset: front + "-*-Reset"},
		} {
			r.readFamily(&family, names)
		}
		// A single reset of several limits, as Contentful's, belongs to the used-up ones.
		if reset, ok := parseWaits(r.resp.Header.Values(front+"-Reset"), Auto, r.clock); ok {
			for i := range r.limits[start:] {
				if l := &r.limits[start+i]; l.Reset < 0 && l.spent() {
					l.Reset = reset
				}
			}
		}
	}
}

// parseMax reads a limit: "100", or "100;w=60", or the number followed by the
// policies that it is made of, as in "100, 100;w=60;burst=1000, 5000;w=3600".
func parseMax(lines []string) (n int, window time.Duration, ok bool) {
	items, err := parseSFList(lines)
	if err != nil || len(items) == 0 || items[0].kind != sfInteger {
		if len(lines) == 0 {
			return 0, 0, false
		}
		first, _, _ := strings.Cut(lines[0], ",")
		first, _, _ = strings.Cut(first, ";")
		d, ok := parseDecimal(trim(first))
		n = int(min(d.whole, math.MaxInt))
		return n, 0, ok && (n > 0 || d.nano == 0) // less than one call is not 0 calls
	}
	if items[0].num < 0 {
		return 0, 0, false // a server that sends -1 means that it does not know
	}
	for _, it := range items {
		if w, has := it.param("w"); has && it.kind == sfInteger && it.num == items[0].num {
			window = seconds(w)
			break
		}
	}
	return saturate(items[0].num), window, true
}

// several reads limits that share their headers, as in a remaining of "0, 14523" with a reset of
// "1, 1419704": values at the same place belong to one limit. A limit with a maximum of 0 is
// ignored. If the resets cannot be matched to limits, each limit has the reset of l.
func (l Limit) several(most, remaining []string, resets [][]string, unit Unit, clock time.Time) (limits []Limit, ok bool) {
	if len(remaining) == 0 || len(remaining) == 1 && !strings.Contains(remaining[0], ",") {
		return nil, false
	}
	eachCount(remaining, func(left int, window time.Duration) {
		if len(limits) <= maxLimits {
			one := l
			one.Remaining, one.Window = left, cmp.Or(window, l.Window)
			limits = append(limits, one)
		}
	})
	if len(limits) < 2 || len(limits) > maxLimits {
		return nil, false
	}
	for _, lines := range resets {
		var waits []time.Duration
		eachWait(lines, unit, clock, func(d time.Duration) { waits = append(waits, d) })
		if ok = len(waits) == len(limits); ok {
			for i := range limits {
				limits[i].Reset = waits[i]
			}
			break
		}
	}
	var maxima []int
	eachCount(most, func(n int, _ time.Duration) { maxima = append(maxima, n) })
	if len(maxima) != len(limits) {
		return limits, ok
	}
	for i := range limits {
		limits[i].Max = maxima[i]
	}
	return slices.DeleteFunc(limits, func(l Limit) bool { return l.Max == 0 }), true
}

// parseRemaining reads a count, or the least of a list of counts.
func parseRemaining(lines []string) (least int, window time.Duration, ok bool) {
	eachCount(lines, func(n int, w time.Duration) {
		if !ok || n < least {
			least, window, ok = n, w, true
		}
	})
	return least, window, ok
}

// eachCount calls f with each count of a list and its window, "20" or "20;w=21600", also
// behind names, as in "Compute/Get3Min;197,Compute/Get30Min;1297".
func eachCount(lines []string, f func(n int, window time.Duration)) {
	lines, _ = within(lines)
	for _, line := range lines {
		for part := range strings.SplitSeq(line, ",") {
			front, back, _ := strings.Cut(part, ";")
			n, valid := parseCount(front)
			if !valid {
				n, valid = parseCount(back[strings.LastIndexByte(back, ';')+1:])
				back = ""
			}
			if !valid {
				continue
			}
			var window time.Duration
			if w, has := strings.CutPrefix(trim(back), "w="); has {
				window, _ = parseWait(w, Seconds, time.Time{})
			}
			f(n, window)
		}
	}
}

// parseUsed reads the number of calls made, "32" or "32/40", also behind a name
// as in "api-usage=32/40".
func parseUsed(lines []string) (used, of int, ok bool) {
	if len(lines) == 0 {
		return 0, 0, false
	}
	first, _, _ := strings.Cut(lines[0], ",")
	first, _, _ = strings.Cut(first, ";")
	if _, value, found := strings.Cut(first, "="); found {
		first = value
	}
	first, second, pair := strings.Cut(first, "/")
	used, ok = parseCount(first)
	if pair && ok {
		of, ok = parseCount(second)
		ok = ok && of > 0
	}
	return used, of, ok
}

// parseCount reads a number of calls; a fraction of a call is dropped.
func parseCount(s string) (int, bool) {
	n, ok := parseDecimal(trim(s))
	if !ok {
		return 0, false
	}
	return int(min(n.whole, math.MaxInt)), true
}

func saturate(n int64) int { return int(min(n, math.MaxInt)) }

// cached reports whether a cache sent the response: then its limits are from the past.
func cached(h http.Header) bool {
	return age(h) > 0 || h.Get("X-From-Cache") != ""
}

// equalFold is strings.EqualFold for names, most of which differ in length.
func equalFold(a, b string) bool { return len(a) == len(b) && strings.EqualFold(a, b) }

func hasSuffixFold(s, suffix string) bool {
	return len(s) >= len(suffix) && strings.EqualFold(s[len(s)-len(suffix):], suffix)
}

func hasPrefixFold(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}
