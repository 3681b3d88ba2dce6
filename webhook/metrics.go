package webhook

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"k8s.io/utils/ptr"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/webhook/handlers"
	"github.com/tollgate-dev/tollgate/webhook/review"
)

// Metrics counts the reviews of the admission endpoints. Its labels come from closed
// sets: endpoints, the resources that are judged, operations, verdicts, kinds of
// policies, and reasons and actions of findings.
type Metrics struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	findings *prometheus.CounterVec
	refusals *prometheus.CounterVec
	panics   prometheus.Counter
	// connections counts those that a limit closed.
	connections prometheus.Counter
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
		findings: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "tollgate_policy_findings_total",
			Help: "What was found not to be as a policy, or a rule that holds without one (none), asks: by the kind of policy, the reason (see docs/refusals.md), and what followed (deny, warn, audit). Dry runs count too.",
		}, []string{"kind", "reason", "action"}),
		refusals: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "tollgate_admission_refused_total",
			Help: "HTTP requests refused before a verdict, by endpoint and HTTP status.",
		}, []string{"endpoint", "status"}),
		panics: factory.NewCounter(prometheus.CounterOpts{
			Name: "tollgate_admission_panics_total",
			Help: "Panics while judging a review. Each is a defect; its stack is in the log.",
		}),
		connections: factory.NewCounter(prometheus.CounterOpts{
			Name: "tollgate_admission_connections_closed_total",
			Help: "Connections closed because too many were open, of one client's address or of all.",
		}),
	}
}

// observe counts a request that was decided, or that err kept from being decided.
func (m *Metrics) observe(endpoint, resource string, req *review.Request, result *handlers.Result, err error, took time.Duration) {
	verdict := result.Verdict.String()
	if err != nil {
		verdict = "error"
	}
	m.requests.WithLabelValues(endpoint, resource, string(req.Operation), verdict, strconv.FormatBool(ptr.Deref(req.DryRun, false))).Inc()
	m.duration.WithLabelValues(endpoint, resource, verdict).Observe(took.Seconds())
	if err != nil {
		return // Nothing follows from the findings up to then.
	}
	for i := range result.Findings {
		m.found(&result.Findings[i])
	}
}

// found counts a finding once for each of its actions.
func (m *Metrics) found(f *policy.Finding) {
	kind, _, _ := strings.Cut(f.Policy, "/")
	kind = cmp.Or(kind, "none")
	actions := f.Actions
	if len(actions) == 0 {
		actions = []v1alpha1.ValidationAction{v1alpha1.Deny}
	}
	for _, action := range actions {
		m.findings.WithLabelValues(kind, string(f.Reason), strings.ToLower(string(action))).Inc()
	}
}

func (m *Metrics) refused(endpoint string, status int) {
	m.refusals.WithLabelValues(endpoint, strconv.Itoa(status)).Inc()
}
