// Package registration writes the webhooks through which the API server calls Tollgate, and
// reports the changes that other writers make to them.
//
// Deriver derives the webhooks from the policies in force; it is pure. The manifests in
// deploy/webhooks are the source of every rule, condition, policy of failure and timeout. An
// entry of a manifest covers many resources, and the API server evaluates all match conditions
// of an entry for each request that its rules cover. So Derive splits the entries: one for pods,
// one for templates and so on, with the conditions that are about these resources, joined into
// one expression that ends at its first false part.
//
// Some entries are always there: those of tollgate.dev kinds, nodes, rules, slices, claims with
// tolerations, pods that are not plain, and updates of pods. They hold the rules of Kubernetes
// and previews, which need no policy. The others stand for a Reason, which a policy in force
// gives. A pod is plain if no rule and no policy looks at it, see plainPod: while no
// PlacementPolicy gives something to pods, the API server does not call for it.
//
// Controller writes the derived webhooks while this replica leads, into two configurations that
// are installed without webhooks. It never creates one: it has no right to, and each write is a
// merge patch with the UID and the resourceVersion that were read, which the API server refuses
// for another object or for none. So a deleted configuration stays deleted: an administrator
// stops Tollgate by deleting it.
//
// A merge patch replaces the whole list of webhooks. Server-side apply would leave what another
// writer adds to an entry, such as a match condition that is always false.
//
// The leader adds webhooks from the first ready endpoint on. While no endpoint is ready, it repairs
// the webhooks that exist and adds none: the API server would refuse pods, because no replica
// answers. The CA bundle comes from an annotation that package certs writes, because the process
// that leads may have no right to read the Secret of the CA.
//
// A webhook goes a minute after the last policy that needed it, so that every replica has
// dropped that policy, and not because of a policy that is not valid or cannot be read. An
// annotation of the configurations has the reasons for the webhooks, so that the next leader
// knows which those before it had.
//
// Watcher reports changes of the configurations, whether Tollgate writes them or the manifests
// have all webhooks (E10). A user who deletes the webhooks, or sets failurePolicy Ignore,
// disables the policies, and no error shows it: no request is refused any more. That may be
// intended in an emergency, so the watcher only reports it, by a metric, an event on the Lease
// and the log, and never reverts it. Writes of Tollgate and cert-manager are not reported: the
// webhooks that Controller writes, the caBundle, and the URL with which Tollgate replaces the
// Service. Changes without a leader are not reported, except a missing configuration, which the
// metric always shows.
package registration
