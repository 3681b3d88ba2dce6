package placement

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/cel"
	"github.com/tollgate-dev/tollgate/policy/validation"
)

// randomPolicy returns a policy for banana that may give anything, valid or not.
func randomPolicy(random *rand.Rand, name string) v1alpha1.PlacementPolicy {
	var pod v1alpha1.PodPlacement
	for range random.IntN(3) {
		pod.Tolerations = append(pod.Tolerations, randomToleration(random))
	}
	for range random.IntN(3) {
		if pod.NodeSelector == nil {
			pod.NodeSelector = map[string]string{}
		}
		pod.NodeSelector[[]string{"k", "l", "m"}[random.IntN(3)]] = []string{"a", "b", "1"}[random.IntN(3)]
	}
	for range random.IntN(3) {
		pod.NodeAffinity = append(pod.NodeAffinity, randomLabelled(random))
	}
	inclusions := []*corev1.NodeInclusionPolicy{nil, new(corev1.NodeInclusionPolicyHonor), new(corev1.NodeInclusionPolicyIgnore)}
	if random.IntN(2) == 0 {
		pod.TopologySpread = &v1alpha1.TopologySpreadDefaults{NodeTaintsPolicy: inclusions[random.IntN(3)], NodeAffinityPolicy: inclusions[random.IntN(3)]}
	}
	if random.IntN(3) == 0 {
		pod.SchedulingGates = []string{[]string{"example.com/a", "example.com/b"}[random.IntN(2)]}
	}
	p := gives(name, pod)
	for range random.IntN(3) {
		t := randomToleration(random)
		if p.Spec.Claim == nil {
			p.Spec.Claim = &v1alpha1.ClaimPlacement{}
		}
		p.Spec.Claim.Tolerations = append(p.Spec.Claim.Tolerations, resourcev1.DeviceToleration{
			Key: t.Key, Operator: resourcev1.DeviceTolerationOperator(t.Operator), Value: t.Value,
			Effect: resourcev1.DeviceTaintEffect(t.Effect), TolerationSeconds: t.TolerationSeconds,
		})
	}
	return p
}

func randomLabelled(random *rand.Rand) corev1.NodeSelectorRequirement {
	r := randomRequirement(random)
	r.Key = []string{"k", "l", "m"}[random.IntN(3)]
	return r
}

func randomSpec(random *rand.Rand) corev1.PodSpec {
	var spec corev1.PodSpec
	for range random.IntN(3) {
		spec.Tolerations = append(spec.Tolerations, randomToleration(random))
	}
	if random.IntN(2) == 0 {
		spec.NodeSelector = map[string]string{[]string{"k", "l"}[random.IntN(2)]: []string{"a", "b", "2"}[random.IntN(3)]}
	}
	if random.IntN(2) == 0 {
		var terms []corev1.NodeSelectorTerm
		for range 1 + random.IntN(3) {
			var t corev1.NodeSelectorTerm
			for range random.IntN(3) {
				t.MatchExpressions = append(t.MatchExpressions, randomLabelled(random))
			}
			if random.IntN(5) == 0 {
				t.MatchFields = []corev1.NodeSelectorRequirement{requirement("metadata.name", corev1.NodeSelectorOpIn, "n1")}
			}
			terms = append(terms, t)
		}
		spec.Affinity = withTerms(terms...)
	}
	for range random.IntN(3) {
		spec.TopologySpreadConstraints = append(spec.TopologySpreadConstraints, corev1.TopologySpreadConstraint{})
	}
	if random.IntN(3) == 0 {
		spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/a"}}
	}
	if random.IntN(6) == 0 && len(spec.SchedulingGates) == 0 {
		spec.NodeName = "n1"
	}
	return spec
}

// outcome is all that comes of policies for a pod and a claim, as bytes.
func outcome(t *testing.T, policies []v1alpha1.PlacementPolicy, spec *corev1.PodSpec, requests []ClaimRequest) string {
	t.Helper()
	set := Compile(policies)
	pods, err := set.MatchPod(t.Context(), banana())
	require.NoError(t, err)
	claims, err := set.MatchClaim(t.Context(), banana())
	require.NoError(t, err)
	placed := place(pods, *spec)
	text, err := json.Marshal([]any{
		placed, policy.Decide(pods.JudgePod(Pod{Spec: spec})), policy.Decide(pods.JudgePod(Pod{Spec: &placed})),
		claims.GiveClaim(requests), policy.Decide(claims.JudgeClaim(requests)), fmt.Sprint(set.Problems()),
	})
	require.NoError(t, err)
	return string(text)
}

// D07, D08: 100 sets of policies and pods. Whatever the order of the policies, the
// outcome is the same to the byte; what was placed is placed; and a pod that is
// placed is narrower than before, never wider.
func TestD07D08PlacementIsStable(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	for range 100 {
		policies := make([]v1alpha1.PlacementPolicy, 1+random.IntN(6))
		for i := range policies {
			policies[i] = randomPolicy(random, string(rune('a'+i)))
		}
		spec := randomSpec(random)
		requests := []ClaimRequest{{}, {Tolerations: many("x", random.IntN(17))}}
		want := outcome(t, policies, &spec, requests)
		for range 6 {
			random.Shuffle(len(policies), func(i, j int) { policies[i], policies[j] = policies[j], policies[i] })
			require.Equal(t, want, outcome(t, policies, &spec, requests))
		}
		set := Compile(policies)
		matching, err := set.MatchPod(t.Context(), banana())
		require.NoError(t, err)
		placed := place(matching, spec)
		again := matching.GivePod(Pod{Spec: &placed})
		require.True(t, again.Empty(), "giving twice gives no more: %+v\n%+v", placed, again)
		requireTightened(t, &spec, &placed)
		requireNothingMissing(t, matching, &placed)

		claims, err := set.MatchClaim(t.Context(), banana())
		require.NoError(t, err)
		for i, added := range claims.GiveClaim(requests) {
			requests[i].Tolerations = append(requests[i].Tolerations, added...)
		}
		for _, added := range claims.GiveClaim(requests) {
			require.Empty(t, added)
		}
	}
}

// randomSubject returns a pod in banana of which conditions that look for a label fail.
func randomSubject() *Subject {
	subject := banana()
	subject.Review = &cel.Review{Request: &admissionv1.AdmissionRequest{
		Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: []byte(`{"metadata":{}}`)},
	}}
	return subject
}

// However much is amiss, and in whatever order it is found, the bound on what is said
// about it never changes the verdict.
func TestTheBoundNeverChangesTheVerdict(t *testing.T) {
	random := rand.New(rand.NewPCG(9, 10))
	denied, cut := 0, 0
	for range 200 {
		policies := make([]v1alpha1.PlacementPolicy, 1+random.IntN(80))
		gating := random.IntN(3) == 0
		for i := range policies {
			policies[i] = randomPolicy(random, fmt.Sprintf("p%02d", i))
			p := &policies[i].Spec
			p.Pod.SchedulingGates = nil
			for j := range p.Pod.Tolerations {
				p.Pod.Tolerations[j].Key += strconv.Itoa(i)
			}
			if random.IntN(2) == 0 {
				p.Match.MatchConditions = condition("object.metadata.labels.x == 'y'")
			}
			if gating && random.IntN(len(policies)) == 0 {
				p.Pod.SchedulingGates = []string{"example.com/a"}
			}
		}
		matching, err := Compile(policies).MatchPod(t.Context(), randomSubject())
		require.NoError(t, err)
		pod := Pod{Spec: new(randomSpec(random)), FromDaemonSetController: random.IntN(4) == 0}
		whole := matching.judgePod(pod)
		found := matching.JudgePod(pod)
		require.LessOrEqual(t, len(found), MaxFindings)
		verdict := policy.Decide(whole).Verdict
		require.Equal(t, verdict, policy.Decide(found).Verdict)
		if len(whole) > MaxFindings {
			cut++
			if verdict == policy.Denied {
				denied++
			}
		}
	}
	require.Greater(t, cut, 50)
	require.Greater(t, denied, 20, "the bound has cut what was refused")
}

func TestD07AThousandShuffles(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	policies := make([]v1alpha1.PlacementPolicy, 5)
	for i := range policies {
		policies[i] = randomPolicy(random, string(rune('a'+i)))
	}
	spec := randomSpec(random)
	want := outcome(t, policies, &spec, []ClaimRequest{{}})
	for range 1000 {
		random.Shuffle(len(policies), func(i, j int) { policies[i], policies[j] = policies[j], policies[i] })
		require.Equal(t, want, outcome(t, policies, &spec, []ClaimRequest{{}}))
	}
}

// requireTightened holds what was added against the rules for gated pods (SD-06 to
// SD-10): nothing that the pod said is changed, and it fits fewer nodes.
func requireTightened(t *testing.T, before, after *corev1.PodSpec) {
	t.Helper()
	old, updated := &corev1.Pod{Spec: *before.DeepCopy()}, &corev1.Pod{Spec: *after.DeepCopy()}
	gate := []corev1.PodSchedulingGate{{Name: "example.com/gate"}}
	old.Spec.NodeName, updated.Spec.NodeName = "", ""
	old.Spec.SchedulingGates, updated.Spec.SchedulingGates = gate, gate
	updated.Spec.TopologySpreadConstraints = old.Spec.TopologySpreadConstraints
	for _, err := range validation.ValidatePodUpdate(&updated.Spec, &old.Spec) {
		require.NotContains(t, err.Detail, "stay", "%v", err)
		require.NotContains(t, err.Detail, "narrow", "%v", err)
	}
	require.GreaterOrEqual(t, len(after.Tolerations), len(before.Tolerations))
	require.Equal(t, append([]corev1.Toleration{}, before.Tolerations...), append([]corev1.Toleration{}, after.Tolerations[:len(before.Tolerations)]...))
}

// requireNothingMissing makes sure that all that is said about a pod that was placed
// is what it, or the policies, contradict, or a gate that its node keeps it from.
func requireNothingMissing(t *testing.T, m Matching, placed *corev1.PodSpec) {
	t.Helper()
	for _, finding := range m.JudgePod(Pod{Spec: placed}) {
		if finding.Reason == policy.PlacementMissing {
			require.Equal(t, "spec.schedulingGates", finding.Field)
			require.NotEmpty(t, placed.NodeName)
		}
	}
}
