// Package tightening compares package policy/validation with the API server: random
// updates of the scheduling directives of pods are judged by both, and must get the
// same verdict for the same fields. An update is one to three changes, each aimed at a
// rule, and about as many updates are allowed as refused. The same source of randomness
// gives the same pods.
//
// The API server is asked by dry run, on a control plane of its own without webhooks,
// so that it alone is the judge. TOLLGATE_TIGHTENING_PAIRS says how many updates to
// judge, and TOLLGATE_TIGHTENING_SEED makes them those of an earlier run.
package tightening
