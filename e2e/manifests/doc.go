// Package manifests tests what users install: the manifests in deploy/ and the Helm chart.
//
// kubectl and helm render them; the one is compared with the other, and both with what a
// real API server accepts, restricts and protects. Nothing of Tollgate runs.
package manifests
