// Package manifests tests what users install: the manifests in deploy/ and the Helm chart.
//
// kubectl and helm render them; the one is compared with the other, and both with what a
// real API server accepts, restricts and protects. Nothing of Tollgate runs.
//
// Its control plane is its own: the API server reads policies from a folder, and the webhooks
// of deploy/ are registered without a Tollgate to answer.
package manifests
