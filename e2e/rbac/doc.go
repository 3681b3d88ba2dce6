// Package rbac holds the tests of what Tollgate may do, under the RBAC that ships.
//
// Its components run apart, with a ServiceAccount each. Everything that Tollgate does is done
// once, while the API server writes down what each of them asks for. Nothing of that may have
// been refused, and nothing that is granted may be left over. So both together need what both
// are granted. Then permissions are taken away one by one: what needs them says so, and the
// rest goes on.
//
// Its control plane is its own: the components run apart and lose permissions, all of their
// requests are logged, and there are PodGroups.
package rbac
