// Package eviction holds the tests of NoExecute on a real control plane: that
// all pods leave that have to, at their time, that no other does, and what it
// costs in requests.
//
// The tests share one control plane with Tollgate installed in it, under its own
// ServiceAccount, and without Kubernetes' own controllers for taints. What
// Tollgate asked for is read from the audit log of the API server. The tests do
// not run beside each other, because each taints nodes.
//
// The control plane is its own: all requests of Tollgate are counted, and a test ends it.
package eviction
