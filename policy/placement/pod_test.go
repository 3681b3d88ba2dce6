package placement

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
)

func TestGivePod(t *testing.T) {
	honor, ignore := corev1.NodeInclusionPolicyHonor, corev1.NodeInclusionPolicyIgnore
	dedicated := corev1.Toleration{Key: "dedicated", Operator: corev1.TolerationOpEqual, Value: "banana", Effect: corev1.TaintEffectNoSchedule}
	tolerate := func(name string, list ...corev1.Toleration) v1alpha1.PlacementPolicy {
		return gives(name, v1alpha1.PodPlacement{Tolerations: list})
	}
	spread := func(name string, taints, affinity *corev1.NodeInclusionPolicy) v1alpha1.PlacementPolicy {
		return gives(name, v1alpha1.PodPlacement{TopologySpread: &v1alpha1.TopologySpreadDefaults{NodeTaintsPolicy: taints, NodeAffinityPolicy: affinity}})
	}
	hold := func(name string, gates ...string) v1alpha1.PlacementPolicy {
		return gives(name, v1alpha1.PodPlacement{SchedulingGates: gates})
	}
	tests := []struct {
		name     string
		policies []v1alpha1.PlacementPolicy
		spec     corev1.PodSpec
		want     corev1.PodSpec
	}{
		{
			name:     "a toleration is appended",
			policies: []v1alpha1.PlacementPolicy{tolerate("a", dedicated)},
			spec:     corev1.PodSpec{Tolerations: []corev1.Toleration{tolerates60("x", nil)}},
			want:     corev1.PodSpec{Tolerations: []corev1.Toleration{tolerates60("x", nil), dedicated}},
		},
		{
			name:     "nothing is added that a wider toleration covers",
			policies: []v1alpha1.PlacementPolicy{tolerate("a", dedicated)},
			spec:     corev1.PodSpec{Tolerations: []corev1.Toleration{{Key: "dedicated", Operator: corev1.TolerationOpExists}}},
			want:     corev1.PodSpec{Tolerations: []corev1.Toleration{{Key: "dedicated", Operator: corev1.TolerationOpExists}}},
		},
		{
			name:     "of what policies give the widest is enough, whoever gives it",
			policies: []v1alpha1.PlacementPolicy{tolerate("a", tolerates60("k", new(int64(60)))), tolerate("b", tolerates60("k", nil)), tolerate("c", tolerates60("k", new(int64(5))))},
			want:     corev1.PodSpec{Tolerations: []corev1.Toleration{tolerates60("k", nil)}},
		},
		{
			name:     "policies come in the order of their names",
			policies: []v1alpha1.PlacementPolicy{tolerate("b", tolerates60("z", nil)), tolerate("a", tolerates60("y", nil), tolerates60("x", nil))},
			want:     corev1.PodSpec{Tolerations: []corev1.Toleration{tolerates60("y", nil), tolerates60("x", nil), tolerates60("z", nil)}},
		},
		{
			name:     "tolerations that cover each other are given once",
			policies: []v1alpha1.PlacementPolicy{tolerate("a", corev1.Toleration{Key: "k", Value: "v"}), tolerate("b", corev1.Toleration{Key: "k", Operator: corev1.TolerationOpEqual, Value: "v"})},
			want:     corev1.PodSpec{Tolerations: []corev1.Toleration{{Key: "k", Value: "v"}}},
		},
		{
			name:     "gates are added behind those there are, once",
			policies: []v1alpha1.PlacementPolicy{hold("a", "example.com/queue", "example.com/quota"), hold("b", "example.com/queue")},
			spec:     corev1.PodSpec{SchedulingGates: []corev1.PodSchedulingGate{{Name: "example.com/quota"}}},
			want:     corev1.PodSpec{SchedulingGates: []corev1.PodSchedulingGate{{Name: "example.com/quota"}, {Name: "example.com/queue"}}},
		},
		{
			name:     "SD-01 a pod that is put on a node is given no gates",
			policies: []v1alpha1.PlacementPolicy{hold("a", "example.com/queue")},
			spec:     corev1.PodSpec{NodeName: "n1"},
			want:     corev1.PodSpec{NodeName: "n1"},
		},
		{
			name:     "topology spread is filled in where it is absent, and Honor wins",
			policies: []v1alpha1.PlacementPolicy{spread("a", &ignore, nil), spread("b", &honor, &ignore), spread("c", &ignore, nil)},
			spec: corev1.PodSpec{TopologySpreadConstraints: []corev1.TopologySpreadConstraint{
				{TopologyKey: "zone"},
				{TopologyKey: "rack", NodeTaintsPolicy: &ignore, NodeAffinityPolicy: &honor},
				{TopologyKey: "host", NodeTaintsPolicy: &ignore},
			}},
			want: corev1.PodSpec{TopologySpreadConstraints: []corev1.TopologySpreadConstraint{
				{TopologyKey: "zone", NodeTaintsPolicy: &honor, NodeAffinityPolicy: &ignore},
				{TopologyKey: "rack", NodeTaintsPolicy: &ignore, NodeAffinityPolicy: &honor},
				{TopologyKey: "host", NodeTaintsPolicy: &ignore, NodeAffinityPolicy: &ignore},
			}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			matching := matchPod(t, tt.policies...)
			before := tt.spec.DeepCopy()
			placed := place(matching, tt.spec)
			require.Equal(t, tt.want.Tolerations, placed.Tolerations)
			require.Equal(t, tt.want.SchedulingGates, placed.SchedulingGates)
			require.Equal(t, tt.want.TopologySpreadConstraints, placed.TopologySpreadConstraints)
			require.Equal(t, tt.want, placed)
			require.Equal(t, *before, tt.spec, "what was given is not changed")
			require.Equal(t, placed, place(matching, placed), "giving twice gives no more")
		})
	}
}

func TestWhatIsMissingIsSaid(t *testing.T) {
	honor := corev1.NodeInclusionPolicyHonor
	everything := gives("all", v1alpha1.PodPlacement{
		Tolerations:    []corev1.Toleration{tolerates60("dedicated", new(int64(300)))},
		NodeSelector:   map[string]string{"dedicated": "banana"},
		NodeAffinity:   []corev1.NodeSelectorRequirement{requirement("gpu", corev1.NodeSelectorOpExists)},
		TopologySpread: &v1alpha1.TopologySpreadDefaults{NodeTaintsPolicy: &honor},
	})
	matching := matchPod(t, everything, gives("queue", v1alpha1.PodPlacement{SchedulingGates: []string{"example.com/queue"}}))
	constraints := []corev1.TopologySpreadConstraint{{TopologyKey: "zone"}}

	t.Run("a gate that is missing refuses the pod, the rest is warned of", func(t *testing.T) {
		decision := policy.Decide(matching.JudgePod(Pod{Spec: &corev1.PodSpec{TopologySpreadConstraints: constraints}}))
		require.Equal(t, policy.Denied, decision.Verdict)
		given := ": is given by the policy, and is not there; Tollgate adds it to what is created: create it again, or add it"
		var warnings []string
		for _, finding := range decision.Findings {
			require.Equal(t, policy.PlacementMissing, finding.Reason)
			if finding.Denies() {
				require.Equal(t, "PlacementPolicy/queue: spec.schedulingGates (example.com/queue)"+given, finding.String())
				continue
			}
			warnings = append(warnings, finding.String())
		}
		require.Equal(t, []string{
			"PlacementPolicy/all: spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms (gpu)" + given,
			"PlacementPolicy/all: spec.nodeSelector (dedicated=banana)" + given,
			"PlacementPolicy/all: spec.tolerations (dedicated:NoExecute for 300s)" + given,
			"PlacementPolicy/all: spec.topologySpreadConstraints[0] (nodeTaintsPolicy: Honor)" + given,
		}, warnings)
	})
	t.Run("a pod that was given everything is as it should be", func(t *testing.T) {
		placed := place(matching, corev1.PodSpec{TopologySpreadConstraints: constraints})
		require.Empty(t, matching.JudgePod(Pod{Spec: &placed}))
	})
	t.Run("SD-01 a pod that must wait cannot be put on a node by name", func(t *testing.T) {
		placed := place(matching, corev1.PodSpec{NodeName: "n1"})
		decision := policy.Decide(matching.JudgePod(Pod{Spec: &placed}))
		require.Equal(t, policy.Denied, decision.Verdict)
		require.Len(t, decision.Findings, 1)
		require.Equal(t, "PlacementPolicy/queue: spec.schedulingGates (example.com/queue): the policy holds the pod back behind this gate, "+
			"and a pod that is put on a node by name cannot wait; leave spec.nodeName out", decision.Findings[0].String())
	})
}

func TestFindingsAreBounded(t *testing.T) {
	var policies []v1alpha1.PlacementPolicy
	for i := range 100 {
		name := string(rune('a'+i/26)) + string(rune('a'+i%26))
		policies = append(policies, gives(name, v1alpha1.PodPlacement{
			Tolerations: []corev1.Toleration{tolerates60(name, nil)}, SchedulingGates: []string{"example.com/" + name},
		}))
	}
	matching := matchPod(t, policies...)
	found := matching.JudgePod(Pod{Spec: &corev1.PodSpec{}})
	require.Len(t, found, MaxFindings)
	require.Equal(t, policy.Denied, policy.Decide(found).Verdict)
	require.Equal(t, policy.MoreFindings, found[MaxFindings-1].Reason)
	require.True(t, found[MaxFindings-1].Denies(), "what is not listed refuses, too")

	placed := place(matching, corev1.PodSpec{})
	placed.Tolerations = nil
	found = matching.JudgePod(Pod{Spec: &placed})
	require.Len(t, found, MaxFindings)
	require.Equal(t, policy.Allowed, policy.Decide(found).Verdict)
	require.Equal(t, "PlacementPolicy/bf: spec.tolerations: more is amiss, by this policy or others, than is listed", found[MaxFindings-1].String())
}
