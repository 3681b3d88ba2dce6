package policy

// Reason names, in a word that does not change, why something is refused, warned
// about or recorded. Users look it up in docs/refusals.md, which lists all of them.
type Reason string

// The reasons.
const (
	// Invalid is what Kubernetes itself, or the schema of a policy, does not allow.
	Invalid Reason = "Invalid"

	// TolerationNotGranted is a toleration of a guarded taint that no grant allows.
	TolerationNotGranted Reason = "TolerationNotGranted"
	// TolerationTooLong is a toleration that is granted, but not for as long.
	TolerationTooLong Reason = "TolerationTooLong"
	// PassNotGranted is a pod that is put on a node past a taint that it may not
	// tolerate.
	PassNotGranted Reason = "PassNotGranted"
	// TaintNotTolerated is a pod that is put on a node past a guarded taint that it
	// does not tolerate.
	TaintNotTolerated Reason = "TaintNotTolerated"
	// LabelNotGranted is a label of a namespace that would give it a grant.
	LabelNotGranted Reason = "LabelNotGranted"

	// PlacementContradicted is a pod that steers away from where a policy steers it.
	PlacementContradicted Reason = "PlacementContradicted"
	// PlacementMissing is a pod that lacks what a policy gives it.
	PlacementMissing Reason = "PlacementMissing"

	// TaintNotGranted is a governed taint set, changed or removed by somebody who may
	// not.
	TaintNotGranted Reason = "TaintNotGranted"
	// RegisteredTaintMissing is a node without a taint that it is to be born with.
	RegisteredTaintMissing Reason = "RegisteredTaintMissing"
	// RegisteredTaintRemoved is a taint that a policy keeps on a node.
	RegisteredTaintRemoved Reason = "RegisteredTaintRemoved"
	// NodeLeavesSelector is a node that changes its own labels and so the taints that
	// it is given.
	NodeLeavesSelector Reason = "NodeLeavesSelector"
	// NodeOwned is a node that makes itself somebody's dependent.
	NodeOwned Reason = "NodeOwned"
	// SelectorRequired is a DeviceTaintRule over every device.
	SelectorRequired Reason = "SelectorRequired"
	// PreviewRequired is a DeviceTaintRule that evicts without having stood at None.
	PreviewRequired Reason = "PreviewRequired"
	// TwinReserved is a DeviceTaintRule that passes for one that Tollgate made.
	TwinReserved Reason = "TwinReserved"
	// PatchReserved is a DeviceTaintRule that passes for one that Tollgate wrote out for a
	// ResourceSlicePatch.
	PatchReserved Reason = "PatchReserved"
	// WindowReserved is an annotation by which Tollgate marks what it gave, written by
	// somebody else.
	WindowReserved Reason = "WindowReserved"
	// TimeAddedSkewed is a timeAdded too far from now.
	TimeAddedSkewed Reason = "TimeAddedSkewed"
	// TooManyAffected is a taint that would hit more pods than a limit allows.
	TooManyAffected Reason = "TooManyAffected"

	// ReservationNotTolerated is one more consumer of a claim on a device with a taint
	// that the claim does not tolerate.
	ReservationNotTolerated Reason = "ReservationNotTolerated"

	// GateNotOwned is a scheduling gate removed by somebody who does not own it.
	GateNotOwned Reason = "GateNotOwned"
	// GatedPodNotOwned is a pod that waits behind a gate, tightened by somebody who
	// does not own the gate.
	GatedPodNotOwned Reason = "GatedPodNotOwned"

	// MoreFindings stands for those that are not listed.
	MoreFindings Reason = "MoreFindings"
)
