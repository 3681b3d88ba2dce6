// Package directives decides how the scheduling directives of a pod may change:
// where it may go (nodeSelector, affinity, topologySpreadConstraints), who places
// it and when (schedulerName, priority, schedulingGroup), and what holds it back
// (schedulingGates).
//
// The rules are those of Kubernetes (KEP-3521, KEP-3838), verdict and field path
// alike: a pod that is held by a scheduling gate may be narrowed to fewer nodes
// and never widened, and everything else stands from the moment the pod is
// created. Two properties carry this. Whether a pod is held is read from the pod
// as it was, so that one write may both narrow it and let it go. And narrowing is
// judged by form, not by meaning: a requirement is appended to what is there, and
// what is there stays as it was written, letter by letter.
//
// The functions are pure. They expect pods as the API server hands them to
// admission: defaults set, and a priority that the update left out filled in from
// the old pod.
package directives
