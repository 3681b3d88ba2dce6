package app

import (
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Register registers the metrics of a replica with reg. Leads is called at each scrape and must
// be safe for concurrent use.
func Register(reg prometheus.Registerer, version, evictionMode string, leads func() bool) {
	with := promauto.With(reg)
	with.NewGaugeVec(prometheus.GaugeOpts{
		Name: "tollgate_info",
		Help: "1, with the version of this replica, the Go version that built it, and its eviction.mode.",
	}, []string{"version", "go_version", "eviction_mode"}).WithLabelValues(version, runtime.Version(), evictionMode).Set(1)
	with.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "tollgate_leading",
		Help: "1 while this replica holds the lease, so that it may evict and write. All replicas together have 1, but for the moments between two leaders.",
	}, func() float64 {
		if leads() {
			return 1
		}
		return 0
	})
}
