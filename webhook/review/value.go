package review

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"

	kjson "sigs.k8s.io/json"
)

// Value is a value of a text that was parsed. The zero Value is nothing, as what an object does
// not have.
type Value struct {
	doc *document
	i   uint32
}

// Raw returns the text of the value, which stays part of the whole text; nil for nothing.
func (v Value) Raw() json.RawMessage {
	if v.doc == nil {
		return nil
	}
	own := v.own()
	return v.doc.text[own.start:own.end:own.end]
}

// Exists reports whether there is a value, which may be null.
func (v Value) Exists() bool { return v.doc != nil }

// IsNull reports whether the value is null or nothing.
func (v Value) IsNull() bool { return v.doc == nil || v.doc.text[v.own().start] == 'n' }

func (v Value) own() *value { return &v.doc.values[v.i] }

// Size returns how many values there are within the value, and itself; 0 for null and nothing.
// Decoding turns each into memory of fixed size, so their number bounds what decoding costs.
func (v Value) Size() int {
	if v.IsNull() {
		return 0
	}
	return int(v.own().next - v.i)
}

// opens reports whether the value is an object or a list, by the bracket that it opens with.
func (v Value) opens(bracket byte) bool { return v.doc.text[v.own().start] == bracket }

// within yields the members or the items of the value.
func (v Value) within() iter.Seq[Value] {
	return func(yield func(Value) bool) {
		for i, end := v.i+1, v.own().next; i < end; i = v.doc.values[i].next {
			if !yield(Value{v.doc, i}) {
				return
			}
		}
	}
}

// name returns the name of a member.
func (v Value) name() string {
	own := v.own()
	name := v.doc.text[own.nameStart:own.nameEnd]
	if !own.escaped {
		return string(name)
	}
	return unquote(v.doc.text[own.nameStart-1 : own.nameEnd+1])
}

// is reports whether the value is the member with this name.
func (v Value) is(name string) bool {
	if own := v.own(); !own.escaped {
		return string(v.doc.text[own.nameStart:own.nameEnd]) == name
	}
	return v.name() == name
}

// unquote returns the string that quoted is, which was parsed.
func unquote(quoted []byte) string {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return string(quoted[1 : len(quoted)-1])
	}
	var text string
	_ = json.Unmarshal(quoted, &text)
	return text
}

// path returns where the value stands: "request.oldObject.spec". The object of a request is not
// named: "spec" is that of the object that is to be stored.
func (v Value) path() string {
	if v.doc == nil {
		return ""
	}
	var path strings.Builder
	for at := uint32(0); at != v.i; {
		n := 0
		for child := range (Value{v.doc, at}).within() {
			if v.i < child.own().next {
				if (Value{v.doc, at}).opens('[') {
					fmt.Fprintf(&path, "[%d]", n)
				} else {
					path.WriteString("." + Clip(child.name()))
				}
				at = child.i
				break
			}
			n++
		}
	}
	return strings.TrimPrefix(strings.TrimPrefix(path.String(), "."), "request.object.")
}

// BadError says that an object does not decode, or not within the bounds: the API server would
// not send it. Its text is safe to show.
type BadError struct{ Err error }

func (e *BadError) Error() string { return e.Err.Error() }
func (e *BadError) Unwrap() error { return e.Err }

// Fields reads fields of values. What is null or not there reads as nothing, as by a decoder.
// The first error stays, and what is read after it means nothing. The zero Fields is ready to
// use.
type Fields struct{ err error }

// Err returns a BadError that names the first field that could not be read; nil for none.
func (f *Fields) Err() error {
	if f.err == nil {
		return nil
	}
	return &BadError{f.err}
}

// Fail notes that a value cannot be read, unless an earlier one could not.
func (f *Fields) Fail(v Value, err error) {
	if f.err != nil {
		return
	}
	if path := v.path(); path != "" {
		err = fmt.Errorf("decode %s: %w", path, err)
	}
	f.err = err
}

var (
	errNotObject  = errors.New("not an object")
	errNotList    = errors.New("not a list")
	errNotString  = errors.New("not a string")
	errNotBool    = errors.New("neither true nor false")
	errNotInteger = errors.New("not an integer of 64 bits")
)

// At returns the value at a path in v. Names are compared with their case. A name of the path
// that stands twice in an object is an error: the API server could have read the other one.
func (f *Fields) At(v Value, path ...string) Value {
	for _, name := range path {
		if f.isNone(v, '{', errNotObject) {
			return Value{}
		}
		var found Value
		for child := range v.within() {
			if !child.is(name) {
				continue
			}
			if found.doc != nil {
				f.Fail(child, fmt.Errorf("duplicate field %q", name))
			}
			found = child
		}
		v = found
	}
	return v
}

// Text returns the string at a path in v.
func (f *Fields) Text(v Value, path ...string) string {
	v = f.At(v, path...)
	if f.isNone(v, '"', errNotString) {
		return ""
	}
	return unquote(v.Raw())
}

// Bool returns the boolean at a path in v.
func (f *Fields) Bool(v Value, path ...string) bool {
	v = f.At(v, path...)
	switch string(v.Raw()) {
	case "true":
		return true
	case "false", "null", "":
	default:
		f.Fail(v, errNotBool)
	}
	return false
}

// Integer returns the integer at a path in v; nil for nothing.
func (f *Fields) Integer(v Value, path ...string) *int64 {
	v = f.At(v, path...)
	if v.IsNull() {
		return nil
	}
	n, err := strconv.ParseInt(string(v.Raw()), 10, 64)
	if err != nil {
		f.Fail(v, errNotInteger)
		return nil
	}
	return &n
}

// isNone reports whether v is null, nothing, or not what it should be, by the character that opens
// it.
func (f *Fields) isNone(v Value, bracket byte, not error) bool {
	if v.IsNull() {
		return true
	}
	if !v.opens(bracket) {
		f.Fail(v, not)
	}
	return !v.opens(bracket)
}

// Items yields the items of the list at a path in v, with their index.
func (f *Fields) Items(v Value, path ...string) iter.Seq2[int, Value] {
	v = f.At(v, path...)
	return func(yield func(int, Value) bool) {
		if f.isNone(v, '[', errNotList) {
			return
		}
		n := 0
		for item := range v.within() {
			if !yield(n, item) {
				return
			}
			n++
		}
	}
}

// Members yields the members of the object at a path in v, with their names. A name twice is an
// error.
func (f *Fields) Members(v Value, path ...string) iter.Seq2[string, Value] {
	v = f.At(v, path...)
	return func(yield func(string, Value) bool) {
		if f.isNone(v, '{', errNotObject) {
			return
		}
		names := make(map[string]struct{})
		for member := range v.within() {
			name := member.name()
			if _, twice := names[name]; twice {
				f.Fail(member, fmt.Errorf("duplicate field %q", Clip(name)))
				return
			}
			names[name] = struct{}{}
			if !yield(name, member) {
				return
			}
		}
	}
}

// Texts returns the object of strings at a path in v, of bounded size; nil for nothing.
func (f *Fields) Texts(v Value, path ...string) map[string]string {
	v = f.At(v, path...)
	if v.IsNull() || !f.Fits(v) {
		return nil
	}
	all := make(map[string]string, min(v.Size(), 64))
	for name, member := range f.Members(v) {
		all[name] = f.Text(member)
	}
	return all
}

// fewValues bounds the values in a field that is decoded: this many, and one more for every
// forty bytes. A list of empty objects takes three bytes an entry in JSON and eighty in memory,
// and a map with short keys is worse.
const fewValues = 10_000

// Into decodes the value at a path in v as Kubernetes does, of bounded size. Into stays as it is
// for nothing.
func (f *Fields) Into(into any, v Value, path ...string) { f.IntoWithin(fewValues, into, v, path...) }

// IntoWithin is Into for a value that may hold most values, and one more for every forty bytes.
func (f *Fields) IntoWithin(most int, into any, v Value, path ...string) {
	v = f.At(v, path...)
	if v.IsNull() || !f.fits(v, most) {
		return
	}
	if err := Unmarshal(v.Raw(), into); err != nil {
		f.Fail(v, err)
	}
}

// Whole decodes an object of any size within the bounds of the text.
func (f *Fields) Whole(into any, v Value) {
	if err := Unmarshal(v.Raw(), into); err != nil {
		f.Fail(v, err)
	}
}

// Fits reports whether a value is of bounded size: as much as Into decodes.
func (f *Fields) Fits(v Value) bool { return f.fits(v, fewValues) }

func (f *Fields) fits(v Value, most int) bool {
	n, limit := v.Size(), most+len(v.Raw())/40
	if n > limit {
		f.Fail(v, fmt.Errorf("holds %d values in %d bytes, at most %d are read", n, len(v.Raw()), limit))
	}
	return n <= limit
}

// Unmarshal decodes text into value: names are compared with their case, a name twice is an
// error, and unknown names are ignored (a newer API server has more fields).
func Unmarshal(text []byte, value any) error {
	duplicates, err := kjson.UnmarshalStrict(text, value, kjson.DisallowDuplicateFields)
	if err != nil {
		return err
	}
	return errors.Join(duplicates...)
}

// Clip shortens a value that comes from outside for an error message.
func Clip(s string) string {
	const limit = 64
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + "..."
}
