// Package explain is the command that says why a pod, a claim, a node or a device is as it
// is: what keeps a pod from nodes, what makes it leave and when, and where values come from.
//
// An explanation follows from a World, which is a cluster as it was read, and from the
// time. It decides nothing itself: it asks the functions by which admission and the evictor
// decide, and repeats the scheduler's words for what only the scheduler knows. An
// explanation is written as JSON, or as text by its Write method.
package explain
