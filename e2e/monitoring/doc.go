// Package monitoring has real Prometheuses scrape Tollgate, kube-apiserver and
// kube-scheduler on two real control planes, with the rights, the rules and the dashboard
// that ship. One Prometheus has the metrics of both.
//
// They need a Prometheus, which make test-monitoring builds and names in
// TOLLGATE_PROMETHEUS. Without, the tests do not run, and say so.
//
// The control planes are the package's own: metrics need authorization, and the tests run
// apart.
package monitoring
