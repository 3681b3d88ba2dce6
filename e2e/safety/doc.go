// Package safety holds the tests of what users are promised about evictions, on a real
// control plane: that budgets hold and the pace is kept (G18), that a breaker holds what
// is more than its limit, over a crash too (J01, J05), that who is paused or protected
// stays, and that an API server that was away is caught up with (I03).
//
// The tests share one control plane with Tollgate in it, without Kubernetes' own
// controllers for taints. Whether a promise was kept is judged by what others say: by
// the audit log of the API server, and by a watch of the pods that the test itself keeps.
//
// The sizes are those of a quick run. TOLLGATE_SAFETY_PODS and TOLLGATE_SAFETY_GUARDED
// are how many pods have to leave and how many of them have budgets,
// TOLLGATE_SAFETY_PENDING and TOLLGATE_SAFETY_OUTAGE how many pods become due while the
// API server is away, and for how long that is.
//
// The control plane is its own: tests end Tollgate and stop the API server.
package safety
