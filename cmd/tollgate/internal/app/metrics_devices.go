package app

import (
	"cmp"
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/tollgate-dev/tollgate/tracker"
)

const (
	// maxDrivers limits the values of the label driver, since writers of claims and slices choose
	// driver names. Further drivers have the label value other (F14).
	maxDrivers = 100
	otherLabel = "other"
)

var tainted = prometheus.NewDesc("tollgate_tainted_devices",
	"Devices, published or allocated, that have at least one taint with the effect.", []string{"driver", "effect"}, nil)

// counter is the part of a tracker that a Collector uses.
type counter interface {
	TaintedDevices() map[tracker.DriverEffect]int
}

// Collector is a prometheus collector of tainted devices.
type Collector struct {
	devices counter
}

// NewCollector returns a collector, which is not registered.
func NewCollector(devices counter) *Collector {
	return &Collector{devices: devices}
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(descs chan<- *prometheus.Desc) { descs <- tainted }

// Collect implements prometheus.Collector.
func (c *Collector) Collect(metrics chan<- prometheus.Metric) {
	for at, count := range bounded(c.devices.TaintedDevices()) {
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
