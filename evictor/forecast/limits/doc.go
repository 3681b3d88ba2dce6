// Package limits holds what the write of a taint would do to pods against the limits of
// TaintPolicies, and against what EvictionApprovals let through beyond them.
//
// It is asked by the webhook for what users write, and by the leader for what it writes
// itself because a policy says so: a taint hits as many pods, whoever adds it.
package limits
