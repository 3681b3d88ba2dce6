package placement

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/cel"
)

// when returns a policy with a match that gives a gate.
func when(name string, match v1alpha1.PlacementMatch) v1alpha1.PlacementPolicy {
	return v1alpha1.PlacementPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.PlacementPolicySpec{Match: match, Pod: &v1alpha1.PodPlacement{SchedulingGates: []string{"example.com/" + name}}},
	}
}

func condition(text string) []admissionregistrationv1.MatchCondition {
	return []admissionregistrationv1.MatchCondition{{Name: "c", Expression: text}}
}

func TestMatch(t *testing.T) {
	labelled := func(key, value string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
	}
	oneOf := func(key string, values ...string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: metav1.LabelSelectorOpIn, Values: values}}}
	}
	without := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "tier", Operator: metav1.LabelSelectorOpDoesNotExist}}}
	subject := Subject{
		Namespace:       "team-a",
		NamespaceLabels: map[string]string{"tier": "gold"},
		Labels:          map[string]string{"app": "web"},
		Resources:       func() ([]string, error) { return []string{"cpu", "example.com/gpu"}, nil },
		DeviceClasses:   func(context.Context) ([]string, error) { return []string{"gpu.example.com"}, nil },
	}
	tests := []struct {
		name  string
		match v1alpha1.PlacementMatch
		want  bool
	}{
		{"its namespace", v1alpha1.PlacementMatch{Namespaces: []string{"other", "team-a"}}, true},
		{"another namespace", v1alpha1.PlacementMatch{Namespaces: []string{"team"}}, false},
		{"a prefix of its namespace", v1alpha1.PlacementMatch{Namespaces: []string{"other", "team-*"}}, true},
		{"another prefix", v1alpha1.PlacementMatch{Namespaces: []string{"team-b*"}}, false},
		{"every namespace", v1alpha1.PlacementMatch{Namespaces: []string{"*"}}, true},
		{"a label of its namespace", v1alpha1.PlacementMatch{NamespaceSelector: labelled("tier", "gold")}, true},
		{"one of several labels of its namespace", v1alpha1.PlacementMatch{NamespaceSelector: oneOf("tier", "lead", "gold")}, true},
		{"another label", v1alpha1.PlacementMatch{NamespaceSelector: labelled("tier", "lead")}, false},
		{"the absence of a label", v1alpha1.PlacementMatch{NamespaceSelector: without}, false},
		{"its namespace and a label that it lacks", v1alpha1.PlacementMatch{Namespaces: []string{"team-a"}, NamespaceSelector: labelled("tier", "lead")}, false},
		{"its namespace, and an empty selector", v1alpha1.PlacementMatch{Namespaces: []string{"team-a"}, NamespaceSelector: &metav1.LabelSelector{}, PodSelector: &metav1.LabelSelector{}}, true},
		{"a label of the pod", v1alpha1.PlacementMatch{Namespaces: []string{"*"}, PodSelector: labelled("app", "web")}, true},
		{"a label that the pod lacks", v1alpha1.PlacementMatch{Namespaces: []string{"*"}, PodSelector: labelled("app", "db")}, false},
		{"a resource that is requested", v1alpha1.PlacementMatch{Resources: []string{"example.com/fpga", "example.com/gpu"}}, true},
		{"a resource that is not", v1alpha1.PlacementMatch{Resources: []string{"example.com/fpga"}}, false},
		{"a class that is requested", v1alpha1.PlacementMatch{DeviceClasses: []string{"gpu.example.com"}}, true},
		{"a class that is not", v1alpha1.PlacementMatch{DeviceClasses: []string{"fpga.example.com"}}, false},
		{"a class that is requested, elsewhere", v1alpha1.PlacementMatch{Namespaces: []string{"banana"}, DeviceClasses: []string{"gpu.example.com"}}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			set := Compile([]v1alpha1.PlacementPolicy{when("a", tt.match)})
			require.Empty(t, set.Problems())
			require.Equal(t, 1, set.Len())
			matching, err := set.MatchPod(t.Context(), &subject)
			require.NoError(t, err)
			require.Equal(t, tt.want, !matching.Empty())
			claims, err := set.MatchClaim(t.Context(), &subject)
			require.NoError(t, err)
			require.True(t, claims.Empty(), "the policy gives nothing to claims")
		})
	}
}

func TestPoliciesAreFoundOnceAndByName(t *testing.T) {
	set := Compile([]v1alpha1.PlacementPolicy{
		when("a", v1alpha1.PlacementMatch{Resources: []string{"r1", "r2"}}), when("c", v1alpha1.PlacementMatch{Namespaces: []string{"*"}}),
		when("b", v1alpha1.PlacementMatch{Namespaces: []string{"n"}}), when("d", v1alpha1.PlacementMatch{DeviceClasses: []string{"x", "y"}}),
	})
	matching, err := set.MatchPod(t.Context(), &Subject{
		Namespace: "n", Resources: func() ([]string, error) { return []string{"r2", "r1"}, nil },
		DeviceClasses: func(context.Context) ([]string, error) { return []string{"y", "x"}, nil },
	})
	require.NoError(t, err)
	var names []string
	for _, c := range matching.policies {
		names = append(names, c.name)
	}
	require.Equal(t, []string{"a", "b", "c", "d"}, names)
}

func TestUnknownLabelsOfANamespaceSatisfyNoSelector(t *testing.T) {
	without := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "tier", Operator: metav1.LabelSelectorOpDoesNotExist}}}
	set := Compile([]v1alpha1.PlacementPolicy{when("a", v1alpha1.PlacementMatch{NamespaceSelector: without})})
	matching, err := set.MatchPod(t.Context(), &Subject{Namespace: "a"})
	require.NoError(t, err)
	require.True(t, matching.Empty())
	matching, err = set.MatchPod(t.Context(), &Subject{Namespace: "a", NamespaceLabels: map[string]string{}})
	require.NoError(t, err)
	require.False(t, matching.Empty())
}

func TestWhatIsCostlyIsAskedOnceAndOnlyIfNeeded(t *testing.T) {
	resources, classes := 0, 0
	subject := Subject{
		Namespace: "a",
		Resources: func() ([]string, error) { resources++; return nil, nil },
		DeviceClasses: func(context.Context) ([]string, error) {
			classes++
			return []string{"x"}, nil
		},
	}
	set := Compile([]v1alpha1.PlacementPolicy{
		when("elsewhere", v1alpha1.PlacementMatch{Namespaces: []string{"b"}, Resources: []string{"r"}, DeviceClasses: []string{"x"}}),
	})
	_, err := set.MatchPod(t.Context(), &subject)
	require.NoError(t, err)
	require.Zero(t, resources+classes)

	set = Compile([]v1alpha1.PlacementPolicy{
		when("r1", v1alpha1.PlacementMatch{Resources: []string{"r"}}), when("r2", v1alpha1.PlacementMatch{Namespaces: []string{"a"}, Resources: []string{"r"}}),
		when("x1", v1alpha1.PlacementMatch{DeviceClasses: []string{"x"}}), when("x2", v1alpha1.PlacementMatch{Namespaces: []string{"a"}, DeviceClasses: []string{"x"}}),
	})
	_, err = set.MatchPod(t.Context(), &subject)
	require.NoError(t, err)
	require.Equal(t, 1, resources)
	require.Equal(t, 1, classes)
}

func TestFaultsFromOutsideAreNoVerdict(t *testing.T) {
	fault := errors.New("no answer")
	broken := Subject{
		Namespace:     "a",
		Resources:     func() ([]string, error) { return nil, fault },
		DeviceClasses: func(context.Context) ([]string, error) { return nil, fault },
	}
	for _, match := range []v1alpha1.PlacementMatch{
		{Resources: []string{"r"}},
		{DeviceClasses: []string{"x"}},
		{Namespaces: []string{"a"}, Resources: []string{"r"}},
		{Namespaces: []string{"a"}, DeviceClasses: []string{"x"}},
	} {
		_, err := Compile([]v1alpha1.PlacementPolicy{when("a", match)}).MatchPod(t.Context(), &broken)
		require.ErrorIs(t, err, fault)
	}
}

func TestMatchConditions(t *testing.T) {
	subject := func() *Subject {
		return &Subject{Namespace: "a", Review: &cel.Review{Request: &admissionv1.AdmissionRequest{
			Namespace: "a", Operation: admissionv1.Create,
			Object: runtime.RawExtension{Raw: []byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"priority":7}}`)},
		}}}
	}
	t.Run("true and false", func(t *testing.T) {
		set := Compile([]v1alpha1.PlacementPolicy{
			when("high", v1alpha1.PlacementMatch{MatchConditions: condition("object.spec.priority > 5")}),
			when("low", v1alpha1.PlacementMatch{MatchConditions: condition("object.spec.priority <= 5")}),
		})
		require.Empty(t, set.Problems())
		matching, err := set.MatchPod(t.Context(), subject())
		require.NoError(t, err)
		require.Len(t, matching.policies, 1)
		require.Equal(t, "high", matching.policies[0].name)
	})
	t.Run("D03 one that is of a later Kubernetes than may be written is evaluated", func(t *testing.T) {
		const newer = "dyn([object.spec.priority]).includes(7)"
		p := everything("newer", v1alpha1.PlacementMatch{MatchConditions: condition(newer)})
		set := Compile([]v1alpha1.PlacementPolicy{p})
		require.Contains(t, set.Problems(), "newer")
		matching, err := set.MatchPod(t.Context(), subject())
		require.NoError(t, err)
		requireGivesAll(t, &p, matching)
	})
}

// everything returns a policy with a match that gives all that a policy can give.
func everything(name string, match v1alpha1.PlacementMatch) v1alpha1.PlacementPolicy {
	p := when(name, match)
	p.Spec.Pod.Tolerations = []corev1.Toleration{tolerates60("k", nil)}
	p.Spec.Pod.NodeSelector = map[string]string{"k": "v"}
	p.Spec.Pod.TopologySpread = &v1alpha1.TopologySpreadDefaults{NodeTaintsPolicy: new(corev1.NodeInclusionPolicyHonor)}
	p.Spec.Claim = &v1alpha1.ClaimPlacement{Tolerations: []resourcev1.DeviceToleration{tolerating("k", new(int64(300)))}}
	return p
}

// aPod returns a pod that lacks all that everything gives.
func aPod() corev1.PodSpec {
	return corev1.PodSpec{TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{TopologyKey: "zone"}}}
}

func requireGivesAll(t *testing.T, p *v1alpha1.PlacementPolicy, m Matching) {
	t.Helper()
	placed := place(m, aPod())
	require.Equal(t, p.Spec.Pod.Tolerations, placed.Tolerations)
	require.Equal(t, p.Spec.Pod.NodeSelector, placed.NodeSelector)
	require.Equal(t, p.Spec.Pod.TopologySpread.NodeTaintsPolicy, placed.TopologySpreadConstraints[0].NodeTaintsPolicy)
	require.Equal(t, []corev1.PodSchedulingGate{{Name: p.Spec.Pod.SchedulingGates[0]}}, placed.SchedulingGates)
}

// requireGivesGatesAlone holds that a pod is given the gates of p and nothing else,
// and is refused without them.
func requireGivesGatesAlone(t *testing.T, p *v1alpha1.PlacementPolicy, m Matching) {
	t.Helper()
	spec := aPod()
	want := aPod()
	want.SchedulingGates = []corev1.PodSchedulingGate{{Name: p.Spec.Pod.SchedulingGates[0]}}
	placed := place(m, spec)
	require.Equal(t, want, placed)
	require.Equal(t, policy.Allowed, policy.Decide(m.JudgePod(Pod{Spec: &placed})).Verdict)
	require.Equal(t, policy.Denied, policy.Decide(m.JudgePod(Pod{Spec: &spec})).Verdict)
	spec.NodeName = "n1"
	require.Equal(t, policy.Denied, policy.Decide(m.JudgePod(Pod{Spec: &spec})).Verdict)
}

func TestAConditionThatFailsLetsNobodyByAGate(t *testing.T) {
	subject := func() *Subject {
		return &Subject{Namespace: "a", Review: &cel.Review{Request: &admissionv1.AdmissionRequest{
			Namespace: "a", Operation: admissionv1.Create,
			Object: runtime.RawExtension{Raw: []byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","labels":{}},"spec":{}}`)},
		}}}
	}
	match := func(t *testing.T, p v1alpha1.PlacementPolicy) Matching {
		t.Helper()
		matching, err := Compile([]v1alpha1.PlacementPolicy{p}).MatchPod(t.Context(), subject())
		require.NoError(t, err)
		return matching
	}
	const missing = "object.metadata.labels['queue'] != 'none'"
	t.Run("by a label that is left out", func(t *testing.T) {
		p := everything("queue", v1alpha1.PlacementMatch{MatchConditions: condition(missing)})
		matching := match(t, p)
		requireGivesGatesAlone(t, &p, matching)

		spec := aPod()
		decision := policy.Decide(matching.JudgePod(Pod{Spec: &spec}))
		require.Len(t, decision.Findings, 2)
		require.Equal(t, `PlacementPolicy/queue: metadata: a matchCondition of the policy failed, so it gives its scheduling gates to pods, and nothing else: `+
			`the condition "c": no such key: queue (line 1, column 23)`, decision.Findings[0].String())
		require.Equal(t, `PlacementPolicy/queue: spec.schedulingGates (example.com/queue): is given by the policy, and is not there `+
			`(a matchCondition of the policy failed, and who makes it fail is not let by: the condition "c": no such key: queue (line 1, column 23)); `+createAgain, decision.Findings[1].String())
	})
	t.Run("by a condition that does not compile, which is reported D03", func(t *testing.T) {
		p := everything("queue", v1alpha1.PlacementMatch{MatchConditions: condition("object.")})
		require.Contains(t, Compile([]v1alpha1.PlacementPolicy{p}).Problems(), "queue")
		requireGivesGatesAlone(t, &p, match(t, p))
	})
	t.Run("where the rest of the match is not for the pod it is given nothing", func(t *testing.T) {
		p := everything("queue", v1alpha1.PlacementMatch{Namespaces: []string{"b"}, MatchConditions: condition(missing)})
		matching := match(t, p)
		require.True(t, matching.Empty())
	})
	t.Run("a condition that is false beside it decides", func(t *testing.T) {
		p := everything("queue", v1alpha1.PlacementMatch{MatchConditions: append(condition(missing), condition("false")...)})
		matching := match(t, p)
		require.True(t, matching.Empty())
	})
	t.Run("a policy without gates gives nothing, and is warned of", func(t *testing.T) {
		p := everything("queue", v1alpha1.PlacementMatch{MatchConditions: condition(missing)})
		p.Spec.Pod.SchedulingGates = nil
		matching, spec := match(t, p), aPod()
		require.Equal(t, aPod(), place(matching, spec))
		decision := policy.Decide(matching.JudgePod(Pod{Spec: &spec}))
		require.Equal(t, policy.Allowed, decision.Verdict)
		require.Len(t, decision.Findings, 1)
		require.Equal(t, `PlacementPolicy/queue: metadata: a matchCondition of the policy failed, so it gives nothing: the condition "c": no such key: queue (line 1, column 23)`, decision.Findings[0].String())
	})
	t.Run("claims, which have no gates, are given nothing, and it is warned of", func(t *testing.T) {
		p := everything("queue", v1alpha1.PlacementMatch{MatchConditions: condition(missing)})
		matching, err := Compile([]v1alpha1.PlacementPolicy{p}).MatchClaim(t.Context(), subject())
		require.NoError(t, err)
		require.Equal(t, [][]resourcev1.DeviceToleration{nil}, matching.GiveClaim([]ClaimRequest{{}}))
		require.Len(t, matching.JudgeClaim([]ClaimRequest{{}}), 1)
	})
	t.Run("gates come in the order of the policies, whichever failed", func(t *testing.T) {
		matching, err := Compile([]v1alpha1.PlacementPolicy{
			when("c", v1alpha1.PlacementMatch{Namespaces: []string{"a"}}), when("b", v1alpha1.PlacementMatch{MatchConditions: condition(missing)}),
			when("a", v1alpha1.PlacementMatch{Namespaces: []string{"a"}}),
		}).MatchPod(t.Context(), subject())
		require.NoError(t, err)
		require.Equal(t, []corev1.PodSchedulingGate{{Name: "example.com/a"}, {Name: "example.com/b"}, {Name: "example.com/c"}}, place(matching, aPod()).SchedulingGates)
	})
}

func TestSetsWithoutPolicies(t *testing.T) {
	for _, set := range []*Set{nil, {}, Compile(nil)} {
		require.Zero(t, set.Len())
		require.False(t, set.GivesBounded())
		matching, err := set.MatchPod(t.Context(), banana())
		require.NoError(t, err)
		require.True(t, matching.Empty())
		matching, err = set.MatchClaim(t.Context(), banana())
		require.NoError(t, err)
		require.True(t, matching.Empty())
		require.Empty(t, matching.JudgePod(Pod{}))
		require.Empty(t, matching.JudgeClaim([]ClaimRequest{{}}))
	}
}

func TestAClaimThatIsMadeLaterLetsNobodyByAGate(t *testing.T) {
	ofClass := func(name string, change func(*v1alpha1.PlacementMatch)) v1alpha1.PlacementPolicy {
		match := v1alpha1.PlacementMatch{DeviceClasses: []string{"gpu.example.com"}}
		if change != nil {
			change(&match)
		}
		p := when(name, match)
		p.Spec.Pod.NodeSelector = map[string]string{"gpu": "true"}
		return p
	}
	requesting := func(err error, names ...string) *Subject {
		return &Subject{
			Namespace: "a", NamespaceLabels: map[string]string{},
			DeviceClasses: func(context.Context) ([]string, error) { return names, err },
		}
	}
	missing := &MissingClaimError{Kind: "ResourceClaim", Name: "later"}
	for _, tt := range []struct {
		name     string
		policies []v1alpha1.PlacementPolicy
		subject  *Subject
		// gates and selects are what the pod is given.
		gates   []string
		selects bool
	}{
		{"a claim that there is gives all", []v1alpha1.PlacementPolicy{ofClass("queue", nil)}, requesting(nil, "gpu.example.com"), []string{"example.com/queue"}, true},
		{"a claim of another class gives nothing", []v1alpha1.PlacementPolicy{ofClass("queue", nil)}, requesting(nil, "nic.example.com"), nil, false},
		{"one that is missing gives the gates alone", []v1alpha1.PlacementPolicy{ofClass("queue", nil)}, requesting(missing), []string{"example.com/queue"}, false},
		{"beside a claim of the class, all", []v1alpha1.PlacementPolicy{ofClass("queue", nil)}, requesting(missing, "gpu.example.com"), []string{"example.com/queue"}, true},
		{"beside a claim of another class, the gates", []v1alpha1.PlacementPolicy{ofClass("queue", nil)}, requesting(missing, "nic.example.com"), []string{"example.com/queue"}, false},
		{"where the namespace does not fit, nothing", []v1alpha1.PlacementPolicy{ofClass("queue", func(m *v1alpha1.PlacementMatch) { m.Namespaces = []string{"b"} })}, requesting(missing), nil, false},
		{"where it fits, the gates", []v1alpha1.PlacementPolicy{ofClass("queue", func(m *v1alpha1.PlacementMatch) { m.Namespaces = []string{"a"} })}, requesting(missing), []string{"example.com/queue"}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			matching, err := Compile(tt.policies).MatchPod(t.Context(), tt.subject)
			require.NoError(t, err)
			spec := &corev1.PodSpec{}
			given := matching.GivePod(Pod{Spec: spec})
			var gates []string
			for _, gate := range given.Gates {
				gates = append(gates, gate.Name)
			}
			require.Equal(t, tt.gates, gates)
			require.Equal(t, tt.selects, len(given.NodeSelector)+len(given.Terms) > 0)
			decision := policy.Decide(matching.JudgePod(Pod{Spec: spec}))
			require.Equal(t, len(tt.gates) > 0, decision.Verdict == policy.Denied, "a pod without the gates is refused")
		})
	}

	t.Run("what is said names the claim", func(t *testing.T) {
		matching, err := Compile([]v1alpha1.PlacementPolicy{ofClass("queue", nil)}).MatchPod(t.Context(), requesting(missing))
		require.NoError(t, err)
		decision := policy.Decide(matching.JudgePod(Pod{Spec: &corev1.PodSpec{}}))
		require.Contains(t, decision.Findings[1].String(), "(ResourceClaim later does not exist, and nobody knows which devices it will request: create it before the pod)")
		require.Contains(t, decision.Findings[0].String(), "nobody knows which devices it will request, so the policy gives its scheduling gates to pods, and nothing else")
		require.Equal(t, map[string]string{"queue": "ResourceClaim later does not exist, and nobody knows which devices it will request"}, matching.Failed())
	})
	t.Run("another fault is none of the policy's", func(t *testing.T) {
		fault := errors.New("no answer")
		_, err := Compile([]v1alpha1.PlacementPolicy{ofClass("queue", nil)}).MatchPod(t.Context(), requesting(fault))
		require.ErrorIs(t, err, fault)
	})
}
