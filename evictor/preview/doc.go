// Package preview says what the write of a taint would do to pods before it is written:
// which pods become due or due sooner, when, which of them a PodDisruptionBudget guards,
// and which of them no controller would replace.
//
// A View asks the tracker what would hold for the pods and decides with the rules of the
// evictor, so that a preview and what then happens agree.
//
// A View looks at one write. The Ledger looks at what other writes have hit lately: pods
// that are due, pods that have left since, and pods hit by writes that are admitted but
// not seen yet. Each replica keeps its own Ledger from the events that all of them see;
// replicas do not talk to each other. A replica cannot know which pods left before it
// started, nor what another replica admitted a moment ago.
//
// Limits compares what a write would do with the limits of TaintPolicies, and with what
// EvictionApprovals allow beyond them. The webhook asks it about writes of users, and the
// leader about its own writes for policies: a taint hits the same pods for either.
package preview
