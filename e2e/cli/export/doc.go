// Package export holds the tests of what `kubectl tollgate export vap` writes, on a real API server:
// it has to say of every request what Tollgate says.
//
// A request is sent three times, always as a dry run. First nobody judges, and the API server
// answers with the object as its own admission leaves it. Then the exported policies judge
// the same request. Tollgate's own handler is asked, in this process, about the object of the
// first answer; a sample is sent through an installed Tollgate, too.
//
// Its control plane is its own: there are no webhooks, but while one test has Tollgate
// installed.
package export
