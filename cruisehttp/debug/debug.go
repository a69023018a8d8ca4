// Package debug serves a live page about the Retriers of a program: whether the API throttles,
// since when, at what rate the calls run, and when they go on. It is for cruise as net/http/pprof
// is for profiles.
//
//	page := debug.New()
//	heroku := page.Watch("heroku")
//	api, err := cruise.New(cruise.WithObserver(heroku))
//	…
//	heroku.Add(api)
//	http.Handle("/debug/cruise", page)
//
// A browser gets HTML that updates itself every second. The page is one file and loads nothing from
// elsewhere. A client that asks for application/json, or with ?format=json, gets the same data as a
// [Report].
//
// # What it costs
//
// Each event is counted, in 70 ns and without an allocation. Every two seconds, at most, one event
// also samples all limiters, as does each request for the page. A sample takes microseconds, or 5
// ms with ten thousand scopes. So the page has a history when it is opened, and nothing runs
// without calls and requests: no goroutine, no timer, nothing to close. Memory is bounded: five
// minutes of samples for [DefaultMaxScopes] limiters are 300 kB for each [Watch].
//
// # Who may see it
//
// Every client that can reach the page may see it. Mount it where you would mount pprof: on a
// listener of the loopback interface, or behind the program's own authentication. On the loopback
// interface the page accepts requests for localhost and loopback addresses only, so that no web
// site can read it by a name that resolves to 127.0.0.1 (DNS rebinding). [WithHosts] allows more
// names, and refuses all others on every interface. The page changes nothing, answers only GET and
// HEAD, and shows no secrets by default. Keys are shown as digests ([WithKeys]). Errors are shown
// without query strings, credentials in URLs, and words that look like a token ([WithErrorText]).
package debug

import (
	"regexp"
	"strings"
	"sync"

	"github.com/a7df5faa/cruise/internal/observing"
)

// DefaultMaxScopes is the default of [WithMaxScopes].
const DefaultMaxScopes = 50

// A Page shows the APIs that it watches. It is a [net/http.Handler].
//
// A Page is safe for concurrent use and must not be copied. [New] makes one. It needs no Close.
type Page struct {
	keys      func(scope, key string) string
	text      func(error) string
	maxScopes int
	hosts     []string

	mu      sync.Mutex // guards the field below; no other lock is taken under it
	watches []*Watch
}

// An Option tunes a [Page].
type Option func(*Page)

// New returns a Page that shows nothing yet. Nil options do nothing.
func New(opts ...Option) *Page {
	p := &Page{keys: observing.Digest(), text: Redacted, maxScopes: DefaultMaxScopes}
	for _, opt := range opts {
		if opt != nil {
			opt(p)
		}
	}
	return p
}

// WithKeys sets how the keys of scopes are shown. Default: as a digest. Equal keys have the same
// digest while the program runs, and another one in the next run, so that no reader can test the
// page for a known customer. nil and [PlainKeys] show keys as they are; [ShortKeys] shows their
// ends. The function must be safe for concurrent use.
func WithKeys(show func(scope, key string) string) Option {
	if show == nil {
		show = PlainKeys
	}
	return func(p *Page) { p.keys = show }
}

// PlainKeys shows keys as they are: see [WithKeys].
func PlainKeys(_, key string) string { return key }

// ShortKeys shows the last four characters of keys that are longer than eight, and
// nothing of others: see [WithKeys].
func ShortKeys(_, key string) string {
	r := []rune(key)
	if len(r) <= 8 {
		return "…"
	}
	return "…" + string(r[len(r)-4:])
}

// WithErrorText sets how the errors of calls are shown. The function must be safe for concurrent
// use. Default, and for nil: [Redacted].
func WithErrorText(text func(error) string) Option {
	if text == nil {
		text = Redacted
	}
	return func(p *Page) { p.text = text }
}

// WithMaxScopes sets how many limiters each [Watch] shows and keeps a history of: 1 or more; less
// counts as 1. Limiters that pause or have waiting calls come first, then limiters that were
// throttled, then the last used. Of the others only the number is shown. Default 50.
func WithMaxScopes(n int) Option {
	return func(p *Page) { p.maxScopes = max(1, n) }
}

// WithHosts names the hosts for which the page is served, without a port, such as
// "admin.example.com" behind a proxy: requests for others are refused with 403. Addresses of the
// loopback interface and localhost are always allowed. Default: only these on the loopback
// interface, any host elsewhere.
func WithHosts(hosts ...string) Option {
	return func(p *Page) { p.hosts = append(p.hosts, hosts...) }
}

// maxText is the highest number of characters shown of an error.
const maxText = 240

var (
	queries     = regexp.MustCompile(`\?[^\s"'<>]+`)
	credentials = regexp.MustCompile(`//[^/\s"']+@`)
	headers     = regexp.MustCompile(`(?i)(authorization\\?["']?\s*[:= ](?:\[\]string)?[\s\[{"'\\]*)[^\s"',;]+(?:[\s,]+[\w-]+=["'\\\w].*|\s+[^\s"',;]+)?`) // the line, where parameters follow the scheme
	cookies     = regexp.MustCompile(`(?i)(cookie\\?["']?\s*[:=](?:\[\]string)?[\s\[{"'\\]*)(?:\\[^\n"']|[^\n"'\]\\])+`)
	schemes     = regexp.MustCompile(`(?i)\b(bearer|basic)\s+[^\s"',;]+`)
	named       = regexp.MustCompile(`(?i)(\w*(?:token|(?:api|access|private|secret)[-_]?key|password|passwd|secret|signature|credential))(\\?["']?\s*[:= ]\s*(?:\[\]string)?[\[{"'\\]*)(?:\\[^\s"']|[^\s"',;\\])+`)
	short       = regexp.MustCompile(`(?i)\b((?:\w+[-_])?(?:pwd|pass|session(?:[-_]?id)?|sid|sig|otp|auth))(\\?["']?\s*[:=]\s*(?:\[\]string)?[\[{"'\\]*)(?:\\[^\s"']|[^\s"',;&\\])+`)
	dsn         = regexp.MustCompile(`([\w.+-]+):(?:[^\s"'/]+@([\w\[])|[^\s"'/][^\s"']*@(\w*\())`)
	bots        = regexp.MustCompile(`\b(bot[0-9]+:)[A-Za-z0-9_-]+`) // Telegram's, in paths
	tokens      = regexp.MustCompile(`[A-Za-z0-9+/_=.-]{24,}`)
	parts       = regexp.MustCompile(`[^/.]{24,}`)
	awsKey      = regexp.MustCompile(`^[A-Za-z0-9/]{40}\.?$`) // or a path
	digits      = regexp.MustCompile(`[0-9]`)
)

// Redacted returns the text of an error without possible secrets: query strings and credentials of
// URLs and data source names, the value after a word such as Authorization, Cookie, token,
// password, client_secret, pwd=, session=, sig= or otp=, and words or parts of paths that have 24
// or more characters and a digit. It is cut after 240 characters.
func Redacted(err error) string {
	text := []rune(err.Error())
	if cut := 8 * maxText; len(text) > cut {
		text = text[:cut]
	}
	s := queries.ReplaceAllString(string(text), "?…")
	s = credentials.ReplaceAllString(s, "//…@")
	s = headers.ReplaceAllString(s, "$1…")
	s = cookies.ReplaceAllString(s, "$1…")
	s = schemes.ReplaceAllString(s, "$1 …")
	s = named.ReplaceAllString(s, "$1$2…")
	s = short.ReplaceAllString(s, "$1$2…")
	s = dsn.ReplaceAllString(s, "$1:…@$2$3")
	s = bots.ReplaceAllString(s, "$1…")
	s = tokens.ReplaceAllStringFunc(s, func(word string) string {
		if isPath(word) {
			return parts.ReplaceAllStringFunc(word, hide)
		}
		return hide(word)
	})
	if text := []rune(s); len(text) > maxText {
		s = string(text[:maxText-1]) + "…"
	}
	return s
}

// isPath reports whether word is a path, or a URL without its scheme, and not a key with slashes.
func isPath(word string) bool {
	key := strings.ContainsAny(word, "+=") || awsKey.MatchString(word) && word != strings.ToLower(word)
	return strings.Contains(word, "/") && !key
}

// hide replaces a long word that has a digit.
func hide(word string) string {
	if digits.MatchString(word) {
		return "…"
	}
	return word
}
