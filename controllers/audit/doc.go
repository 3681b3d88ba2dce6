// Package audit finds running pods that a TolerationPolicy would refuse today: pods older
// than the policy, or that bypassed admission. It writes their number and a sample into
// the status of the policy. If it is configured to, it also writes them as Reports of
// OpenReports, one for each namespace with such pods.
//
// The controller checks the tracked pods on nodes periodically. It evaluates each group of
// equal pods once: pods of one namespace with the same tolerations and service account,
// and, where a policy selects by them, labels. The creator of a pod is not recorded, so
// rules that depend on it are not counted as violated.
package audit
