package slicepatch

import (
	celgo "github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
)

// loops says how an expression loops over maps, whose keys come in another order each
// time.
type loops struct {
	// maps is set if it loops over what may be a map. What that costs depends on how soon
	// the key comes that ends it.
	maps bool
	// lists is set if it makes a list of one. What it says may depend on the order then.
	lists bool
}

func loopsOf(checked *celgo.Ast) loops {
	var l loops
	for _, e := range ast.MatchDescendants(ast.NavigateAST(checked.NativeRep()), ast.KindMatcher(ast.ComprehensionKind)) {
		if !isList(e.Children()[0]) {
			l.maps = true
			l.lists = l.lists || e.AsComprehension().AccuInit().Kind() == ast.ListKind
		}
	}
	return l
}

// isList reports whether an expression is surely no map. Attributes have no type, but are
// lists where they can be looped over.
func isList(e ast.NavigableExpr) bool {
	e = bound(e)
	if e.Type().Kind() == types.ListKind {
		return true
	}
	parts := e.Children()
	if e.Kind() == ast.SelectKind {
		return isDomain(parts[0])
	}
	if e.Kind() != ast.CallKind {
		return false
	}
	switch e.AsCall().FunctionName() {
	case operators.Index, operators.OptSelect, operators.OptIndex:
		return isDomain(parts[0])
	case "value":
		return isList(parts[0])
	case "orValue":
		return isList(parts[0]) && isList(parts[1])
	default:
		return false
	}
}

// isDomain reports whether an expression is the attributes of a domain.
func isDomain(e ast.NavigableExpr) bool {
	e = bound(e)
	if e.Kind() != ast.CallKind || e.AsCall().FunctionName() != operators.Index {
		return false
	}
	domains := bound(e.Children()[0])
	return domains.Kind() == ast.SelectKind && domains.AsSelect().FieldName() == "attributes" &&
		domains.Children()[0].Type().Kind() == types.StructKind
}

// bound returns what a variable of cel.bind, and of macros that are made of it, stands
// for, and any other expression as it is.
func bound(e ast.NavigableExpr) ast.NavigableExpr {
	for e.Kind() == ast.IdentKind {
		value, ok := valueOf(e)
		if !ok {
			break
		}
		e = value
	}
	return e
}

// valueOf finds what a variable is bound to: it is the accumulator of a loop over nothing.
// Those of other loops have names that nobody writes.
func valueOf(variable ast.NavigableExpr) (ast.NavigableExpr, bool) {
	for at := variable; ; {
		parent, ok := at.Parent()
		if !ok {
			return nil, false
		}
		if parent.Kind() == ast.ComprehensionKind {
			parts := parent.Children() // What is looped over and the first value do not know the variables.
			inside := at.ID() != parts[0].ID() && at.ID() != parts[1].ID()
			loop, called := parent.AsComprehension(), variable.AsIdent()
			switch {
			case inside && (called == loop.IterVar() || called == loop.IterVar2()):
				return nil, false
			case inside && called == loop.AccuVar():
				return parts[1], true
			}
		}
		at = parent
	}
}
