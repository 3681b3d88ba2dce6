// Package placement evaluates PlacementPolicies: their additions to a new pod or
// ResourceClaim, and the findings about it.
//
// Compile builds a Set once. For each new object, MatchPod or MatchClaim returns the policies
// that match it. Their additions depend only on these policies and the object, not on the
// order of the policies, and a second application adds nothing.
//
// Several policies combine as follows:
//
//   - Tolerations and gates accumulate. A toleration is omitted if another toleration, of
//     a policy or of the pod, covers it.
//   - Policies that require the same label (nodeSelector, or operator In of nodeAffinity)
//     allow the values of all of them: the pod belongs to several dedicated groups. All
//     other requirements apply together.
//   - If defaults of topology spread differ, Honor takes precedence: it counts fewer nodes,
//     and only nodes that the pod can be scheduled to.
//
// Existing requirements of a pod never change, even if they are narrower than those of the
// policies. If no node can satisfy both, no requirement is added, and validation refuses the
// pod.
//
// Node requirements are a convenience and not access control, because taints keep other pods
// away: a pod without them causes a warning. A scheduling gate holds a pod until the gate is
// removed, so a pod without the gate is refused. For the same reason, a policy whose match
// cannot be evaluated for a pod adds its gates, and nothing else.
package placement
