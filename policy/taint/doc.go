// Package taint evaluates TaintPolicies: which users may set which taints, which taints a new
// node has, how many pods a taint may affect, and when a taint expires.
//
// A request is split into writes, one for each taint that is added, changed or removed
// (NodeWrites, SliceWrites, RuleChange, PatchChange). Key and effect identify a taint on its
// object, and the order of taints is irrelevant (C23). The operation of a write depends on
// the policy: if a policy governs the old value of a changed taint and not the new one, the
// write is a removal for that policy. So a requester who may only change taints cannot change
// a taint out of the policy.
//
// Every policy that governs a write must allow it. Only these writes need no permission:
//
//   - writes of system keys by the node controllers of Kubernetes;
//   - taints of a node that registers itself, which affect only that node;
//   - taints that a policy registers, when they are added to a new node or restored on an
//     existing one;
//   - taints that a driver sets in its own slices (PublishesSlice);
//   - writes by Tollgate itself, which the caller recognizes.
//
// No other name or group is exempt. Deletion of a ResourceSlice is not a write, because its
// devices are deleted with it. Deletion of a DeviceTaintRule or a ResourceSlicePatch removes
// its taints, also if the garbage collector deletes it. The rules that Tollgate creates for a
// patch are covered by the decision on the patch.
//
// A node cannot use its own credentials to escape registered taints (JudgeNode): it must be
// created with them, may not change its labels so that the registration no longer selects it,
// although NodeRestriction allows that, and may not set owner references that would get it
// deleted. The labels at creation are the choice of the node: taints are not access control.
//
// All functions are pure: their arguments supply permissions by RBAC, the time, and the
// number of affected pods.
package taint
