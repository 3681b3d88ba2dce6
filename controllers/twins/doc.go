// Package twins puts NoSchedule taints beside NoExecute taints of nodes that pods are
// given time of in mode Window.
//
// Problem: a pod that tolerates NoExecute for a while is scheduled onto a node with
// that taint. One that is evicted gently would be replaced by another on the same
// node, whose time begins anew, and so on. A toleration of NoExecute does not tolerate
// NoSchedule, so a second taint ends that.
//
// Decision: where an EvictionPolicy has a window for the key of a NoExecute taint, the
// node gets a taint of the same key and value with effect NoSchedule. The annotation
// tollgate.dev/twins says which taints were added; these are removed when their
// NoExecute taint is gone, or when no policy has a window for it any more. Any
// NoSchedule taint with the key keeps pods away, whatever its value, and a node has one
// at most: where there is one already, none is added, and it stays when the other goes.
//
// What is known of a node decides whether to read it; what is read decides what is
// written, by a patch that tests the resourceVersion. The annotation of a node could
// have been written by the node itself, which would so rid itself of a taint: admission
// lets nobody but Tollgate write it. A node that registers while admission is away can
// still bring one along. So the annotation has the form "uid:key=value,..." with the UID
// of the node, which the API server chooses when it creates the node: one with another
// UID is removed, and the taints that it lists stay.
//
// Edge cases: the node lifecycle controller of Kubernetes sets not-ready and
// unreachable with both effects itself, so they get no twin from here. A twin that a
// TaintPolicy registers stays. A twin that somebody else gives another value is theirs
// from then on. Where Tollgate is not in mode Window, twins of an earlier time are
// removed, and none is added. A twin that somebody removes comes back while its
// NoExecute taint stands.
package twins
