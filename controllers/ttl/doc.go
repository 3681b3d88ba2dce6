// Package ttl removes taints whose time is over: TaintPolicies say with ttl how long
// after its timeAdded a taint of a node or of a ResourceSlicePatch is removed, or a
// DeviceTaintRule deleted. A patch that is left with nothing is deleted too. The time of a
// taint of a patch that gives none is the one in its status.
//
// Times are compared with the clock of the API server. A taint without a time stays,
// as does what a policy registers on the node, and the system's own taints, which the
// controllers that set them would only set again, and so would package pairing the
// NoSchedule twin of a taint that is there. What is removed is what was looked
// at: the patch of a node tests the taint as it stands, and what is done to a rule or a
// ResourceSlicePatch its version.
package ttl
