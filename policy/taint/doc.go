// Package taint decides who may set which taints, which taints nodes are born with,
// how many pods a taint may hit, and how long it stays: TaintPolicies.
//
// A request is taken apart into writes, one for each taint that comes, changes or goes
// (NodeWrites, SliceWrites, RuleChange, PatchChange). A taint is told from others in the
// same place by its key and effect, and the order of taints is nothing (C23). What a
// write is to a policy depends on what the policy governs: a taint whose new value the
// policy does not govern is removed from it, so that who may only change taints cannot
// change one away.
//
// Policies add up: each one that governs a write must let the requester make it. There
// are these who need not be let:
//
//   - Kubernetes' controllers of nodes, where they set the system keys;
//   - a node that registers itself: what it brings keeps pods from nobody but itself;
//   - whoever writes what a policy registers, where it is put or kept anyway;
//   - a driver in the slices it publishes (PublishesSlice);
//   - Tollgate itself, which is for the caller to tell.
//
// Nobody else is, whatever their name or group. That a ResourceSlice is deleted is no
// write of a taint, since its devices go with it; that a DeviceTaintRule or a
// ResourceSlicePatch is, lifts its taints, also when the garbage collector does it. The
// rules that Tollgate writes out for a patch come under the verdict on the patch.
//
// A node's own credentials do not get it out of what a policy registers: it must come
// with the taints, may not leave the selector by its labels, which NodeRestriction lets
// it change, and may not have itself deleted by saying who owns it (JudgeNode). With
// which labels it comes is its own choice: taints are no access control.
//
// The functions are pure: what they need of the world (who may do what by RBAC, the
// time, how many pods are hit) is given to them.
package taint
