// Command versions writes the go.mod files from which the control plane is built of older versions of Kubernetes, which is what "make versions" is.
//
// Each has the name of its version, in e2e/versions, and a .sum file beside it; the go
// command takes it with -modfile. It requires what the go.mod of that k8s.io/kubernetes
// requires, at the same versions, with the modules that Kubernetes keeps in its own
// repository at the versions in which they are published.
package main
