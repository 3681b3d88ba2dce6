// Package audit finds pods that stand although a TolerationPolicy would refuse them
// today: they were there before the policy, or came in around it. It says how many
// in the status of the policy, and names some.
//
// Pods on nodes are looked at, out of memory, again and again. What many pods have in
// common is judged once: pods of one namespace with the same tolerations and service
// account, and, where a policy selects by them, labels. Nobody knows any more who
// created a pod, so what depends on that is not held against it.
package audit
