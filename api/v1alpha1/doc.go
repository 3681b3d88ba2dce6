// Package v1alpha1 defines the kinds of the API group tollgate.dev, version v1alpha1. All
// kinds are cluster-scoped: with a namespaced policy, a tenant could decide about its own
// restrictions.
//
// The API server prunes unknown fields before admission. Therefore no list entry that
// extends a policy (a grant, a guarded taint) may be empty, and a selector that extends a
// policy has at least one requirement. If the only field of such an entry is misspelt,
// the API server refuses the object, and no policy permits more than its author wrote.
//
// +kubebuilder:object:generate=true
// +groupName=tollgate.dev
package v1alpha1
