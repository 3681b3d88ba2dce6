// Package tracker knows which taints hold for which pods.
//
// It is fed with nodes, ResourceSlices, DeviceTaintRules, ResourceClaims and pods,
// in any order, and answers: which taints hold for a pod, and where each comes
// from; whose answer may have changed by what was just fed; what a rule selects;
// and what would change if an object were written. It keeps what the answers need
// and nothing else, knows no clients and no clocks, and does not decide: that is
// the evictor's part.
//
// The taints of a device are never stored as such. They are put together when they
// are asked for, from the slices of the newest generation of its pool and the rules
// that select it, so that there is nothing that could be out of date. What is
// stored are ways to find things: rules by what they select, claims by the devices
// allocated to them, pods by the claims that they refer to.
//
// What it assumes: resource versions of one kind of object can be compared (a
// promise of the API since Kubernetes 1.35), a deletion timestamp never goes
// away again, and an object created anew under an old name has another UID.
// Objects may come from a watch, from a relist, or from the answer to a request
// of our own, so an older version of an object never replaces a newer one. Only
// the watch creates and deletes: an answer may be late, and is taken in for the
// object with its UID or not at all.
//
// An event costs what it touches, with one exception: a rule that names a device and
// no pool is looked for in every pool.
//
// The state is guarded by one lock, held only while maps are read or written. What
// is put into the maps is replaced and never written to, so that answers can be used
// without the lock.
package tracker
