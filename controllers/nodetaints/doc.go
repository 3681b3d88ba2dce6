// Package nodetaints adds and removes taints of nodes because policies say so. It has three
// controllers.
//
// # Registered taints
//
// RegisterController adds the taints that TaintPolicies register.
//
// Admission adds them when a node is created, so that no pod is scheduled before. The
// controller adds the rest: with reconcile, to nodes that existed before the policy or
// came to match it later; without, to nodes that were created while no replica of the
// webhook answered.
//
// The latter look like nodes whose taint was removed by a user who may do so, and nothing
// written on the node can tell them apart, because the node itself could have written it.
// So the controller looks only at newcomers: nodes that are created while this leader
// watches, or since the last leader was heard of. The first look decides which taints a
// newcomer is owed; policies that this replica reads in the first seconds after it count
// too. A debt stays until the node has the taint or is deleted. A taint that the node was
// seen with is not added again.
//
// A patch only adds taints and tests the UID of the node, and the absence of the list
// where there is none; concurrent writes of others stay. Taints that evict pods are
// compared with the limits of TaintPolicies first, as if a user wrote them: few users
// write policies, but many may label nodes.
//
// # Taints whose time is over
//
// TTLController removes taints that a TaintPolicy gives a ttl, counted from timeAdded:
// taints of nodes and of ResourceSlicePatches are removed, DeviceTaintRules and patches
// that are left empty are deleted. A taint of a patch without a time counts from the time
// in the status of the patch.
//
// Times are compared with the clock of the API server. The controller leaves taints
// without a time, taints that a policy registers on the node, the system's taints (their
// controllers would only add them again), and paired taints (package devicetaints would).
// The patch of a node tests the taint, and a write of a rule or of a ResourceSlicePatch
// its resourceVersion.
//
// # Paired taints
//
// PairingController adds a NoSchedule taint beside a NoExecute taint for which pods are
// given time in mode Window.
//
// Problem: a pod that tolerates NoExecute for a while is scheduled onto a node with that
// taint. A pod that is evicted gently would be replaced on the same node, its time would
// begin again, and so on. A toleration of NoExecute does not tolerate NoSchedule, so a
// second taint ends that.
//
// Decision: where an EvictionPolicy injects a toleration for the key of a NoExecute taint,
// the node gets a taint of the same key and value with effect NoSchedule. The annotation
// tollgate.dev/twins lists the taints that were added; they are removed when their
// NoExecute taint is gone, or when no policy injects a toleration for it any more. Any
// NoSchedule taint with the key keeps pods away, whatever its value: where there is one
// already, none is added, and it stays when the NoExecute taint goes.
//
// The cached node decides whether to read the node; the node as read decides what is
// written, by a patch that tests the resourceVersion. Admission lets only Tollgate write
// the annotation, because a node could otherwise remove taints from itself by it. A node
// that registers while admission is away can bring an annotation along. So its form is
// "uid:key=value,..." with the UID of the node, which the API server chooses at creation:
// an annotation with another UID is removed, and the taints that it lists stay.
//
// Edge cases: the node lifecycle controller of Kubernetes sets not-ready and unreachable
// with both effects itself, so they are not paired. A paired taint that a TaintPolicy
// registers stays. One that a user gives another value belongs to that user from then on.
// Outside mode Window, paired taints of an earlier time are removed, and none is added. A
// paired taint that a user removes comes back while its NoExecute taint exists.
package nodetaints
