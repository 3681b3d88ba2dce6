// Package forecast says what the writing of a taint would do to pods, before it is
// written: which pods become due or due sooner, when, and which of them a
// PodDisruptionBudget guards or nobody would create anew.
//
// It asks the tracker what would hold for the pods and decides with the rules of the
// evictor, so that what is foretold is what then happens.
//
// A View looks at one write. The Ledger looks at what other writes have hit lately:
// pods that are due, pods that have left since, and pods that writes hit which are
// admitted and not seen yet. Each replica keeps its own from the events that all of
// them see, and none talks to another. What a replica cannot know is what left before
// it started, and what another one has admitted a moment ago.
package forecast
