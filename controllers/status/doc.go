// Package status writes the status of policies and of EvictionApprovals.
//
// ReadyController sets the condition Ready of each policy, which says whether the policy
// is in force. The condition depends on the policy and on what this version of Tollgate
// evaluates, not on the state of a replica.
//
// ApprovalController sets whether an EvictionApproval can be used, was used or has
// expired, and how many pods were evicted because of it. An approval is used when the
// taint that it names is added to the object that it names while the approval lasts. It
// is used as well when a breaker first lets pods go because of it; package breaker writes
// that, together with the number of pods. An approval that was used is for the taint that
// exists then, and for no later one. An approval for an EvictionPolicy is used by breakers
// alone, until they have let as many pods go as it says. Approvals are never deleted: they
// are a record.
//
// HeldController sets in the status of EvictionPolicies how many due pods they hold, which
// objects carry the taints, and why the pods stay. The evictor knows these pods;
// the controller reads them every two seconds and writes what differs. The count of a
// breaker is written by package breaker itself, because it must be stored before pods go.
package status
