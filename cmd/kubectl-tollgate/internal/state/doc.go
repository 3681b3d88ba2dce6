// Package state reads a snapshot of a cluster with the user's credentials, into the types with
// which the server decides: a tracker, the rules of the evictor, and the policies in force. A
// Source is a resource of the cluster that commands list or watch besides.
//
// Resources that are forbidden or not served count as empty in a snapshot, and Missing describes
// the effect. Pods and nodes are required.
package state
