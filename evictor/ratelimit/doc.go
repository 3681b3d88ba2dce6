// Package ratelimit lets pods leave at the pace that EvictionPolicies ask for.
//
// Each policy with a pace has a bucket of tokens. A pod goes when it can take a token from
// the buckets of all policies that pace it. Pods that have to wait are in one queue. They
// do not poll: a pod is called when it may go, so that 5,000 that wait cost no more than
// one.
//
// The queue is in the order of arrival. A pod is passed only by a pod that does not delay
// it: while one of its buckets has no token, another pod may take a token from its other
// buckets, if that makes it wait no longer. So one slow policy does not slow the pods of
// others, the pod that has waited longest is never delayed, no pod starves, and two pods
// that need tokens of the same buckets cannot wait for each other.
//
// Within any time t at most burst + rate*t pods leave, where the rate is podsPerSecond. A
// pod leaves at some time between the request and the answer, and if the API server does
// not answer for a while, all pods may leave at the same moment. So a pod holds its tokens
// during the attempt, and they are refilled only after the answer. If there is no answer,
// the pod counts as one that left when the attempt was given up. An attempt that evicted
// no pod returns its tokens, as if it had not been made. A pod that makes another attempt
// after one with an unknown result is counted once in each bucket: the earlier use of a
// token is taken back, unless the token is refilled already.
//
// If there are enough pods, they leave at the rate, with two exceptions. At most burst pods
// make an attempt at once: if an attempt takes longer than burst/rate, a burst of pods
// leaves per attempt, which is slower. And if the burst is far smaller than the number of
// pods that leave in a millisecond, a call takes longer than the refill of its token.
//
// The buckets are not those of golang.org/x/time/rate: its Limiter credits the same time
// twice if workers pass times out of order, and none while a clock that was set back has
// not caught up.
//
// All of this is in memory. A new leader begins with full buckets; the breaker bounds how
// many pods leave over all leaders. Time is that of the machine, not of the API server,
// the clock of which may be set.
package ratelimit
