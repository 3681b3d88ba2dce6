// Package compatibility shows what of Tollgate works on which version of Kubernetes, and that Tollgate can be upgraded and taken back while evictions are due.
//
// The tests run on one version, which TOLLGATE_K8S names: make test-versions runs them on
// each. What a version does not serve is not skipped: it is tried that Tollgate says so
// and that all else works. docs/compatibility.md has the outcome, and the test fails if it
// has another; with -update it is written.
//
// Its control plane is its own: Tollgate is replaced by other versions, and what is served
// depends on the version of Kubernetes.
package compatibility
