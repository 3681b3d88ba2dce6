// Package ttl removes taints whose time is over: TaintPolicies say with ttl how long
// after its timeAdded a taint of a node is removed, or a DeviceTaintRule deleted.
//
// Times are compared with the clock of the API server. A taint without a time stays,
// as does what a policy registers on the node, and the system's own taints, which the
// controllers that set them would only set again, and so would package pairing the
// NoSchedule twin of a taint that is there. What is removed is what was looked
// at: the patch tests the taint as it stands, and the deletion of a rule its version.
package ttl
