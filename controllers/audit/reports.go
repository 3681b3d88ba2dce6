package audit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	openreportsv1alpha1 "github.com/openreports/reports-api/apis/openreports.io/v1alpha1"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/evictor/controller"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/toleration"
	"github.com/tollgate-dev/tollgate/tracker"
)

const (
	// reportName is the name of the Report of each namespace, by which RBAC limits what may be
	// changed, and reportSource is its source.
	reportName   = "tollgate"
	reportSource = "tollgate"
	// maxResults is the maximum number of results in a Report. Its summary counts all.
	maxResults = 100
	// rereadPause is the delay between two lists of the Reports, after which those that another
	// client has changed or deleted are written again, and reportsPage the size of a page.
	rereadPause = 10 * time.Minute
	reportsPage = 100

	// These are both results and values of the filter of a Report.
	resultFail = "fail"
	resultWarn = "warn"
)

// ReportOptions configures the Reports of OpenReports. All fields are required.
type ReportOptions struct {
	// Client lists Reports without a cache, and writes them.
	Client client.Client
	// Served reports whether the API server serves Reports.
	Served  func() bool
	Metrics *prometheus.CounterVec
}

// The values of the label outcome.
const (
	outcomeWritten = "written"
	outcomeDeleted = "deleted"
	outcomeFailed  = "failed"
)

// NewReportMetrics registers the counter of the writes of Reports with reg.
func NewReportMetrics(reg prometheus.Registerer) *prometheus.CounterVec {
	return controller.NewCounter(reg, "tollgate_policy_report_writes_total",
		"Writes of Reports of OpenReports by the leader, by outcome.", "outcome", outcomeWritten, outcomeDeleted, outcomeFailed)
}

// findings are the violations by the pods of one namespace.
type findings struct {
	summary openreportsv1alpha1.ReportSummary
	// named are the first violations in the order of pods and policies.
	named []finding
}

// finding is a violation by one pod.
type finding struct {
	toleration.Ruling

	key tracker.Key
}

func (f finding) compare(other finding) int {
	return cmp.Or(cmp.Compare(f.key.Name, other.key.Name), cmp.Compare(f.key.UID, other.key.UID), cmp.Compare(f.Policy, other.Policy))
}

// add counts a violation, and names it if it is among the first in order.
func (f *findings) add(one finding) {
	if one.Denies {
		f.summary.Fail++
	} else {
		f.summary.Warn++
	}
	f.named = insert(f.named, one, maxResults, finding.compare)
}

// writeReports writes the Reports that differ from what was found, and deletes those of
// namespaces without violations. A refused write does not stop the others.
func (c *Controller) writeReports(ctx context.Context, policies []audited, found map[string]*findings) error {
	if !c.Reports.Served() {
		c.written = nil // Reports that are served again may be others.
		return nil
	}
	if c.written == nil || c.Local.Since(c.readAt) >= rereadPause {
		if err := c.readReports(ctx); err != nil {
			c.Reports.Metrics.WithLabelValues(outcomeFailed).Inc()
			return err
		}
	}
	objects := map[string]client.Object{}
	for _, p := range policies {
		objects[p.name] = p.object
	}
	var errs []error
	for _, namespace := range sets.List(sets.KeySet(found).Union(sets.KeySet(c.written))) {
		if _, ok := c.lastWrites[namespace]; ok || !c.Leads() {
			continue
		}
		err := c.writeReport(ctx, namespace, found[namespace], objects)
		errs = append(errs, err)
		if err != nil && apierrors.ReasonForError(err) == metav1.StatusReasonUnknown {
			break // An unreachable API server would fail the rest too.
		}
	}
	return errors.Join(errs...)
}

// readReports lists the Reports of all namespaces.
func (c *Controller) readReports(ctx context.Context) error {
	read, readAt := map[string]*openreportsv1alpha1.Report{}, c.Local.Now()
	for next := ""; ; {
		var page openreportsv1alpha1.ReportList
		requestCtx, cancel := context.WithTimeout(ctx, c.timeout)
		err := c.Reports.Client.List(requestCtx, &page, client.MatchingFields{metav1.ObjectNameField: reportName},
			client.Limit(reportsPage), client.Continue(next))
		cancel()
		if err != nil {
			return fmt.Errorf("list Reports of OpenReports: %w", err)
		}
		for i := range page.Items {
			read[page.Items[i].Namespace] = &page.Items[i]
		}
		if next = page.Continue; next == "" {
			c.written, c.readAt = read, readAt
			return nil
		}
	}
}

// writeReport creates, updates or deletes the Report of one namespace, if it differs.
func (c *Controller) writeReport(ctx context.Context, namespace string, found *findings, policies map[string]client.Object) error {
	before := c.written[namespace]
	var after *openreportsv1alpha1.Report
	if found != nil {
		after = report(namespace, found, policies, before, c.Clock.Now())
		if before != nil && same(before, after) {
			return nil
		}
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	outcome := outcomeWritten
	var err error
	switch {
	case after == nil:
		outcome = outcomeDeleted
		err = c.Reports.Client.Delete(ctx, before, client.Preconditions{UID: &before.UID})
	case before == nil:
		err = c.Reports.Client.Create(ctx, after)
	default:
		after.ResourceVersion = before.ResourceVersion
		err = c.Reports.Client.Update(ctx, after)
	}
	switch {
	case err == nil:
	case apierrors.IsNotFound(err), apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		// Another client has changed or deleted it, or the namespace is gone: the next scan lists
		// all of them.
		delete(c.written, namespace)
		c.readAt = time.Time{}
		return nil
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		c.lastWrites[namespace] = c.Local.Now()
		return nil
	default:
		c.Reports.Metrics.WithLabelValues(outcomeFailed).Inc()
		return fmt.Errorf("write Report of OpenReports %s/%s: %w", namespace, reportName, err)
	}
	c.Reports.Metrics.WithLabelValues(outcome).Inc()
	c.lastWrites[namespace] = c.Local.Now()
	if after == nil {
		delete(c.written, namespace)
	} else {
		c.written[namespace] = after
	}
	return nil
}

// report returns the Report of a namespace. Results that are in before keep their time.
func report(namespace string, found *findings, policies map[string]client.Object, before *openreportsv1alpha1.Report, now time.Time) *openreportsv1alpha1.Report {
	since := map[string]metav1.Timestamp{}
	if before != nil {
		for i := range before.Results {
			if result := &before.Results[i]; len(result.Subjects) > 0 {
				since[resultID(result.Policy, result.Subjects[0].UID)] = result.Timestamp
			}
		}
	}
	made := &openreportsv1alpha1.Report{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: reportName,
			Labels:          map[string]string{"app.kubernetes.io/managed-by": reportSource},
			OwnerReferences: owners(found, policies),
		},
		Source: reportSource,
		Configuration: &openreportsv1alpha1.ReportConfiguration{Limits: openreportsv1alpha1.Limits{
			MaxResults:   maxResults,
			StatusFilter: []openreportsv1alpha1.StatusFilter{resultFail, resultWarn},
		}},
		Summary: found.summary,
	}
	for _, f := range found.named {
		ref := policy.Ref("TolerationPolicy", f.Policy)
		timestamp, ok := since[resultID(ref, f.key.UID)]
		if !ok {
			timestamp = metav1.Timestamp{Seconds: now.Unix()}
		}
		result := openreportsv1alpha1.ReportResult{
			Policy: ref, Rule: "tolerations", Category: "Taints and tolerations", Result: resultWarn, Timestamp: timestamp,
			Subjects: []corev1.ObjectReference{{
				APIVersion: "v1", Kind: "Pod", Namespace: f.key.Namespace, Name: f.key.Name, UID: f.key.UID,
			}},
			Description: f.Toleration + " is not granted: " + f.Allowed,
		}
		if f.Denies {
			result.Result, result.Scored = resultFail, true
		}
		made.Results = append(made.Results, result)
	}
	return made
}

// resultID identifies a result in its Report.
func resultID(policy string, pod types.UID) string { return policy + " " + string(pod) }

// owners returns references to the policies of the results, so that the Report is deleted with
// the last of them.
func owners(found *findings, policies map[string]client.Object) []metav1.OwnerReference {
	names := sets.New[string]()
	for _, f := range found.named {
		names.Insert(f.Policy)
	}
	var owners []metav1.OwnerReference
	for _, name := range sets.List(names) {
		object, ok := policies[name]
		if !ok {
			continue
		}
		kind, _, _ := strings.Cut(policy.Ref("TolerationPolicy", name), "/")
		owners = append(owners, metav1.OwnerReference{
			APIVersion: v1alpha1.GroupVersion.String(), Kind: kind, Name: object.GetName(), UID: object.GetUID(),
		})
	}
	return owners
}

// same reports whether a Report that was read or written says what another would.
func same(before, after *openreportsv1alpha1.Report) bool {
	return before.Source == after.Source && before.Summary == after.Summary &&
		before.Labels["app.kubernetes.io/managed-by"] == reportSource &&
		equality.Semantic.DeepEqual(before.OwnerReferences, after.OwnerReferences) &&
		equality.Semantic.DeepEqual(before.Configuration, after.Configuration) &&
		equality.Semantic.DeepEqual(before.Results, after.Results)
}
