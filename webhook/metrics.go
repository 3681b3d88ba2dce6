package webhook

import (
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/webhook/handlers"
	"github.com/tollgate-dev/tollgate/webhook/review"
)

// Metrics counts the reviews of the admission endpoints. Its labels come from closed
// sets: endpoints, the resources that are judged, operations, verdicts, kinds of
// policies, and reasons and actions of findings. Administrators choose the names of
// policies; the number of names is limited.
type Metrics struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	findings *prometheus.CounterVec
	refusals *prometheus.CounterVec
	panics   prometheus.Counter
	// connections counts those that a limit closed.
	connections prometheus.Counter

	mu sync.Mutex
	// named has the policies that labels name: the first policy.MaxNamed that have findings.
	named sets.Set[string]
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
			Help:    "Time from the receipt of the header of a review to its verdict, in seconds.",
			Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1},
		}, []string{"endpoint", "resource", "verdict"}),
		findings: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "tollgate_policy_findings_total",
			Help: "Violations of policies, by the kind and the name of the policy (none for a rule without a policy), the reason (see docs/refusals.md) and the action (deny, warn, audit). A violation of several policies counts for each of them. Dry runs count too.",
		}, []string{"kind", "policy", "reason", "action"}),
		named: sets.Set[string]{},
		refusals: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "tollgate_admission_refused_total",
			Help: "HTTP requests that were refused before a verdict, by endpoint and HTTP status.",
		}, []string{"endpoint", "status"}),
		panics: factory.NewCounter(prometheus.CounterOpts{
			Name: "tollgate_admission_panics_total",
			Help: "Panics during the evaluation of a review. Each panic is a defect; its stack is in the log.",
		}),
		connections: factory.NewCounter(prometheus.CounterOpts{
			Name: "tollgate_admission_connections_closed_total",
			Help: "Connections that were closed because too many were open, from one client address or in total.",
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

// found counts a finding once for each of its policies and actions.
func (m *Metrics) found(f *policy.Finding) {
	actions := f.Actions
	if len(actions) == 0 {
		actions = []v1alpha1.ValidationAction{v1alpha1.Deny}
	}
	for ref := range f.Policies() {
		kind, name := "none", "none"
		if ref != "" {
			kind, name = m.labels(ref)
		}
		for _, action := range actions {
			m.findings.WithLabelValues(kind, name, string(f.Reason), strings.ToLower(string(action))).Inc()
		}
	}
}

// labels returns the labels kind and policy for "Kind/name".
func (m *Metrics) labels(ref string) (kind, name string) {
	kind, name, _ = strings.Cut(ref, "/")
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.named.Has(ref) && len(m.named) >= policy.MaxNamed {
		return kind, policy.OtherName
	}
	m.named.Insert(ref)
	return kind, name
}

func (m *Metrics) refused(endpoint string, status int) {
	m.refusals.WithLabelValues(endpoint, strconv.Itoa(status)).Inc()
}
