package cel

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// Place says where an expression stands, and by that what it sees. Everywhere it
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
	// OfRequest sees nothing more.
	OfRequest
)

// Type is what an expression has to return.
type Type uint8

// The types.
const (
	Bool Type = iota
	String
)

// String returns the type as CEL calls it.
func (t Type) String() string {
	switch t {
	case Bool:
		return "bool"
	case String:
		return "string"
	default:
		return "Type(" + strconv.Itoa(int(t)) + ")"
	}
}

// Error says why an expression does not compile.
type Error struct {
	// Line and Column are where, counted from 1; both are 0 where it is the whole.
	Line, Column int
	Problem      string
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
// it was given, and safe to show.
type FailedError struct{ Problem string }

// Error implements error.
func (e *FailedError) Error() string { return e.Problem }

// Uses says what an expression reads.
type Uses struct {
	// Requester is set if the result depends on who sent the request: it reads
	// authorizer, request.userInfo, or request as a whole.
	Requester bool
	// Object is set if it reads object, oldObject, pod or claim, which have to be
	// decoded for it.
	Object bool
	// Judged is set if it reads what is judged: toleration, taint or operation. The
	// others say the same of all tolerations and taints of an object.
	Judged bool
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
		Request:   slices.Compact(fields),
	}
}

// Review is what the expressions of one request see and may cost together. What is
// large is decoded when first read, once. It is not safe for concurrent use.
type Review struct {
	// Request is null in expressions where it is nil, as are object and oldObject.
	Request *admissionv1.AdmissionRequest
	// Namespace is nil for requests outside of namespaces.
	Namespace *corev1.Namespace
	// Authorizer answers what authorizer asks, and what rbac: true does.
	Authorizer authorizer.Authorizer

	// main is the review that this one is beside, or nil.
	main  *Review
	aside *Review

	seen    seen
	answers map[question]answer
	spent   uint64
}

// Aside returns the same review for what refuses nobody: messages, and policies that
// only warn. It knows all that the review knows, and has a budget of its own, so that
// nothing that is only said takes what a refusal needs to be averted.
func (r *Review) Aside() *Review {
	if r == nil || r.main != nil {
		return r
	}
	if r.aside == nil {
		r.aside = &Review{main: r}
	}
	r.aside.Request, r.aside.Namespace, r.aside.Authorizer = r.Request, r.Namespace, r.Authorizer
	return r.aside
}

// shared is the review that keeps what is known.
func (r *Review) shared() *Review {
	if r.main != nil {
		return r.main
	}
	return r
}

// Judged is what is being judged, as it is called in expressions. Nil and empty are
// null.
type Judged struct {
	// Toleration is a *corev1.Toleration or *resourcev1.DeviceToleration, Taint a
	// *corev1.Taint or *resourcev1.DeviceTaint.
	Toleration, Taint any
	Operation         string
	// Pod and Claim are {"metadata": ..., "spec": ...} in JSON, of the object or of
	// the template within. They are not to be changed while the review lasts.
	Pod, Claim json.RawMessage
}
