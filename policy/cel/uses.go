package cel

import (
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	admissioncel "k8s.io/apiserver/pkg/admission/plugin/cel"
)

// usesOf returns what a checked expression reads. A variable of a macro that is
// called like one of ours counts as ours, which errs to the safe side; ours is then
// written with a dot before it, which stays in the checked expression.
func usesOf(checked *cel.Ast) Uses {
	var uses Uses
	root := ast.NavigateAST(checked.NativeRep())
	for _, e := range ast.MatchDescendants(root, ast.KindMatcher(ast.IdentKind)) {
		switch strings.TrimPrefix(e.AsIdent(), ".") {
		case admissioncel.ObjectVarName, admissioncel.OldObjectVarName, podVar, claimVar:
			uses.Object = true
		case tolerationVar, taintVar, operationVar:
			uses.Judged = true
		case admissioncel.AuthorizerVarName, admissioncel.RequestResourceAuthorizerVarName:
			uses.Requester = true
		case admissioncel.RequestVarName:
			field, one := selected(e)
			if !one || field == "userInfo" {
				uses.Requester = true
			}
			if one && !slices.Contains(uses.Request, field) {
				uses.Request = append(uses.Request, field)
			}
		}
	}
	slices.Sort(uses.Request)
	return uses
}

// selected returns the field that is taken of a variable, if it is only one, and not
// the variable as a whole.
func selected(variable ast.NavigableExpr) (string, bool) {
	parent, ok := variable.Parent()
	if !ok {
		return "", false
	}
	if parent.Kind() == ast.SelectKind {
		return parent.AsSelect().FieldName(), true
	}
	if parent.Kind() != ast.CallKind || parent.AsCall().FunctionName() != operators.OptSelect {
		return "", false
	}
	args := parent.AsCall().Args()
	if len(args) != 2 || args[1].Kind() != ast.LiteralKind {
		return "", false
	}
	field, ok := args[1].AsLiteral().(types.String)
	return string(field), ok
}
