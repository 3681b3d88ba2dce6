// Package confirm makes sure that a taint still stands before pods are evicted because of it: it reads the
// object that carries the taint from the API server, once for all pods within a few seconds.
package confirm
