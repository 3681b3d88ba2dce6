// Package controlplane starts a real Kubernetes control plane on the local machine, without containers or root.
//
// The components, etcd, kube-apiserver, kube-controller-manager, kube-scheduler
// and, in place of kubelets, kwok, run as processes of their own on free loopback ports, with
// a certificate authority of their own, RBAC and Node authorization, and the
// NodeRestriction admission plugin. Everything a control plane has lives in one
// directory:
//
//	kubeconfig    the administrator's
//	logs/         one file for each component
//	pki/          keys and certificates
//	etcd/         the data
//	state.json    what runs, for Open
//
// A component can be killed, frozen and started again while the others run,
// which is what the tests of a controller need to do.
//
// Its tests end and restart components, so no other package shares their control planes.
package controlplane
