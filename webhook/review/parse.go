package review

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"
)

// Bounds of a review. The API server writes objects far below them, so a larger one was not
// written by it.
const (
	// maxDepth bounds the nesting. encoding/json stops at 10,000; no Kubernetes object comes
	// near 500.
	maxDepth = 500
	// maxValues bounds the values: this many, and one for every bytesPerValue bytes. An empty
	// object takes three bytes in the text, and more than eight times that in memory.
	maxValues     = 20_000
	bytesPerValue = 8
)

var (
	errNotUTF8 = errors.New("the body is not valid UTF-8")
	errCutOff  = errors.New("unexpected end of JSON")
	errDepth   = fmt.Errorf("the text is nested deeper than %d levels", maxDepth)
)

// document is a text with its values in their order.
type document struct {
	text   []byte
	values []value
}

// value is where a value stands in the text.
type value struct {
	start, end uint32
	// nameStart and nameEnd are the name of a member, without its quotes.
	nameStart, nameEnd uint32
	// next is the index behind the values within this one.
	next uint32
	// escaped says that the name holds escapes.
	escaped bool
}

// Parse returns the value that text is. The text must not change while the value is used.
func Parse(text []byte) (Value, error) {
	doc := &document{}
	if err := doc.parse(text); err != nil {
		return Value{}, err
	}
	return Value{doc: doc}, nil
}

// parse reads text into the document, whose memory is used again.
func (d *document) parse(text []byte) error {
	if uint64(len(text)) > math.MaxUint32 {
		return errors.New("the text is larger than 4 GiB")
	}
	p := parser{text: text, values: d.values[:0], limit: maxValues + len(text)/bytesPerValue}
	err := p.value(0, value{})
	if err == nil && p.space() < len(text) {
		err = p.unexpected()
	}
	d.text, d.values = text, p.values
	return err
}

// parser reads a text. At is the position that it has reached.
type parser struct {
	text   []byte
	at     int
	values []value
	limit  int
}

// value reads a value, which is in depth others; v has its name.
func (p *parser) value(depth int, v value) error {
	if p.space() == len(p.text) {
		return errCutOff
	}
	if len(p.values) == p.limit {
		return fmt.Errorf("the text has more than %d values in %d bytes", p.limit, len(p.text))
	}
	i := len(p.values)
	if i == cap(p.values) {
		p.grow()
	}
	v.start = position(p.at)
	p.values = append(p.values, v)
	var err error
	switch c := p.text[p.at]; {
	case c == '{' || c == '[':
		if depth == maxDepth {
			return errDepth
		}
		err = p.within(depth+1, c == '{')
	case c == '"':
		_, err = p.string()
	case c == '-' || '0' <= c && c <= '9':
		err = p.number()
	default:
		err = p.literal()
	}
	// Nobody reads managedFields, which are half of most objects.
	if string(p.text[v.nameStart:v.nameEnd]) == "managedFields" {
		p.values = p.values[:i+1]
	}
	p.values[i].end, p.values[i].next = position(p.at), position(len(p.values))
	return err
}

// position returns a position in the text, or the number of a value in it.
func position(n int) uint32 { return uint32(n) } //nolint:gosec // No text is larger.

// grow doubles the memory for values, which appending does not. The first one is enough for what
// API servers send.
func (p *parser) grow() {
	larger := make([]value, len(p.values), min(p.limit, max(64, len(p.text)/32, 2*len(p.values))))
	copy(larger, p.values)
	p.values = larger
}

// within reads the members of an object or the items of a list, from its opening bracket on.
func (p *parser) within(depth int, object bool) error {
	end := byte(']')
	if object {
		end = '}'
	}
	p.at++
	for first := true; ; first = false {
		if p.space() == len(p.text) {
			return errCutOff
		}
		switch c := p.text[p.at]; {
		case c == end:
			p.at++
			return nil
		case first:
		case c != ',':
			return p.unexpected()
		default:
			p.at++
		}
		var v value
		if object {
			var err error
			if v, err = p.name(); err != nil {
				return err
			}
		}
		if err := p.value(depth, v); err != nil {
			return err
		}
	}
}

// name reads the name of a member, and the colon behind it.
func (p *parser) name() (v value, err error) {
	if p.space() == len(p.text) {
		return v, errCutOff
	}
	if p.text[p.at] != '"' {
		return v, p.unexpected()
	}
	v.nameStart = position(p.at + 1)
	if v.escaped, err = p.string(); err != nil {
		return v, err
	}
	v.nameEnd = position(p.at - 1)
	if p.space() == len(p.text) {
		return v, errCutOff
	}
	if p.text[p.at] != ':' {
		return v, p.unexpected()
	}
	p.at++
	return v, nil
}

// plain are the bytes that stand for themselves in a string.
var plain = func() (all [256]bool) {
	for c := 0x20; c < utf8.RuneSelf; c++ {
		all[c] = c != '"' && c != '\\'
	}
	return all
}()

// string reads a string, and reports whether it has escapes.
func (p *parser) string() (escaped bool, err error) {
	for p.at++; p.at < len(p.text); {
		switch c := p.text[p.at]; {
		case plain[c]:
			p.at++
		case c == '"':
			p.at++
			return escaped, nil
		case c == '\\':
			escaped = true
			if err := p.escape(); err != nil {
				return escaped, err
			}
		case c < ' ':
			return escaped, p.unexpected()
		default:
			r, size := utf8.DecodeRune(p.text[p.at:])
			if r == utf8.RuneError && size == 1 {
				return escaped, errNotUTF8
			}
			p.at += size
		}
	}
	return escaped, errCutOff
}

// escape reads an escape in a string.
func (p *parser) escape() error {
	if p.at++; p.at == len(p.text) {
		return errCutOff
	}
	digits := 0
	switch p.text[p.at] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
	case 'u':
		digits = 4
	default:
		return p.unexpected()
	}
	p.at++
	for range digits {
		if p.at == len(p.text) {
			return errCutOff
		}
		if !isHex(p.text[p.at]) {
			return p.unexpected()
		}
		p.at++
	}
	return nil
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

// number reads a number that a decoder can hold.
func (p *parser) number() error {
	start := p.at
	if err := p.digitsOfNumber(); err != nil {
		return err
	}
	// Only one with an exponent, or with so many digits, is beyond what a float64 can be.
	text := p.text[start:p.at]
	if len(text) <= 300 && !bytes.ContainsAny(text, "eE") {
		return nil
	}
	if _, err := strconv.ParseFloat(string(text), 64); err != nil {
		return fmt.Errorf("the number %s is out of range", Clip(string(text)))
	}
	return nil
}

func (p *parser) digitsOfNumber() error {
	if p.text[p.at] == '-' {
		p.at++
	}
	if p.at < len(p.text) && p.text[p.at] == '0' {
		p.at++
	} else if err := p.digits(); err != nil {
		return err
	}
	if p.at < len(p.text) && p.text[p.at] == '.' {
		p.at++
		if err := p.digits(); err != nil {
			return err
		}
	}
	if p.at < len(p.text) && (p.text[p.at] == 'e' || p.text[p.at] == 'E') {
		p.at++
		if p.at < len(p.text) && (p.text[p.at] == '+' || p.text[p.at] == '-') {
			p.at++
		}
		return p.digits()
	}
	return nil
}

// digits reads at least one digit.
func (p *parser) digits() error {
	start := p.at
	for p.at < len(p.text) && '0' <= p.text[p.at] && p.text[p.at] <= '9' {
		p.at++
	}
	switch {
	case p.at > start:
		return nil
	case p.at == len(p.text):
		return errCutOff
	default:
		return p.unexpected()
	}
}

// literal reads true, false or null.
func (p *parser) literal() error {
	for _, word := range []string{"true", "false", "null"} {
		if len(p.text)-p.at >= len(word) && string(p.text[p.at:p.at+len(word)]) == word {
			p.at += len(word)
			return nil
		}
	}
	return p.unexpected()
}

// space passes over white space, and returns the position behind it.
func (p *parser) space() int {
	for p.at < len(p.text) && (p.text[p.at] == ' ' || p.text[p.at] == '\n' || p.text[p.at] == '\t' || p.text[p.at] == '\r') {
		p.at++
	}
	return p.at
}

func (p *parser) unexpected() error {
	return fmt.Errorf("invalid character %q at byte %d of the JSON", p.text[p.at], p.at)
}
