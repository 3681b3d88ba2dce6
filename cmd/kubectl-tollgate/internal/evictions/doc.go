// Package evictions is the command that shows which pods have to leave because of NoExecute
// taints, when, what keeps them, and which object says so: as a list, a table, a document,
// or a picture that changes with time. All of it follows from the objects that a Feed
// reads, once or by watches, and from now.
//
// The deadline of a pod is computed from taints and tolerations by the rules of the
// evictor. What holds it is computed from the specs of EvictionPolicies, or read from the
// statuses of policies, rules and PodDisruptionBudgets and from events. State that Tollgate
// keeps in memory is not known here: where nothing else is known, a pod is due.
package evictions
