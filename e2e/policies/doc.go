// Package policies holds the tests of what policies do on a real control plane: who
// may tolerate, who may taint, what pods and nodes are given, who opens a gate, and
// what is said before a taint evicts.
//
// The tests share one control plane with Tollgate installed in it, the scheduler and
// the controllers of Kubernetes, and nodes that kwok plays. Each works in namespaces,
// on nodes and with taint keys of its own. They do not run beside each other, because
// policies are for the whole cluster.
//
// Users are impersonated. RBAC lets those of the group that all tenants are in do
// everything but tolerate and taint, so that it is Tollgate alone who refuses.
//
// Its control plane is its own: policies are for the whole cluster and refuse what other tests
// write, tests end Tollgate, and the API server serves the older versions of resource.k8s.io.
package policies
