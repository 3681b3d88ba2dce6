// Package evictor carries out NoExecute: it waits until a pod has to leave, because
// of a taint of its node or of a device that it uses, and deletes it.
//
// Package decide decides when that is. A queue of deadlines only wakes: the decision
// is made again when a deadline comes, so that a cancelled eviction is one for which
// the decision is Keep now. Package act makes the requests, each bound to the UID and the resource
// version that the decision was made on.
//
// Before it deletes, the evictor looks at the object that carries the taint, a node,
// a ResourceSlice or a DeviceTaintRule, itself rather than at its cache, once for
// all pods within a few seconds. So neither a watch that lags nor a process that was
// frozen leads to the deletion of a pod that may stay.
//
// See design.md beside this file for the states of an eviction.
package evictor
