// Package v1alpha1 holds the kinds of the tollgate.dev API group, version
// v1alpha1. All are cluster-scoped, because a policy that a tenant could place
// in a namespace of its own would be a policy that the tenant decides about.
//
// The API server prunes unknown fields before anyone sees them. So no list
// entry that widens (a grant, a guarded taint) may be empty, and a selector
// that widens names at least one requirement: a misspelt field then ends in a
// refusal, never in a policy that lets more through than its author wrote.
//
// +kubebuilder:object:generate=true
// +groupName=tollgate.dev
package v1alpha1
