// Package toleration evaluates TolerationPolicies, which say which users may tolerate which
// taints of nodes and devices, and validates tolerations.
//
// A TolerationPolicy guards taints. A toleration is subject to a policy if it tolerates any
// taint that the policy guards (package selector), so a wildcard is subject to every policy.
// Every policy that guards a toleration must grant it; one grant of a policy is enough.
//
// Compile returns an immutable Set that is safe for concurrent use. An index by key and value
// limits a review to the policies that a toleration may be subject to. Cheap parts of a
// policy are evaluated first: grants by namespaces, labels and subjects; then conditions;
// then RBAC; then expressions. A review that the first part allows allocates nothing.
//
// A failure never allows more. A stored policy can be invalid if it was written while no
// webhook validated it. It still guards its taints: its invalid grants grant nothing, its
// invalid conditions count as true, and its denials note that the policy is not fully in
// force. An expression that fails on a request is false in a grant and true in a condition,
// and the denial says so. If the authorizer does not answer, the result is an error and no
// decision, unless another grant or another policy decides.
//
// All functions depend on their arguments alone, one of which is the authorizer of the
// cluster.
package toleration
