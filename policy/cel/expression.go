package cel

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/ast"
	admissioncel "k8s.io/apiserver/pkg/admission/plugin/cel"
)

// Place is the place of an expression, which decides its variables. Everywhere it
// sees object, oldObject, request, namespaceObject, authorizer and
// authorizer.requestResource.
type Place uint8

// The places.
const (
	// OfToleration also sees toleration, and pod or claim, of which the other is
	// null.
	OfToleration Place = iota
	// OfTaint also sees taint, and operation: Add, Change or Remove.
	OfTaint
	// OfRequest sees no more.
	OfRequest
)

// Type is the type that an expression has to return.
type Type = *cel.Type

// The types.
var (
	Bool   Type = cel.BoolType
	String Type = cel.StringType
)

// Error says why an expression does not compile.
type Error struct {
	// Line and Column are where, counted from 1; both are 0 where it is the whole.
	Line, Column int
	Problem      string
}

// errorAt returns the error of a problem at a location, or of the whole if that is not known.
func errorAt(location common.Location, problem string) *Error {
	if location.Line() < 1 || location.Column() < 0 {
		return &Error{Problem: problem}
	}
	return &Error{Line: location.Line(), Column: location.Column() + 1, Problem: problem}
}

// Error returns the position and the problem.
func (e *Error) Error() string {
	if e.Line == 0 {
		return e.Problem
	}
	return fmt.Sprintf("line %d, column %d: %s", e.Line, e.Column, e.Problem)
}

// FailedError says why an expression that compiles gave no result: a field that is
// not there, a cost beyond the limit. It is the expression's fault, or that of what
// its variables, and safe to show.
type FailedError struct{ Problem string }

// Error implements error.
func (e *FailedError) Error() string { return e.Problem }

// Uses holds the variables and fields that an expression reads.
type Uses struct {
	// Requester is set if the result depends on the sender of the request: it reads
	// authorizer, request.userInfo, or request as a whole.
	Requester bool
	// Object is set if it reads object, oldObject, pod or claim, which have to be
	// decoded for it.
	Object bool
	// Judged is set if it reads the judged: toleration, taint or operation. The
	// others say the same of all tolerations and taints of an object.
	Judged bool
	// Namespace is set if it reads namespaceObject.
	Namespace bool
	// Request are the fields of request that it reads, sorted. Without Requester it
	// reads no others.
	Request []string
}

func (u Uses) with(other Uses) Uses {
	fields := slices.Concat(u.Request, other.Request)
	slices.Sort(fields)
	return Uses{
		Requester: u.Requester || other.Requester,
		Object:    u.Object || other.Object,
		Judged:    u.Judged || other.Judged,
		Namespace: u.Namespace || other.Namespace,
		Request:   slices.Compact(fields),
	}
}

// variableOf returns the variable that an identifier stands for. One of a macro that is called
// like one of ours counts as ours, which errs to the safe side; ours is then written with a dot
// before it, which stays in the checked expression.
func variableOf(ident ast.NavigableExpr) string { return strings.TrimPrefix(ident.AsIdent(), ".") }

// usesOf returns what a checked expression reads.
func usesOf(checked *cel.Ast) Uses {
	var uses Uses
	root := ast.NavigateAST(checked.NativeRep())
	for _, e := range ast.MatchDescendants(root, ast.KindMatcher(ast.IdentKind)) {
		switch variableOf(e) {
		case admissioncel.ObjectVarName, admissioncel.OldObjectVarName, podVar, claimVar:
			uses.Object = true
		case tolerationVar, taintVar, operationVar:
			uses.Judged = true
		case admissioncel.NamespaceVarName:
			uses.Namespace = true
		case admissioncel.AuthorizerVarName, admissioncel.RequestResourceAuthorizerVarName:
			uses.Requester = true
		case admissioncel.RequestVarName:
			field, _, one := selected(e)
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
