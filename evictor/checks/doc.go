// Package checks decides whether a pod that has to leave may go now.
//
// A Check answers for one pod and one reason to leave: the pod goes on to the next check, waits
// for its turn, or is held for a Reason, which status, metrics, events and the command line show in
// the same words. The checks of a List are asked in order. What they have given a pod, such as a
// token of a rate or a place in a breaker, is taken back in the reverse order as soon as one of them
// does not let the pod go.
//
// There are two lists. The first decides from values alone: the policy (paused or protected),
// all nodes down, the NoSchedule twin of the taint, eviction loops. The evictor asks it for
// each reason before it reads anything. The second gives something to the pod: the rates,
// the PodDisruptionBudget, the breakers. The evictor asks it for one reason, after it has read the
// object with the taint and before the request.
package checks
