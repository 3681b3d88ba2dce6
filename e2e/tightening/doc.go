// Package tightening compares package directives with the API server: random
// updates of the scheduling directives of pods are judged by both, and must get the
// same verdict for the same fields.
//
// The API server is asked by dry run, on a control plane of its own without webhooks,
// so that it alone is the judge. TOLLGATE_TIGHTENING_PAIRS says how many updates to
// judge, and TOLLGATE_TIGHTENING_SEED makes them those of an earlier run.
package tightening
