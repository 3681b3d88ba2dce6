package webhook

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// Metrics counts what the admission endpoints do. Its labels come from closed
// sets: endpoints, the resources that are judged, operations and verdicts.
type Metrics struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	refusals *prometheus.CounterVec
	panics   prometheus.Counter
}

// NewMetrics registers the admission metrics with reg.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	factory := promauto.With(reg)
	return &Metrics{
		requests: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "tollgate_admission_requests_total",
			Help: "Admission reviews by endpoint, resource, operation, verdict (allowed, denied, error) and whether they were dry runs.",
		}, []string{"endpoint", "resource", "operation", "verdict", "dry_run"}),
		duration: factory.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "tollgate_admission_duration_seconds",
			Help:    "Time from the header of a review to its verdict, in seconds.",
			Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1},
		}, []string{"endpoint", "resource", "verdict"}),
		refusals: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "tollgate_admission_refused_total",
			Help: "HTTP requests refused before a verdict, by endpoint and HTTP status.",
		}, []string{"endpoint", "status"}),
		panics: factory.NewCounter(prometheus.CounterOpts{
			Name: "tollgate_admission_panics_total",
			Help: "Panics while judging a review. Each is a defect; its stack is in the log.",
		}),
	}
}

// observe counts a review that was judged, or that could not be.
func (m *Metrics) observe(endpoint string, req admission.Request, response admission.Response, err error, took time.Duration) {
	verdict := "denied"
	switch {
	case err != nil:
		verdict = "error"
	case response.Allowed:
		verdict = "allowed"
	}
	name := resourceLabel(req.Resource.Resource, req.SubResource)
	dryRun := req.DryRun != nil && *req.DryRun
	m.requests.WithLabelValues(endpoint, name, string(req.Operation), verdict, strconv.FormatBool(dryRun)).Inc()
	m.duration.WithLabelValues(endpoint, name, verdict).Observe(took.Seconds())
}

// resourceLabel keeps the label set closed: whoever can reach the port can send
// reviews of resources with any name.
func resourceLabel(name, subresource string) string {
	if subresource != "" {
		name += "/" + subresource
	}
	switch name {
	case "pods", "nodes", "tolerationpolicies",
		"resourceslices", "resourceclaims", "resourceclaims/status", "resourceclaimtemplates", "devicetaintrules":
		return name
	default:
		return "other"
	}
}

func (m *Metrics) refused(endpoint string, status int) {
	m.refusals.WithLabelValues(endpoint, strconv.Itoa(status)).Inc()
}
