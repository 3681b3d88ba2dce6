// Package merged shows ResourceSlices as the scheduler has to see them: with the
// taints of DeviceTaintRules among those of their drivers (KEP-5055).
//
// A View stands in for an informer of ResourceSlices. It is fed by two informers,
// of slices and of rules, keeps what they last said, and has a lister, event
// handlers and HasSynced of its own. Every slice is merged, whatever the
// generation of its pool; which of them count is for the reader to say.
//
// What is merged is read-only, like what an informer returns. A slice that no rule
// selects is passed through as it is; of any other the list of devices is copied,
// and all else is shared with the original. A driver's own taints come first, in
// its order, then those of the rules, by name of the rule. Nothing is dropped as a
// duplicate and no effect is left out.
//
// A slice is merged when somebody asks for it or is told of it, and then kept. An
// event only finds out which slices it touches, so its cost depends neither on
// how many rules nor on how many slices there are besides. The one exception is a
// rule that names a device and no pool, which looks for it in every pool.
//
// Each handler has a goroutine and a queue of its own. The queue holds a slice at
// most once, so it is never longer than there are slices: a handler that cannot
// keep up is told of the latest state only, one that panics is logged, and neither
// delays another. Handlers are told nothing until both informers have been read to
// the end of their first lists; then come all slices as initial ones.
//
// The state is guarded by one lock. No handler is called while it is held.
package merged
