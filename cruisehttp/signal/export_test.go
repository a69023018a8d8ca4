package signal

import (
	"net/http"
	"time"
)

// The parsers, for their tests.
var (
	Glob      = glob
	ParseSpan = parseSpan
	Base      = &base
)

const MaxWait = maxWait

// ParseList reports whether lines are a List of Items.
func ParseList(lines []string) error {
	_, err := parseSFList(lines)
	return err
}

// BodyField is one field of a body.
type BodyField struct{ Path, Value string }

// Fields flattens a body.
func Fields(body []byte) (fields []BodyField) { return FieldsOf(nil, body) }

// FieldsOf flattens the body of a response with a header.
func FieldsOf(h http.Header, body []byte) (fields []BodyField) {
	for _, f := range parseBody(h, body) {
		fields = append(fields, BodyField{f.path, f.value})
	}
	return fields
}

// Reading reads as a Transport does.
func Reading(p *Profile) func(*http.Response, []byte, time.Time) Signal {
	r, err := NewReader(*p, DefaultLongWait)
	if err != nil {
		panic(err)
	}
	return func(resp *http.Response, body []byte, now time.Time) Signal {
		return r.Read(resp, now, func() []byte { return body })
	}
}
