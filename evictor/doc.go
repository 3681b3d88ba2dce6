// Package evictor carries out the taint effect NoExecute: it deletes pods that may not stay on
// their nodes, or with the devices that they use, when their tolerations end.
//
// Package decide computes the deadline of a pod. The queue only wakes pods: at the deadline the
// evictor decides again, and a pod whose taint or toleration has changed stays. Package checks
// decides whether a pod that is due may leave now. Package act makes the requests, with the UID
// and the resourceVersion of the pod that was decided about as preconditions.
//
// Before it deletes a pod, the evictor reads the object that carries the taint (a node, a
// ResourceSlice or a DeviceTaintRule) from the API server, once for all pods within a few
// seconds. So no pod is deleted because a watch lags or the process was suspended.
//
// The file design.md in this folder describes the states of an eviction.
package evictor
