package signal

import (
	"encoding/base64"
	"errors"
	"strings"
)

// Structured Field Values (RFC 9651), as far as the RateLimit fields need
// them: lists of items and dictionaries, both with parameters. A field that
// breaks the grammar anywhere is ignored as a whole, so every value of the
// grammar must be understood, also in parameters that mean nothing here.

type sfKind uint8

const (
	sfInteger sfKind = iota + 1
	sfString
	sfBytes
	sfOther // types that no RateLimit field needs
)

// An sfItem is a bare item with its parameters, and a key in a dictionary.
type sfItem struct {
	key    string
	kind   sfKind
	num    int64  // of an Integer
	text   string // of a String or a Byte Sequence
	params []sfItem
}

// param returns the parameter of that name; of several, the last one counts.
func (it sfItem) param(key string) (sfItem, bool) {
	for i := len(it.params) - 1; i >= 0; i-- {
		if it.params[i].key == key {
			return it.params[i], true
		}
	}
	return sfItem{}, false
}

var errField = errors.New("malformed structured field")

type sfParser struct{ s string }

// parseSFList reads the lines of a List of Items.
func parseSFList(lines []string) ([]sfItem, error) {
	return parseSF(lines, (*sfParser).item)
}

// parseSFDict reads the lines of a Dictionary of Items.
func parseSFDict(lines []string) ([]sfItem, error) {
	return parseSF(lines, (*sfParser).member)
}

func parseSF(lines []string, member func(*sfParser) (sfItem, error)) ([]sfItem, error) {
	if len(lines) == 0 {
		return nil, nil
	}
	if _, all := within(lines); !all {
		return nil, errField
	}
	p := &sfParser{strings.Trim(strings.Join(lines, ", "), " ")}
	var items []sfItem
	for p.s != "" {
		it, err := member(p)
		if err != nil {
			return nil, err
		}
		items = append(items, it)
		p.s = strings.TrimLeft(p.s, " \t")
		if p.s == "" {
			break
		}
		if p.s[0] != ',' {
			return nil, errField
		}
		p.s = strings.TrimLeft(p.s[1:], " \t")
		if p.s == "" {
			return nil, errField // trailing comma
		}
	}
	return items, nil
}

func (p *sfParser) member() (sfItem, error) {
	key, err := p.key()
	if err != nil {
		return sfItem{}, err
	}
	it, err := p.value()
	if err != nil {
		return sfItem{}, err
	}
	it.key = key
	it.params, err = p.parameters()
	return it, err
}

// value reads the value after a key; a key without a value is true.
func (p *sfParser) value() (sfItem, error) {
	if p.next('=') {
		return p.bare()
	}
	return sfItem{kind: sfOther}, nil
}

func (p *sfParser) item() (sfItem, error) {
	it, err := p.bare()
	if err != nil {
		return sfItem{}, err
	}
	it.params, err = p.parameters()
	return it, err
}

func (p *sfParser) parameters() (params []sfItem, err error) {
	for p.next(';') {
		p.s = strings.TrimLeft(p.s, " ")
		key, err := p.key()
		if err != nil {
			return nil, err
		}
		value, err := p.value()
		if err != nil {
			return nil, err
		}
		value.key = key
		params = append(params, value)
	}
	return params, nil
}

// next consumes c if it comes next.
func (p *sfParser) next(c byte) bool {
	if p.s == "" || p.s[0] != c {
		return false
	}
	p.s = p.s[1:]
	return true
}

// take consumes n bytes.
func (p *sfParser) take(n int) string {
	taken := p.s[:n]
	p.s = p.s[n:]
	return taken
}

// span is the number of bytes at the front for which ok holds.
func (p *sfParser) span(ok func(byte) bool) int {
	n := 0
	for n < len(p.s) && ok(p.s[n]) {
		n++
	}
	return n
}

func isLower(c byte) bool { return c >= 'a' && c <= 'z' }
func isAlpha(c byte) bool { return isLower(c | 0x20) }

func (p *sfParser) key() (string, error) {
	if p.s == "" || !isLower(p.s[0]) && p.s[0] != '*' {
		return "", errField
	}
	return p.take(p.span(func(c byte) bool {
		return isLower(c) || isDigit(c) || strings.IndexByte("_-.*", c) >= 0
	})), nil
}

func (p *sfParser) bare() (sfItem, error) {
	if p.s == "" {
		return sfItem{}, errField
	}
	switch c := p.s[0]; {
	case c == '-' || isDigit(c):
		return p.number()
	case c == '"':
		p.next('"')
		text, err := p.quoted()
		return sfItem{kind: sfString, text: text}, err
	case c == '*' || isAlpha(c):
		p.take(p.span(func(c byte) bool {
			return isAlpha(c) || isDigit(c) || strings.IndexByte("!#$%&'*+-.^_`|~:/", c) >= 0
		}))
		return sfItem{kind: sfOther}, nil
	case c == ':':
		end := strings.IndexByte(p.s[1:], ':')
		if end < 0 {
			return sfItem{}, errField
		}
		encoded := p.take(end + 2)
		encoded = strings.TrimRight(encoded[1:len(encoded)-1], "=")
		raw, err := base64.RawStdEncoding.DecodeString(encoded)
		if err != nil {
			return sfItem{}, errField
		}
		return sfItem{kind: sfBytes, text: string(raw)}, nil
	case c == '?':
		if len(p.s) < 2 || p.s[1] != '0' && p.s[1] != '1' {
			return sfItem{}, errField
		}
		p.take(2)
		return sfItem{kind: sfOther}, nil
	case c == '@':
		p.next('@')
		it, err := p.number()
		if err != nil || it.kind != sfInteger {
			return sfItem{}, errField
		}
		return sfItem{kind: sfOther}, nil
	case strings.HasPrefix(p.s, `%"`):
		p.take(2)
		p.take(p.span(func(c byte) bool { return c >= 0x20 && c <= 0x7e && c != '"' }))
		if !p.next('"') {
			return sfItem{}, errField
		}
		return sfItem{kind: sfOther}, nil
	}
	return sfItem{}, errField // an inner list, which no RateLimit field has
}

// number reads an Integer of at most 15 digits or a Decimal of 12 and 3.
func (p *sfParser) number() (sfItem, error) {
	negative := p.next('-')
	n := p.span(isDigit)
	if n == 0 || n > 15 {
		return sfItem{}, errField
	}
	it := sfItem{kind: sfInteger}
	for _, c := range []byte(p.take(n)) {
		it.num = it.num*10 + int64(c-'0')
	}
	if negative {
		it.num = -it.num
	}
	if p.next('.') {
		frac := p.span(isDigit)
		if n > 12 || frac == 0 || frac > 3 {
			return sfItem{}, errField
		}
		p.take(frac)
		it.kind = sfOther
	}
	return it, nil
}

// quoted reads the rest of a String up to its closing quote.
func (p *sfParser) quoted() (string, error) {
	var b strings.Builder
	for i := 0; i < len(p.s); i++ {
		switch c := p.s[i]; {
		case c == '"':
			p.take(i + 1)
			return b.String(), nil
		case c == '\\':
			i++
			if i == len(p.s) || p.s[i] != '"' && p.s[i] != '\\' {
				return "", errField
			}
			b.WriteByte(p.s[i])
		case c < 0x20 || c > 0x7e:
			return "", errField
		default:
			b.WriteByte(c)
		}
	}
	return "", errField
}
