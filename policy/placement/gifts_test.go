package placement

import (
	"testing"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

func TestGiftsSayWhatAPodHasFromPolicies(t *testing.T) {
	t.Parallel()
	honor, ignore := corev1.NodeInclusionPolicyHonor, corev1.NodeInclusionPolicyIgnore
	set := Compile([]v1alpha1.PlacementPolicy{
		gives("all", v1alpha1.PodPlacement{
			Tolerations:     []corev1.Toleration{{Key: "dedicated", Operator: corev1.TolerationOpEqual, Value: "banana"}},
			NodeSelector:    map[string]string{"pool": "banana"},
			TopologySpread:  &v1alpha1.TopologySpreadDefaults{NodeTaintsPolicy: &honor, NodeAffinityPolicy: &honor},
			SchedulingGates: []string{"example.com/queue"},
		}),
		steers("more", "pool", "yellow"),
	})
	matching, err := set.MatchPod(t.Context(), &Subject{Namespace: "banana", NamespaceLabels: map[string]string{}})
	require.NoError(t, err)
	spec := corev1.PodSpec{TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{TopologyKey: "zone"}, {TopologyKey: "rack", NodeTaintsPolicy: &ignore}}}
	wanted := func(has bool) []Gift {
		return []Gift{
			{Policies: []string{"all"}, Field: "spec.tolerations", Value: "dedicated=banana", Has: has},
			{Policies: []string{"all", "more"}, Field: termPath(-1), Value: "pool in [banana, yellow]", Has: has},
			{Policies: []string{"all"}, Field: "spec.topologySpreadConstraints[0]", Value: "nodeTaintsPolicy: Honor", Has: has},
			{Policies: []string{"all"}, Field: "spec.topologySpreadConstraints[0]", Value: "nodeAffinityPolicy: Honor", Has: has},
			{Policies: []string{"all"}, Field: "spec.topologySpreadConstraints[1]", Value: "nodeAffinityPolicy: Honor", Has: has},
			{Policies: []string{"all"}, Field: "spec.schedulingGates", Value: "example.com/queue", Has: has},
		}
	}

	t.Run("a pod from before has nothing of it", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, wanted(false), matching.Gifts(Pod{Spec: &spec}))
	})
	given := *spec.DeepCopy()
	additions := matching.GivePod(Pod{Spec: &given})
	additions.Apply(&given)
	t.Run("a pod that was given it has all", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, wanted(true), matching.Gifts(Pod{Spec: &given}))
	})
	t.Run("and it has the rest once its gate is open and it is on a node", func(t *testing.T) {
		t.Parallel()
		open := *given.DeepCopy()
		open.SchedulingGates, open.NodeName = nil, "n"
		gifts := matching.Gifts(Pod{Spec: &open})
		want := wanted(true)
		want[5].Has = false
		require.Equal(t, want, gifts)
	})
	t.Run("asking changes nothing", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, &ignore, spec.TopologySpreadConstraints[1].NodeTaintsPolicy)
	})
}

func TestAGiftNamesThePoliciesThatRequireItAndNoOthers(t *testing.T) {
	t.Parallel()
	matching := matchPod(t,
		steers("pool-a", "pool", "a"), steers("pool-b", "pool", "b"), steers("zone", "zone", "z"), steers("zone-too", "zone", "y"),
		requires("not-v1", requirement("zone", corev1.NodeSelectorOpNotIn, "v1")),
		requires("not-v1-too", requirement("zone", corev1.NodeSelectorOpNotIn, "v1")),
		requires("not-v2", requirement("zone", corev1.NodeSelectorOpNotIn, "v2")))
	authors := map[string][]string{}
	for _, gift := range matching.Gifts(Pod{Spec: &corev1.PodSpec{}}) {
		authors[gift.Value] = gift.Policies
	}
	for value, want := range map[string][]string{
		"pool in [a, b]": {"pool-a", "pool-b"}, "zone in [y, z]": {"zone", "zone-too"}, "zone not in [v1]": {"not-v1", "not-v1-too"}, "zone not in [v2]": {"not-v2"},
	} {
		require.Equal(t, want, authors[value], "%s of %v", value, authors)
	}
}

func TestClaimGiftsSayWhatRequestsHaveFromPolicies(t *testing.T) {
	t.Parallel()
	degraded := resourcev1.DeviceToleration{Key: "gpu/degraded", Operator: resourcev1.DeviceTolerationOpExists, Effect: resourcev1.DeviceTaintEffectNoSchedule}
	set := Compile([]v1alpha1.PlacementPolicy{givesClaims("all", degraded)})
	matching, err := set.MatchClaim(t.Context(), &Subject{Namespace: "banana", NamespaceLabels: map[string]string{}})
	require.NoError(t, err)
	path := func(i int) *field.Path {
		return field.NewPath("spec", "devices", "requests").Index(i).Child("exactly", "tolerations")
	}
	gifts := matching.ClaimGifts([]ClaimRequest{{Path: path(0), Tolerations: []resourcev1.DeviceToleration{degraded}}, {Path: path(1)}})
	require.Equal(t, []Gift{
		{Policies: []string{"all"}, Field: "spec.devices.requests[0].exactly.tolerations", Value: "gpu/degraded:NoSchedule", Has: true},
		{Policies: []string{"all"}, Field: "spec.devices.requests[1].exactly.tolerations", Value: "gpu/degraded:NoSchedule"},
	}, gifts)
	require.Empty(t, matching.Failed())
}

func TestPoliciesThatAskWhoMadeAPodAreKnownAsSuch(t *testing.T) {
	t.Parallel()
	asks := func(name, expression string, namespaces ...string) v1alpha1.PlacementPolicy {
		p := steers(name, "pool", "a")
		p.Spec.Match.Namespaces = namespaces
		p.Spec.Match.MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "a", Expression: expression}}
		return p
	}
	set := Compile([]v1alpha1.PlacementPolicy{
		asks("who", "request.userInfo.username == 'alice'", "banana"), asks("elsewhere", "request.userInfo.username == 'alice'", "apple"),
		asks("what", "request.operation == 'CREATE'", "banana"), steers("all", "pool", "a"),
	})
	names, err := set.PersonalPods(t.Context(), &Subject{Namespace: "banana", NamespaceLabels: map[string]string{}})
	require.NoError(t, err)
	require.Equal(t, []string{"who"}, names)
	names, err = (*Set)(nil).PersonalPods(t.Context(), &Subject{})
	require.NoError(t, err)
	require.Empty(t, names)
}
