// Package tolerations decides who may tolerate which taint of a node, and which
// tolerations are well formed.
//
// A TolerationPolicy guards taints. A toleration comes under the policy when
// some taint exists that the policy guards and that the toleration tolerates
// (CouldTolerate), so a wildcard comes under every policy. Every policy that
// guards a toleration must grant it; one grant of a policy is enough.
//
// Compile turns policies into an immutable Set that any number of goroutines may
// ask at once. A Set knows by key and value which policies a toleration may come
// under, so the others cost a review nothing, and a review that is allowed
// allocates nothing.
//
// This version evaluates grants to namespaces. Everything else in the type is
// refused by ValidatePolicy when it is written. Where such a policy is in store
// all the same, because it was written while nothing validated it or for
// another version, the part that is not understood never lets more through: its
// grants grant nothing, its conditions hold, and what it refuses is refused with
// a note that the policy is not fully in force.
//
// Everything here is a pure function of its arguments.
package tolerations
