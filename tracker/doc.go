// Package tracker knows which taints hold for which pods.
//
// It is fed with nodes and pods, in any order, and answers two questions: which
// taints hold for a pod, and whose answer may have changed by what was just fed.
// It keeps what the answers need and nothing else, knows no clients and no
// clocks, and does not decide: that is the evictor's part.
//
// What it assumes: resource versions of one kind of object can be compared (a
// promise of the API since Kubernetes 1.35), a deletion timestamp never goes
// away again, and an object created anew under an old name has another UID.
// Objects may come from a watch, from a relist, or from the answer to a request
// of our own, so an older version of an object never replaces a newer one. Only
// the watch creates and deletes: an answer may be late, and is taken in for the
// object with its UID or not at all.
//
// The state is guarded by one lock, held only while maps are read or written.
package tracker
