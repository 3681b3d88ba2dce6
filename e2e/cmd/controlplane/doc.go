// Command controlplane is every program a Kubernetes control plane is made of, in one binary.
//
// The component is chosen by the name the program is called under, as a
// symlink, or else by the first argument; what follows are the component's own
// arguments. So "bin/controlplane kube-apiserver --version" and a symlink named
// kube-apiserver are the same, which is how controller-runtime's envtest, that
// looks for files named etcd and kube-apiserver, is served.
//
// The components come from the published Go modules, unchanged. The version
// they report is a matter of the build: see package binaries.
package main
