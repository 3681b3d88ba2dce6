// Package toleration decides who may tolerate which taint of a node or a device, and
// which tolerations are well formed.
//
// A TolerationPolicy guards taints. A toleration comes under the policy when
// some taint exists that the policy guards and that the toleration tolerates
// (package selector), so a wildcard comes under every policy. Every policy that
// guards a toleration must grant it; one grant of a policy is enough.
//
// Compile turns policies into an immutable Set that any number of goroutines may
// ask at once. A Set knows by key and value which policies a toleration may come
// under, so the others cost a review nothing. A policy is asked what costs least
// first: namespaces, labels and subjects; then its conditions; then RBAC; then
// expressions. A review that is allowed by the first allocates nothing.
//
// What fails never lets more through. A policy with a fault that is in store all the
// same, because it was written while nothing validated it, guards what it can: its
// faulty grants grant nothing, its faulty conditions hold, and what it refuses is
// refused with a note that the policy is not fully in force. An expression that fails
// on a request grants nothing and holds as a condition, and the denial says so. Where
// nobody could be asked, there is an error and no verdict, unless another grant or
// another policy decides.
//
// Everything here is a function of its arguments, of which one is the cluster's
// authorizer.
package toleration
