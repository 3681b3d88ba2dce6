// Package state reads a snapshot of a cluster with the user's credentials, into the types with
// which the server decides: a tracker, the rules of the evictor, and the policies in force.
//
// Resources that are forbidden or not served count as empty, and Missing describes the effect.
// Pods and nodes are required.
package state
