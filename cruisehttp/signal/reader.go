package signal

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/a7df5faa/cruise"
)

// A Reader reads many responses by one profile. It has prepared the profile, so that a response
// without limits costs next to nothing. It is safe for concurrent use.
type Reader struct {
	providers
	longWait time.Duration
	tells    names // of headers that report limits
	// ruled maps successful statuses, to which a rule without a body may apply, to headers of which
	// one must be there; "" is no such condition.
	ruled map[int][]string
}

// NewReader returns a Reader by p, which must not change any more. longWait is the wait above which
// a throttle counts as a used-up quota, and must be above 0; [DefaultLongWait] is usual. The error
// names the faults of p and longWait.
func NewReader(p Profile, longWait time.Duration) (*Reader, error) {
	if longWait <= 0 {
		return nil, fmt.Errorf("signal: long wait %v: want above 0", longWait)
	}
	if err := p.check(); err != nil {
		return nil, err
	}
	r := &Reader{providers: providersOf(&p), longWait: longWait, ruled: map[int][]string{}}
	r.tells.add("Ratelimit", 0)
	r.add(&p)
	r.add(&base)
	for i := range p.Providers {
		r.add(&p.Providers[i])
	}
	return r, nil
}

func (r *Reader) add(p *Profile) {
	r.addTells(p)
	for i := range p.Rules {
		for _, status := range p.Rules[i].Status {
			if status < 400 && !p.Rules[i].needsBody() {
				r.ruled[status] = append(r.ruled[status], p.Rules[i].mark())
			}
		}
	}
}

// mark returns the name of a header without which the rule does not hold; "" if there is none.
func (rule *Rule) mark() string {
	for _, condition := range rule.Header {
		if name, _, _ := strings.Cut(condition, ":"); !strings.HasPrefix(name, "!") {
			return http.CanonicalHeaderKey(name)
		}
	}
	return ""
}

// isRuled reports whether a rule may hold for a successful response.
func (r *Reader) isRuled(resp *http.Response) bool {
	for _, mark := range r.ruled[resp.StatusCode] {
		if mark == "" || resp.Header[mark] != nil {
			return true
		}
	}
	return false
}

// addTells adds the headers without which a profile finds no limit.
func (r *Reader) addTells(p *Profile) {
	for _, l := range p.Limits {
		for _, name := range [...]string{l.Remaining, l.Used, l.Reset, l.ResetAfter} {
			if name != "" {
				r.tells.add(http.CanonicalHeaderKey(name), 0)
			}
		}
	}
}

// told appends the names of the headers that may report limits.
func (r *Reader) told(names []string, h http.Header) []string {
	for name := range h {
		_, ok := r.tells.find(name)
		if !ok {
			_, ok = vendor(name)
		}
		if ok {
			names = append(names, name)
		}
	}
	return names
}

// Read is [Profile.Read]. It calls body once, to get the bytes of the body, if the body of resp can
// matter (see [Profile.WantsBody]). The Signal of a success that only reports limits has no Reason.
func (r *Reader) Read(resp *http.Response, now time.Time, body func() []byte) Signal {
	q := r.pick(resp)
	var head []byte
	if q.wantsBody(resp) {
		head = body()
	}
	if len(head) > 0 || resp.StatusCode < 200 || resp.StatusCode >= 400 || r.isRuled(resp) {
		return r.profile.readAs(q, resp, head, now, r.longWait)
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

// providers indexes the providers of a profile by their hosts and marks.
type providers struct {
	profile *Profile
	hosts   names // in lower case
	marks   names // of headers
}

func providersOf(p *Profile) providers {
	ps := providers{profile: p}
	for place, q := range p.Providers {
		for _, host := range q.Hosts {
			ps.hosts.add(strings.ToLower(host), place)
		}
		for _, mark := range q.Marks {
			ps.marks.add(http.CanonicalHeaderKey(mark), place)
		}
	}
	return ps
}

// pick returns the profile to read resp by.
func (ps *providers) pick(resp *http.Response) *Profile {
	if req := resp.Request; req != nil && req.URL != nil {
		if place, ok := ps.hosts.find(strings.ToLower(req.URL.Hostname())); ok {
			return &ps.profile.Providers[place]
		}
	}
	picked, first := ps.profile, len(ps.profile.Providers)
	for name := range resp.Header {
		if place, ok := ps.marks.find(name); ok && place < first {
			picked, first = &ps.profile.Providers[place], place
		}
	}
	return picked
}

// names holds names and patterns of names, each with the place of its provider.
type names struct {
	initials [256]bool      // first bytes that any has
	whole    map[string]int // and the text after the star of a pattern like "*.example.com"
	patterns []placed       // all others
}

type placed struct {
	pattern string
	front   string // the text before the first star
	place   int
}

// add adds a name, or a pattern, in the form in which names will be looked for. Places
// come in order; of the same name the first one counts.
func (n *names) add(name string, place int) {
	if strings.HasPrefix(name, "*") {
		for i := range n.initials {
			n.initials[i] = true
		}
	} else if name != "" {
		n.initials[name[0]] = true
	}
	if domain, ok := strings.CutPrefix(name, "*."); ok && !strings.Contains(domain, "*") {
		name = name[1:]
	}
	if strings.Contains(name, "*") {
		if !slices.ContainsFunc(n.patterns, func(p placed) bool { return p.pattern == name }) {
			front, _, _ := strings.Cut(name, "*")
			n.patterns = append(n.patterns, placed{name, front, place})
		}
		return
	}
	if n.whole == nil {
		n.whole = map[string]int{}
	}
	if _, ok := n.whole[name]; !ok {
		n.whole[name] = place
	}
}

// find returns the first place that a name has.
func (n *names) find(name string) (place int, ok bool) {
	if name == "" || !n.initials[name[0]] {
		return 0, false
	}
	place, ok = n.whole[name]
	for i := strings.IndexByte(name, '.'); i >= 0; {
		if p, has := n.whole[name[i:]]; has && (!ok || p < place) {
			place, ok = p, true
		}
		next := strings.IndexByte(name[i+1:], '.')
		if next < 0 {
			break
		}
		i += 1 + next
	}
	for i := range n.patterns {
		p := &n.patterns[i]
		if ok && p.place >= place {
			break
		}
		if strings.HasPrefix(name, p.front) && glob(p.pattern, name) {
			return p.place, true
		}
	}
	return place, ok
}
