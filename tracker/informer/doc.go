// Package informer feeds a tracker from the API server: it keeps of each object
// what Tollgate uses, watches, and passes on what changed.
//
// An informer's store holds the very values that the tracker is given, so that
// nothing is kept twice. What many objects have in common is kept once.
package informer
