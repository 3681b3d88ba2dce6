// Package v1alpha1 defines the kinds of the tollgate.dev API group, version v1alpha1. All
// are cluster-scoped: a tenant could write a namespaced policy, and so decide about its
// own restrictions.
//
// The API server prunes unknown fields before admission. So no list entry that widens (a
// grant, a guarded taint) may be empty, and a selector that widens has at least one
// requirement: a misspelt field is then refused, and never yields a policy that permits
// more than its author wrote.
//
// +kubebuilder:object:generate=true
// +groupName=tollgate.dev
package v1alpha1
