package cel

import (
	"fmt"
	"maps"
	"slices"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common"
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
	// at is where in the text; nil where it is the whole.
	at      common.Location
	problem string
}

// Error returns the position, if that is known, and the problem.
func (e *Error) Error() string {
	if position := positionOf(e.at); position != "" {
		return position + ": " + e.problem
	}
	return e.problem
}

// positionOf returns where in the text a location is, counted from 1; empty if that is not known.
func positionOf(location common.Location) string {
	if location == nil || location.Line() < 1 || location.Column() < 0 {
		return ""
	}
	return fmt.Sprintf("line %d, column %d", location.Line(), location.Column()+1)
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
	// Request are the fields of request that it reads, sorted; none if it reads request as a whole.
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

// usesOf returns what an expression reads that reads parts of variables.
func usesOf(reads map[string]projection) Uses {
	anyOf := func(names ...string) bool {
		return slices.ContainsFunc(names, func(name string) bool { _, read := reads[name]; return read })
	}
	request := reads[admissioncel.RequestVarName].parts
	_, user := request["userInfo"]
	return Uses{
		Requester: user || anyOf(admissioncel.AuthorizerVarName, admissioncel.RequestResourceAuthorizerVarName) ||
			anyOf(admissioncel.RequestVarName) && request == nil,
		Object:    anyOf(admissioncel.ObjectVarName, admissioncel.OldObjectVarName, podVar, claimVar),
		Judged:    anyOf(tolerationVar, taintVar, operationVar),
		Namespace: anyOf(admissioncel.NamespaceVarName),
		Request:   slices.Sorted(maps.Keys(request)),
	}
}
