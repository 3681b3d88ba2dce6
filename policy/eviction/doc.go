// Package eviction decides which EvictionPolicy governs an eviction, and which of them
// bound it.
//
// Several policies may select one pod and one taint. The one with the highest priority
// governs: it says by which method the pod leaves, whether it is held or protected.
// The paces and breakers of all that select it may bind it, see v1alpha1.LimitScope.
//
// Nothing here evicts or waits. What is not known, such as the labels of a namespace,
// is an error and never an answer.
package eviction
