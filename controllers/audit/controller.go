package audit

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	openreportsv1alpha1 "github.com/openreports/reports-api/apis/openreports.io/v1alpha1"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/evictor/controller"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/placement"
	"github.com/tollgate-dev/tollgate/policy/policyset"
	"github.com/tollgate-dev/tollgate/policy/toleration"
	"github.com/tollgate-dev/tollgate/tracker"
)

const (
	// scanPause is the delay between two scans, and writePause the minimum between two
	// writes of one status.
	scanPause  = 30 * time.Second
	writePause = 30 * time.Second
	// soonPause is the minimum delay until a change of policies is scanned, and until a scan that
	// failed is repeated. It grows up to latePause, so that scans take at most a twentieth of the
	// time.
	soonPause = 2 * time.Second
	latePause = 15 * time.Second
	share     = 20
	// writeFor is how long statuses are written although policies have changed.
	writeFor = 5 * time.Second
)

// Metrics shows the results of the leader.
type Metrics struct {
	violations *prometheus.GaugeVec
	// shown are the policies that have a series. Only the one worker uses it.
	shown    map[series]int32
	duration prometheus.Gauge
}

// series are the labels of a policy.
type series struct{ kind, name string }

// NewMetrics registers the metrics with reg.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	factory := promauto.With(reg)
	return &Metrics{
		violations: factory.NewGaugeVec(prometheus.GaugeOpts{
			Name: "tollgate_policy_violations",
			Help: "Existing pods that a TolerationPolicy or the guard of a PlacementPolicy would refuse today, by the kind and the name of the policy, at the last check by the leader.",
		}, []string{"kind", "policy"}),
		duration: factory.NewGauge(prometheus.GaugeOpts{
			Name: "tollgate_policy_audit_duration_seconds",
			Help: "Duration of the last check of all pods, in seconds.",
		}),
	}
}

// set shows the violations of policies, and removes what it has shown of others.
func (m *Metrics) set(policies []audited) {
	counts := map[series]int32{}
	for _, p := range slices.SortedFunc(slices.Values(policies), func(a, b audited) int { return cmp.Compare(a.name, b.name) }) {
		if p.name == "" {
			continue
		}
		kind, name, _ := strings.Cut(policy.Ref("TolerationPolicy", p.name), "/")
		if len(counts) >= policy.MaxNamed {
			name = policy.OtherName
		}
		counts[series{kind, name}] += p.found.Count
	}
	for one := range m.shown {
		if _, ok := counts[one]; !ok {
			m.violations.DeleteLabelValues(one.kind, one.name)
		}
	}
	for one, count := range counts {
		m.violations.WithLabelValues(one.kind, one.name).Set(float64(count))
	}
	m.shown = counts
}

// Options configures a Controller. All fields but Reports are required.
type Options struct {
	// Pods has the pods on nodes, and Synced reports whether it has all of them.
	Pods   *tracker.Tracker
	Synced func() bool
	// Namespace is the namespace of Tollgate. Admission evaluates neither its pods nor
	// those of kube-system.
	Namespace string
	// DefaultSeconds configures the API server's DefaultTolerationSeconds.
	DefaultSeconds toleration.DefaultSeconds
	Metrics        *Metrics
	// Reports configures the Reports of OpenReports. It is nil if none are written.
	Reports *ReportOptions
}

// Controller counts violations. Its cache holds namespaces, RuntimeClasses and policies.
type Controller struct {
	*controller.Controller[string]
	Options

	// timeout bounds each write.
	timeout time.Duration
	// nextScan is the earliest time of the next scan, and lastWrites are the times of recent
	// writes, by the UID of a policy or the namespace of a Report. Only the one worker uses
	// them and what is below.
	nextScan   time.Time
	lastWrites map[string]time.Time
	// written are the Reports as they were last read or written, by namespace; nil before they
	// are read.
	written map[string]*openreportsv1alpha1.Report
	readAt  time.Time
}

// allPods is the only key of the queue.
const allPods = "all pods"

// New returns a controller; Start starts it. The timeout of base bounds each write: a scan takes the
// longer the more pods there are.
func New(base controller.Base, options Options) *Controller {
	c := &Controller{Options: options, timeout: base.Timeout}
	base.Timeout = 0
	c.Controller = controller.New(base, controller.Options[string]{
		Name: "tollgate-audit", RetryBase: soonPause, Reconcile: c.reconcile,
		PoliciesChanged: func(context.Context) { c.Add(allPods) },
		Started: func() {
			c.nextScan, c.lastWrites, c.written = time.Time{}, map[string]time.Time{}, nil
			c.Add(allPods)
		},
	})
	return c
}

// Start runs the controller until ctx is done.
func (c *Controller) Start(ctx context.Context) error {
	defer c.Metrics.set(nil) // The next leader exports the metric.
	return c.Controller.Start(ctx)
}

// reconcile audits all pods, unless the last scan was a moment ago.
func (c *Controller) reconcile(ctx context.Context, _ string) (time.Duration, error) {
	current := c.Policies.Current()
	if current == nil || !c.Synced() {
		return soonPause, nil
	}
	if wait := c.nextScan.Sub(c.Local.Now()); wait > 0 {
		return 0, controller.DelayError(wait)
	}
	duration, err := c.audit(ctx, current)
	pause := min(max(soonPause, share*duration), latePause)
	c.nextScan = c.Local.Now().Add(pause)
	return pause + scanPause, err
}

// audit scans all pods, writes changed statuses, and returns the duration of the scan.
func (c *Controller) audit(ctx context.Context, current *policyset.Set) (duration time.Duration, err error) {
	began := c.Local.Now()
	scanned, err := c.scan(ctx, current.Tolerations)
	if err != nil {
		return 0, fmt.Errorf("look for violations: %w", err)
	}
	duration = c.Local.Since(began)
	c.Metrics.duration.Set(duration.Seconds())
	policies, err := c.audited(ctx, scanned.results)
	if err != nil {
		return duration, err
	}
	c.Metrics.set(policies)
	now := c.Local.Now()
	maps.DeleteFunc(c.lastWrites, func(_ string, at time.Time) bool { return now.Sub(at) >= writePause })
	err = c.write(ctx, current, policies)
	if c.Reports != nil {
		err = errors.Join(err, c.writeReports(ctx, policies, scanned.findings))
	}
	return duration, err
}

// write writes the violations into the statuses that differ. If that takes longer than
// writeFor and policies changed meanwhile, the next audit writes the rest. A refused write
// does not stop the others.
func (c *Controller) write(ctx context.Context, current *policyset.Set, policies []audited) error {
	now := c.Local.Now()
	var errs []error
	for _, p := range policies {
		uid := string(p.object.GetUID())
		if !current.Holds(p.object.GetUID(), p.object.GetGeneration()) {
			continue // The violations belong to another generation.
		}
		if _, ok := c.lastWrites[uid]; ok || equality.Semantic.DeepEqual(p.written, p.found) {
			continue
		}
		err := c.writeViolations(ctx, p.object, p.found)
		errs = append(errs, err)
		if err == nil {
			c.lastWrites[uid] = now
		} else if apierrors.ReasonForError(err) == metav1.StatusReasonUnknown {
			break // An unreachable API server would fail the rest too.
		}
		if c.Policies.Current() != current && c.Local.Since(now) > writeFor {
			break
		}
	}
	return errors.Join(errs...)
}

// audited is an object whose status has violations.
type audited struct {
	object client.Object
	// name is the name of the policy in force; empty for a PlacementPolicy without a guard,
	// whose status has no violations.
	name string
	// written are the violations in the status, and found those of the scan; nil without a
	// name.
	written, found *v1alpha1.TolerationViolations
}

// audited returns the TolerationPolicies and the PlacementPolicies, with the violations that
// were found. The newest is the first, because the author of a new policy waits for its
// result.
func (c *Controller) audited(ctx context.Context, found map[string]*v1alpha1.TolerationViolations) ([]audited, error) {
	var tolerations v1alpha1.TolerationPolicyList
	var placements v1alpha1.PlacementPolicyList
	if err := c.Cache.List(ctx, &tolerations); err != nil {
		return nil, fmt.Errorf("list policies: %w", err)
	}
	// PlacementPolicies need not be installed where their feature is off.
	if err := c.Cache.List(ctx, &placements); err != nil && !meta.IsNoMatchError(err) {
		return nil, fmt.Errorf("list policies: %w", err)
	}
	var policies []audited
	add := func(object client.Object, name string, written *v1alpha1.TolerationViolations) {
		violations := found[name]
		if violations == nil && name != "" {
			violations = &v1alpha1.TolerationViolations{}
		}
		policies = append(policies, audited{object, name, written, violations})
	}
	for i := range tolerations.Items {
		p := &tolerations.Items[i]
		add(p, p.Name, p.Status.Violations)
	}
	for i := range placements.Items {
		p := &placements.Items[i]
		name := ""
		if guard, _ := placement.Guard(p); guard != nil {
			name = guard.Name
		}
		add(p, name, p.Status.Violations)
	}
	slices.SortStableFunc(policies, func(a, b audited) int {
		return b.object.GetCreationTimestamp().Compare(a.object.GetCreationTimestamp().Time)
	})
	return policies, nil
}

// writeViolations writes the violations of one policy, if this replica leads; nil removes
// them. An empty sample is written too, or the merge patch would keep the old one. The UID
// makes the patch of a recreated policy fail.
func (c *Controller) writeViolations(ctx context.Context, object client.Object, violations *v1alpha1.TolerationViolations) error {
	if !c.Leads() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	var written any
	if violations != nil {
		written = map[string]any{"count": violations.Count, "sample": violations.Sample}
	}
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": object.GetUID()},
		"status":   map[string]any{"violations": written},
	})
	if err != nil {
		return fmt.Errorf("encode violations: %w", err)
	}
	return client.IgnoreNotFound(c.WriteStatus(ctx, "violations of policy", object, client.RawPatch(types.MergePatchType, body)))
}
