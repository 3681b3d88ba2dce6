// Package sidebyside plays faults to Kubernetes' own evictors and to Tollgate, and shows
// what comes of them.
//
// Each has a control plane of its own, all else being equal, and reaches its API server
// through a faultproxy. A row of the table is a story with a fault in it that Kubernetes
// is known to suffer from. Both outcomes are asserted: a row that Kubernetes passes as
// well would be a claim that nothing backs.
//
// With -update the table is written into docs/reliability.md.
//
// Each evictor has a control plane of its own, because only one may act on it.
package sidebyside
