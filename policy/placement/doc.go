// Package placement says what pods and ResourceClaims are given when they are
// created, and what stands against it.
//
// A Set is compiled once. For each object that is created, Match finds the
// policies that are for it, and what those give together follows from them and the
// object alone: it does not depend on the order of the policies, and giving twice
// gives no more than giving once.
//
// How several policies go together:
//
//   - Tolerations and gates add up. A toleration is left out where another one
//     covers it, whoever brought that.
//   - Policies that steer by the same label (nodeSelector, or an In of
//     nodeAffinity) let a pod go wherever one of them would: the pod belongs to
//     several dedicated groups. All other requirements hold together.
//   - Where defaults of topology spread differ, Honor wins: it counts fewer nodes,
//     and only those that the pod can go to.
//
// What the pod says itself is never changed. If it is narrower than what the
// policies say, it stays so. If nothing could satisfy both, nothing is steered, and
// the pod is refused by who validates.
//
// Steering is convenience and no access control: a pod that lacks it is warned of,
// and taints are what keeps others away. A gate is another matter, because it holds
// a pod back until somebody has looked at it: a pod without is refused. For the same
// reason a policy of which it cannot be told whether it is for a pod gives it its
// gates, and nothing else.
package placement
