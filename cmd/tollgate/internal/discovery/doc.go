// Package discovery discovers which resources the API server serves, and in which version, and
// watches them. That differs between versions of Kubernetes, depends on feature gates and flags
// of the API server (VS-01, VS-02), and changes when a control plane is upgraded or reconfigured.
//
// A resource that is not served is logged once and disables only the features that need it. The
// same holds for one that Tollgate may not watch, and for one whose discovery fails while other
// requests succeed (F10).
//
// When the version of a watch changes, its objects are kept until the new list is complete; then
// only those missing from it are removed.
package discovery
