package audit

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	openreportsv1alpha1 "github.com/openreports/reports-api/apis/openreports.io/v1alpha1"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/toleration"
)

// reporting is a world in which Reports are served and written.
type reporting struct {
	*world
	client.Client

	mu       sync.Mutex
	unserved bool
	// refused is the namespace in which writes fail with err.
	refused string
	err     error
	lists   int
	updates int
}

func newReporting(t *testing.T) *reporting {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, openreportsv1alpha1.Install(scheme))
	r := &reporting{world: newWorld()}
	fails := func(object client.Object) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		if object.GetNamespace() == r.refused {
			return r.err
		}
		return nil
	}
	r.Client = fake.NewClientBuilder().WithScheme(scheme).
		WithIndex(&openreportsv1alpha1.Report{}, metav1.ObjectNameField, func(o client.Object) []string { return []string{o.GetName()} }).
		WithInterceptorFuncs(interceptor.Funcs{
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				r.mu.Lock()
				r.lists++
				r.mu.Unlock()
				return c.List(ctx, list, opts...)
			},
			Create: func(ctx context.Context, c client.WithWatch, object client.Object, opts ...client.CreateOption) error {
				if err := fails(object); err != nil {
					return err
				}
				return c.Create(ctx, object, opts...)
			},
			Update: func(ctx context.Context, c client.WithWatch, object client.Object, opts ...client.UpdateOption) error {
				r.mu.Lock()
				r.updates++
				r.mu.Unlock()
				return c.Update(ctx, object, opts...)
			},
		}).Build()
	r.reports = &ReportOptions{
		Client: r.Client, Metrics: NewReportMetrics(prometheus.NewPedanticRegistry()),
		Served: func() bool {
			r.mu.Lock()
			defer r.mu.Unlock()
			return !r.unserved
		},
	}
	return r
}

// all returns the Reports by namespace.
func (r *reporting) all(t *testing.T) map[string]openreportsv1alpha1.Report {
	t.Helper()
	var list openreportsv1alpha1.ReportList
	require.NoError(t, r.Client.List(t.Context(), &list))
	byNamespace := map[string]openreportsv1alpha1.Report{}
	for _, report := range list.Items {
		require.Equal(t, reportName, report.Name)
		byNamespace[report.Namespace] = report
	}
	return byNamespace
}

func (r *reporting) counted(outcome string) int {
	return int(testutil.ToFloat64(r.reports.Metrics.WithLabelValues(outcome)))
}

func warning(p v1alpha1.TolerationPolicy) v1alpha1.TolerationPolicy {
	p.Spec.ValidationActions = []v1alpha1.ValidationAction{v1alpha1.Warn}
	return p
}

func TestC28WhatViolatesPoliciesIsAReportOfItsNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReporting(t)
		for _, name := range []string{"q", "p"} {
			r.tracker.SetPod(pod("kiwi", name, tolerating, nil))
		}
		r.tracker.SetPod(pod("banana", "may", tolerating, nil))
		began := time.Now()
		r.enforce(
			guarding("a", v1alpha1.TolerationGrant{Namespaces: []string{"banana"}}),
			warning(guarding("b", v1alpha1.TolerationGrant{Namespaces: []string{"banana"}})),
		)
		lead(t, r.world, func() {
			found := r.all(t)
			require.Equal(t, []string{"kiwi"}, slices.Collect(maps.Keys(found)))
			report := found["kiwi"]
			require.Equal(t, "tollgate", report.Source)
			require.Equal(t, openreportsv1alpha1.ReportSummary{Fail: 2, Warn: 2}, report.Summary)
			require.Equal(t, []metav1.OwnerReference{
				{APIVersion: "tollgate.dev/v1alpha1", Kind: "TolerationPolicy", Name: "a", UID: "a"},
				{APIVersion: "tollgate.dev/v1alpha1", Kind: "TolerationPolicy", Name: "b", UID: "b"},
			}, report.OwnerReferences, "it is deleted with the policies")
			require.Len(t, report.Results, 4)
			first, second := report.Results[0], report.Results[1]
			require.Equal(t, "TolerationPolicy/a", first.Policy)
			require.EqualValues(t, "fail", first.Result)
			require.True(t, first.Scored)
			require.Equal(t, []corev1.ObjectReference{{APIVersion: "v1", Kind: "Pod", Namespace: "kiwi", Name: "p", UID: "kiwip"}}, first.Subjects)
			require.Equal(t, "key=dedicated operator=Exists is not granted: allowed in namespaces banana", first.Description)
			require.Equal(t, began.Unix(), first.Timestamp.Seconds)
			require.Equal(t, "TolerationPolicy/b", second.Policy)
			require.EqualValues(t, "warn", second.Result)
			require.False(t, second.Scored)

			rest(9 * time.Minute)
			require.Equal(t, 1, r.counted(outcomeWritten), "nothing changed")
			r.tracker.SetPod(pod("kiwi", "later", tolerating, nil))
			rest(time.Minute)
			report = r.all(t)["kiwi"]
			require.Equal(t, "later", report.Results[0].Subjects[0].Name)
			require.Greater(t, report.Results[0].Timestamp.Seconds, began.Unix())
			require.Equal(t, began.Unix(), report.Results[2].Timestamp.Seconds, "since when it is found stays")

			r.enforce()
			rest(time.Minute)
			require.Empty(t, r.all(t), "nothing is left to report")
			require.Equal(t, 1, r.counted(outcomeDeleted))
			require.Zero(t, r.counted(outcomeFailed))
		})
	})
}

func TestAReportHasALimitedNumberOfResults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReporting(t)
		for i := range maxResults + 20 {
			r.tracker.SetPod(pod("kiwi", fmt.Sprintf("p%03d", i), tolerating, nil))
		}
		r.enforce(guarding("a"))
		lead(t, r.world, func() {
			report := r.all(t)["kiwi"]
			require.Len(t, report.Results, maxResults)
			require.Equal(t, "p099", report.Results[maxResults-1].Subjects[0].Name)
			require.Equal(t, maxResults+20, report.Summary.Fail, "the summary has those that are left out")
			require.Equal(t, maxResults, report.Configuration.Limits.MaxResults)
		})
	})
}

func TestTheNextLeaderGoesOnWithTheReportsOfTheLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReporting(t)
		r.tracker.SetPod(pod("kiwi", "p", tolerating, nil))
		r.enforce(guarding("a"))
		lead(t, r.world, func() {})
		written := r.all(t)["kiwi"]
		require.NoError(t, r.Create(t.Context(), &openreportsv1alpha1.Report{ObjectMeta: metav1.ObjectMeta{Namespace: "gone", Name: reportName}}))
		rest(time.Hour)
		lead(t, r.world, func() {
			require.Equal(t, map[string]openreportsv1alpha1.Report{"kiwi": written}, r.all(t), "that of a namespace without violations is deleted")
			require.Zero(t, r.updates)
		})
	})
}

func TestAReportThatAnotherClientChangedIsWrittenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReporting(t)
		r.tracker.SetPod(pod("kiwi", "p", tolerating, nil))
		r.tracker.SetPod(pod("banana", "p", tolerating, nil))
		r.enforce(guarding("a"))
		lead(t, r.world, func() {
			kiwi, banana := r.all(t)["kiwi"], r.all(t)["banana"]
			kiwi.Results = nil
			require.NoError(t, r.Update(t.Context(), &kiwi))
			require.NoError(t, r.Delete(t.Context(), &banana))
			rest(rereadPause + time.Minute)
			require.Len(t, r.all(t)["kiwi"].Results, 1)
			require.Len(t, r.all(t)["banana"].Results, 1)
			require.LessOrEqual(t, r.lists, 3+3, "those of this test too")

			// It notices at once where it writes itself.
			banana = r.all(t)["banana"]
			require.NoError(t, r.Delete(t.Context(), &banana))
			r.tracker.SetPod(pod("banana", "q", tolerating, nil))
			rest(2 * time.Minute)
			require.Len(t, r.all(t)["banana"].Results, 2)
			require.Zero(t, r.counted(outcomeFailed))
		})
	})
}

func TestReportsAreWrittenWhereTheyAreServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReporting(t)
		r.unserved = true
		r.tracker.SetPod(pod("kiwi", "p", tolerating, nil))
		r.enforce(guarding("a"))
		lead(t, r.world, func() {
			rest(time.Minute)
			require.Empty(t, r.all(t))
			require.EqualValues(t, 1, r.violations(0).Count, "the status does not need them")
			r.mu.Lock()
			r.unserved = false
			r.mu.Unlock()
			rest(time.Minute)
			require.Len(t, r.all(t), 1)
		})
	})
}

func TestAReportThatIsRefusedKeepsNoOther(t *testing.T) {
	terminating := apierrors.NewForbidden(schema.GroupResource{Resource: "reports"}, reportName, errors.New("namespace is being terminated"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	for sentence, c := range map[string]struct {
		err    error
		failed bool
	}{
		"a missing permission counts as a failure":       {apierrors.NewForbidden(schema.GroupResource{Resource: "reports"}, reportName, nil), true},
		"a namespace that is being deleted does not":     {terminating, false},
		"a namespace that is gone does not, either":      {apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "banana"), false},
		"a Report that another client created meanwhile": {apierrors.NewAlreadyExists(schema.GroupResource{Resource: "reports"}, reportName), false},
	} {
		t.Run(sentence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newReporting(t)
				r.refused, r.err = "banana", c.err
				r.tracker.SetPod(pod("banana", "p", tolerating, nil))
				r.tracker.SetPod(pod("kiwi", "p", tolerating, nil))
				r.enforce(guarding("a"))
				lead(t, r.world, func() {
					rest(time.Minute)
					require.Equal(t, []string{"kiwi"}, slices.Collect(maps.Keys(r.all(t))))
					require.Equal(t, c.failed, r.counted(outcomeFailed) > 0)
					r.mu.Lock()
					r.refused = ""
					r.mu.Unlock()
					rest(2 * time.Minute)
					require.Len(t, r.all(t), 2)
				})
			})
		})
	}
}

func TestTheGuardOfAPlacementPolicyOwnsReports(t *testing.T) {
	placement := &v1alpha1.PlacementPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "placement"}}
	found := &findings{}
	found.add(finding{Ruling: toleration.Ruling{Policy: "PlacementPolicy/p"}})
	found.add(finding{Ruling: toleration.Ruling{Policy: "unknown"}})
	require.Equal(t, []metav1.OwnerReference{
		{APIVersion: "tollgate.dev/v1alpha1", Kind: "PlacementPolicy", Name: "p", UID: types.UID("placement")},
	}, owners(found, map[string]client.Object{"PlacementPolicy/p": placement}))
}
