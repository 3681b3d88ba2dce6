// Package cli runs commands of kubectl tollgate on a real control plane with Tollgate in it,
// and compares what they say with what then happens.
//
// evictions and approve: which pods have to leave, when, and what keeps them. explain: why
// pods are as they are, for causes that the scheduler, the evictor and policies make true.
// preview, taint device and untaint device: the pods that leave after the write are those of
// the preview, at their time.
//
// The tests share one control plane and run beside each other. Each has a namespace, nodes or
// a driver, and taint keys of its own.
package cli
