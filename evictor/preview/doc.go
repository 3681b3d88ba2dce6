// Package preview computes the effect of a taint on pods before it is written: which pods
// become due or due sooner, and when, which of them a PodDisruptionBudget selects, and
// which of them no controller would replace.
//
// A View computes from the tracker which taints would hold for pods, and decides with the
// rules of the evictor, so that a preview agrees with the evictions that follow.
//
// A View is about one write. The Ledger is about the pods that other writes have hit
// lately: pods that are due, pods that left, and pods of admitted writes that no watch has
// reported. Each replica has its own Ledger, which it fills from its watches; replicas do
// not exchange data. A replica has no record of the pods that left before it started, nor
// of writes that another replica has just admitted.
//
// Limits compares the effect of a write with the limits of TaintPolicies, and with the
// EvictionApprovals of writes beyond them. The webhook calls it for writes of users, and
// the leader for its own writes for policies: a taint hits the same pods for either.
package preview
