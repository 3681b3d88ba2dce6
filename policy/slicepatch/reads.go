package slicepatch

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	celgo "github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
)

// reads are the attributes and the capacity that an expression reads of a device, beyond its
// driver and whether it can be allocated more than once. Where the expression does not show
// which, it reads all.
type reads struct {
	// id is the same for the same reads.
	id                   string
	attributes, capacity part
}

// part is the part of attributes or of capacity that is read.
type part struct {
	all   bool
	paths []path
}

// path is a value, or a whole domain if it has no id.
type path struct{ domain, id string }

func (p path) compare(other path) int {
	return cmp.Or(strings.Compare(p.domain, other.domain), strings.Compare(p.id, other.id))
}

// loops says how an expression loops over maps, whose keys come in another order each
// time.
type loops struct {
	// maps is set if it loops over what may be a map. The cost depends on how soon
	// the key comes that ends it.
	maps bool
	// lists is set if it makes a list of a map. The result may depend on the order then.
	lists bool
}

// analyze finds the reads and the loops of an expression.
func analyze(checked *celgo.Ast) (reads, loops) {
	a := analyzer{ast: checked.NativeRep(), variables: map[string]shape{}}
	a.read(a.visit(a.ast.Expr()))
	a.attributes.tidy()
	a.capacity.tidy()
	a.id = a.attributes.text() + "|" + a.capacity.text()
	return a.reads, a.loops
}

type analyzer struct {
	reads
	loops

	ast *ast.AST
	// variables are those of the macros around the expression that is visited.
	variables map[string]shape
}

// shape is the part of a device that an expression stands for.
type shape struct {
	kind shapeKind
	// part and path say which domains, domain or value.
	part *part
	path path
}

type shapeKind int

const (
	shapeOther   shapeKind = iota
	shapeDevice            // a device
	shapeDomains           // its attributes or its capacity, by domain
	shapeDomain            // the values of one domain, by name
	shapeValue             // one value; an attribute that can be looped over is a list
	shapeList              // surely no map
)

// read takes note of a part of the device that is used as a whole.
func (a *analyzer) read(s shape) {
	switch s.kind {
	case shapeDevice:
		a.attributes.all, a.capacity.all = true, true
	case shapeDomains:
		s.part.all = true
	case shapeDomain, shapeValue:
		s.part.paths = append(s.part.paths, s.path)
	case shapeOther, shapeList:
	}
}

// visit returns the shape of an expression. The parts of the device that the expression uses and
// does not stand for are read.
func (a *analyzer) visit(e ast.Expr) shape {
	switch e.Kind() {
	case ast.IdentKind:
		if bound := a.variables[e.AsIdent()]; bound.kind != shapeOther {
			return bound
		}
		if a.ast.GetType(e.ID()).Kind() == types.StructKind {
			return shape{kind: shapeDevice}
		}
	case ast.SelectKind:
		return a.element(a.visit(e.AsSelect().Operand()), e.AsSelect().FieldName(), true, operators.OptSelect)
	case ast.CallKind:
		return a.visitCall(e.AsCall())
	case ast.ComprehensionKind:
		return a.visitLoop(e.AsComprehension())
	case ast.ListKind, ast.MapKind, ast.StructKind, ast.LiteralKind, ast.UnspecifiedExprKind:
		for _, child := range ast.NavigateExpr(a.ast, e).Children() {
			a.read(a.visit(child))
		}
	}
	return shape{}
}

func (a *analyzer) visitCall(call ast.CallExpr) shape {
	args := call.Args()
	switch name := call.FunctionName(); {
	case name == operators.Index || name == operators.OptIndex || name == operators.OptSelect:
		of := a.visit(args[0])
		key, constant := literal(args[1])
		if !constant {
			a.read(a.visit(args[1]))
		}
		return a.element(of, key, constant, name)
	case name == operators.In:
		of := a.visit(args[1])
		if key, constant := literal(args[0]); constant && of.kind == shapeDomain {
			of = a.element(of, key, true, name)
		}
		a.read(of)
		a.read(a.visit(args[0]))
		return shape{}
	case name == "value" && call.IsMemberFunction():
		return a.visit(call.Target())
	case call.IsMemberFunction():
		args = append([]ast.Expr{call.Target()}, args...)
	}
	lists := call.FunctionName() == "orValue"
	for _, arg := range args {
		s := a.visit(arg)
		a.read(s)
		lists = lists && a.isList(arg, s)
	}
	if lists {
		return shape{kind: shapeList}
	}
	return shape{}
}

// element returns the shape of a field or of an element by a key. One by a key that is not constant
// may be any, so that all are read.
func (a *analyzer) element(of shape, key string, constant bool, function string) shape {
	switch {
	case of.kind == shapeDevice && key == "attributes":
		return shape{kind: shapeDomains, part: &a.attributes}
	case of.kind == shapeDevice && key == "capacity":
		return shape{kind: shapeDomains, part: &a.capacity}
	case of.kind == shapeDevice && (key == "driver" || key == "allowMultipleAllocations"):
		return shape{}
	case of.kind == shapeDomains && function == operators.Index:
		of.part.all = of.part.all || !constant
		return shape{kind: shapeDomain, part: of.part, path: path{domain: key}}
	case of.kind == shapeDomain:
		return shape{kind: shapeValue, part: of.part, path: path{domain: of.path.domain, id: key}}
	default:
		a.read(of)
		return shape{}
	}
}

// visitLoop follows a loop. The variable of cel.bind, and of macros that are made of it, is the
// accumulator of a loop over nothing, and stands for the first value.
func (a *analyzer) visitLoop(loop ast.ComprehensionExpr) shape {
	over, first := a.visit(loop.IterRange()), a.visit(loop.AccuInit())
	a.read(over)
	a.read(first)
	if !a.isList(loop.IterRange(), over) {
		a.maps = true
		a.lists = a.lists || loop.AccuInit().Kind() == ast.ListKind
	}
	outside := a.variables
	a.variables = maps.Clone(outside)
	a.variables[loop.AccuVar()] = first
	a.variables[loop.IterVar()], a.variables[loop.IterVar2()] = shape{}, shape{}
	for _, e := range []ast.Expr{loop.LoopCondition(), loop.LoopStep(), loop.Result()} {
		a.read(a.visit(e))
	}
	a.variables = outside
	return shape{}
}

// isList reports whether an expression is surely no map.
func (a *analyzer) isList(e ast.Expr, s shape) bool {
	return s.kind == shapeList || s.kind == shapeValue && s.part == &a.attributes || a.ast.GetType(e.ID()).Kind() == types.ListKind
}

func literal(e ast.Expr) (string, bool) {
	text, ok := e.AsLiteral().(types.String)
	return string(text), ok
}

// tidy sorts, and leaves out duplicates and values that are read with their domain.
func (p *part) tidy() {
	if p.all {
		p.paths = nil
		return
	}
	slices.SortFunc(p.paths, path.compare)
	kept := p.paths[:0]
	for _, read := range p.paths {
		if n := len(kept); n == 0 || kept[n-1] != read && kept[n-1] != (path{domain: read.domain}) {
			kept = append(kept, read)
		}
	}
	p.paths = kept
}

// text is the same for the same parts, and for no others: a star is in no quotes.
func (p *part) text() string {
	if p.all {
		return "*"
	}
	return fmt.Sprintf("%q", p.paths)
}
