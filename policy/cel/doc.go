// Package cel compiles and evaluates the CEL expressions of policies.
//
// The environment is Kubernetes' own, with the libraries of its version, so that
// an expression of a ValidatingAdmissionPolicy means the same here. An expression
// sees the request and the object that is judged, and can ask the authorizer about
// permissions. It cannot read another object, and no function in the
// environment sends or fetches anything.
//
// Costs are limited for each expression and for all expressions of a review
// together, and evaluation ends with its context.
//
// The prices of calls are our own where library.CostEstimator and cel.CostLimit would count too
// little or too late: they stop only half of the expressions in the tests before these have taken
// minutes or all memory.
package cel
