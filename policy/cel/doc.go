// Package cel compiles and evaluates the CEL expressions of policies.
//
// The environment is Kubernetes' own, with the libraries of its version, so that
// an expression of a ValidatingAdmissionPolicy means the same here. An expression
// sees the request and what is being judged, and can ask whether somebody is
// authorized to do something. It cannot read another object, and nothing in the
// environment reaches out.
//
// Costs are limited for each expression and for all expressions of a review
// together, and evaluation ends with its context.
package cel
