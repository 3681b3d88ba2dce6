// Package informer feeds a tracker from the watch caches of pods and nodes, and
// holds the transforms that keep those caches small.
package informer
