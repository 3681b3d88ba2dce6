// Package rulestatus writes what has become of DeviceTaintRules into their status:
// the condition EvictionInProgress of KEP-5055, and for rules with the effect None
// a condition of Tollgate's own, tollgate.dev/EvictionPreview.
//
// A second controller does the same for ResourceSlicePatches with taints, which are
// written out as rules: Patches adds up what becomes of those.
//
// What a condition says is pure: it follows from what the rule selects, how many
// pods were evicted for it, what its status says so far, and how long ago the
// generation was first seen and the status last written. The controller looks at a
// rule when something about it has changed, and once a minute to be safe; it
// writes only what differs, and seldom.
//
// EvictionInProgress is what users wait for:
//
//	kubectl wait --for=condition=EvictionInProgress=false devicetaintrule/broken
//
// So it does not become False before a rule with the effect NoExecute has stood for
// long enough that the scheduler must know it (DE-76). Until then it is True with
// the reason Settling, even if there is nothing to evict. Nor does it while answers to
// deletions are on their way: the watch may tell of the end of a pod first, and the
// count that users then read would be too low (DE-77).
//
// Nothing is kept that a restart must not lose. How long a rule has stood, when it
// was written last, and how many pods were evicted are read back from its status;
// of the count, only what was evicted after the last write of a process that
// crashed is lost. The controller runs on the leader only, beside the evictor.
package rulestatus
