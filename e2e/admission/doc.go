// Package admission holds the tests of what Tollgate refuses, writes and leaves
// alone, through a real API server.
//
// The tests share one control plane with Tollgate installed in it, under its own
// ServiceAccount. Each works in namespaces, with policies and on nodes of its own; a
// test that ends Tollgate or changes its configuration puts it back as it was. They
// do not run beside each other, because policies are for the whole cluster.
//
// Its control plane is its own: tests end Tollgate, and the API server serves the older
// versions of resource.k8s.io and logs the creation of pods.
package admission
