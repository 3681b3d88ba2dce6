package cel

import (
	"fmt"
	"maps"
	"strings"

	"github.com/google/cel-go/cel"
	celast "github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/decls"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
)

// Checking takes time with the square of the nodes of an expression, of which each may
// need all type parameters that are known so far, and with the cube of the parts of its types.
// Nothing ends it, and a short text can make all of them large: a macro may write its
// target down twice, and in {a: a} the type doubles. So they are bounded before.
const (
	// maxNodes is the number of nodes that an expression may have when its macros are
	// written out. A comparison of a field with a constant has four.
	maxNodes = 4_096
	// maxSteps is the number of nodes times that of type parameters. An equation or an
	// empty list has one parameter.
	maxSteps = 4_000_000
	// maxExtent is the number of parts that a type may have: list(string) has two,
	// and map(string, list(string)) four.
	maxExtent = 32
	// declaredExtent is that of the largest type of a variable, which
	// is request.userInfo.extra.
	declaredExtent = 4
)

// tooLarge returns why a parsed expression is not to be checked, or nil.
func tooLarge(env *cel.Env, parsed *celast.AST) *Error {
	nodes := celast.NodeCount(parsed)
	if nodes > maxNodes {
		return &Error{problem: fmt.Sprintf("has %d parts when its macros are written out, of which %d are allowed", nodes, maxNodes)}
	}
	s := sizer{functions: env.Functions(), variables: map[string]int{}}
	s.extent(parsed.Expr())
	switch {
	case s.parameters*nodes > maxSteps:
		return &Error{problem: fmt.Sprintf("has %d calls, lists and maps that may be of any type in %d parts: say it in fewer, such as by one list that is searched", s.parameters, nodes)}
	case s.beyond == 0:
		return nil
	}
	return &Error{parsed.SourceInfo().GetStartLocation(s.beyond), fmt.Sprintf("makes lists and maps of lists and maps: a type may have %d parts", maxExtent)}
}

// sizer finds how many parts the types of an expression have at most, without the steps that
// make checking slow: it follows sizes, not types.
type sizer struct {
	functions map[string]*decls.FunctionDecl
	// variables are those of macros.
	variables map[string]int
	// parameters is the number of type parameters that checking makes.
	parameters int
	// beyond is the first node whose type may be too large.
	beyond int64
}

// extent returns the most parts that the type of an expression may have.
func (s *sizer) extent(e celast.Expr) int {
	extent := s.measure(e)
	if extent > maxExtent && s.beyond == 0 {
		s.beyond = e.ID()
	}
	return min(extent, maxExtent)
}

func (s *sizer) measure(e celast.Expr) int {
	switch e.Kind() {
	case celast.IdentKind:
		if extent, ok := s.variables[e.AsIdent()]; ok {
			return extent
		}
		return declaredExtent
	case celast.SelectKind:
		return max(declaredExtent, s.extent(e.AsSelect().Operand()))
	case celast.ListKind:
		if e.AsList().Size() == 0 {
			s.parameters++
		}
		element := 1
		for _, e := range e.AsList().Elements() {
			element = max(element, s.extent(e))
		}
		return 1 + element
	case celast.MapKind:
		if e.AsMap().Size() == 0 {
			s.parameters += 2
		}
		key, value := 1, 1
		for _, entry := range e.AsMap().Entries() {
			key = max(key, s.extent(entry.AsMapEntry().Key()))
			value = max(value, s.extent(entry.AsMapEntry().Value()))
		}
		return 1 + key + value
	case celast.StructKind:
		for _, entry := range e.AsStruct().Fields() {
			s.extent(entry.AsStructField().Value())
		}
		return declaredExtent
	case celast.CallKind:
		return s.call(e.AsCall())
	case celast.ComprehensionKind:
		return s.comprehension(e.AsComprehension())
	case celast.LiteralKind, celast.UnspecifiedExprKind:
	}
	return 1
}

// comprehension follows a loop as it is checked: once, with its first value.
func (s *sizer) comprehension(c celast.ComprehensionExpr) int {
	element, start := max(1, s.extent(c.IterRange())-1), s.extent(c.AccuInit())
	outside := s.variables
	inside := maps.Clone(outside)
	inside[c.AccuVar()], inside[c.IterVar()], inside[c.IterVar2()] = start, element, element
	s.variables = inside
	s.extent(c.LoopCondition())
	result := maps.Clone(outside)
	result[c.AccuVar()] = max(start, s.extent(c.LoopStep()))
	s.variables = result
	extent := s.extent(c.Result())
	s.variables = outside
	return extent
}

// call returns the extent of the largest result that an overload may have.
func (s *sizer) call(c celast.CallExpr) int {
	name, args := strings.TrimPrefix(c.FunctionName(), "."), c.Args()
	if c.IsMemberFunction() {
		// In lists.range(5) the parser sees a method of lists.
		qualified := strings.TrimPrefix(c.Target().AsIdent(), ".") + "." + name
		if _, ok := s.functions[qualified]; ok {
			name = qualified
		} else {
			args = append([]celast.Expr{c.Target()}, args...)
		}
	}
	extents := make([]int, len(args))
	for i, arg := range args {
		extents[i] = s.extent(arg)
	}
	if name == operators.OptSelect { // an optional of an optional is one
		return max(declaredExtent, extents[0])
	}
	most := 1
	for _, o := range s.functions[name].OverloadDecls() {
		if len(o.ArgTypes()) != len(args) {
			continue
		}
		s.parameters += len(o.TypeParams())
		params := map[string]int{}
		for i, declared := range o.ArgTypes() {
			// A type parameter has no more parts than an argument has beside its declared ones.
			bind(declared, max(1, extents[i]-extentOf(declared, nil)+1), params)
		}
		most = max(most, extentOf(o.ResultType(), params))
	}
	return most
}

// bind sets the extents of the type parameters in a declared type.
func bind(declared *types.Type, extent int, params map[string]int) {
	if declared.Kind() == types.TypeParamKind {
		params[declared.TypeName()] = max(params[declared.TypeName()], extent)
	}
	for _, part := range declared.Parameters() {
		bind(part, extent, params)
	}
}

// extentOf returns the parts of a type, of which type parameters have as many as params says,
// or one.
func extentOf(t *types.Type, params map[string]int) int {
	if t.Kind() == types.TypeParamKind {
		return max(1, params[t.TypeName()])
	}
	extent := 1
	for _, part := range t.Parameters() {
		extent += extentOf(part, params)
	}
	return extent
}
