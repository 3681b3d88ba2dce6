// Package devices decides what the taints of devices may look like and since when
// each of them counts, in ResourceSlices and in DeviceTaintRules, and what the
// tolerations of ResourceClaims and their templates may look like (KEP-5055).
//
// The rules are those of Kubernetes (AV-01 to AV-15), and stricter in two places
// where the API documents a rule that the API server does not check: a request has
// at most 16 tolerations (AV-11), and an empty key needs the operator Exists (AV-12).
//
// Taints of devices differ from those of nodes: they need not be unique by key and
// effect (AV-04), their time may lie in the future, and the API server itself gives
// the present to a taint without a time, before any admission sees it (AV-06). So
// that a taint is new cannot be told from its time.
//
// Every decision is about what a request adds or changes. What stands as it stood is
// left alone, even where it is not as it should be.
//
// The functions are pure.
package devices
