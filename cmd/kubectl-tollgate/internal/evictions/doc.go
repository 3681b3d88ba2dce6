// Package evictions is the command that shows which pods have to leave because of NoExecute
// taints, when, what holds them, and which object says so: as a list, a table, a document, or a
// screen that is redrawn. The input is the objects that a Feed reads, once or by watches, and the
// time.
//
// The rules of the evictor compute the deadline of a pod from taints and tolerations. Holds are
// computed from the specs of EvictionPolicies, or read from the status of policies, rules and
// PodDisruptionBudgets and from events. Tollgate's state in memory is not available: a pod
// without a visible hold is due.
package evictions
