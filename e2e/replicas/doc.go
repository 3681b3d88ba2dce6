// Package replicas holds the tests of two replicas of Tollgate on a real control plane:
// all of them admit, one of them evicts, and neither is missed.
//
// The API server reaches them through package balancer, as through a Service, and each
// reaches the API server through a faultproxy of its own, which says which replica wrote
// what and when. The lease is shorter than the default, 4 s instead of 15 s, so that the
// tests are quick; what is measured against it scales with it.
//
// The tests do not run beside each other, because they share the replicas.
//
// Its control plane is its own: the API server reaches two replicas through the balancer.
package replicas
