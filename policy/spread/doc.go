// Package spread computes how a pod is spread over topology domains, as the plugin
// PodTopologySpread of kube-scheduler does (TS-01 to TS-16, KEP-3094).
//
// A constraint counts the matching pods in each domain: all nodes that have the same
// value of its topology key. A pod may go to a node if its domain would not have more
// than maxSkew pods above the emptiest domain. Which nodes count is what
// nodeAffinityPolicy and nodeTaintsPolicy say. By default nodes count whose taints the
// pod does not tolerate. A domain that only has such nodes stays empty, and then pods
// wait although other nodes have room for them.
//
// Read reads the requirements of a pod. Filter says for each node whether the pod may go
// there, with all numbers that this follows from. Wedges finds the constraints that a pod may wait for without end, from the
// nodes alone.
//
// Nothing here changes once it is made, and all of it is safe for concurrent use.
package spread
