package signal

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"encoding/xml"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// MaxBody is the number of bytes of a body that are read at most: 64 KiB.
const MaxBody = 64 << 10

const (
	maxFields = 4096 // of a body; later fields are ignored
	maxDepth  = 32
	maxKey    = 128 // bytes of a name; longer ones are cut
)

// A field is one scalar of a JSON or XML body. Its path is made of the names
// that lead to it, in lower case; arrays add nothing to it. In
// {"error":{"errors":[{"reason":"x"}]}} "x" is at error.errors.reason.
type field struct{ path, value string }

// parseBody flattens JSON and XML. Any other body is one field without a path. The body may be cut
// off anywhere: the part before counts.
func parseBody(h http.Header, body []byte) []field {
	if len(body) > MaxBody {
		body = body[:MaxBody]
	}
	if coding := trim(h.Get("Content-Encoding")); equalFold(coding, "gzip") || equalFold(coding, "x-gzip") {
		body = gunzip(body)
	}
	body = bytes.TrimSpace(bytes.TrimPrefix(body, []byte("\ufeff")))
	if len(body) == 0 {
		return nil
	}
	var fields []field
	if hasPrefixFold(trim(h.Get("Content-Type")), "multipart/mixed") {
		fields = partFields(body)
	}
	switch body[0] {
	case '{', '[', '"':
		fields = jsonFields(body)
	case '<':
		if !hasPrefixFold(string(body[:min(len(body), 14)]), "<!doctype html") && !hasPrefixFold(string(body[:min(len(body), 5)]), "<html") {
			fields = xmlFields(body)
		}
	}
	if len(fields) == 0 {
		return []field{{value: string(body)}}
	}
	return fields
}

// gunzip unpacks a body if the caller asked for gzip itself: then net/http leaves the body packed.
func gunzip(body []byte) []byte {
	r, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		return body
	}
	// The end is missing if the body was cut. It counts like a shorter body.
	plain, _ := io.ReadAll(io.LimitReader(r, MaxBody))
	return plain
}

// partFields flattens the HTTP responses in the parts of a multipart body. A status line begins a
// response. Boundaries need not be known: a line that begins with "--" ends a part.
func partFields(body []byte) (fields []field) {
	const (
		outside = iota
		head
		content
	)
	state, start := outside, 0
	flush := func(end int) {
		if state == content {
			for _, f := range jsonFields(body[start:end]) {
				fields = append(fields, field{join("parts.body", f.path), f.value})
			}
		}
		state = outside
	}
	for at := 0; at < len(body) && len(fields) < maxFields; {
		end := len(body)
		if i := bytes.IndexByte(body[at:], '\n'); i >= 0 {
			end = at + i + 1
		}
		line := strings.TrimRight(string(body[at:min(end, at+maxLine)]), "\r\n")
		switch {
		case strings.HasPrefix(line, "--"):
			flush(at)
		case state != content && strings.HasPrefix(line, "HTTP/1."):
			_, status, _ := strings.Cut(line, " ")
			status, _, _ = strings.Cut(status, " ")
			fields = append(fields, field{"parts.status", status})
			state = head
		case state == head && line == "":
			state, start = content, end
		case state == head:
			name, value, _ := strings.Cut(line, ":")
			fields = append(fields, field{join("parts.headers", name), trim(value)})
		}
		at = end
	}
	flush(len(body))
	return fields[:min(len(fields), maxFields)]
}

// maxLine bounds the bytes that are read of a status line or a header of a part.
const maxLine = 512

func jsonFields(body []byte) []field {
	type frame struct {
		path   string
		object bool
		key    string // of the next value in an object
		isKey  bool   // the next token is a key
	}
	var fields []field
	stack := []frame{{}}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	for len(fields) < maxFields {
		token, err := dec.Token()
		if err != nil {
			break
		}
		top := &stack[len(stack)-1]
		if key, ok := token.(string); ok && top.isKey {
			top.key, top.isKey = key, false
			continue
		}
		path := top.path
		if top.object {
			path = join(path, top.key)
			top.isKey = true
		}
		value := ""
		switch v := token.(type) {
		case json.Delim:
			switch v {
			case '{', '[':
				if len(stack) == maxDepth {
					return fields
				}
				stack = append(stack, frame{path: path, object: v == '{', isKey: v == '{'})
			default:
				stack = stack[:len(stack)-1]
			}
			continue
		case string:
			value = v
		case json.Number:
			value = plain(v.String())
		case bool:
			value = "false"
			if v {
				value = "true"
			}
		default: // null
			continue
		}
		fields = append(fields, field{path, value})
	}
	return fields
}

// plain writes a number without an exponent, which JSON allows and headers don't.
func plain(number string) string {
	if strings.ContainsAny(number, "eE") {
		if f, err := strconv.ParseFloat(number, 64); err == nil {
			return strconv.FormatFloat(f, 'f', -1, 64)
		}
	}
	return number
}

func xmlFields(body []byte) []field {
	var fields []field
	var path []string // path[i] leads to the i-th open element
	var text strings.Builder
	dec := xml.NewDecoder(bytes.NewReader(body))
	dec.Strict = false
	dec.CharsetReader = func(_ string, r io.Reader) (io.Reader, error) { return r, nil }
	for len(fields) < maxFields && len(path) < maxDepth {
		token, err := dec.RawToken()
		if err != nil {
			break
		}
		switch t := token.(type) {
		case xml.StartElement:
			parent := ""
			if len(path) > 0 {
				parent = path[len(path)-1]
			}
			path = append(path, join(parent, t.Name.Local))
			text.Reset()
		case xml.CharData:
			text.Write(t)
		case xml.EndElement:
			if len(path) == 0 {
				return fields
			}
			if value := strings.TrimSpace(text.String()); value != "" {
				fields = append(fields, field{path[len(path)-1], value})
			}
			path = path[:len(path)-1]
			text.Reset()
		}
	}
	return fields
}

func join(path, name string) string {
	name = strings.ToLower(name[:min(len(name), maxKey)])
	if path == "" {
		return name
	}
	return path + "." + name
}

// atPath reports whether a field is at the path of a pattern: exactly there, at any depth for
// "*.path", or anywhere below for "path.*".
func (f field) atPath(pattern string) bool {
	rest, anywhere := strings.CutPrefix(pattern, "*.")
	return glob(pattern, f.path) || anywhere && glob(rest, f.path)
}

// name returns the last part of the path.
func (f field) name() string { return f.path[strings.LastIndexByte(f.path, '.')+1:] }

// glob reports whether s matches a pattern, in which "*" stands for any text, without regard to the
// case of ASCII letters.
func glob(pattern, s string) bool {
	p, i, star, mark := 0, 0, -1, 0
	if end, ok := strings.CutPrefix(pattern, "*"); ok && strings.IndexByte(end, '*') < 0 {
		return len(s) >= len(end) && glob(end, s[len(s)-len(end):])
	}
	for i < len(s) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, mark = p, i
			p++
		case p < len(pattern) && lower(pattern[p]) == lower(s[i]):
			p++
			i++
		case star >= 0:
			// Let the last star swallow one byte more.
			p = star + 1
			mark++
			i = mark
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}

func lower(c byte) byte {
	if c >= 'A' && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}
