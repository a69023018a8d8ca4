package cruisehttp

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/a7df5faa/cruise"
)

// A reader reads responses by one profile, many times. What it needs to know of
// the profile it has looked up before, so that a response that says nothing
// about limits costs next to nothing.
type reader struct {
	profile  *Profile
	longWait time.Duration

	hosts        map[string]int // whole host names, in lower case, to places in Providers
	domains      map[string]int // ".slack.com" of the pattern "*.slack.com"
	hostPatterns []indexed      // of any other form

	marks        map[string]int // canonical names of headers to places in Providers
	markPatterns []indexed

	tells        map[string]struct{} // canonical names of headers that report limits
	tellPatterns []indexed
	initials     [256]bool // first bytes of all these names
}

// indexed is a pattern of the provider at that place.
type indexed struct {
	pattern, prefix, suffix string // the latter two around the only "*", if there is one only
	place                   int
}

func index(pattern string, place int) indexed {
	p := indexed{pattern: pattern, place: place}
	if strings.Count(pattern, "*") == 1 {
		p.prefix, p.suffix, _ = strings.Cut(pattern, "*")
	}
	return p
}

func (p *indexed) matches(s string) bool {
	if p.prefix == "" && p.suffix == "" {
		return glob(p.pattern, s)
	}
	return len(s) >= len(p.prefix)+len(p.suffix) && hasPrefixFold(s, p.prefix) && hasSuffixFold(s, p.suffix)
}

// newReader prepares to read by p, which must not change any more.
func newReader(p *Profile, longWait time.Duration) *reader {
	r := &reader{
		profile: p, longWait: longWait,
		hosts: map[string]int{}, domains: map[string]int{}, marks: map[string]int{}, tells: map[string]struct{}{},
	}
	for i := range p.Providers {
		r.addProvider(i)
	}
	r.addTells(p)
	r.addTells(&base)
	r.addTell("RateLimit")
	return r
}

func (r *reader) addProvider(place int) {
	q := &r.profile.Providers[place]
	for _, pattern := range q.Hosts {
		pattern = strings.ToLower(pattern)
		domain, isDomain := strings.CutPrefix(pattern, "*")
		switch {
		case !strings.Contains(pattern, "*"):
			setFirst(r.hosts, pattern, place)
		case isDomain && strings.HasPrefix(domain, ".") && !strings.Contains(domain, "*"):
			setFirst(r.domains, domain, place)
		default:
			r.hostPatterns = append(r.hostPatterns, index(pattern, place))
		}
	}
	for _, pattern := range q.Marks {
		if strings.Contains(pattern, "*") {
			r.markPatterns = append(r.markPatterns, index(pattern, place))
		} else {
			setFirst(r.marks, http.CanonicalHeaderKey(pattern), place)
		}
		r.addInitial(pattern)
	}
	r.addTells(q)
}

// setFirst keeps the first place that a name has.
func setFirst(places map[string]int, name string, place int) {
	if _, ok := places[name]; !ok {
		places[name] = place
	}
}

// addTells adds the headers without which a profile finds no limit.
func (r *reader) addTells(p *Profile) {
	for _, l := range p.Limits {
		for _, name := range [...]string{l.Remaining, l.Used, l.Reset, l.ResetAfter} {
			if name != "" {
				r.addTell(name)
			}
		}
	}
}

func (r *reader) addTell(name string) {
	if strings.Contains(name, "*") {
		if p := index(name, 0); !slices.Contains(r.tellPatterns, p) {
			r.tellPatterns = append(r.tellPatterns, p)
		}
	} else {
		r.tells[http.CanonicalHeaderKey(name)] = struct{}{}
	}
	r.addInitial(name)
}

func (r *reader) addInitial(name string) {
	if strings.HasPrefix(name, "*") {
		for i := range r.initials {
			r.initials[i] = true
		}
		return
	}
	r.initials[http.CanonicalHeaderKey(name)[0]] = true
}

// pick is [Profile.pick] with what was looked up before.
func (r *reader) pick(resp *http.Response) *Profile {
	none := len(r.profile.Providers)
	if none == 0 {
		return r.profile
	}
	best := none
	if req := resp.Request; req != nil && req.URL != nil {
		best = r.byHost(strings.ToLower(req.URL.Hostname()))
	}
	if best == none {
		best = r.byMark(resp.Header)
	}
	if best == none {
		return r.profile
	}
	return &r.profile.Providers[best]
}

func (r *reader) byHost(host string) int {
	best := len(r.profile.Providers)
	if place, ok := r.hosts[host]; ok {
		best = place
	}
	for i := strings.IndexByte(host, '.'); i >= 0; {
		if place, ok := r.domains[host[i:]]; ok {
			best = min(best, place)
		}
		next := strings.IndexByte(host[i+1:], '.')
		if next < 0 {
			break
		}
		i += 1 + next
	}
	for i := range r.hostPatterns {
		if p := &r.hostPatterns[i]; p.place < best && p.matches(host) {
			best = p.place
		}
	}
	return best
}

func (r *reader) byMark(h http.Header) int {
	best := len(r.profile.Providers)
	for name := range h {
		if name == "" || !r.initials[name[0]] {
			continue
		}
		if place, ok := r.marks[name]; ok {
			best = min(best, place)
		}
		for i := range r.markPatterns {
			if p := &r.markPatterns[i]; p.place < best && p.matches(name) {
				best = p.place
			}
		}
	}
	return best
}

// told appends the names of the headers that may report limits.
func (r *reader) told(names []string, h http.Header) []string {
	for name := range h {
		if name == "" || !r.initials[name[0]] {
			continue
		}
		_, ok := r.tells[name]
		for i := 0; !ok && i < len(r.tellPatterns); i++ {
			ok = r.tellPatterns[i].matches(name)
		}
		if ok {
			names = append(names, name)
		}
	}
	return names
}

// read is [Profile.Read], without the words for a response that says nothing but
// what is left of the limits.
func (r *reader) read(resp *http.Response, q *Profile, body []byte, now time.Time) Signal {
	if len(body) > 0 || resp.StatusCode < 200 || resp.StatusCode >= 400 {
		return r.profile.readAs(q, resp, body, now, r.longWait)
	}
	s := Signal{Outcome: cruise.OutcomeSuccess, Profile: q.Name}
	var room [8]string
	if names := r.told(room[:0], resp.Header); len(names) > 0 && !cached(resp.Header) {
		reading := r.profile.reading(q, resp, now)
		reading.readLimits(names)
		reading.report(&s)
	}
	return s
}
