// Command release builds all that a release of Tollgate consists of, and publishes it.
//
// It builds a commit that has the tag of the version and nothing besides, into a folder that
// it replaces. The image is built by deploy/image, the manifests by kustomize, the chart by
// Helm, and signatures are made by cosign: the command runs these programs in order and adds
// what none of them makes, which are the archives of the plugin, the manifest for krew, the
// notes and the checksums.
//
// The same commit gives the same bytes, as long as the versions of Go, kustomize and Helm are
// the same: archives have the time of the commit, and names of files in a fixed order. Signatures
// differ from run to run, and are no part of the checksums.
package main
