// Package policy holds what every decision of Tollgate has in common: a verdict
// and the findings that explain it. The decisions themselves are in the packages
// below it, each a pure function of values and, where time matters, of now:
//
//   - tolerations: who may tolerate which taint
//   - taints: what a taint of a node may look like, and since when it counts
//   - directives: how the scheduling directives of a gated pod may change
//
// Nothing in here talks to a cluster, reads a clock, logs or counts. A denial is
// a value, never an error: an error says that no decision could be made, and
// what happens then is for the caller to choose.
package policy
