package signal

import (
	"fmt"
	"slices"
	"strings"
)

// match returns the first rule that holds, the provider's rules before the rules for every server,
// and the part of the response that decided; "" means the status.
func (r *reading) match() (*Rule, string) {
	for _, p := range r.layers {
		for i := range p.Rules {
			if why, ok := r.holds(&p.Rules[i]); ok {
				return &p.Rules[i], why
			}
		}
	}
	return nil, ""
}

// holds checks the cheap conditions first.
func (r *reading) holds(rule *Rule) (why string, ok bool) {
	status := r.resp.StatusCode
	if len(rule.Status) == 0 && status < 400 || len(rule.Status) > 0 && !slices.Contains(rule.Status, status) {
		return "", false
	}
	if rule.Path != "" && (r.resp.Request == nil || r.resp.Request.URL == nil || !glob(rule.Path, r.resp.Request.URL.Path)) {
		return "", false
	}
	if status < 400 && r.fields == nil && rule.needsBody() {
		return "", false
	}
	if rule.Spent {
		if !slices.ContainsFunc(r.limits, Limit.spent) {
			return "", false
		}
		why = "nothing remaining"
	}
	for _, condition := range rule.Header {
		if absent, not := strings.CutPrefix(condition, "!"); not {
			if hasHeader(r.resp.Header, absent) {
				return "", false
			}
			continue
		}
		if !headerIs(r.resp.Header, condition) {
			return "", false
		}
		name, _, _ := strings.Cut(condition, ":")
		why = "header " + name
	}
	if len(rule.Field) > 0 {
		i := slices.IndexFunc(r.fields, func(f field) bool { return slices.ContainsFunc(rule.Field, f.atPath) })
		if i < 0 {
			return "", false
		}
		why = "field " + r.fields[i].path
	}
	if len(rule.With) > 0 {
		if _, found := r.findCode(rule.With); !found {
			return "", false
		}
	}
	if len(rule.Code) > 0 {
		code, found := r.findCode(rule.Code)
		if !found {
			return "", false
		}
		why = fmt.Sprintf("code %q", code)
	}
	if len(rule.Text) > 0 {
		pattern, found := r.findText(rule.Text)
		if !found {
			return "", false
		}
		if len(rule.Code) == 0 {
			why = fmt.Sprintf("text %q", strings.Trim(pattern, "*"))
		}
	}
	return why, true
}

func (rule *Rule) needsBody() bool {
	return len(rule.Code) > 0 || len(rule.With) > 0 || len(rule.Text) > 0 || len(rule.Field) > 0
}

// findCode finds a code that one of the patterns matches.
func (r *reading) findCode(patterns []string) (string, bool) {
	for _, c := range r.codes {
		for _, pattern := range patterns {
			name, value, qualified := strings.Cut(pattern, "=")
			if !qualified {
				name, value = c.path, pattern
			}
			if strings.EqualFold(name, c.path) && glob(value, c.value) {
				return c.value, true
			}
		}
	}
	return "", false
}

func (r *reading) findText(patterns []string) (string, bool) {
	for _, text := range r.texts {
		for _, pattern := range patterns {
			if glob(pattern, text) {
				return pattern, true
			}
		}
	}
	return "", false
}
