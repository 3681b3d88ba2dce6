// Package validation decides what taints of nodes and devices may look like and since when
// each of them counts, what tolerations of ResourceClaims may look like, and how the
// scheduling directives of a pod may change.
//
// Every decision is about what a request adds or changes. Unchanged parts are left alone,
// even where it is invalid: a patch would turn the update of a kubelet into one that
// NodeRestriction refuses (TP-18), and a refusal would block every other change of the
// object.
//
// # Taints of nodes
//
// Eviction timers outlive the process that runs them because of timeAdded: the deadline of
// a pod is that time plus the seconds that it tolerates. So the time of a taint is set
// once, when the taint is added. It is kept when the taint is written again by a client
// that does not know the time, or by the node lifecycle controller when it believes, after
// a restart, that it has just found the node down. The work is bounded by the number of
// taints, which Kubernetes does not limit.
//
// # Taints and tolerations of devices
//
// The rules are those of Kubernetes for ResourceSlices, DeviceTaintRules, ResourceClaims
// and ResourceClaimTemplates (KEP-5055, AV-01 to AV-15), and stricter in two places where
// the API documents a rule that the API server does not check: a request has at most 16
// tolerations (AV-11), and an empty key needs the operator Exists (AV-12).
//
// Taints of devices differ from those of nodes: they need not be unique by key and effect
// (AV-04), their time may be in the future, and the API server gives the present to a
// taint without a time before any admission sees it (AV-06). So the time does not tell
// whether a taint is new.
//
// # Scheduling directives of pods
//
// These say where a pod may go (nodeSelector, affinity, topologySpreadConstraints), which
// scheduler places it and when (schedulerName, priority, schedulingGroup), and what holds
// it back (schedulingGates).
//
// The rules are those of Kubernetes (KEP-3521, KEP-3838), verdict and field path alike: a
// pod that a scheduling gate holds may be narrowed to fewer nodes and never widened, and
// nothing else changes after creation. Whether a gate holds the pod is read from the old
// pod, so that one write may both narrow it and remove the gate. Narrowing is judged by
// form, not by meaning: a requirement is appended, and the existing ones stay to the
// letter. The functions expect pods as the API server hands them to admission: defaults
// set, and a priority that the update left out filled in from the old pod.
//
// The functions are pure.
package validation
