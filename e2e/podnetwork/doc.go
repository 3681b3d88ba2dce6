// Package podnetwork is the network of pods and Services, for an API server that is in none.
//
// The API server asks for a connection by HTTP CONNECT on a unix socket. The address of a
// Service stands for one of its endpoints, by the rules of kube-proxy and from the
// EndpointSlices that the controller writes: a pod that is not ready is given nothing. The
// address of a pod stands for an address of this machine, see Local.
//
// What it leaves out: NetworkPolicies, Services of other types than ClusterIP, and
// connections from pods, which reach the API server by its own address.
package podnetwork
