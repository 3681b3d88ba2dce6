// Package balancer stands in for the Service in front of several replicas: it takes TCP
// connections at one address and gives each to a replica that says that it is ready.
//
// It is as unhelpful as kube-proxy. Whether a replica is ready is heard of late, so for a
// while connections go to one that is ending or dead; a connection that the replica
// does not take is refused, not given to another one; and connections that are open stay
// where they are, whatever becomes of the replica.
package balancer
