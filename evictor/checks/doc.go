// Package checks decides whether a pod that is due may be evicted now.
//
// A Check answers for one pod and one reason: the eviction proceeds, the pod waits, or the pod is
// held for a Reason, which status, metrics, events and the command line show in the same words. The
// checks of a List are asked in order. If one of them does not let the eviction proceed, the earlier
// ones release, in reverse order, what they have reserved for the pod, such as a token of a rate
// limit or room in a breaker.
//
// There are two lists. The first only reads state: the policy (paused or protected), all nodes down,
// the NoSchedule taint paired with the NoExecute taint, eviction loops. The evictor asks it for each
// reason before it makes a request. The second reserves something: rate limits, the
// PodDisruptionBudget, breakers. The evictor asks it for one reason, after it has read the object
// with the taint and before it evicts the pod.
package checks
