package slicepatch

import (
	"slices"
	"strconv"
	"strings"

	celgo "github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
)

// reads is what an expression looks at in a device, beyond its driver and whether it can
// be allocated more than once. Where that cannot be told from the expression it is all.
type reads struct {
	// id is the same for the same reads.
	id                   string
	attributes, capacity part
}

// part is what is read of attributes or of capacity.
type part struct {
	all   bool
	paths []path
}

// path is a value, or a whole domain if it has no id.
type path struct{ domain, id string }

// readsOf finds what an expression reads. A variable of a macro that is called device
// counts as the device, which errs to the safe side.
func readsOf(checked *celgo.Ast) reads {
	var r reads
	for _, e := range ast.MatchDescendants(ast.NavigateAST(checked.NativeRep()), ast.KindMatcher(ast.IdentKind)) {
		if strings.TrimPrefix(e.AsIdent(), ".") == "device" {
			r.add(e)
		}
	}
	r.attributes.tidy()
	r.capacity.tidy()
	r.id = r.attributes.text() + "|" + r.capacity.text()
	return r
}

// add takes in one place where the device is mentioned.
func (r *reads) add(device ast.NavigableExpr) {
	field, parent, ok := selected(device)
	switch {
	case ok && (field == "driver" || field == "allowMultipleAllocations"):
	case ok && field == "attributes":
		r.attributes.add(parent)
	case ok && field == "capacity":
		r.capacity.add(parent)
	default:
		r.attributes.all, r.capacity.all = true, true
	}
}

// add takes in one place where a map of domains is mentioned.
func (p *part) add(domains ast.NavigableExpr) {
	domain, values, ok := indexed(domains)
	if !ok {
		p.all = true
		return
	}
	id, _, ok := selected(values)
	if !ok {
		id, _, ok = indexed(values)
	}
	if !ok {
		id, ok = asked(values)
	}
	if !ok {
		id = "" // The domain as a whole.
	}
	p.paths = append(p.paths, path{domain: domain, id: id})
}

// selected returns the field that is taken of an expression with a dot, and where; also
// by has().
func selected(e ast.NavigableExpr) (field string, at ast.NavigableExpr, ok bool) {
	parent, ok := e.Parent()
	if !ok || parent.Kind() != ast.SelectKind {
		return "", nil, false
	}
	return parent.AsSelect().FieldName(), parent, true
}

// indexed returns the constant by which an element is taken of an expression, and where.
func indexed(e ast.NavigableExpr) (key string, at ast.NavigableExpr, ok bool) {
	args, parent, ok := called(e, operators.Index)
	if !ok || args[0].ID() != e.ID() {
		return "", nil, false
	}
	key, ok = constant(args[1])
	return key, parent, ok
}

// asked returns the constant that is asked for where it may be missing: m.?id, m[?"id"]
// and "id" in m.
func asked(e ast.NavigableExpr) (key string, ok bool) {
	if args, _, ok := called(e, operators.OptSelect, operators.OptIndex); ok && args[0].ID() == e.ID() {
		return constant(args[1])
	}
	if args, _, ok := called(e, operators.In); ok && args[1].ID() == e.ID() {
		return constant(args[0])
	}
	return "", false
}

// called returns the two arguments of the call in which the expression is one.
func called(e ast.NavigableExpr, functions ...string) ([]ast.Expr, ast.NavigableExpr, bool) {
	parent, ok := e.Parent()
	if !ok || parent.Kind() != ast.CallKind || !slices.Contains(functions, parent.AsCall().FunctionName()) {
		return nil, nil, false
	}
	args := parent.AsCall().Args()
	return args, parent, len(args) == 2
}

// constant returns the text of a literal. An empty one names nothing, and would be
// taken for a whole domain, of which it is part.
func constant(e ast.Expr) (string, bool) {
	if e.Kind() != ast.LiteralKind {
		return "", false
	}
	text, ok := e.AsLiteral().(types.String)
	return string(text), ok
}

// tidy sorts, and leaves out what is read otherwise.
func (p *part) tidy() {
	if p.all {
		p.paths = nil
		return
	}
	slices.SortFunc(p.paths, func(a, b path) int {
		if c := strings.Compare(a.domain, b.domain); c != 0 {
			return c
		}
		return strings.Compare(a.id, b.id)
	})
	p.paths = slices.Compact(p.paths)
	whole := ""
	p.paths = slices.DeleteFunc(p.paths, func(read path) bool {
		if read.id == "" {
			whole = read.domain
		}
		return read.id != "" && read.domain == whole && whole != ""
	})
}

// text is the same for the same parts, and for no others: what is not in quotes is ours.
func (p *part) text() string {
	if p.all {
		return "*"
	}
	var b []byte
	for _, read := range p.paths {
		b = strconv.AppendQuote(strconv.AppendQuote(b, read.domain), read.id)
	}
	return string(b)
}
