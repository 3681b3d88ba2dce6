package handlers

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/tollgate-dev/tollgate/evictor/preview"
)

// sourcePolicy is the label of previews of a TaintPolicy that puts taints on nodes. The
// others are the kinds of tracker.Source.
const sourcePolicy = "taintpolicy"

// PreviewMetrics counts the pods that previews find. Its label is a closed set: node,
// devicetaintrule, resourceslice, resourceslicepatch and taintpolicy.
type PreviewMetrics struct {
	pods *prometheus.HistogramVec
}

// NewPreviewMetrics registers the metrics of previews with reg.
func NewPreviewMetrics(reg prometheus.Registerer) *PreviewMetrics {
	return &PreviewMetrics{pods: promauto.With(reg).NewHistogramVec(prometheus.HistogramOpts{
		Name:    "tollgate_preview_pods",
		Help:    "Pods that a previewed write makes due, or due sooner. Dry runs and refused writes count too.",
		Buckets: []float64{0, 1, 10, 100, 1000, 10_000, 100_000},
	}, []string{"source"})}
}

func (m *PreviewMetrics) observe(source string, f *preview.Forecast) {
	m.pods.WithLabelValues(source).Observe(float64(len(f.Pods)))
}
