// Package ratelimit lets pods leave at the pace that EvictionPolicies ask for.
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
// Within any time t no more pods leave than burst + rate*t, the rate being
// podsPerSecond. When a pod leaves nobody knows but that it is between the request and
// the answer, and when nobody has answered for a while all may leave in the same moment.
// So a token stays with who is on its way, and only after the answer is it there again.
// Where there is no answer, the pod counts as one that left when the attempt was given
// up. An attempt that evicted nobody gives its tokens back: all is as if it had never
// been made.
//
// With pods enough the rate is reached, but for two exceptions. No more than burst are on
// their way at once: where an attempt takes longer than burst/rate, pods leave a burst
// an attempt, which is slower. And a burst far below what leaves in a millisecond makes
// a call take longer than the token that it is about.
//
// All of this is in memory. A new leader begins with full lines; what bounds how many
// leave over all leaders is the breaker. Time is that of the machine, not of the API
// server, which may be set.
package ratelimit
