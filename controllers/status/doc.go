// Package status writes the status of policies and of EvictionApprovals.
//
// ReadyController sets the condition Ready of each policy, which says whether the policy
// is in force. The condition depends on the policy and on what this version of Tollgate
// evaluates, not on the state of a replica.
//
// ApprovalController sets whether an EvictionApproval can be used, was used or has
// expired, and how many pods were evicted because of it. An approval is used when the
// named taint is added to the named object before the approval expires. It is also used
// when a breaker first releases pods because of it; package breaker writes that, together
// with the number of pods. A used approval covers the taint that exists then, and no later
// one. Only breakers use an approval for an EvictionPolicy, until they have released
// spec.maxPods pods. Approvals are never deleted: they are a record.
//
// HeldController sets in the status of EvictionPolicies how many due pods they hold, which
// objects carry the taints, and why the pods stay. It reads these pods from the evictor
// every two seconds and writes the statuses that differ. Package breaker writes the count
// of a breaker itself, because it must be stored before pods are released.
package status
