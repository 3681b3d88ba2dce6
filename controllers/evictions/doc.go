// Package evictions says in the status of EvictionPolicies how many pods they hold that
// have to leave by now, what carries the taints because of which they have to, and
// why they stay.
//
// The evictor knows who is held. What it says is looked at every two seconds and
// written where it differs. What a breaker has counted is written by package breaker, by
// itself: it has to be there before pods go.
package evictions
