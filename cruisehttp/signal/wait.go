package signal

import (
	"math/bits"
	"net/http"
	"strings"
	"time"
)

// maxWait bounds every wait and reset that a server can name, so that no
// arithmetic on them overflows and no header parks a client for longer.
const maxWait = 365 * 24 * time.Hour

// A Unit says how a wait or a reset is written.
type Unit uint8

const (
	// Auto tells the forms apart. Letters make a date (HTTP, RFC 3339) or a
	// duration ("2m59.56s"); a number is seconds from now below 9e8, and above
	// that a Unix time in seconds, milliseconds (from 1e11), microseconds (from
	// 1e14) or nanoseconds (from 1e17). Milliseconds from now cannot be told
	// from seconds: a server that sends them needs Milliseconds. So a number that
	// would keep a client away for more than three hours counts as three hours.
	Auto Unit = iota
	// RetryAfter is the form of the Retry-After header: see [ParseRetryAfter].
	RetryAfter
	// Seconds from now, whole or with a fraction.
	Seconds
	// Milliseconds from now, whole or with a fraction.
	Milliseconds
	// Minutes from now, whole or with a fraction.
	Minutes
)

// ParseRetryAfter reads the Retry-After header: the wait from now that it asks
// for, between 0 and one year, and whether there is a valid one at all. A 0, or
// a time that has passed, is valid and asks for no particular wait: retry after
// a backoff of your own, not at once.
//
// RFC 9110 section 10.2.3 allows whole seconds and three forms of date. Servers
// also send fractions ("0.129"), dates of RFC 3339, several values joined by a comma (the
// longest counts) and Unix times in seconds or milliseconds (told by their size: no
// server means 28 years). Anything else, "-1", "NaN", "1e3" or "30s", is no
// Retry-After.
//
// Where the clock of the Date header is off by more than a second, dates are
// measured by that clock, which is the server's.
func ParseRetryAfter(h http.Header, now time.Time) (wait time.Duration, ok bool) {
	return parseWaits(h.Values("Retry-After"), RetryAfter, serverClock(h, now))
}

// serverClock is the time at which the server thinks it is now.
func serverClock(h http.Header, now time.Time) time.Time {
	date, ok := parseHTTPDate(trim(h.Get("Date")), now)
	if !ok {
		return now
	}
	date = date.Add(age(h)) // a cache has kept the response since
	if skew := date.Sub(now); skew.Abs() <= time.Second {
		return now // Date has whole seconds: a smaller skew is rounding
	}
	return date
}

// age is how long a cache has held the response.
func age(h http.Header) time.Duration {
	if n, ok := parseDecimal(trim(h.Get("Age"))); ok {
		return n.times(time.Second)
	}
	return 0
}

// maxField is how much of the lines of one header is ever looked at, in bytes.
// net/http takes 10 MiB of them, which would keep a parser of lists busy for long.
const maxField = 8 << 10

// maxParts is how many parts of the lines of one header are tried as a wait: servers
// send one or two, and each is tried as a date of many forms.
const maxParts = 32

// within returns the first lines, up to maxField bytes together, and whether they are all lines.
func within(lines []string) (fit []string, all bool) {
	room := maxField
	for i, line := range lines {
		if room -= len(line) + 1; room < 0 {
			return lines[:i], false
		}
	}
	return lines, true
}

// parseWaits returns the longest of the valid waits in the lines of a header.
func parseWaits(lines []string, unit Unit, clock time.Time) (longest time.Duration, ok bool) {
	eachWait(lines, unit, clock, func(d time.Duration) { longest, ok = max(longest, d), true })
	return longest, ok
}

// eachWait calls f with the valid waits in the lines of a header.
// Lines are lists: two headers of the same name may arrive joined by a comma.
func eachWait(lines []string, unit Unit, clock time.Time, f func(time.Duration)) {
	tried := 0
	take := func(s string) bool {
		if tried++; tried > maxParts {
			return false
		}
		d, valid := parseWait(s, unit, clock)
		if valid {
			f(d)
		}
		return valid
	}
	lines, _ = within(lines)
	for _, line := range lines {
		if take(line) {
			continue
		}
		parts := strings.Split(line, ",")
		for i := 0; i < len(parts); i++ {
			// A date has a comma of its own: two parts may be one.
			if !take(parts[i]) && i+1 < len(parts) && take(parts[i]+","+parts[i+1]) {
				i++
			}
		}
	}
}

// parseWait reads one wait. The result is between 0 and maxWait.
func parseWait(s string, unit Unit, clock time.Time) (time.Duration, bool) {
	s = trim(s)
	if n, ok := parseDecimal(s); ok {
		switch unit {
		case Seconds:
			return n.times(time.Second), true
		case Milliseconds:
			return n.times(time.Millisecond), true
		case Minutes:
			return n.times(time.Minute), true
		case RetryAfter:
			return n.retryAfter(clock), true
		default:
			return n.reset(clock), true
		}
	}
	switch unit {
	case RetryAfter:
		if t, ok := parseHTTPDate(s, clock); ok {
			return until(t, clock), true
		}
		if t, err := time.Parse(time.RFC3339, s); err == nil {
			return until(t, clock), true
		}
	case Auto:
		if t, ok := parseTime(s, clock); ok {
			return until(t, clock), true
		}
		return parseSpan(s)
	}
	return 0, false
}

// knock is the longest time for which a number of unknown unit may stop a client. A server that
// meant milliseconds is asked again then; a server that meant seconds answers one more request.
const knock = 3 * time.Hour

// bare tells whether a value is a number that counts from now.
func bare(s string) bool {
	n, ok := parseDecimal(trim(s))
	return ok && n.whole < leastUnix
}

func until(t, clock time.Time) time.Duration {
	return min(max(0, t.Sub(clock)), maxWait)
}

// parseHTTPDate reads the three forms of RFC 9110 section 5.6.7. All of them
// are GMT, but the standard library takes any zone name in the RFC 850 form and
// gives it no offset, which is hours wrong.
func parseHTTPDate(s string, now time.Time) (time.Time, bool) {
	if s == "" || !(strings.HasSuffix(s, " GMT") || isDigit(s[len(s)-1])) {
		return time.Time{}, false
	}
	t, err := http.ParseTime(s)
	if err != nil {
		return time.Time{}, false
	}
	if strings.Contains(s, "-") && t.Year() < now.Year()-50 {
		t = t.AddDate(100, 0, 0) // two digits of a year, by the RFC's rule for them
	}
	return t, true
}

// timeLayouts are the dates with a zone that reset headers hold besides HTTP's.
var timeLayouts = [...]string{
	time.RFC3339Nano,
	"2006-01-02T15:04Z07:00", // Jira
	"2006-01-02 15:04:05Z07:00",
	"2006-01-02 15:04:05 UTC",
	"2006-01-02 15:04:05 -0700 MST",
	"2006-01-02 15:04:05 -0700",
	"2006-01-02T15:04:05-0700",
	time.RFC1123Z,
	"Mon, 02 Jan 2006 15:04:05 UTC",
	"Mon Jan 02 2006 15:04:05 GMT-0700", // of JavaScript, without the zone's name in brackets
}

func parseTime(s string, now time.Time) (time.Time, bool) {
	if t, ok := parseHTTPDate(s, now); ok {
		return t, true
	}
	s, _, _ = strings.Cut(s, " (")
	for _, layout := range timeLayouts {
		if t, err := time.Parse(layout, s); err == nil {
			return t, true
		}
	}
	return time.Time{}, false
}

// A decimal is a number as servers write it: digits, perhaps with a fraction.
type decimal struct {
	whole uint64 // saturated
	nano  uint64 // the fraction in billionths, rounded up; below 1e9
}

// parseDecimal takes "120" and "1.5" and nothing else: signs, exponents, hex
// digits, NaN and Inf, which strconv.ParseFloat accepts, are no wait.
func parseDecimal(s string) (decimal, bool) {
	var n decimal
	i := 0
	for ; i < len(s) && isDigit(s[i]); i++ {
		hi, lo := bits.Mul64(n.whole, 10)
		sum, carry := bits.Add64(lo, uint64(s[i]-'0'), 0)
		if hi != 0 || carry != 0 {
			sum = 1<<64 - 1
		}
		n.whole = sum
	}
	if i == 0 {
		return decimal{}, false
	}
	if i == len(s) {
		return n, true
	}
	frac := s[i+1:]
	if s[i] != '.' || frac == "" {
		return decimal{}, false
	}
	up := uint64(0)
	scale := uint64(1e9)
	for j := range len(frac) {
		if !isDigit(frac[j]) {
			return decimal{}, false
		}
		if scale > 1 {
			scale /= 10
			n.nano += uint64(frac[j]-'0') * scale
		} else if frac[j] != '0' {
			up = 1
		}
	}
	if n.nano += up; n.nano == 1e9 {
		n.nano = 0
		if n.whole++; n.whole == 0 {
			n.whole--
		}
	}
	return n, true
}

// of is n units of time, rounded up, at most maxWait.
func (n decimal) of(unit time.Duration) time.Duration {
	if n.whole >= uint64(maxWait/unit) {
		return maxWait
	}
	hi, lo := bits.Mul64(n.nano, uint64(unit))
	frac, rest := bits.Div64(hi, lo, 1e9) // nano < 1e9, so hi < 1e9
	if rest > 0 {
		frac++
	}
	return min(time.Duration(n.whole)*unit+time.Duration(frac), maxWait)
}

// times is n units of time, at most maxWait. A fraction is at least a millisecond:
// a wait that becomes 0 is no wait.
func (n decimal) times(unit time.Duration) time.Duration {
	d := n.of(unit)
	if d < time.Millisecond && n.nano > 0 {
		return time.Millisecond
	}
	return d
}

// leastUnix is the least number that is taken for a Unix time in seconds: July 1998.
// The clock of a test in virtual time begins in 2000.
const leastUnix = 9e8

// retryAfter is the wait of a number in Retry-After: seconds, unless it is a
// Unix time in seconds or milliseconds.
func (n decimal) retryAfter(clock time.Time) time.Duration {
	if n.whole >= leastUnix && n.whole < 1e11 || n.whole >= leastUnix*1e3 && n.whole < 1e14 {
		return until(n.unix(), clock)
	}
	return n.times(time.Second)
}

// reset is the wait of a number in a reset header.
func (n decimal) reset(clock time.Time) time.Duration {
	if n.whole < leastUnix {
		return n.times(time.Second)
	}
	return until(n.unix(), clock)
}

// unix takes n for a Unix time, its unit told by its size.
func (n decimal) unix() time.Time {
	unit := uint64(1e9) // nanoseconds
	switch {
	case n.whole < 1e11:
		return time.Unix(int64(n.whole), int64(n.nano))
	case n.whole < 1e14:
		unit = 1e3
	case n.whole < 1e17:
		unit = 1e6
	}
	return time.Unix(int64(n.whole/unit), int64(n.whole%unit*(1e9/unit)))
}

var spanUnits = map[string]time.Duration{
	"ns": time.Nanosecond, "us": time.Microsecond, "µs": time.Microsecond, "μs": time.Microsecond,
	"ms": time.Millisecond, "millisecond": time.Millisecond, "milliseconds": time.Millisecond,
	"s": time.Second, "sec": time.Second, "secs": time.Second, "second": time.Second, "seconds": time.Second,
	"m": time.Minute, "min": time.Minute, "mins": time.Minute, "minute": time.Minute, "minutes": time.Minute,
	"h": time.Hour, "hr": time.Hour, "hrs": time.Hour, "hour": time.Hour, "hours": time.Hour,
	"d": 24 * time.Hour, "day": 24 * time.Hour, "days": 24 * time.Hour,
}

// parseSpan reads durations such as "6m0s", "53.5s", "55seconds" and
// "05:47:12". [time.ParseDuration] knows no days and fails on the 10,000 years
// that a protobuf duration may have.
func parseSpan(s string) (time.Duration, bool) {
	if strings.Count(s, ":") == 2 {
		return parseClock(s)
	}
	var total time.Duration
	for rest := s; rest != ""; {
		i := 0
		for i < len(rest) && (isDigit(rest[i]) || rest[i] == '.') {
			i++
		}
		j := i
		for j < len(rest) && !isDigit(rest[j]) {
			j++
		}
		n, ok := parseDecimal(rest[:i])
		unit, known := spanUnits[rest[i:j]]
		if !ok || !known {
			return 0, false
		}
		total = min(total+n.of(unit), maxWait)
		rest = rest[j:]
	}
	return total, s != ""
}

// parseClock reads hours:minutes:seconds, and with days in front as .NET writes them,
// days.hours:minutes:seconds.
func parseClock(s string) (time.Duration, bool) {
	var total time.Duration
	if dot := strings.IndexByte(s, '.'); dot >= 0 && dot < strings.IndexByte(s, ':') {
		days, ok := parseDecimal(s[:dot])
		if !ok {
			return 0, false
		}
		total, s = days.times(24*time.Hour), s[dot+1:]
	}
	unit := time.Hour
	for part := range strings.SplitSeq(s, ":") {
		n, ok := parseDecimal(part)
		if !ok {
			return 0, false
		}
		total = min(total+n.times(unit), maxWait)
		unit /= 60
	}
	return total, true
}

// waitInText finds a wait that a message names after some words, as in "Please
// retry in 53.01s." or "Try again in 55 seconds". The words are compared
// without regard to case.
func waitInText(text, words string, unit Unit, clock time.Time) (time.Duration, bool) {
	i := indexFold(text, words)
	if i < 0 {
		return 0, false
	}
	rest := text[i+len(words):]
	parts := strings.Fields(rest[:min(len(rest), 80)])
	if len(parts) == 0 {
		return 0, false
	}
	const marks = ".,;:!?)>]}\"'"
	first := strings.TrimRight(parts[0], marks)
	if len(parts) > 1 && unit == Auto {
		word := strings.ToLower(strings.TrimRight(parts[1], marks))
		if _, ok := spanUnits[word]; ok {
			if d, ok := parseSpan(first + word); ok {
				return d, true
			}
		}
	}
	return parseWait(first, unit, clock)
}

// indexFold is strings.Index without regard to the case of ASCII letters.
func indexFold(s, sub string) int {
	for i := 0; i+len(sub) <= len(s); i++ {
		if strings.EqualFold(s[i:i+len(sub)], sub) {
			return i
		}
	}
	return -1
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// trim removes the whitespace that HTTP allows around a field value.
func trim(s string) string { return strings.Trim(s, " \t") }
