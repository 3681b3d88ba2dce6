package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/evictor/controller"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/policyset"
	"github.com/tollgate-dev/tollgate/policy/toleration"
	"github.com/tollgate-dev/tollgate/tracker"
)

// world is a cluster with pods and TolerationPolicies.
type world struct {
	controller.Cache

	tracker *tracker.Tracker
	metrics *Metrics

	mu         sync.Mutex
	policies   []v1alpha1.TolerationPolicy
	placements []v1alpha1.PlacementPolicy
	current    *policyset.Set
	namespaces map[string]map[string]string
	classes    []nodev1.RuntimeClass
	synced     bool
	leads      bool
	patchErr   error
	refused    string // the policy whose status is
	writes     int
	changed    chan struct{}
	reports    *ReportOptions
}

func newWorld() *world {
	return &world{
		tracker: tracker.New(), metrics: NewMetrics(prometheus.NewPedanticRegistry()), synced: true, leads: true,
		namespaces: map[string]map[string]string{"banana": {"team": "banana"}, "kiwi": nil},
		changed:    make(chan struct{}, 1),
	}
}

func (w *world) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	labels, ok := w.namespaces[key.Name]
	if !ok {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, key.Name)
	}
	obj.SetName(key.Name)
	obj.SetLabels(labels)
	return nil
}

func (w *world) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch list := list.(type) {
	case *nodev1.RuntimeClassList:
		list.Items = w.classes
	case *v1alpha1.TolerationPolicyList:
		for i := range w.policies {
			list.Items = append(list.Items, *w.policies[i].DeepCopy())
		}
	case *v1alpha1.PlacementPolicyList:
		for i := range w.placements {
			list.Items = append(list.Items, *w.placements[i].DeepCopy())
		}
	}
	return nil
}

func (w *world) Patch(_ context.Context, obj client.Object, patch client.Patch, _ ...client.SubResourcePatchOption) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writes++
	if w.patchErr != nil {
		return w.patchErr
	}
	if obj.GetName() == w.refused {
		return apierrors.NewInvalid(schema.GroupKind{Kind: "TolerationPolicy"}, w.refused, nil)
	}
	data, err := patch.Data(obj)
	if err != nil {
		return err
	}
	var change struct {
		Metadata struct{ UID types.UID }
		Status   struct {
			Violations *v1alpha1.TolerationViolations
		}
	}
	if err := json.Unmarshal(data, &change); err != nil {
		return err
	}
	for i := range w.policies {
		if p := &w.policies[i]; p.Name == obj.GetName() && p.UID == change.Metadata.UID {
			p.Status.Violations = change.Status.Violations
			return nil
		}
	}
	for i := range w.placements {
		if p := &w.placements[i]; p.Name == obj.GetName() && p.UID == change.Metadata.UID {
			p.Status.Violations = change.Status.Violations
			return nil
		}
	}
	return errors.New("no such policy")
}

func (w *world) Current() *policyset.Set {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.current
}

func (w *world) Subscribe() (<-chan struct{}, func()) { return w.changed, func() {} }

func (w *world) enforce(policies ...v1alpha1.TolerationPolicy) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.policies, w.current = policies, w.current.WithTolerations(policies)
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// violations returns the violations in the status of the policy at a position.
func (w *world) violations(position int) *v1alpha1.TolerationViolations {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.policies[position].Status.Violations
}

func (w *world) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.writes
}

func (w *world) controller() *Controller {
	flag := func(of *bool) func() bool {
		return func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return *of
		}
	}
	return New(controller.Base{
		Cache: w, Status: w, Policies: w, Clock: clock.RealClock{}, Local: clock.RealClock{}, Leads: flag(&w.leads), Timeout: time.Second,
	}, Options{
		Pods: w.tracker, Synced: flag(&w.synced), DefaultSeconds: toleration.DefaultSeconds{NotReady: 300, Unreachable: 300}, Metrics: w.metrics, Reports: w.reports,
	})
}

// lead runs a controller while during runs.
func lead(t *testing.T, w *world, during func()) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- w.controller().Start(ctx) }()
	rest(time.Second)
	during()
	stop()
	require.NoError(t, <-done)
}

func rest(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func guarding(name string, grants ...v1alpha1.TolerationGrant) v1alpha1.TolerationPolicy {
	return v1alpha1.TolerationPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Generation: 1},
		Spec:       v1alpha1.TolerationPolicySpec{Taints: []v1alpha1.TaintSelector{{Key: "dedicated"}}, Grants: grants},
	}
}

var tolerating = []corev1.Toleration{{Key: "dedicated", Operator: corev1.TolerationOpExists}}

// pod returns a pod on a node.
func pod(namespace, name string, tolerations []corev1.Toleration, origin *tracker.Origin) tracker.Pod {
	return tracker.Pod{
		Key: tracker.Key{Namespace: namespace, Name: name, UID: types.UID(namespace + name)}, NodeName: "n",
		Tolerations: tolerations, Origin: origin,
	}
}

func TestC28PodsThatStoodBeforeThePolicyAreCountedAndNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		for i := range 15 {
			w.tracker.SetPod(pod("kiwi", fmt.Sprintf("p%02d", i), tolerating, nil))
		}
		w.tracker.SetPod(pod("banana", "may", tolerating, nil))
		w.tracker.SetPod(pod("kiwi", "does not", nil, nil))
		w.tracker.SetPod(pod("kiwi", "another", []corev1.Toleration{{Key: "other", Operator: corev1.TolerationOpExists}}, nil))
		over, going, mirror := pod("kiwi", "over", tolerating, nil), pod("kiwi", "going", tolerating, nil), pod("kiwi", "mirror", tolerating, nil)
		over.Finished, going.Terminating, mirror.Mirror = true, true, true
		for _, left := range []tracker.Pod{over, going, mirror, pod("gone", "p", tolerating, nil)} {
			w.tracker.SetPod(left)
		}
		w.enforce(guarding("a", v1alpha1.TolerationGrant{Namespaces: []string{"banana"}}), guarding("b", v1alpha1.TolerationGrant{Namespaces: []string{"*"}}))
		lead(t, w, func() {
			found := w.violations(0)
			require.EqualValues(t, 15, found.Count)
			require.Len(t, found.Sample, maxSamples)
			require.Equal(t, "kiwi", found.Sample[0].Namespace)
			require.Equal(t, "p00", found.Sample[0].Name)
			require.Equal(t, "p09", found.Sample[9].Name)
			require.Contains(t, found.Sample[0].Toleration, "dedicated")
			require.Equal(t, &v1alpha1.TolerationViolations{}, w.violations(1))
			require.InDelta(t, 15, testutil.ToFloat64(w.metrics.violations.WithLabelValues("TolerationPolicy", "a")), 0)
			require.Zero(t, testutil.ToFloat64(w.metrics.violations.WithLabelValues("TolerationPolicy", "b")))
		})
		require.Zero(t, testutil.CollectAndCount(w.metrics.violations), "the next leader says how many")
	})
}

func TestF14TheMetricOfViolationsNamesALimitedNumberOfPolicies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.tracker.SetPod(pod("kiwi", "p", tolerating, nil))
		var guards []v1alpha1.TolerationPolicy
		for i := range policy.MaxNamed + 3 {
			guards = append(guards, guarding(fmt.Sprintf("p%03d", i)))
		}
		w.enforce(guards...)
		lead(t, w, func() {
			require.Equal(t, policy.MaxNamed+1, testutil.CollectAndCount(w.metrics.violations))
			require.InDelta(t, 1, testutil.ToFloat64(w.metrics.violations.WithLabelValues("TolerationPolicy", "p000")), 0)
			require.InDelta(t, 3, testutil.ToFloat64(w.metrics.violations.WithLabelValues("TolerationPolicy", policy.OtherName)), 0)
		})
	})
}

func TestC28ViolationsOfAGuardAreInTheStatusOfItsPlacementPolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.tracker.SetPod(pod("kiwi", "p", tolerating, nil))
		w.tracker.SetPod(pod("banana", "may", tolerating, nil))
		policy := v1alpha1.PlacementPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "placement", Generation: 1},
			Spec: v1alpha1.PlacementPolicySpec{
				Match: v1alpha1.PlacementMatch{Namespaces: []string{"banana"}},
				Guard: &v1alpha1.PlacementGuard{Taints: []v1alpha1.RegisteredTaint{{Key: "dedicated", Value: "banana", Effect: "NoSchedule"}}},
			},
		}
		place := func(p v1alpha1.PlacementPolicy) {
			w.mu.Lock()
			defer w.mu.Unlock()
			if len(w.placements) > 0 {
				p.Status = w.placements[0].Status
			}
			w.placements, w.current = []v1alpha1.PlacementPolicy{p}, w.current.WithPlacement([]v1alpha1.PlacementPolicy{p})
		}
		violations := func() *v1alpha1.TolerationViolations {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.placements[0].Status.Violations
		}
		place(policy)
		w.enforce()
		lead(t, w, func() {
			require.EqualValues(t, 1, violations().Count)
			require.Equal(t, "kiwi", violations().Sample[0].Namespace)
			require.InDelta(t, 1, testutil.ToFloat64(w.metrics.violations.WithLabelValues("PlacementPolicy", policy.Name)), 0)
			rest(time.Minute)
			require.Equal(t, 1, w.count())

			policy.Generation, policy.Spec.Guard = 2, nil
			place(policy)
			rest(time.Minute)
			require.Nil(t, violations(), "a policy without a guard has none")
			require.Zero(t, testutil.CollectAndCount(w.metrics.violations))
			require.Equal(t, 2, w.count())
		})
	})
}

func TestPodsThatAdmissionNeverJudgesAreNoViolations(t *testing.T) {
	w := newWorld()
	for _, namespace := range []string{metav1.NamespaceSystem, "tollgate-system", "kiwi"} {
		w.namespaces[namespace] = nil
		w.tracker.SetPod(pod(namespace, "p", tolerating, nil))
	}
	w.enforce(guarding("a"))
	c := w.controller()
	c.Namespace = "tollgate-system"
	scanned, err := c.scan(t.Context(), w.current.Tolerations)
	require.NoError(t, err)
	found := scanned.results
	require.EqualValues(t, 1, found["a"].Count)
	require.Equal(t, "kiwi", found["a"].Sample[0].Namespace)
}

func TestAnAuditDependsOnWhatIsKnownOfAPod(t *testing.T) {
	for sentence, c := range map[string]struct {
		grant    v1alpha1.TolerationGrant
		origin   *tracker.Origin
		violates bool
	}{
		"a namespace by its labels":                 {v1alpha1.TolerationGrant{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "banana"}}}, nil, false},
		"a pod by its labels":                       {withLabels("app", "a"), &tracker.Origin{Labels: tracker.LabelsOf(map[string]string{"app": "a"})}, false},
		"a pod with other labels":                   {withLabels("app", "a"), &tracker.Origin{Labels: tracker.LabelsOf(map[string]string{"app": "b"})}, true},
		"who created the pod is not known any more": {v1alpha1.TolerationGrant{Namespaces: []string{"banana"}, Expression: "request.userInfo.username == 'x'"}, nil, false},
		"a pod of nobody's":                         {v1alpha1.TolerationGrant{Namespaces: []string{"kiwi"}}, nil, true},
	} {
		t.Run(sentence, func(t *testing.T) {
			w := newWorld()
			w.tracker.SetPod(pod("banana", "p", tolerating, c.origin))
			scanned, err := w.controller().scan(t.Context(), toleration.Compile([]v1alpha1.TolerationPolicy{guarding("a", c.grant)}))
			require.NoError(t, err)
			found := scanned.results
			require.Equal(t, c.violates, len(found) == 1)
		})
	}
}

func withLabels(key, value string) v1alpha1.TolerationGrant {
	return v1alpha1.TolerationGrant{
		Namespaces: []string{"banana"}, ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{key: value}},
	}
}

func TestC16WhatKubernetesAddsIsNotHeldAgainstAPod(t *testing.T) {
	w := newWorld()
	policy := guarding("a")
	policy.Spec.Taints = []v1alpha1.TaintSelector{{Key: corev1.TaintNodeNotReady}, {Key: corev1.TaintNodeDiskPressure}, {Key: "runtime"}}
	brought := corev1.Toleration{Key: "runtime", Operator: corev1.TolerationOpExists}
	daemon := &tracker.Origin{OwnerKind: daemonSet}
	w.tracker.SetPod(pod("kiwi", "defaulted", []corev1.Toleration{
		{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(300))},
	}, nil))
	w.tracker.SetPod(pod("kiwi", "daemon", []corev1.Toleration{
		{Key: corev1.TaintNodeDiskPressure, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
	}, daemon))
	w.tracker.SetPod(pod("kiwi", "of a runtime class", []corev1.Toleration{brought}, nil))
	w.tracker.SetPod(pod("kiwi", "own", []corev1.Toleration{
		{Key: corev1.TaintNodeDiskPressure, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
	}, nil))
	w.classes = []nodev1.RuntimeClass{{Scheduling: &nodev1.Scheduling{Tolerations: []corev1.Toleration{brought}}}, {}}
	w.enforce(policy)
	scanned, err := w.controller().scan(t.Context(), w.current.Tolerations)
	require.NoError(t, err)
	found := scanned.results
	require.EqualValues(t, 1, found["a"].Count)
	require.Equal(t, "own", found["a"].Sample[0].Name)
}

func TestWhatTollgateGaveIsNotHeldAgainstAPod(t *testing.T) {
	w := newWorld()
	policy := guarding("a")
	policy.Spec.Taints = []v1alpha1.TaintSelector{{Key: "rack"}}
	list := []corev1.Toleration{
		{Key: "rack", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(20))},
	}
	given := pod("kiwi", "given", list, nil)
	given.Window = &tracker.Window{{Key: "rack", Seconds: 20}}
	another := pod("kiwi", "another", list, nil)
	another.Window = &tracker.Window{{Key: "rack", Seconds: 30}}
	for _, p := range []tracker.Pod{pod("kiwi", "chosen", list, nil), given, another} {
		w.tracker.SetPod(p)
	}
	scanned, err := w.controller().scan(t.Context(), toleration.Compile([]v1alpha1.TolerationPolicy{policy}))
	require.NoError(t, err)
	found := scanned.results
	require.EqualValues(t, 2, found["a"].Count)
	require.Equal(t, []string{"another", "chosen"}, []string{found["a"].Sample[0].Name, found["a"].Sample[1].Name})
}

func TestAStatusIsWrittenOnChangeAndNotTooOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.tracker.SetPod(pod("kiwi", "p0", tolerating, nil))
		w.enforce(guarding("a"))
		lead(t, w, func() {
			require.Equal(t, 1, w.count())
			rest(time.Hour)
			require.Equal(t, 1, w.count(), "nothing changed")
			for i := range 600 {
				w.tracker.SetPod(pod("kiwi", fmt.Sprintf("later%d", i), tolerating, nil))
				rest(time.Second)
			}
			require.LessOrEqual(t, w.count(), 1+600/30+1)
			require.Greater(t, w.count(), 15)
			rest(time.Minute)
			require.EqualValues(t, 601, w.violations(0).Count)
		})
	})
}

func TestAChangeOfPoliciesIsLookedAtSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.tracker.SetPod(pod("kiwi", "p", tolerating, nil))
		w.enforce(guarding("a"))
		lead(t, w, func() {
			w.enforce(guarding("a"), guarding("b"))
			rest(3 * time.Second)
			require.EqualValues(t, 1, w.violations(1).Count)
		})
	})
}

func TestNothingIsSaidBeforeAllIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.synced = false
		w.tracker.SetPod(pod("kiwi", "p", tolerating, nil))
		w.enforce(guarding("a"))
		lead(t, w, func() {
			rest(time.Minute)
			require.Zero(t, w.count())
			w.mu.Lock()
			w.synced, w.leads = true, false
			w.mu.Unlock()
			rest(time.Minute)
			require.Zero(t, w.count())
			w.mu.Lock()
			w.leads = true
			w.mu.Unlock()
			rest(3 * time.Second)
			require.Equal(t, 1, w.count())
		})
	})
}

func TestF10AWriteThatFailsIsTriedAgainLaterEachTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.patchErr = errors.New("forbidden")
		w.tracker.SetPod(pod("kiwi", "p", tolerating, nil))
		w.enforce(guarding("a"))
		lead(t, w, func() {
			rest(31 * time.Second)
			require.Equal(t, 5, w.count(), "at once, and after 2, 4, 8 and 16 seconds")
			rest(5 * time.Minute)
			require.Equal(t, 15, w.count(), "and every half minute")
			w.mu.Lock()
			w.patchErr = nil
			w.mu.Unlock()
			rest(31 * time.Second)
			require.EqualValues(t, 1, w.violations(0).Count)
			w.tracker.SetPod(pod("kiwi", "q", tolerating, nil))
			rest(time.Minute)
			require.EqualValues(t, 2, w.violations(0).Count, "what has succeeded is not waited for any more")
		})
	})
}

func TestAStatusThatIsRefusedKeepsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.refused = "a"
		w.tracker.SetPod(pod("kiwi", "p", tolerating, nil))
		w.enforce(guarding("a"), guarding("b"))
		lead(t, w, func() {
			require.Nil(t, w.violations(0))
			require.NotNil(t, w.violations(1))
		})
	})
}

// BenchmarkAudit100000Pods scans 100,000 pods of 1,000 workloads in 100 namespaces, under
// 100 policies. Every hundredth workload violates one.
func BenchmarkAudit100000Pods(b *testing.B) {
	w := newWorld()
	policies := make([]v1alpha1.TolerationPolicy, 100)
	for i := range policies {
		policies[i] = guarding(fmt.Sprintf("p%d", i), v1alpha1.TolerationGrant{Namespaces: []string{"n0", "n1"}})
		policies[i].Spec.Taints[0].Key = fmt.Sprintf("dedicated%d", i)
	}
	set := toleration.Compile(policies)
	for workload := range 1000 {
		namespace := fmt.Sprintf("n%d", workload%100)
		w.namespaces[namespace] = nil
		key := "other"
		if workload%100 == 5 {
			key = fmt.Sprintf("dedicated%d", workload/10)
		}
		shared := []corev1.Toleration{
			{Key: key, Operator: corev1.TolerationOpExists},
			{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(300))},
			{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(300))},
		}
		origin := &tracker.Origin{ServiceAccount: "default"}
		for replica := range 100 {
			p := pod(namespace, fmt.Sprintf("w%d-%d", workload, replica), shared, origin)
			p.NodeName = fmt.Sprintf("node%d", (workload*100+replica)%1000)
			w.tracker.SetPod(p)
		}
	}
	c := w.controller()
	b.ReportAllocs()
	for b.Loop() {
		scanned, err := c.scan(b.Context(), set)
		if err != nil || len(scanned.results) == 0 {
			b.Fatal(err)
		}
	}
}
