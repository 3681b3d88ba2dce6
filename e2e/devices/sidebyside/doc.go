// Package sidebyside plays the same scenarios of tainted devices to Kubernetes'
// own evictor and to Tollgate, and compares what comes of them.
//
// Each evictor has a control plane of its own, all else being equal. A scenario
// has a namespace and a driver of its own, so that all of them run at once: one
// takes half a minute, because tolerations have to run out and because the
// condition of a rule is written at most every ten seconds. Its claims are
// allocated by the scheduler.
//
// What comes of a scenario is which pods are evicted, when, for what reason, and
// what the rules say in the end. The two evictors may differ only where the
// scenario names a fault of Kubernetes that Tollgate does not have, and there they
// must: a difference that does not show is a scenario that shows nothing.
//
// With -update the table is written into docs/parity.md.
//
// Each evictor has a control plane of its own, because only one may act on it.
package sidebyside
