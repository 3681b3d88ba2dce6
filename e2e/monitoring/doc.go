// Package monitoring has a real Prometheus scrape Tollgate, kube-apiserver and
// kube-scheduler on a real control plane, with the rights, the rules and the dashboard
// that ship.
//
// It needs a Prometheus, which make test-monitoring builds and names in
// TOLLGATE_PROMETHEUS. Without, its tests do not run, and it says so.
//
// Its control plane is its own: metrics need authorization, and the tests run apart.
package monitoring
