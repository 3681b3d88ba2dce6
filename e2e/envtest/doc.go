// Package envtest shows that controller-runtime's envtest runs on the control plane that this repository builds.
//
// Tests closer to the code than those here use it so: build the control plane
// and give envtest.Environment the directory that package binaries names as its
// BinaryAssetsDirectory. Nothing is downloaded.
package envtest
