// Package sliceview shows ResourceSlices as the scheduler has to see them: with what
// ResourceSlicePatches make of their devices (KEP-5027), and with the taints of
// DeviceTaintRules among those of their drivers (KEP-5055).
//
// A View stands in for an informer of ResourceSlices. It is fed by informers, of slices
// and of rules, and of patches and DeviceClasses where there are such; it keeps what they
// last said, and has a lister, event handlers and HasSynced of its own. Every slice is
// merged, whatever the generation of its pool; which of them count is for the reader to
// say. Schedulers and autoscalers can use it as their source of slices.
//
// What is merged is read-only, like what an informer returns. A slice of which no rule
// and no patch is about a device is passed through as it is; of any other the list of
// devices is copied, and of a device that a patch changes the map that it changes. All
// else is shared with the original. A driver's own taints come first, in its order, then
// those of the patches and then those of the rules, each by name. Nothing is dropped as a
// duplicate and no effect is left out. One thing does not count: a rule that Tollgate
// wrote out for a patch (v1alpha1.LabelPatch) while that patch is in force here. The
// taints of the patch are there already, with the effect that its author gave them.
//
// A slice is merged when somebody asks for it or is told of it, and then kept. An
// event only finds out which slices it touches, so its cost depends neither on
// how many rules and patches nor on how many slices there are besides. The one exception
// is a rule or patch that names a device and no pool, which looks for it in every pool.
//
// The expressions of a patch and of its class are asked about each device once. The
// answers are kept until the devices of the slice, the filter of the patch or the
// selectors of the class change: a driver that writes the same devices again, and a patch
// that gives other values to the same devices, ask nothing. An expression itself is not
// evaluated again for devices of which it reads the same, in whatever slice and for
// whatever patch. Where one costs too much for a slice it is given up for the rest of that
// slice, and the report says so. What comes out depends on the objects alone, never on the
// order in which they came.
//
// Each handler has a goroutine and a queue of its own. The queue holds a slice at
// most once, so it is never longer than there are slices: a handler that cannot
// keep up is told of the latest state only, one that panics is logged, and neither
// delays another. Handlers are told nothing until all informers have been read to
// the end of their first lists; then come all slices as initial ones.
//
// The state is guarded by one lock. No handler is called while it is held. Expressions
// are asked under it, slice by slice, and what they may cost is bounded (policy/slicepatch).
package sliceview
