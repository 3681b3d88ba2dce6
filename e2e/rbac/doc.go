// Package rbac holds the tests of what Tollgate may do, under the RBAC that ships.
//
// Everything that Tollgate does is done once, while the API server writes down what it asks
// for. Nothing of that may have been refused, and nothing that is granted may be left over.
// Then permissions are taken away one by one: what needs them says so, and the rest goes on.
package rbac
