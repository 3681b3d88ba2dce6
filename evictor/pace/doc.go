// Package pace lets pods leave at the pace that EvictionPolicies ask for.
//
// Each policy with a pace has a line. A pod stands in the lines of all policies that
// pace it and goes when each of them has a token for it. Nobody polls: a pod that has
// to wait is called when it is its turn, so 5,000 that wait cost no more than one.
//
// The order is that in which pods came. A pod is passed only by one that it does not
// wait for: when one of its lines has no token yet, another pod may take a token of its
// other lines, if that makes it wait no longer. So one slow line does not slow the
// rest, and whoever has waited longest is never put off: no pod starves, and two that
// need the same lines cannot wait for each other.
//
// Within any time t no more attempts that evict a pod begin than burst + rate*t, the
// rate being podsPerSecond; with pods enough it is that rate in the long run. A burst
// far below what leaves in a millisecond is the exception: then a call takes longer
// than the token that it is about, and pods leave more slowly. An attempt that evicted
// nobody gives its tokens back: all is as if it had never been made. That is worth
// nothing where the line would have been full without it, because a token that does
// not fit in is lost.
//
// All of this is in memory. A new leader begins with full lines; what bounds how many
// leave over all leaders is the breaker. Time is that of the machine, not of the API
// server, which may be set.
package pace
