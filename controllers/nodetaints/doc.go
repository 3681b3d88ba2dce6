// Package nodetaints adds and removes taints of nodes as policies say. It has three
// controllers.
//
// # Registered taints
//
// RegisterController adds the taints that TaintPolicies register.
//
// Admission adds them when a node is created, so that no pod is scheduled before. The
// controller adds the rest: with reconcile, to nodes that are older than the policy or
// start to match it later; without, to nodes that were created while no replica of the
// webhook answered.
//
// The latter look like nodes whose taint was removed by an authorized user, and no field
// of the node distinguishes the two, because the node itself could have written it. So the
// controller considers only newcomers: nodes that are created while this leader watches,
// or since the previous leader last renewed its lease. The first attempt for a newcomer
// decides which taints are pending; policies that reach this replica within seconds after
// it count too. A taint stays pending until the node has it or is deleted. A taint that
// the node once had is not added again.
//
// A patch only adds taints and tests the UID of the node, and the absence of the list
// where there is none; concurrent writes by others stay. Taints that evict pods are
// checked against the limits of TaintPolicies first, as if a user wrote them: few users
// write policies, but many may label nodes.
//
// # Expired taints
//
// TTLController removes taints that are older than the ttl of a TaintPolicy, counted from
// timeAdded: it removes taints of nodes and of ResourceSlicePatches, and deletes
// DeviceTaintRules and patches that would be empty. The age of a taint of a patch without
// timeAdded counts from the time in the status of the patch.
//
// Times are compared with the clock of the API server. The controller leaves taints
// without a time, taints that a policy registers on the node, the system's taints (their
// controllers would only add them again), and paired taints (package devicetaints would).
// The patch of a node tests the taint, and a write of a rule or of a ResourceSlicePatch
// its resourceVersion.
//
// # Paired taints
//
// PairingController adds a NoSchedule taint beside a NoExecute taint for which an
// EvictionPolicy injects tolerations in mode Window.
//
// Problem: a pod that tolerates NoExecute for some seconds can be scheduled onto a node
// with that taint. The replacement of an evicted pod could land on the same node, its
// tolerationSeconds would start again, and so on. A toleration of NoExecute does not
// tolerate NoSchedule, so a second taint prevents that.
//
// Decision: where an EvictionPolicy injects a toleration for the key of a NoExecute taint,
// the node gets a taint of the same key and value with effect NoSchedule. The annotation
// tollgate.dev/twins lists the taints that were added; they are removed when their
// NoExecute taint is gone, or when no policy injects a toleration for it any more. Any
// NoSchedule taint with the key keeps pods away, whatever its value: where there is one
// already, none is added, and it stays when the NoExecute taint goes.
//
// The controller decides from the cached node whether to read the live node, and from the
// live node what to write; the patch tests the resourceVersion. Admission lets only
// Tollgate write the annotation, because a node could otherwise use it to remove its own
// taints. A node that registers while admission is unavailable can have the annotation
// from the start. So its form is "uid:key=value,..." with the UID of the node, which the
// API server assigns at creation: an annotation with another UID is removed, and the
// taints that it lists stay.
//
// Edge cases: the node lifecycle controller of Kubernetes sets not-ready and unreachable
// with both effects itself, so they are not paired. A paired taint that a TaintPolicy
// registers stays. A paired taint to which a user gives another value is no longer
// managed. Outside mode Window, existing paired taints are removed, and none is added. A
// paired taint that a user removes is added again while its NoExecute taint exists.
package nodetaints
