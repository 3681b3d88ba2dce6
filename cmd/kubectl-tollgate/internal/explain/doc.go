// Package explain is the command that explains the state of a pod, a claim, a node or a device:
// what keeps a pod from nodes, what evicts it and when, and where values come from.
//
// An explanation follows from a World, which is a snapshot of a cluster, and from the time. It uses
// the functions by which admission and the evictor decide, and repeats the messages of the
// scheduler for what only the scheduler knows. An explanation is written as JSON, or as text by its
// WriteText method.
package explain
