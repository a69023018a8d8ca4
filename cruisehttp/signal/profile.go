package signal

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/a7df5faa/cruise"
)

// A Profile describes how a provider's responses report throttling. It is data: a copy can be
// changed and extended. Everything that it leaves out is read by the rules of [Generic], which hold
// for every server.
//
// Patterns (of hosts, header names and values, codes, texts and URL paths) match the whole text,
// without regard to case; "*" stands for any text. Fields are places in a JSON or XML body:
// "error.code" is exactly there, arrays left out, "*.code" at any depth, and "details.*" anywhere
// below; in CodeFields and TextFields, "code|__type" is the first of the two that is there. If a
// multipart/mixed body holds HTTP responses, as answers to batches do, "parts.status",
// "parts.headers.*" and "parts.body.*" are the status, headers and body of each part.
//
// A Profile must not be changed while it is in use.
type Profile struct {
	// Name of the provider, as Signal.Profile repeats it.
	Name string
	// Hosts are patterns of the host names at which the provider answers.
	Hosts []string
	// Marks are patterns of header names that only this provider sends: they identify the provider
	// behind any host name.
	Marks []string
	// Providers are profiles for certain providers. A provider's profile is used instead of this
	// one if it matches the response by its host, or else by its marks. The first match counts.
	Providers []Profile

	// Waits are the headers that hold a wait, the most trustworthy first. The first one with a wait
	// above 0 counts.
	Waits []WaitHeader
	// BodyWaits are fields that hold a wait. The longest wait of fields, texts
	// and headers counts.
	BodyWaits []WaitField
	// TextWaits are waits named in the middle of a message.
	TextWaits []WaitText
	// Refills are waits that must be computed from a bucket in the body.
	Refills []Refill
	// Limits are the headers that report limits.
	Limits []LimitHeaders

	// CodeHeaders and CodeFields hold error codes, for Rule.Code. Of a code
	// such as "com.amazonaws.dynamodb#ThrottlingException:http://..." or
	// "https://example.com/problems#quota-exceeded" only the name counts.
	CodeHeaders, CodeFields []string
	// TextFields hold messages, for Rule.Text and TextWaits. A body that is
	// neither JSON nor XML is one message.
	TextFields []string
	// ScopeHeaders and ScopeFields hold the name of the limit that the server
	// blames; the first that is there counts, fields before headers.
	ScopeHeaders, ScopeFields []string

	// Embedded matches the successful responses that may hold an error.
	Embedded []Embedded
	// Rules decide the outcome of a response; the first rule that matches counts. If no rule
	// matches, [cruise.StatusOutcome] decides.
	Rules []Rule

	whole bool // of Generic: it includes the rules for every server
}

// A WaitHeader is a header that holds a wait.
type WaitHeader struct {
	Name string
	Unit Unit
	// Whole requires a value of digits only, without a space.
	Whole bool
	// Over bounds the wait to that much above the client's own backoff; 0 is no
	// bound.
	Over time.Duration
	// Field is the place of the wait in a value that is JSON; "" for a plain value.
	Field string
}

// A WaitField is a body field that holds a wait.
type WaitField struct {
	Field string
	Unit  Unit
}

// A WaitText is a wait that follows some words of a message, such as "Please
// retry in ". The words are no pattern; their case does not matter.
type WaitText struct {
	After string
	Unit  Unit
}

// A Refill is a bucket that a body reports: the fields that hold the cost of the call, the present
// level of the bucket, its size, and its refill per second.
type Refill struct {
	Cost, Now, Max, PerSecond string
}

// An Embedded matches requests for which a success may hold an error in a body of JSON, XML or
// multipart/mixed. Empty conditions match anything.
type Embedded struct {
	Method string
	Path   string // pattern of the URL's path
	Query  string // name of a parameter that the URL has
	Header string // "Name: pattern" of a header of the request
}

// A Rule sets the outcome of a response. All conditions that are not empty must hold; of a list,
// one must.
type Rule struct {
	// Status lists statuses; empty means 400 and above. Below, Code, With, Text and
	// Field hold only where the request is Embedded.
	Status []int
	// Path is a pattern of the path of the request's URL.
	Path string
	// Header lists "Name: pattern" of response headers that must all be there,
	// or with "!Name" must not be.
	Header []string
	// Code lists patterns of error codes, and With of further ones that must be
	// there too. "name=pattern" matches codes only from a field of that name.
	Code, With []string
	// Text lists patterns of messages.
	Text []string
	// Field lists fields that must hold something.
	Field []string
	// Spent requires that a reported limit is used up.
	Spent bool

	// Outcome of the call.
	Outcome cruise.Outcome
	// Brake means that the server is throttling, although Outcome says otherwise because this call
	// must not be retried.
	Brake bool
	// Scope is the limit to blame, if the response names none.
	Scope string
	// Floor is the least wait if the server names none.
	Floor time.Duration
	// Wait is how long the quota is known to stay used up, if the server does
	// not ask for more.
	Wait time.Duration
	// Until is like Wait, by the clock: the next time that the quota is renewed.
	Until func(now time.Time) time.Time
}

// WantsBody reports whether Read needs the body of resp: for any error, and for successful
// responses in which the provider may hide an error.
func (p Profile) WantsBody(resp *http.Response) bool {
	return p.pick(resp).wantsBody(resp)
}

// wantsBody is WantsBody of the profile that was picked.
func (p *Profile) wantsBody(resp *http.Response) bool {
	if resp.StatusCode >= 400 || resp.StatusCode < 200 {
		return resp.StatusCode >= 400
	}
	req := resp.Request
	if req == nil || req.URL == nil || req.Method == http.MethodHead || !p.embeds(req) && (p.whole || !base.embeds(req)) {
		return false
	}
	kind := strings.ToLower(resp.Header.Get("Content-Type"))
	return strings.Contains(kind, "json") || strings.Contains(kind, "xml") || strings.HasPrefix(kind, "multipart/mixed")
}

func (p *Profile) embeds(req *http.Request) bool {
	for i := range p.Embedded {
		if p.Embedded[i].matches(req) {
			return true
		}
	}
	return false
}

func (e *Embedded) matches(req *http.Request) bool {
	return (e.Method == "" || e.Method == req.Method) &&
		(e.Path == "" || glob(e.Path, req.URL.Path)) &&
		(e.Query == "" || req.URL.Query().Has(e.Query)) &&
		(e.Header == "" || headerIs(req.Header, e.Header))
}

// pick returns the profile to read resp by. For one response that is cheaper than the index of a
// Reader.
func (p *Profile) pick(resp *http.Response) *Profile {
	if req := resp.Request; req != nil && req.URL != nil {
		host := req.URL.Hostname()
		for i := range p.Providers {
			if slices.ContainsFunc(p.Providers[i].Hosts, func(h string) bool { return glob(h, host) }) {
				return &p.Providers[i]
			}
		}
	}
	if len(p.Providers) == 0 {
		return p
	}
	var room [32]string
	names := slices.AppendSeq(room[:0], maps.Keys(resp.Header))
	for i := range p.Providers {
		for _, mark := range p.Providers[i].Marks {
			for _, name := range names {
				if name != "" && mark != "" && (lower(name[0]) == lower(mark[0]) || mark[0] == '*') && glob(mark, name) {
					return &p.Providers[i]
				}
			}
		}
	}
	return p
}

// headerIs reports whether a header matches "Name: pattern".
func headerIs(h http.Header, condition string) bool {
	name, pattern, _ := strings.Cut(condition, ":")
	return slices.ContainsFunc(h.Values(name), func(v string) bool { return glob(trim(pattern), trim(v)) })
}

func hasHeader(h http.Header, pattern string) bool {
	if !strings.Contains(pattern, "*") {
		return len(h.Values(pattern)) > 0
	}
	for name := range h {
		if glob(pattern, name) {
			return true
		}
	}
	return false
}

// check returns an error that names every fault of a profile.
func (p Profile) check() error {
	fail := func(format string, args ...any) error {
		return fmt.Errorf("signal: profile %q: %w", p.Name, fmt.Errorf(format, args...))
	}
	if p.Name == "" {
		return errors.New("signal: profile without a Name")
	}
	for _, w := range p.Waits {
		if w.Name == "" || w.Unit > Minutes || w.Over < 0 {
			return fail("Waits: %+v: a Name, a Unit and an Over of 0 or more are needed", w)
		}
	}
	for _, w := range p.BodyWaits {
		if w.Field == "" || w.Unit > Minutes {
			return fail("BodyWaits: %+v: a Field and a Unit are needed", w)
		}
	}
	for _, w := range p.TextWaits {
		if w.After == "" || w.Unit > Minutes {
			return fail("TextWaits: %+v: After and a Unit are needed", w)
		}
	}
	for _, l := range p.Limits {
		if l.Remaining == "" && l.Used == "" || l.ResetUnit > Minutes || l.Window < 0 {
			return fail("Limits: %+v: Remaining or Used, a ResetUnit and a Window of 0 or more are needed", l)
		}
	}
	for _, r := range p.Rules {
		if r.Outcome == cruise.OutcomeUnknown || r.Outcome > cruise.OutcomeDropped {
			return fail("Rules: Outcome %v: one of the outcomes of package cruise is needed", r.Outcome)
		}
		if r.Floor < 0 || r.Wait < 0 {
			return fail("Rules: Floor %v, Wait %v: 0 or more are needed", r.Floor, r.Wait)
		}
	}
	for _, q := range p.Providers {
		if len(q.Providers) > 0 {
			return fail("Providers: %q has Providers of its own: one level is allowed", q.Name)
		}
		if err := q.check(); err != nil {
			return err
		}
	}
	return nil
}
