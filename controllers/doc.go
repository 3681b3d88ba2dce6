// Package controllers holds what the leader writes to keep the cluster as the policies
// say, besides evictions: the status of policies and approvals (policystatus,
// approvals), the taints that nodes are to have (register) and those whose time is over
// (ttl), and the count of pods that stood before a policy (audit).
//
// Each is a package with one controller. A controller starts nothing when it is made;
// Start works until its context ends and may be called again, by a replica that lost
// the lease and got it back.
package controllers
