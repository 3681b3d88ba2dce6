package cel

import (
	"bytes"
	"encoding/json"
	"fmt"
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

// projectionsOf returns what a checked expression reads of each variable. One of a macro that is called
// like one of ours counts as ours, which errs to the safe side; ours is then written with a dot
// before it, which stays in the checked expression.
func projectionsOf(checked *cel.Ast) map[string]projection {
	variables := parts{}
	for _, e := range nodesOf(checked, ast.IdentKind) {
		path := []string{strings.TrimPrefix(e.AsIdent(), ".")}
		for name, by := selected(e); by != nil; name, by = selected(by) {
			path = append(path, name)
		}
		variables.with(path)
	}
	projections := make(map[string]projection, len(variables))
	for name, read := range variables {
		p := projection{parts: read}
		if read != nil {
			p.key = fmt.Sprintf("%q", read)
		}
		projections[name] = p
	}
	return projections
}

// nodesOf returns the nodes of a kind in an expression.
func nodesOf(expression *cel.Ast, kind ast.ExprKind) []ast.NavigableExpr {
	return ast.MatchDescendants(ast.NavigateAST(expression.NativeRep()), ast.KindMatcher(kind))
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

// selected returns the name of the member that is read of a value, and the expression that reads
// it: none where the value is read in another way.
func selected(value ast.NavigableExpr) (name string, by ast.NavigableExpr) {
	parent, ok := value.Parent()
	switch {
	case !ok:
		return "", nil
	case parent.Kind() == ast.SelectKind:
		return parent.AsSelect().FieldName(), parent
	}
	switch call := parent.AsCall(); call.FunctionName() {
	case operators.OptSelect, operators.Index, operators.OptIndex:
		if text, ok := call.Args()[1].AsLiteral().(types.String); ok {
			return string(text), parent
		}
	}
	return "", nil
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
	if raw = bytes.TrimSpace(raw); len(raw) < 2 || raw[0] != '{' || raw[len(raw)-1] != '}' {
		return nil, false
	}
	object = map[string]any{}
	for quoted, rest := cut(raw[1 : len(raw)-1]); len(quoted) > 0; quoted, rest = cut(rest) {
		var value []byte
		_, rest = cut(rest) // the colon
		value, rest = cut(rest)
		_, rest = cut(rest) // the comma
		name, ok := unquote(quoted)
		if !ok {
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
	return object, true
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
		case ',', ':', ' ', '\t', '\r', '\n':
			if depth == 0 {
				end := max(i, 1)
				return text[:end], text[end:]
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
