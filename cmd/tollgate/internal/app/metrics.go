package app

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"maps"
	"net/http"
	"runtime"
	"slices"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	configv1alpha1 "github.com/tollgate-dev/tollgate/api/config/v1alpha1"
	"github.com/tollgate-dev/tollgate/certs"
	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/webhook/auth"
)

// Scrapes have a client, a rate limit and a cache of their own: any client that reaches the port
// can cause requests, and neither reviews nor evictions may wait for these.
const (
	scrapeQPS   = 10
	scrapeBurst = 20
)

// metricsOptions returns the address of the metrics server, its certificates and its authorization
// (F12).
func metricsOptions(
	config *configv1alpha1.TollgateConfiguration, connection *rest.Config, certificates *certs.Manager, local clock.Clock,
) (metricsserver.Options, error) {
	options := metricsserver.Options{BindAddress: config.Metrics.BindAddress}
	if !config.Metrics.Asked() {
		return options, nil
	}
	clientset, err := clientWithin(connection, scrapeQPS, scrapeBurst)
	if err != nil {
		return options, fmt.Errorf("make a client for those who scrape: %w", err)
	}
	allows := auth.NewAuthority(clientset.AuthorizationV1().SubjectAccessReviews(), local, auth.AuthorityLimits{})
	guard := NewGuard(clientset.AuthenticationV1().TokenReviews(), allows, local)
	options.SecureServing = true
	options.TLSOpts = []func(*tls.Config){certificates.TLSConfig}
	options.FilterProvider = func(*rest.Config, *http.Client) (metricsserver.Filter, error) {
		return func(log logr.Logger, handler http.Handler) (http.Handler, error) {
			return guard.Around(log, handler), nil
		}, nil
	}
	return options, nil
}

const (
	// maxDrivers limits the values of the label driver, since writers of claims and slices choose
	// driver names. Further drivers have the label value other (F14).
	maxDrivers = 100
	otherLabel = "other"
)

var tainted = prometheus.NewDesc("tollgate_tainted_devices",
	"Devices, published or allocated, with at least one taint of the effect, by driver and effect.", []string{"driver", "effect"}, nil)

// Collector is a prometheus collector of tainted devices, as a tracker counts them.
type Collector func() map[tracker.DriverEffect]int

// Describe implements prometheus.Collector.
func (Collector) Describe(descs chan<- *prometheus.Desc) { descs <- tainted }

// Collect implements prometheus.Collector.
func (c Collector) Collect(metrics chan<- prometheus.Metric) {
	for at, count := range bounded(c()) {
		metrics <- prometheus.MustNewConstMetric(tainted, prometheus.GaugeValue, float64(count), at.Driver, string(at.Effect))
	}
}

// bounded returns counts with a bounded number of labels. A device with two unknown effects
// counts twice under other.
func bounded(counts map[tracker.DriverEffect]int) map[tracker.DriverEffect]int {
	drivers := map[string]struct{}{}
	for _, at := range slices.SortedFunc(maps.Keys(counts), func(a, b tracker.DriverEffect) int { return cmp.Compare(a.Driver, b.Driver) }) {
		if len(drivers) < maxDrivers {
			drivers[at.Driver] = struct{}{}
		}
	}
	sums := map[tracker.DriverEffect]int{}
	for at, count := range counts {
		if _, ok := drivers[at.Driver]; !ok {
			at.Driver = otherLabel
		}
		switch resourcev1.DeviceTaintEffect(at.Effect) {
		case resourcev1.DeviceTaintEffectNone, resourcev1.DeviceTaintEffectNoSchedule, resourcev1.DeviceTaintEffectNoExecute:
		default:
			at.Effect = corev1.TaintEffect(otherLabel)
		}
		sums[at] += count
	}
	return sums
}

// Register registers the metrics of a replica with reg. Leads is called at each scrape and must
// be safe for concurrent use.
func Register(reg prometheus.Registerer, version, evictionMode string, leads func() bool) {
	with := promauto.With(reg)
	with.NewGaugeVec(prometheus.GaugeOpts{
		Name: "tollgate_info",
		Help: "1, with the version of this replica, the Go version of its build, and its eviction.mode.",
	}, []string{"version", "go_version", "eviction_mode"}).WithLabelValues(version, runtime.Version(), evictionMode).Set(1)
	with.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "tollgate_leading",
		Help: "1 while this replica holds the lease and may evict and write. The sum over all replicas is 1, except between two leaders.",
	}, func() float64 {
		if leads() {
			return 1
		}
		return 0
	})
}
