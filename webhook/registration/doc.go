// Package registration derives the webhooks through which the API server calls Tollgate from
// the policies in force. It is pure: controllers/registration writes what it returns.
//
// The manifests in deploy/webhooks are the source of every rule, condition, policy of failure
// and timeout. An entry of a manifest covers many resources, and the API server evaluates all
// match conditions of an entry for each request that its rules cover. So Derive splits the
// entries: one for pods, one for templates and so on, with the conditions that are about these
// resources, joined into one expression that ends at its first false part.
//
// Some entries are always there: those of tollgate.dev kinds, nodes, rules, slices, claims with
// tolerations, pods that are not plain, and updates of pods. They hold the rules of Kubernetes
// and previews, which need no policy. The others stand for a Reason, which a policy in force
// gives. A pod is plain if no rule and no policy looks at it, see plainPod: while no
// PlacementPolicy gives something to pods, the API server does not call for it.
package registration
