// Package installing shows that Tollgate is installed, upgraded and uninstalled by the tools
// that people use, in a cluster that runs its pods.
//
// Nothing is installed beside the cluster here: the pods are those that the Deployment
// makes, the API server reaches them through the Service, and Tollgate has the rights of
// its ServiceAccount. What is left out is what package kubelet leaves out.
//
// Its control plane is its own: Tollgate is installed and uninstalled, and its pods run as
// processes, in a network that the API server is started with.
package installing
