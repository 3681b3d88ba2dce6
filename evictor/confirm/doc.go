// Package confirm reads the object that carries a taint from the API server before pods are evicted
// because of the taint, once for all pods within a few seconds.
package confirm
