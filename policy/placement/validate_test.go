package placement

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

func fields(errs field.ErrorList) []string {
	var found []string
	for _, err := range errs {
		found = append(found, string(err.Type)+" "+err.Field)
	}
	return found
}

func TestValidatePolicy(t *testing.T) {
	maybe := corev1.NodeInclusionPolicy("Maybe")
	gpu := resourcev1.DeviceToleration{Key: "k", Operator: resourcev1.DeviceTolerationOpExists}
	tests := []struct {
		name string
		spec v1alpha1.PlacementPolicySpec
		want []string
	}{
		{
			name: "everything that is allowed",
			spec: v1alpha1.PlacementPolicySpec{
				Match: v1alpha1.PlacementMatch{
					Namespaces: []string{"a", "team-*", "*"}, NamespaceSelector: &metav1.LabelSelector{}, PodSelector: &metav1.LabelSelector{},
					Resources: []string{"cpu", "nvidia.com/gpu"}, DeviceClasses: []string{"gpu.example.com"},
					MatchConditions: condition("request.namespace != 'x'"),
				},
				Pod: &v1alpha1.PodPlacement{
					Tolerations:     []corev1.Toleration{{Operator: corev1.TolerationOpExists}, tolerates60("k", new(int64(0)))},
					NodeSelector:    map[string]string{"a": "b", "example.com/c": ""},
					NodeAffinity:    []corev1.NodeSelectorRequirement{requirement("a", corev1.NodeSelectorOpIn, "b", "c"), requirement("n", corev1.NodeSelectorOpGt, "1")},
					SchedulingGates: []string{"example.com/queue"},
				},
				Claim: &v1alpha1.ClaimPlacement{Tolerations: []resourcev1.DeviceToleration{gpu, tolerating("l", new(int64(300)))}},
			},
		},
		{
			name: "nothing is given, and to nobody",
			spec: v1alpha1.PlacementPolicySpec{Match: v1alpha1.PlacementMatch{NamespaceSelector: &metav1.LabelSelector{}, PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}}},
			want: []string{"FieldValueRequired spec.match", "FieldValueRequired spec"},
		},
		{
			name: "a match with faults",
			spec: v1alpha1.PlacementPolicySpec{
				Match: v1alpha1.PlacementMatch{
					Namespaces: []string{"A", "a*b", "-*", "a", "a"}, NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"a b": "c"}},
					PodSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "k", Operator: "Near"}}},
					Resources:   []string{"a b"}, DeviceClasses: []string{"A_B"},
				},
				Pod: &v1alpha1.PodPlacement{},
			},
			want: []string{
				"FieldValueDuplicate spec.match.namespaces[4]", "FieldValueInvalid spec.match.namespaces[0]", "FieldValueInvalid spec.match.namespaces[1]", "FieldValueInvalid spec.match.namespaces[2]",
				"FieldValueInvalid spec.match.namespaceSelector.matchLabels", "FieldValueInvalid spec.match.podSelector.matchExpressions[0].operator",
				"FieldValueInvalid spec.match.resources[0]", "FieldValueInvalid spec.match.deviceClasses[0]",
			},
		},
		{
			name: "conditions with faults",
			spec: v1alpha1.PlacementPolicySpec{
				Match: v1alpha1.PlacementMatch{MatchConditions: []admissionregistrationv1.MatchCondition{{Name: "a", Expression: "1 +"}}},
				Pod:   &v1alpha1.PodPlacement{},
			},
			want: []string{"FieldValueInvalid spec.match.matchConditions[0].expression"},
		},
		{
			name: "D09 what a pod could not have",
			spec: v1alpha1.PlacementPolicySpec{
				Match: v1alpha1.PlacementMatch{Namespaces: []string{"*"}},
				Pod: &v1alpha1.PodPlacement{
					Tolerations:  []corev1.Toleration{{Key: "k", Value: "v", TolerationSeconds: new(int64(5))}, tolerates60("k", new(int64(-1))), {Value: "v"}},
					NodeSelector: map[string]string{"a b": "c", "k": "v v"},
					NodeAffinity: []corev1.NodeSelectorRequirement{
						requirement("a", corev1.NodeSelectorOpIn), requirement("a", corev1.NodeSelectorOpExists, "x"), requirement("a", corev1.NodeSelectorOpLt, "x"),
						requirement("a", "Near"), requirement("a b", corev1.NodeSelectorOpNotIn, "v v"),
					},
					TopologySpread:  &v1alpha1.TopologySpreadDefaults{NodeTaintsPolicy: &maybe, NodeAffinityPolicy: &maybe},
					SchedulingGates: []string{"a b", "example.com/a", "example.com/a"},
				},
			},
			want: []string{
				"FieldValueInvalid spec.pod.tolerations[0].effect", "FieldValueInvalid spec.pod.tolerations[1].tolerationSeconds", "FieldValueInvalid spec.pod.tolerations[2].operator",
				"FieldValueInvalid spec.pod.nodeSelector[a b]", "FieldValueInvalid spec.pod.nodeSelector[k]",
				"FieldValueRequired spec.pod.nodeAffinity[0].values", "FieldValueForbidden spec.pod.nodeAffinity[1].values", "FieldValueInvalid spec.pod.nodeAffinity[2].values",
				"FieldValueNotSupported spec.pod.nodeAffinity[3].operator", "FieldValueInvalid spec.pod.nodeAffinity[4].key", "FieldValueInvalid spec.pod.nodeAffinity[4].values[0]",
				"FieldValueNotSupported spec.pod.topologySpread.nodeTaintsPolicy", "FieldValueNotSupported spec.pod.topologySpread.nodeAffinityPolicy",
				"FieldValueDuplicate spec.pod.schedulingGates[2]", "FieldValueInvalid spec.pod.schedulingGates[0]",
			},
		},
		{
			name: "a policy that steers where no node can be",
			spec: v1alpha1.PlacementPolicySpec{
				Match: v1alpha1.PlacementMatch{Namespaces: []string{"*"}},
				Pod: &v1alpha1.PodPlacement{
					NodeSelector: map[string]string{"a": "b"}, NodeAffinity: []corev1.NodeSelectorRequirement{requirement("a", corev1.NodeSelectorOpNotIn, "b")},
				},
			},
			want: []string{"FieldValueInvalid spec.pod"},
		},
		{
			name: "claims are given nothing",
			spec: v1alpha1.PlacementPolicySpec{Match: v1alpha1.PlacementMatch{Namespaces: []string{"*"}}, Claim: &v1alpha1.ClaimPlacement{}},
			want: []string{"FieldValueRequired spec.claim.tolerations"},
		},
		{
			name: "claims are matched by resources, of which they request none",
			spec: v1alpha1.PlacementPolicySpec{Match: v1alpha1.PlacementMatch{Resources: []string{"example.com/gpu"}}, Claim: &v1alpha1.ClaimPlacement{Tolerations: []resourcev1.DeviceToleration{gpu}}},
			want: []string{"FieldValueInvalid spec.match.resources"},
		},
		{
			name: "AV-11 AV-12 what a claim should not have",
			spec: v1alpha1.PlacementPolicySpec{
				Match: v1alpha1.PlacementMatch{Namespaces: []string{"*"}},
				Claim: &v1alpha1.ClaimPlacement{Tolerations: []resourcev1.DeviceToleration{
					{Value: "v"}, {Key: "k", Operator: "Near"}, {Key: "k", Operator: resourcev1.DeviceTolerationOpExists, TolerationSeconds: new(int64(1))}, tolerating("k", new(int64(-1))),
				}},
			},
			want: []string{
				"FieldValueInvalid spec.claim.tolerations[0].operator", "FieldValueNotSupported spec.claim.tolerations[1].operator",
				"FieldValueInvalid spec.claim.tolerations[2].effect", "FieldValueInvalid spec.claim.tolerations[3].tolerationSeconds",
			},
		},
		{
			name: "a while of NoExecute beside NoSchedule, so that pods would come back for ever",
			spec: v1alpha1.PlacementPolicySpec{
				Match: v1alpha1.PlacementMatch{Namespaces: []string{"*"}},
				Claim: &v1alpha1.ClaimPlacement{Tolerations: []resourcev1.DeviceToleration{
					tolerating("k", new(int64(300))),
					{Key: "k", Operator: resourcev1.DeviceTolerationOpEqual, Value: "v", Effect: resourcev1.DeviceTaintEffectNoSchedule},
					{Key: "other", Operator: resourcev1.DeviceTolerationOpExists, Effect: resourcev1.DeviceTaintEffectNoSchedule},
				}},
			},
			want: []string{"FieldValueInvalid spec.claim.tolerations[1]"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			require.Equal(t, tt.want, fields(ValidatePolicy(&v1alpha1.PlacementPolicy{Spec: tt.spec})))
		})
	}
}

func TestD06Sizes(t *testing.T) {
	p := gives("a", v1alpha1.PodPlacement{NodeSelector: map[string]string{}})
	for i := range 65 {
		key := "k" + strings.Repeat("x", i)
		p.Spec.Match.Namespaces = append(p.Spec.Match.Namespaces, key, key+"1", key+"2", key+"3")
		p.Spec.Match.Resources = append(p.Spec.Match.Resources, "example.com/"+key[:min(len(key), 60)]+string(rune('a'+i%26))+string(rune('a'+i/26)))
		p.Spec.Match.DeviceClasses = append(p.Spec.Match.DeviceClasses, key)
		p.Spec.Pod.Tolerations = append(p.Spec.Pod.Tolerations, tolerates60("k", nil))
		p.Spec.Pod.NodeAffinity = append(p.Spec.Pod.NodeAffinity, requirement("k", corev1.NodeSelectorOpExists))
		p.Spec.Pod.NodeSelector[p.Spec.Match.Resources[i]] = "v"
		p.Spec.Pod.SchedulingGates = append(p.Spec.Pod.SchedulingGates, p.Spec.Match.Resources[i])
	}
	p.Spec.Claim = &v1alpha1.ClaimPlacement{Tolerations: many("k", 17)}
	found := fields(ValidatePolicy(&p))
	for _, path := range []string{
		"spec.match.namespaces", "spec.match.resources", "spec.match.deviceClasses", "spec.pod.tolerations", "spec.pod.nodeSelector",
		"spec.pod.nodeAffinity", "spec.pod.schedulingGates", "spec.claim.tolerations",
	} {
		require.Contains(t, found, "FieldValueTooMany "+path)
	}
}

func TestWhatHasAFaultIsNotGiven(t *testing.T) {
	p := gives("a", v1alpha1.PodPlacement{
		Tolerations:     []corev1.Toleration{tolerates60("k", new(int64(-1))), tolerates60("good", nil)},
		NodeSelector:    map[string]string{"a b": "c", "good": "v"},
		NodeAffinity:    []corev1.NodeSelectorRequirement{requirement("x", "Near"), requirement("y", corev1.NodeSelectorOpExists)},
		TopologySpread:  &v1alpha1.TopologySpreadDefaults{NodeTaintsPolicy: new(corev1.NodeInclusionPolicy("Maybe"))},
		SchedulingGates: []string{"a b", "example.com/good"},
	})
	p.Spec.Claim = &v1alpha1.ClaimPlacement{Tolerations: []resourcev1.DeviceToleration{tolerating("k", new(int64(-1))), tolerating("good", nil)}}
	set := Compile([]v1alpha1.PlacementPolicy{p})
	require.Len(t, set.Problems()["a"], 6)

	matching, err := set.MatchPod(t.Context(), banana())
	require.NoError(t, err)
	placed := place(matching, corev1.PodSpec{TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{}}})
	require.Equal(t, corev1.PodSpec{
		Tolerations:               []corev1.Toleration{tolerates60("good", nil)},
		NodeSelector:              map[string]string{"good": "v"},
		Affinity:                  withTerms(term(requirement("y", corev1.NodeSelectorOpExists))),
		TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{}},
		SchedulingGates:           []corev1.PodSchedulingGate{{Name: "example.com/good"}},
	}, placed)

	matching, err = set.MatchClaim(t.Context(), banana())
	require.NoError(t, err)
	require.Equal(t, [][]resourcev1.DeviceToleration{{tolerating("good", nil)}}, matching.GiveClaim([]ClaimRequest{{}}))
}

// TestD03AMatchWithAFaultOpensNoGate is about policies that were stored around the
// schema and the webhook.
func TestD03AMatchWithAFaultOpensNoGate(t *testing.T) {
	const all, gatesAlone, nothing = "all", "the gates and nothing else", "nothing"
	ill := &metav1.LabelSelector{MatchLabels: map[string]string{"a b": "c"}}
	near := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "k", Operator: "Near", Values: []string{"v"}}}}
	web := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	tests := []struct {
		name  string
		match v1alpha1.PlacementMatch
		want  string
	}{
		{"nobody is named", v1alpha1.PlacementMatch{}, gatesAlone},
		{"the selector of namespaces is empty", v1alpha1.PlacementMatch{NamespaceSelector: &metav1.LabelSelector{}}, gatesAlone},
		{"users name themselves by the labels of their pods", v1alpha1.PlacementMatch{PodSelector: web}, gatesAlone},
		{"users do not name themselves by the labels of their pods", v1alpha1.PlacementMatch{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}}, nothing},
		{"the selector of namespaces cannot be read", v1alpha1.PlacementMatch{NamespaceSelector: ill}, gatesAlone},
		{"the selector of namespaces is of a later Kubernetes", v1alpha1.PlacementMatch{NamespaceSelector: near}, gatesAlone},
		{"the selector of pods cannot be read", v1alpha1.PlacementMatch{Namespaces: []string{"banana"}, PodSelector: ill}, gatesAlone},
		{"the selector of pods cannot be read, of another namespace", v1alpha1.PlacementMatch{Namespaces: []string{"apple"}, PodSelector: ill}, nothing},
		{"a namespace beside this one has no such name", v1alpha1.PlacementMatch{Namespaces: []string{"banana", "A"}}, all},
		{"a prefix beside this namespace is of no name", v1alpha1.PlacementMatch{Namespaces: []string{"banana", "-*", "a*b*"}}, all},
		{"the one namespace has no such name", v1alpha1.PlacementMatch{Namespaces: []string{"A"}}, nothing},
		{"the one resource has no such name", v1alpha1.PlacementMatch{Namespaces: []string{"banana"}, Resources: []string{"a b"}}, nothing},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := everything("a", tt.match)
			set := Compile([]v1alpha1.PlacementPolicy{p})
			require.Contains(t, set.Problems(), "a")
			subject := banana()
			subject.Labels = map[string]string{"app": "web"}
			matching, err := set.MatchPod(t.Context(), subject)
			require.NoError(t, err)
			switch tt.want {
			case all:
				requireGivesAll(t, &p, matching)
			case gatesAlone:
				requireGivesGatesAlone(t, &p, matching)
			default:
				require.True(t, matching.Empty())
			}

			claims, err := set.MatchClaim(t.Context(), subject)
			require.NoError(t, err)
			require.Equal(t, tt.want == all, !claims.Empty())

			p.Spec.Pod.SchedulingGates = nil
			matching, err = Compile([]v1alpha1.PlacementPolicy{p}).MatchPod(t.Context(), subject)
			require.NoError(t, err)
			require.Equal(t, tt.want == all, !matching.Empty(), "without gates it is for nobody who may not be meant")
		})
	}
	t.Run("what may be for anybody pairs no taints", func(t *testing.T) {
		set := Compile([]v1alpha1.PlacementPolicy{everything("a", v1alpha1.PlacementMatch{NamespaceSelector: ill})})
		require.False(t, set.GivesBounded())
	})
}
