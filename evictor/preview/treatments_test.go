package preview

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/evictor/decide"
	"github.com/tollgate-dev/tollgate/policy/eviction"
	"github.com/tollgate-dev/tollgate/tracker"
)

// examplePolicy returns an EvictionPolicy about a key, on nodes and devices.
func examplePolicy(name, key string, change func(*v1alpha1.EvictionPolicySpec)) v1alpha1.EvictionPolicy {
	p := v1alpha1.EvictionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)},
		Spec: v1alpha1.EvictionPolicySpec{Taints: []v1alpha1.TaintSelector{
			{Target: v1alpha1.TaintTargetNode, Key: key}, {Target: v1alpha1.TaintTargetDevice, Key: key},
		}},
	}
	if change != nil {
		change(&p.Spec)
	}
	return p
}

func paused(spec *v1alpha1.EvictionPolicySpec) { spec.Paused = true }

// protecting returns what protects pods with a label app.
func protecting(app string) func(*v1alpha1.EvictionPolicySpec) {
	return func(spec *v1alpha1.EvictionPolicySpec) {
		spec.Protect = &v1alpha1.EvictionProtection{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}}
	}
}

func breaking(pods, percent int32) func(*v1alpha1.EvictionPolicySpec) {
	return func(spec *v1alpha1.EvictionPolicySpec) {
		spec.Breaker = &v1alpha1.EvictionBreaker{}
		if pods > 0 {
			spec.Breaker.MaxPods = &pods
		}
		if percent > 0 {
			spec.Breaker.MaxPercent = &percent
		}
	}
}

// viewWith returns a view of a cluster with policies.
func viewWith(t *tracker.Tracker, policies ...v1alpha1.EvictionPolicy) *View {
	set := eviction.Compile(policies)
	return &View{
		Tracker: t, PodsKnown: yes, NodesKnown: yes, DevicesKnown: yes, BudgetsKnown: yes,
		Policies: func() *eviction.Set { return set },
		NamespaceLabels: func(name string) (labels.Labels, bool) {
			return labels.Set{corev1.LabelMetadataName: name}, name != "unknown"
		},
	}
}

// workload returns a pod of a workload.
func workload(name, app string, tolerations ...corev1.Toleration) tracker.Pod {
	p := pod(name, "n", tolerations...)
	p.Origin = &tracker.Origin{OwnerKind: "ReplicaSet", Labels: tracker.LabelsOf(map[string]string{"app": app})}
	return p
}

func TestForecastsKnowEvictionPolicies(t *testing.T) {
	t.Parallel()
	tight := func(spec *v1alpha1.EvictionPolicySpec) {
		breaking(4, 0)(spec)
		spec.Breaker.Window = metav1.Duration{Duration: time.Minute}
	}
	for name, tt := range map[string]struct {
		policies []v1alpha1.EvictionPolicy
		want     string
	}{
		"without any all is as it was": {nil, "evicts 10 pods in 1 namespace: 5 now, 5 within 300s"},
		"one about another key says nothing": {
			[]v1alpha1.EvictionPolicy{examplePolicy("p", "other", paused)}, "evicts 10 pods in 1 namespace: 5 now, 5 within 300s",
		},
		"J13 a pod that is protected stays": {
			[]v1alpha1.EvictionPolicy{examplePolicy("p", "k", protecting("db"))},
			"evicts 7 pods in 1 namespace: 3 now, 4 within 300s; not among them: 3 protected by EvictionPolicy/p",
		},
		"all of them may be": {
			[]v1alpha1.EvictionPolicy{examplePolicy("p", "*", func(spec *v1alpha1.EvictionPolicySpec) {
				spec.Protect = &v1alpha1.EvictionProtection{PodSelector: &metav1.LabelSelector{
					MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpExists}},
				}}
			})},
			"evicts no pods: 10 protected by EvictionPolicy/p",
		},
		"one that is paused holds, for now": {
			[]v1alpha1.EvictionPolicy{examplePolicy("p", "k", paused)},
			"evicts 10 pods in 1 namespace: 5 now, 5 within 300s; 10 held while EvictionPolicy/p is paused",
		},
		"the one with the highest priority decides": {
			[]v1alpha1.EvictionPolicy{examplePolicy("p", "k", paused), examplePolicy("q", "k", func(spec *v1alpha1.EvictionPolicySpec) {
				spec.Priority = 1
				protecting("db")(spec)
			})},
			"evicts 7 pods in 1 namespace: 3 now, 4 within 300s; not among them: 3 protected by EvictionPolicy/q",
		},
		"J01 a breaker that is too small is named": {
			[]v1alpha1.EvictionPolicy{examplePolicy("p", "k", breaking(9, 0))},
			"evicts 10 pods in 1 namespace: 5 now, 5 within 300s; EvictionPolicy/p holds after 9 pods in 10m0s",
		},
		"one that is large enough is not": {
			[]v1alpha1.EvictionPolicy{examplePolicy("p", "k", breaking(10, 0))}, "evicts 10 pods in 1 namespace: 5 now, 5 within 300s",
		},
		"a percentage is of the live pods": {
			[]v1alpha1.EvictionPolicy{examplePolicy("p", "k", breaking(0, 10))},
			"evicts 10 pods in 1 namespace: 5 now, 5 within 300s; EvictionPolicy/p holds after 1 pod in 10m0s",
		},
		"within its window no more may leave than it lets go": {
			[]v1alpha1.EvictionPolicy{examplePolicy("p", "k", tight)},
			"evicts 10 pods in 1 namespace: 5 now, 5 within 300s; EvictionPolicy/p holds after 4 pods in 1m0s",
		},
		"those that leave later than a window do not count with the first": {
			[]v1alpha1.EvictionPolicy{examplePolicy("p", "k", func(spec *v1alpha1.EvictionPolicySpec) {
				tight(spec)
				spec.Breaker.MaxPods = new(int32(5))
			})},
			"evicts 10 pods in 1 namespace: 5 now, 5 within 300s",
		},
		"one that selects everything counts what others govern": {
			[]v1alpha1.EvictionPolicy{examplePolicy("all", "*", func(spec *v1alpha1.EvictionPolicySpec) {
				breaking(5, 0)(spec)
				spec.Priority, spec.Breaker.Scope = -1, v1alpha1.LimitScopeSelected
			}), examplePolicy("p", "k", protecting("db"))},
			"evicts 7 pods in 1 namespace: 3 now, 4 within 300s; not among them: 3 protected by EvictionPolicy/p; EvictionPolicy/all holds after 5 pods in 10m0s",
		},
		"a breaker does not count those that are held": {
			[]v1alpha1.EvictionPolicy{examplePolicy("p", "k", func(spec *v1alpha1.EvictionPolicySpec) {
				breaking(1, 0)(spec)
				paused(spec)
			})},
			"evicts 10 pods in 1 namespace: 5 now, 5 within 300s; 10 held while EvictionPolicy/p is paused",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tr := tracker.New()
			tr.SetNode(node("n"), at(-60))
			for i := range 10 {
				var tolerations []corev1.Toleration
				if i%2 == 1 {
					tolerations = append(tolerations, tolerate("k", 300))
				}
				tr.SetPod(workload("p"+strconv.Itoa(i), []string{"web", "db", "web", "web", "db", "web", "web", "web", "db", "web"}[i], tolerations...))
			}
			f := foretold(t, viewWith(tr, tt.policies...), node("n"), node("n", exampleTaint("k", 0)), noon)
			require.Equal(t, tt.want, f.String())
		})
	}
}

func TestWhoIsProtectedFromOneTaintLeavesForAnother(t *testing.T) {
	t.Parallel()
	tr := tracker.New()
	tr.SetNode(node("n"), at(-60))
	tr.SetPod(workload("p", "db", tolerate("b", 60)))
	view := viewWith(tr, examplePolicy("a", "a", protecting("db")))
	f := foretold(t, view, node("n"), node("n", exampleTaint("a", 0), exampleTaint("b", 0)), noon)
	require.Equal(t, "evicts 1 pod in 1 namespace: 1 within 60s", f.String())
	require.Len(t, f.Pods[0].Because, 1)
	require.Equal(t, "b", f.Pods[0].Because[0].Taint.Key)
}

func TestANamespaceThatIsNotKnownSpeaksForNobody(t *testing.T) {
	t.Parallel()
	tr := tracker.New()
	tr.SetNode(node("n"), at(-60))
	for _, namespace := range []string{"meant", "unknown", "other"} {
		p := workload(namespace, "db")
		p.Namespace = namespace
		tr.SetPod(p)
	}
	view := viewWith(tr, examplePolicy("p", "k", func(spec *v1alpha1.EvictionPolicySpec) {
		spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: "meant"}}
		protecting("db")(spec)
	}))
	f := foretold(t, view, node("n"), node("n", exampleTaint("k", 0)), noon)
	require.Equal(t, "evicts 2 pods in 2 namespaces: 2 now; not among them: 1 protected by EvictionPolicy/p", f.String())
}

func TestAPauseHoldsOnlyWhereNothingElseIsDue(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		taints []corev1.Taint
		want   string
	}{
		"alone":                              {[]corev1.Taint{exampleTaint("a", 0)}, "evicts 1 pod in 1 namespace: 1 now; 1 held while EvictionPolicy/a is paused"},
		"with another one that is due too":   {[]corev1.Taint{exampleTaint("a", 0), exampleTaint("c", 0)}, "evicts 1 pod in 1 namespace: 1 now"},
		"with another one that is due later": {[]corev1.Taint{exampleTaint("a", 0), exampleTaint("b", 0)}, "evicts 1 pod in 1 namespace: 1 now; 1 held while EvictionPolicy/a is paused"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tr := tracker.New()
			tr.SetNode(node("n"), at(-60))
			tr.SetPod(workload("p", "db", tolerate("b", 60)))
			f := foretold(t, viewWith(tr, examplePolicy("a", "a", paused)), node("n"), node("n", tt.taints...), noon)
			require.Equal(t, tt.want, f.String())
			require.Equal(t, len(f.Paused) > 0, f.Pods[0].Paused)
		})
	}
}

func TestASentenceNamesFewPolicies(t *testing.T) {
	t.Parallel()
	f := Forecast{Protected: map[string]int{"a": 1, "b": 5, "c": 1, "d": 9, "e": 2}}
	require.Equal(t, "evicts no pods: 9 protected by EvictionPolicy/d, 5 protected by EvictionPolicy/b, 2 protected by EvictionPolicy/e, 2 by other EvictionPolicies", f.String())
	require.Equal(t, "would evict no pods: ", f.If()[:len("would evict no pods: ")])
}

func TestLimitsCountNoPodsThatAreProtectedButThoseThatAreHeld(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		policy v1alpha1.EvictionPolicy
		want   int
	}{
		"none":      {examplePolicy("p", "other", nil), 10},
		"protected": {examplePolicy("p", "k", protecting("db")), 6},
		"paused":    {examplePolicy("p", "k", paused), 10},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clk := clocktesting.NewFakePassiveClock(noon)
			tr := tracker.New()
			view := viewWith(tr, tt.policy)
			ledger := NewLedger(view, clk)
			tr.SetNode(node("n"), at(-60))
			for i := range 10 {
				tr.SetPod(workload("p"+strconv.Itoa(i), []string{"db", "web"}[min(i/4, 1)]))
			}
			changes, err := view.Node(node("n"), node("n", exampleTaint("k", 0)), noon)
			require.NoError(t, err)
			struck := view.Strikes(changes)
			require.Len(t, struck, tt.want)
			tr.SetNode(node("n", exampleTaint("k", 0)), noon)
			query := Query{Window: tenMinutes, Governs: governed}
			require.Equal(t, tt.want, ledger.Others(query), "while they are due")
			for i := range 10 {
				key := workload("p"+strconv.Itoa(i), "").Key
				ledger.Leaving(key)
				tr.DeletePod(key)
			}
			require.Equal(t, tt.want, ledger.Others(query), "and when they have left")
		})
	}
}

// TestWhatPoliciesProtectIsAsIfItWereNotTainted compares with what the evictor decides
// when the taints that a policy protects from are taken away.
func TestWhatPoliciesProtectIsAsIfItWereNotTainted(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	r := random{rand.New(rand.NewPCG(seed, seed))}
	going, protected := 0, 0
	for i := range 2_000 {
		tr := tracker.New()
		keys := r.fill(tr)
		policies := r.policies()
		view, set := viewWith(tr, policies...), eviction.Compile(policies)
		first, written := node("n", r.taints()...), node("n", r.taints()...)
		rule := r.rule()
		tr.SetNode(first, noon)
		tr.SetRule(rule, noon)
		now := at(r.IntN(60))
		before := unprotected(tr, keys, set, now)
		changes, err := view.Node(first, written, now)
		require.NoError(t, err)
		tr.SetNode(written, now)
		after := unprotected(tr, keys, set, now)
		f := view.Forecast(now, changes)
		got := map[tracker.Key]Pod{}
		for _, pod := range f.Pods {
			got[pod.Key] = pod
		}
		struck := map[tracker.Key]bool{}
		for _, s := range view.Strikes(changes) {
			struck[s.Key] = s.By(func(*Hit) bool { return true }, now)
		}
		for key, decision := range after {
			was := before[key]
			leaves := decision.Verdict == decide.EvictAt && (was.Verdict == decide.Keep || was.At.After(now) && decision.At.Before(was.At))
			require.Equal(t, leaves, struck[key], "seed %d, world %d", seed, i)
			if !leaves {
				require.NotContains(t, got, key, "seed %d, world %d", seed, i)
				continue
			}
			require.Contains(t, got, key, "seed %d, world %d", seed, i)
			require.Equal(t, decision.At, got[key].At, "seed %d, world %d", seed, i)
			require.Equal(t, was.At, got[key].Was, "seed %d, world %d", seed, i)
			require.Equal(t, decision.Wait, max(got[key].At.Sub(now), 0))
			going++
		}
		for _, pods := range f.Protected {
			protected += pods
		}
	}
	require.Greater(t, going, 500)
	require.Greater(t, protected, 100)
}

func (r random) policies() []v1alpha1.EvictionPolicy {
	var policies []v1alpha1.EvictionPolicy
	for i := range r.IntN(4) {
		policies = append(policies, examplePolicy("p"+strconv.Itoa(i), r.pick("a", "b", "*"), func(spec *v1alpha1.EvictionPolicySpec) {
			spec.Priority = r.Int32N(3)
			spec.Paused = r.IntN(3) == 0
			if r.IntN(2) == 0 {
				protecting(r.pick("web", "db"))(spec)
			}
			if r.IntN(3) == 0 {
				breaking(1+r.Int32N(3), 0)(spec)
			}
		}))
	}
	return policies
}

// unprotected decides about pods with the taints left out that a policy protects from.
func unprotected(tr *tracker.Tracker, keys []tracker.Key, set *eviction.Set, now time.Time) map[tracker.Key]decide.Decision {
	all := map[tracker.Key]decide.Decision{}
	for _, key := range keys {
		s, _ := tr.Lookup(key)
		left := func(target v1alpha1.TaintTarget, driver string, taints []tracker.Taint) []tracker.Taint {
			var kept []tracker.Taint
			for _, one := range taints {
				treatment, err := set.For(
					&eviction.Taint{Target: target, Driver: driver, Key: one.Key, Value: one.Value, Effect: one.Effect},
					&eviction.Subject{Namespace: key.Namespace, Labels: labels.Set(s.Pod.Labels().Map())},
				)
				if err == nil && !treatment.Protected {
					kept = append(kept, one)
				}
			}
			return kept
		}
		s.Taints = left(v1alpha1.TaintTargetNode, "", s.Taints)
		for i, used := range s.Devices {
			if i == 0 {
				s.Devices = append([]tracker.TaintedDevice(nil), s.Devices...)
			}
			s.Devices[i].Taints = left(v1alpha1.TaintTargetDevice, used.ID.Driver, used.Taints)
		}
		all[key] = decide.Rules{}.Decide(now, s)
	}
	return all
}

// BenchmarkPreviewWithPolicies is BenchmarkPreview in a cluster with policies, one of
// which asks for labels of pods and namespaces.
func BenchmarkPreviewWithPolicies(b *testing.B) {
	s := full()
	view := viewWith(s.tracker,
		examplePolicy("default", "*", func(spec *v1alpha1.EvictionPolicySpec) {
			breaking(500, 20)(spec)
			spec.Priority, spec.Breaker.Scope = -1000, v1alpha1.LimitScopeSelected
			spec.Protect = &v1alpha1.EvictionProtection{PriorityClassNames: []string{"system-node-critical"}}
		}),
		examplePolicy("gentle", "k", func(spec *v1alpha1.EvictionPolicySpec) {
			spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: "ns-1"}}
			protecting("app-1")(spec)
		}),
	)
	everything := rule("r", &resourcev1.DeviceTaintSelector{}, deviceTaint("k", 0))
	b.Run("rule/pods=10000", func(b *testing.B) {
		median(b, func() {
			changes, err := view.Rule(nil, everything, noon)
			require.NoError(b, err)
			f := view.Forecast(noon, changes)
			require.NotEmpty(b, f.String())
			require.NotEmpty(b, view.Strikes(changes))
		})
	})
}
