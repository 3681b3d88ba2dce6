// Package window shows the modes Window and Observe on a control plane whose own
// controllers evict as well, as where nobody can turn them off.
//
// Its control plane is its own: Kubernetes' evictors run on it, which no other tests want.
package window
