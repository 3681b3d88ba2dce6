package cel

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	kjson "k8s.io/apimachinery/pkg/util/json"
)

// parts are the members of an object that an expression reads, by their names. Of nil parts it
// reads all. An expression cannot tell an object from one with these members alone.
type parts map[string]parts

// projection is what an expression reads of a variable. Projections with the same key are equal; the
// zero projection is that of all.
type projection struct {
	parts parts
	key   string
}

// projectionsOf returns what a checked expression reads of each variable.
func projectionsOf(checked *cel.Ast) map[string]projection {
	of := map[string]parts{}
	root := ast.NavigateAST(checked.NativeRep())
	for _, e := range ast.MatchDescendants(root, ast.KindMatcher(ast.IdentKind)) {
		name := variableOf(e)
		read, seen := of[name]
		if !seen {
			read = parts{}
		}
		of[name] = read.with(pathOf(e))
	}
	projections := map[string]projection{}
	for name, read := range of {
		projections[name] = projection{parts: read, key: read.key()}
	}
	return projections
}

// with returns the parts with all at a path. Nil parts have it.
func (p parts) with(path []string) parts {
	if len(path) == 0 || p == nil {
		return nil
	}
	within, seen := p[path[0]]
	if !seen {
		within = parts{}
	}
	p[path[0]] = within.with(path[1:])
	return p
}

func (p parts) key() string {
	if p == nil {
		return ""
	}
	var key strings.Builder
	for _, name := range slices.Sorted(maps.Keys(p)) {
		key.WriteString(strconv.Quote(name) + p[name].key())
	}
	return "{" + key.String() + "}"
}

// pathOf returns the names by which an expression descends from a variable.
func pathOf(variable ast.NavigableExpr) (path []string) {
	for {
		name, parent, ok := selected(variable)
		if !ok {
			return path
		}
		path, variable = append(path, name), parent
	}
}

// selected returns the name of the member that is read of a value, and the expression that reads
// it. It reports false where the value is read in another way.
func selected(value ast.NavigableExpr) (name string, by ast.NavigableExpr, ok bool) {
	parent, ok := value.Parent()
	if !ok {
		return "", nil, false
	}
	if parent.Kind() == ast.SelectKind {
		return parent.AsSelect().FieldName(), parent, true
	}
	if parent.Kind() != ast.CallKind || !slices.Contains([]string{operators.OptSelect, operators.Index, operators.OptIndex}, parent.AsCall().FunctionName()) {
		return "", nil, false
	}
	args := parent.AsCall().Args()
	if len(args) != 2 || args[1].Kind() != ast.LiteralKind {
		return "", nil, false
	}
	text, ok := args[1].AsLiteral().(types.String)
	return string(text), parent, ok
}

// decode decodes the parts of an object in JSON that was parsed before, as kjson does. What is no
// object it decodes as a whole.
func (p parts) decode(raw []byte) (any, error) {
	if p != nil {
		if object, ok := p.decodeObject(raw); ok {
			return object, nil
		}
	}
	var decoded any
	err := kjson.Unmarshal(raw, &decoded)
	return decoded, err
}

// decodeObject reports false for what is no object, and for what it cannot read. Of members with the
// same name the last one counts, as for kjson.
func (p parts) decodeObject(raw []byte) (object map[string]any, ok bool) {
	if raw, _ = cut(raw); len(raw) < 2 || raw[0] != '{' || raw[len(raw)-1] != '}' {
		return nil, false
	}
	object = map[string]any{}
	rest := raw[1 : len(raw)-1]
	for {
		var quoted, colon, value, comma []byte
		quoted, rest = cut(rest)
		if len(quoted) == 0 {
			return object, true
		}
		colon, rest = cut(rest)
		value, rest = cut(rest)
		comma, rest = cut(rest)
		name, ok := unquote(quoted)
		if !ok || string(colon) != ":" || len(value) == 0 || len(comma) > 0 && string(comma) != "," {
			return nil, false
		}
		if within, read := p[string(name)]; read {
			decoded, err := within.decode(value)
			if err != nil {
				return nil, false
			}
			object[string(name)] = decoded
		}
	}
}

// cut cuts the first value, or the comma or colon, off JSON; nothing where there is only white space.
func cut(text []byte) (first, rest []byte) {
	text = bytes.TrimLeft(text, " \t\r\n")
	depth := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			for i++; i < len(text) && text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		case ',', ':':
			if i > 0 && depth == 0 {
				return text[:i], text[i:]
			}
		case ' ', '\t', '\r', '\n':
			if depth == 0 {
				return text[:i], text[i:]
			}
			continue
		default:
			continue
		}
		if depth <= 0 {
			end := min(i+1, len(text))
			return text[:end], text[end:]
		}
	}
	return text, nil
}

// unquote returns the string that quoted is.
func unquote(quoted []byte) (text []byte, ok bool) {
	if n := len(quoted); n > 1 && quoted[0] == '"' && quoted[n-1] == '"' && bytes.IndexByte(quoted, '\\') < 0 && utf8.Valid(quoted) {
		return quoted[1 : n-1], true
	}
	var unescaped string
	err := json.Unmarshal(quoted, &unescaped)
	return []byte(unescaped), err == nil
}
