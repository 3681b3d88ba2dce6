// Package binaries builds the programs that the end-to-end tests and the local cluster run, from this repository's own modules.
//
// They go to bin/ at the root of the repository: the control plane's components
// as one program, Tollgate itself and its kube-scheduler, and in bin/envtest the symlinks by which
// controller-runtime's envtest finds a control plane. A control plane of an older version
// of Kubernetes goes to a folder of its own, such as bin/v1.36.3. The go command decides
// what is up to date, so asking again costs about a second.
package binaries
