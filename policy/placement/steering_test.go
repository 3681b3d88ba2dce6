package placement

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
)

func TestSteer(t *testing.T) {
	exists := requirement("gpu", corev1.NodeSelectorOpExists)
	other := requirement("arch", corev1.NodeSelectorOpIn, "arm64")
	tests := []struct {
		name     string
		policies []v1alpha1.PlacementPolicy
		spec     corev1.PodSpec
		want     corev1.PodSpec
	}{
		{
			name:     "one policy writes the nodeSelector",
			policies: []v1alpha1.PlacementPolicy{steers("a", "dedicated", "banana")},
			want:     corev1.PodSpec{NodeSelector: map[string]string{"dedicated": "banana"}},
		},
		{
			name:     "labels of the pod stay",
			policies: []v1alpha1.PlacementPolicy{steers("a", "dedicated", "banana")},
			spec:     corev1.PodSpec{NodeSelector: map[string]string{"zone": "a"}},
			want:     corev1.PodSpec{NodeSelector: map[string]string{"zone": "a", "dedicated": "banana"}},
		},
		{
			name:     "two dedicated groups merge into one requirement",
			policies: []v1alpha1.PlacementPolicy{steers("a", "dedicated", "kiwi"), steers("b", "dedicated", "banana")},
			want:     corev1.PodSpec{Affinity: withTerms(term(requirement("dedicated", corev1.NodeSelectorOpIn, "banana", "kiwi")))},
		},
		{
			name:     "two policies that say the same are one",
			policies: []v1alpha1.PlacementPolicy{steers("a", "dedicated", "banana"), steers("b", "dedicated", "banana")},
			want:     corev1.PodSpec{NodeSelector: map[string]string{"dedicated": "banana"}},
		},
		{
			name:     "an In of nodeAffinity merges with a nodeSelector",
			policies: []v1alpha1.PlacementPolicy{steers("a", "dedicated", "kiwi"), requires("b", requirement("dedicated", corev1.NodeSelectorOpIn, "pear", "banana"))},
			want:     corev1.PodSpec{Affinity: withTerms(term(requirement("dedicated", corev1.NodeSelectorOpIn, "banana", "kiwi", "pear")))},
		},
		{
			name:     "a pod that names one of the merged groups is narrower",
			policies: []v1alpha1.PlacementPolicy{steers("a", "dedicated", "kiwi"), steers("b", "dedicated", "banana")},
			spec:     corev1.PodSpec{NodeSelector: map[string]string{"dedicated": "kiwi"}},
			want:     corev1.PodSpec{NodeSelector: map[string]string{"dedicated": "kiwi"}},
		},
		{
			name:     "a pod whose terms all name merged groups is narrower",
			policies: []v1alpha1.PlacementPolicy{steers("a", "dedicated", "kiwi"), steers("b", "dedicated", "banana")},
			spec: corev1.PodSpec{Affinity: withTerms(
				term(requirement("dedicated", corev1.NodeSelectorOpIn, "kiwi")), term(requirement("dedicated", corev1.NodeSelectorOpIn, "banana")))},
			want: corev1.PodSpec{Affinity: withTerms(
				term(requirement("dedicated", corev1.NodeSelectorOpIn, "kiwi")), term(requirement("dedicated", corev1.NodeSelectorOpIn, "banana")))},
		},
		{
			name:     "requirements go into every term that lacks them, behind what is there",
			policies: []v1alpha1.PlacementPolicy{requires("a", exists)},
			spec:     corev1.PodSpec{Affinity: withTerms(term(other), term(exists), term(other, requirement("gpu", corev1.NodeSelectorOpIn, "a100")))},
			want:     corev1.PodSpec{Affinity: withTerms(term(other, exists), term(exists), term(other, requirement("gpu", corev1.NodeSelectorOpIn, "a100")))},
		},
		{
			name:     "SD-10 an empty term, which selects nothing, stays empty",
			policies: []v1alpha1.PlacementPolicy{requires("a", exists)},
			spec:     corev1.PodSpec{Affinity: withTerms(term(), term(other))},
			want:     corev1.PodSpec{Affinity: withTerms(term(), term(other, exists))},
		},
		{
			name:     "SD-10 an empty term is no reason to narrow the others",
			policies: []v1alpha1.PlacementPolicy{steers("a", "dedicated", "banana")},
			spec:     corev1.PodSpec{Affinity: withTerms(term(), term(requirement("dedicated", corev1.NodeSelectorOpIn, "banana")))},
			want:     corev1.PodSpec{Affinity: withTerms(term(), term(requirement("dedicated", corev1.NodeSelectorOpIn, "banana")))},
		},
		{
			name:     "a term of fields alone is given expressions",
			policies: []v1alpha1.PlacementPolicy{requires("a", exists)},
			spec:     corev1.PodSpec{Affinity: withTerms(corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{requirement("metadata.name", corev1.NodeSelectorOpIn, "n1")}})},
			want: corev1.PodSpec{Affinity: withTerms(corev1.NodeSelectorTerm{
				MatchExpressions: []corev1.NodeSelectorRequirement{exists},
				MatchFields:      []corev1.NodeSelectorRequirement{requirement("metadata.name", corev1.NodeSelectorOpIn, "n1")},
			})},
		},
		{
			name:     "no terms at all are Kubernetes' to refuse",
			policies: []v1alpha1.PlacementPolicy{requires("a", exists)},
			spec:     corev1.PodSpec{Affinity: withTerms()},
			want:     corev1.PodSpec{Affinity: withTerms()},
		},
		{
			name:     "preferences stay",
			policies: []v1alpha1.PlacementPolicy{requires("a", exists)},
			spec: corev1.PodSpec{Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
				PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{Weight: 1, Preference: term(other)}},
			}}},
			want: corev1.PodSpec{Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution:  &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{term(exists)}},
				PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{Weight: 1, Preference: term(other)}},
			}}},
		},
		{
			name:     "a nodeSelector that implies a requirement makes it superfluous",
			policies: []v1alpha1.PlacementPolicy{gives("a", v1alpha1.PodPlacement{NodeSelector: map[string]string{"gpu": "a100"}}), requires("b", exists)},
			want:     corev1.PodSpec{NodeSelector: map[string]string{"gpu": "a100"}},
		},
		{
			name:     "a pod that contradicts is left alone",
			policies: []v1alpha1.PlacementPolicy{steers("a", "dedicated", "banana"), steers("b", "zone", "a")},
			spec:     corev1.PodSpec{NodeSelector: map[string]string{"dedicated": "kiwi"}},
			want:     corev1.PodSpec{NodeSelector: map[string]string{"dedicated": "kiwi"}},
		},
		{
			name:     "one term that agrees is enough",
			policies: []v1alpha1.PlacementPolicy{steers("a", "dedicated", "banana")},
			spec: corev1.PodSpec{Affinity: withTerms(
				term(requirement("dedicated", corev1.NodeSelectorOpIn, "kiwi")), term(requirement("dedicated", corev1.NodeSelectorOpIn, "banana", "pear")))},
			want: corev1.PodSpec{
				NodeSelector: map[string]string{"dedicated": "banana"},
				Affinity: withTerms(
					term(requirement("dedicated", corev1.NodeSelectorOpIn, "kiwi")), term(requirement("dedicated", corev1.NodeSelectorOpIn, "banana", "pear"))),
			},
		},
		{
			name:     "policies that contradict each other are both obeyed",
			policies: []v1alpha1.PlacementPolicy{steers("a", "dedicated", "banana"), requires("b", requirement("dedicated", corev1.NodeSelectorOpNotIn, "banana"))},
			want: corev1.PodSpec{
				NodeSelector: map[string]string{"dedicated": "banana"},
				Affinity:     withTerms(term(requirement("dedicated", corev1.NodeSelectorOpNotIn, "banana"))),
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			matching := matchPod(t, tt.policies...)
			before := tt.spec.DeepCopy()
			placed := place(matching, tt.spec)
			require.Equal(t, tt.want, placed)
			require.Equal(t, *before, tt.spec, "what was given is not changed")
			require.Equal(t, placed, place(matching, placed), "giving twice gives no more")
		})
	}
}

func TestContradictions(t *testing.T) {
	tests := []struct {
		name     string
		policies []v1alpha1.PlacementPolicy
		spec     corev1.PodSpec
		want     []string
	}{
		{
			name:     "the pod's nodeSelector wants another group",
			policies: []v1alpha1.PlacementPolicy{steers("fruit", "dedicated", "banana")},
			spec:     corev1.PodSpec{NodeSelector: map[string]string{"dedicated": "kiwi"}},
			want: []string{"PlacementPolicy/fruit: spec.nodeSelector (dedicated=kiwi): contradicts the policy, which steers the pod to nodes with dedicated=banana; " +
				"leave it out, or narrow it to what the policy allows"},
		},
		{
			name:     "all policies of the label are named",
			policies: []v1alpha1.PlacementPolicy{steers("b", "dedicated", "banana"), steers("a", "dedicated", "kiwi"), steers("z", "zone", "a")},
			spec:     corev1.PodSpec{NodeSelector: map[string]string{"dedicated": "pear", "zone": "a"}},
			want: []string{"PlacementPolicy/a, PlacementPolicy/b: spec.nodeSelector (dedicated=pear): contradicts the policy, which steers the pod to nodes with dedicated in [banana, kiwi]; " +
				"leave it out, or narrow it to what the policy allows"},
		},
		{
			name:     "every term wants another group",
			policies: []v1alpha1.PlacementPolicy{steers("fruit", "dedicated", "banana")},
			spec: corev1.PodSpec{Affinity: withTerms(
				term(requirement("arch", corev1.NodeSelectorOpExists), requirement("dedicated", corev1.NodeSelectorOpNotIn, "banana", "pear")),
				term(requirement("dedicated", corev1.NodeSelectorOpDoesNotExist)))},
			want: []string{
				"PlacementPolicy/fruit: spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0] (dedicated not in [banana, pear]): " +
					"contradicts the policy, which steers the pod to nodes with dedicated=banana; leave it out, or narrow it to what the policy allows",
				"PlacementPolicy/fruit: spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[1] (no dedicated): " +
					"contradicts the policy, which steers the pod to nodes with dedicated=banana; leave it out, or narrow it to what the policy allows",
			},
		},
		{
			name:     "terms that select nothing by themselves are not counted",
			policies: []v1alpha1.PlacementPolicy{steers("fruit", "dedicated", "banana")},
			spec: corev1.PodSpec{
				NodeSelector: map[string]string{"arch": "arm64"},
				Affinity: withTerms(term(), term(requirement("arch", corev1.NodeSelectorOpIn, "amd64")),
					term(requirement("dedicated", corev1.NodeSelectorOpIn, "kiwi"))),
			},
			want: []string{"PlacementPolicy/fruit: spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[2] (dedicated=kiwi): " +
				"contradicts the policy, which steers the pod to nodes with dedicated=banana; leave it out, or narrow it to what the policy allows"},
		},
		{
			name:     "numbers",
			policies: []v1alpha1.PlacementPolicy{requires("big", requirement("cores", corev1.NodeSelectorOpGt, "16"))},
			spec:     corev1.PodSpec{NodeSelector: map[string]string{"cores": "8"}},
			want: []string{"PlacementPolicy/big: spec.nodeSelector (cores=8): contradicts the policy, which steers the pod to nodes with cores > 16; " +
				"leave it out, or narrow it to what the policy allows"},
		},
		{
			name:     "one of several terms agrees",
			policies: []v1alpha1.PlacementPolicy{steers("fruit", "dedicated", "banana")},
			spec:     corev1.PodSpec{Affinity: withTerms(term(requirement("dedicated", corev1.NodeSelectorOpIn, "kiwi")), term(requirement("arch", corev1.NodeSelectorOpExists)))},
		},
		{
			name:     "a pod may be narrower",
			policies: []v1alpha1.PlacementPolicy{steers("a", "dedicated", "banana"), steers("b", "dedicated", "kiwi")},
			spec:     corev1.PodSpec{NodeSelector: map[string]string{"dedicated": "kiwi"}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			matching := matchPod(t, tt.policies...)
			placed := place(matching, tt.spec)
			decision := policy.Decide(matching.JudgePod(Pod{Spec: &placed}))
			var denials []string
			for _, finding := range decision.Findings {
				if finding.Denies() {
					require.Equal(t, policy.PlacementContradicted, finding.Reason)
					denials = append(denials, finding.String())
				}
			}
			require.Equal(t, tt.want, denials)
			require.Equal(t, len(tt.want) > 0, decision.Verdict == policy.Denied)
		})
	}
}

func TestPoliciesThatContradictEachOtherAreWarnedOf(t *testing.T) {
	matching := matchPod(t, steers("a", "dedicated", "banana"), requires("b", requirement("dedicated", corev1.NodeSelectorOpNotIn, "banana")))
	placed := place(matching, corev1.PodSpec{})
	decision := policy.Decide(matching.JudgePod(Pod{Spec: &placed}))
	require.Equal(t, policy.Allowed, decision.Verdict)
	require.Len(t, decision.Findings, 1)
	require.Equal(t, "PlacementPolicy/a, PlacementPolicy/b: spec.affinity (dedicated=banana and dedicated not in [banana]): "+
		"no node can satisfy what the policies require together, so the pod will not be scheduled; ask who wrote the policies", decision.Findings[0].String())
}

func TestPodsOfTheDaemonSetControllerAreNotSteered(t *testing.T) {
	matching := matchPod(t, steers("a", "dedicated", "banana"))
	for _, spec := range []corev1.PodSpec{{}, {NodeSelector: map[string]string{"dedicated": "kiwi"}}} {
		additions := matching.GivePod(Pod{Spec: &spec, FromDaemonSetController: true})
		require.True(t, additions.Empty())
		require.Empty(t, matching.JudgePod(Pod{Spec: &spec, FromDaemonSetController: true}))
	}
}
