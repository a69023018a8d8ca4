package cruisehttp

import (
	"net/http"
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
	tellPatterns []string
	initials     [256]bool // first bytes of all these names
}

// indexed is a pattern of the provider at that place.
type indexed struct {
	pattern string
	place   int
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
			r.hostPatterns = append(r.hostPatterns, indexed{pattern, place})
		}
	}
	for _, pattern := range q.Marks {
		if strings.Contains(pattern, "*") {
			r.markPatterns = append(r.markPatterns, indexed{pattern, place})
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
		r.tellPatterns = append(r.tellPatterns, name)
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
	for _, p := range r.hostPatterns {
		if p.place < best && glob(p.pattern, host) {
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
		for _, p := range r.markPatterns {
			if p.place < best && glob(p.pattern, name) {
				best = p.place
			}
		}
	}
	return best
}

// silent tells that no header reports a limit.
func (r *reader) silent(h http.Header) bool {
	for name := range h {
		if name == "" || !r.initials[name[0]] {
			continue
		}
		if _, ok := r.tells[name]; ok {
			return false
		}
		for _, pattern := range r.tellPatterns {
			if glob(pattern, name) {
				return false
			}
		}
	}
	return true
}

// read is [Profile.Read], without the words for a response that says nothing but
// what is left of the limits.
func (r *reader) read(resp *http.Response, q *Profile, body []byte, now time.Time) Signal {
	if len(body) > 0 || resp.StatusCode < 200 || resp.StatusCode >= 400 {
		return r.profile.readAs(q, resp, body, now, r.longWait)
	}
	s := Signal{Outcome: cruise.OutcomeSuccess, Profile: q.Name}
	if !r.silent(resp.Header) && !cached(resp.Header) {
		reading := r.profile.reading(q, resp, now)
		reading.readLimits()
		reading.report(&s)
	}
	return s
}
