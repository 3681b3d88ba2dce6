// Package taints decides what the taints of a node may look like, and since when
// each of them counts.
//
// A taint with a time is what lets eviction timers outlive the process that runs
// them: the deadline of a pod is that time plus the seconds it tolerates. So the
// time of a taint is set once, when the taint comes, and is not lost when the taint
// is written again by a client that does not know about it, nor when the node
// lifecycle controller, after a restart, believes that it has just found out.
//
// Every decision is about what a request adds or changes. Taints that stand as they
// stood are left alone, even where they are not as they should be: a patch of them
// would turn the update of a kubelet into one that NodeRestriction refuses (TP-18),
// and a refusal would block every other change of the node.
//
// The functions are pure, and bounded by the number of taints, which Kubernetes does
// not limit.
package taints
