package placement

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// gives returns a policy that gives something to the pods of namespace banana.
func gives(name string, pod v1alpha1.PodPlacement) v1alpha1.PlacementPolicy {
	return v1alpha1.PlacementPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.PlacementPolicySpec{Match: v1alpha1.PlacementMatch{Namespaces: []string{"banana"}}, Pod: &pod},
	}
}

// givesClaims returns a policy that gives tolerations to the claims of namespace
// banana.
func givesClaims(name string, given ...resourcev1.DeviceToleration) v1alpha1.PlacementPolicy {
	return v1alpha1.PlacementPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.PlacementPolicySpec{
			Match: v1alpha1.PlacementMatch{Namespaces: []string{"banana"}},
			Claim: &v1alpha1.ClaimPlacement{Tolerations: given},
		},
	}
}

// steers returns a policy that steers the pods of namespace banana by nodeSelector.
func steers(name, key, value string) v1alpha1.PlacementPolicy {
	return gives(name, v1alpha1.PodPlacement{NodeSelector: map[string]string{key: value}})
}

// requires returns a policy that steers the pods of namespace banana by nodeAffinity.
func requires(name string, requirements ...corev1.NodeSelectorRequirement) v1alpha1.PlacementPolicy {
	return gives(name, v1alpha1.PodPlacement{NodeAffinity: requirements})
}

func tolerates60(key string, seconds *int64) corev1.Toleration {
	return corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: seconds}
}

func requirement(key string, operator corev1.NodeSelectorOperator, values ...string) corev1.NodeSelectorRequirement {
	return corev1.NodeSelectorRequirement{Key: key, Operator: operator, Values: values}
}

func withTerms(terms ...corev1.NodeSelectorTerm) *corev1.Affinity {
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms},
	}}
}

func term(requirements ...corev1.NodeSelectorRequirement) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{MatchExpressions: requirements}
}

// banana is a subject in the namespace banana.
func banana() *Subject {
	return &Subject{Namespace: "banana", NamespaceLabels: map[string]string{}}
}

// matchPod compiles policies, which must be valid, and returns those for a pod in
// banana.
func matchPod(tb testing.TB, policies ...v1alpha1.PlacementPolicy) Matching {
	tb.Helper()
	set := Compile(policies)
	require.Empty(tb, set.Problems())
	matching, err := set.MatchPod(tb.Context(), banana())
	require.NoError(tb, err)
	return matching
}

func matchClaim(tb testing.TB, policies ...v1alpha1.PlacementPolicy) Matching {
	tb.Helper()
	set := Compile(policies)
	require.Empty(tb, set.Problems())
	matching, err := set.MatchClaim(tb.Context(), banana())
	require.NoError(tb, err)
	return matching
}

// place returns the spec with what it is given.
func place(m Matching, spec corev1.PodSpec) corev1.PodSpec {
	placed := *spec.DeepCopy()
	additions := m.GivePod(Pod{Spec: &spec})
	additions.Apply(&placed)
	return placed
}
