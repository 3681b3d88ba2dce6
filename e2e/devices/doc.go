// Package devices holds the tests of tainted devices on a real control plane, with
// Tollgate in place of Kubernetes' own evictor: that the pods leave that have to,
// at their time and for what it costs, and that the conditions of rules say so.
//
// The tests share one control plane with Tollgate installed in it, under its own
// ServiceAccount. Each works in a namespace and with a driver of its own, beside
// the others, except for those that stop Tollgate or take its rights.
//
// Where many pods are needed, their claims are allocated by the test, as the
// scheduler would. What happens to claims that the scheduler allocates is the
// matter of package sidebyside.
//
// The control plane is its own: all requests of Tollgate are counted, and tests end it.
package devices
