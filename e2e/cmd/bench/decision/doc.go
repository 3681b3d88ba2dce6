// Package decision measures how long Tollgate, and the controller built into
// Kubernetes, need from the event of a DeviceTaintRule until it is decided about
// every pod and those that have to leave are queued. No API server takes part: both
// are given the objects of a cluster as their informers would give them.
package decision
