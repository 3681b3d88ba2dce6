// Package rulestatus writes the status of DeviceTaintRules: the condition
// EvictionInProgress of KEP-5055, for rules with pods that are held the condition
// tollgate.dev/EvictionHeld, and for rules with the effect None the condition
// tollgate.dev/EvictionPreview.
//
// A second controller does the same for ResourceSlicePatches with taints, which are
// written out as rules: Patches presents each patch as one rule.
//
// The conditions are a pure function of what the rule selects, how many pods were evicted
// for it, its stored status, and how long ago the generation was first seen and the status
// last written. The controller evaluates a rule when something about it has changed, and
// at least once a minute. It writes only differences, with a minimum pause.
//
// Users wait for EvictionInProgress:
//
//	kubectl wait --for=condition=EvictionInProgress=false devicetaintrule/broken
//
// The condition therefore does not become False before a rule with the effect NoExecute
// has existed for long enough that the scheduler must have seen it (DE-76). Until then it
// is True with the reason Settling, even if there is nothing to evict. It does not become
// False either while deletions are not answered: the watch may report the end of a pod
// before the answer, and the count that users then read would be too low (DE-77).
//
// A restart loses no state. The age of a rule, its last write, and the number of evicted
// pods are read back from its status. After a crash, only the evictions since the last
// write are missing in the count. The controller runs on the leader only, beside the
// evictor.
package rulestatus
