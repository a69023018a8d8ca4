package signal

import (
	"net/http"
	"time"
)

// The RateLimit and RateLimit-Policy fields of the IETF draft
// draft-ietf-httpapi-ratelimit-headers, in all forms that it has had:
//
//	-08 to -11  RateLimit: "default";r=50;t=30      RateLimit-Policy: "default";q=100;w=60
//	-07         RateLimit: limit=100, remaining=50, reset=5
//	            RateLimit-Policy: 100;w=10
//	-04 to -06  RateLimit-Limit, -Remaining, -Reset  RateLimit-Policy: 10;w=1, 50;w=60
//	to -03      the policies are part of RateLimit-Limit
//
// A field that breaks the grammar is ignored as a whole, as the draft demands.

// A policy is a member of RateLimit-Policy.
type policy struct {
	name, key string // key is the partition key, pk
	unit      string
	quota     int
	window    time.Duration
}

// policyUnits maps the values of the parameter qu to values of Limit.Unit.
var policyUnits = map[string]string{
	"requests": "", "content-bytes": "bytes", "bytes": "bytes", "concurrent-requests": "concurrent",
}

// readPolicies returns nil for a field that is absent or malformed.
func readPolicies(h http.Header) []policy {
	items, err := parseSFList(h.Values("RateLimit-Policy"))
	if err != nil {
		return nil
	}
	var policies []policy
	for _, it := range items[:min(len(items), maxLimits)] {
		p := policy{name: it.text}
		quota := it
		if it.kind == sfString {
			quota, _ = it.param("q")
		}
		if quota.kind != sfInteger || quota.num < 0 {
			return nil
		}
		p.quota = saturate(quota.num)
		if w, ok := it.param("w"); ok {
			if w.kind != sfInteger || w.num <= 0 {
				return nil
			}
			p.window = seconds(w)
		}
		if qu, ok := it.param("qu"); ok {
			if qu.kind != sfString {
				return nil
			}
			if unit, known := policyUnits[qu.text]; known {
				p.unit = unit
			} else {
				p.unit = qu.text
			}
		}
		var ok bool
		if p.key, ok = partition(it); !ok {
			return nil
		}
		policies = append(policies, p)
	}
	return policies
}

// rateLimits returns the limits of the RateLimit field.
func (r *reading) rateLimits() (limits []Limit) {
	lines := r.resp.Header.Values("RateLimit")
	items, err := parseSFList(lines)
	if err != nil {
		return r.rateLimitDict(lines)
	}
	for _, it := range items[:min(len(items), maxLimits)] {
		left, _ := it.param("r")
		if it.kind != sfString || left.kind != sfInteger || left.num < 0 {
			return r.rateLimitDict(lines)
		}
		l := Limit{Name: it.text, Remaining: saturate(left.num), Reset: -1}
		if t, ok := it.param("t"); ok {
			if t.kind != sfInteger || t.num < 0 {
				return nil
			}
			l.Reset = resetOf(t, r.clock)
		}
		key, ok := partition(it)
		if !ok {
			return nil
		}
		if p := policyOf(l.Name, key, r.policies); p != nil {
			l.Max, l.Window, l.Unit = p.quota, p.window, p.unit
		}
		limits = append(limits, l)
	}
	return limits
}

// policyOf returns the policy of that name and partition key, or else a policy of that name where
// only one of the two has a key.
func policyOf(name, key string, policies []policy) *policy {
	var loose *policy
	for i := range policies {
		switch p := &policies[i]; {
		case p.name != name:
		case p.key == key:
			return p
		case loose == nil && (p.key == "" || key == ""):
			loose = p
		}
	}
	return loose
}

// rateLimitDict reads the form of draft -07.
func (r *reading) rateLimitDict(lines []string) []Limit {
	items, err := parseSFDict(lines)
	if err != nil {
		return nil
	}
	l := Limit{Remaining: -1, Reset: -1}
	for _, it := range items {
		if it.key != "limit" && it.key != "remaining" && it.key != "reset" {
			continue
		}
		if it.kind != sfInteger || it.num < 0 {
			return nil
		}
		switch it.key {
		case "limit":
			if it.num == 0 {
				return nil // nothing is limited, so nothing is used up
			}
			l.Max = saturate(it.num)
		case "remaining":
			l.Remaining = saturate(it.num)
		case "reset":
			l.Reset = resetOf(it, r.clock)
		}
	}
	if l.Remaining < 0 {
		return nil
	}
	l.Window = windowOf(l.Max, r.policies)
	return []Limit{l}
}

// windowOf finds the window of an unnamed limit among unnamed policies.
func windowOf(limit int, policies []policy) time.Duration {
	for _, p := range policies {
		if p.name == "" && p.quota == limit {
			return p.window
		}
	}
	return 0
}

// partition returns the parameter pk. ok is false if pk is no byte sequence.
func partition(it sfItem) (string, bool) {
	pk, has := it.param("pk")
	return pk.text, !has || pk.kind == sfBytes
}

func seconds(it sfItem) time.Duration {
	if it.kind != sfInteger || it.num < 0 {
		return 0
	}
	return decimal{whole: uint64(it.num)}.times(time.Second)
}

// resetOf returns the time from now to the reset. The value is in seconds from now, or a Unix time
// if it is 28 years or more.
func resetOf(it sfItem, clock time.Time) time.Duration {
	return decimal{whole: uint64(it.num)}.reset(clock)
}
