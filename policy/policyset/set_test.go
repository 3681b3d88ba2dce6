package policyset_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/policyset"
)

func meta(name string, generation int64) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, UID: types.UID("uid of " + name), Generation: generation}
}

func tolerationPolicies(names ...string) []v1alpha1.TolerationPolicy {
	list := make([]v1alpha1.TolerationPolicy, len(names))
	for i, name := range names {
		list[i].ObjectMeta = meta(name, 1)
		list[i].Spec.Taints = []v1alpha1.TaintSelector{{Key: "key"}}
	}
	return list
}

func TestD04TheVersionNamesThePolicies(t *testing.T) {
	none := policyset.None()
	a := none.WithTolerations(tolerationPolicies("a", "b"))
	require.NotEqual(t, none.Version, a.Version)
	shuffled := tolerationPolicies("a", "b")
	slices.Reverse(shuffled)
	require.Equal(t, a.Version, policyset.None().WithTolerations(shuffled).Version, "D07 the order of a list says nothing")

	edited := tolerationPolicies("a", "b")
	edited[0].Generation++
	require.NotEqual(t, a.Version, a.WithTolerations(edited).Version)
	anew := tolerationPolicies("a", "b")
	anew[0].UID = "another"
	require.NotEqual(t, a.Version, a.WithTolerations(anew).Version)

	other := policyset.None().WithGates([]v1alpha1.GatePolicy{{ObjectMeta: meta("a", 1)}, {ObjectMeta: meta("b", 1)}})
	require.NotEqual(t, a.Version, other.Version, "the same objects of another kind are others")
	both := a.WithGates([]v1alpha1.GatePolicy{{ObjectMeta: meta("g", 1)}})
	require.Equal(t, both.Version, policyset.None().WithGates([]v1alpha1.GatePolicy{{ObjectMeta: meta("g", 1)}}).WithTolerations(shuffled).Version)
}

func TestWhatDidNotChangeIsNotCompiledAgain(t *testing.T) {
	before := policyset.None().WithTolerations(tolerationPolicies("a"))
	same := tolerationPolicies("a")
	same[0].Labels = map[string]string{"a": "label"}
	require.Same(t, before, before.WithTolerations(same))
	after := before.WithGates([]v1alpha1.GatePolicy{{ObjectMeta: meta("g", 1)}})
	require.Same(t, before.Tolerations, after.Tolerations)
	require.Zero(t, before.Gates.Len(), "what is in force does not change")
	require.Equal(t, 1, after.Gates.Len())
}

func TestAPolicyIsHeldInOneGeneration(t *testing.T) {
	policies := policyset.None().WithTolerations(tolerationPolicies("a"))
	require.True(t, policies.Holds("uid of a", 1))
	require.False(t, policies.Holds("uid of a", 2))
	require.False(t, policies.Holds("uid of b", 1))
	var unread *policyset.Set
	require.False(t, unread.Holds("uid of a", 1))
	require.Equal(t, 1, unread.WithTolerations(tolerationPolicies("a")).Tolerations.Len())
}

func TestAllKindsAreCompiled(t *testing.T) {
	policies := policyset.None().
		WithTolerations(tolerationPolicies("t")).
		WithPlacement([]v1alpha1.PlacementPolicy{{ObjectMeta: meta("p", 1)}}).
		WithTaints([]v1alpha1.TaintPolicy{{ObjectMeta: meta("s", 1)}}).
		WithGates([]v1alpha1.GatePolicy{{ObjectMeta: meta("g", 1)}}).
		WithEvictions([]v1alpha1.EvictionPolicy{{ObjectMeta: meta("e", 1)}})
	require.Equal(t, 1, policies.Tolerations.Len())
	require.Equal(t, 1, policies.Placement.Len())
	require.Equal(t, 1, policies.Taints.Len())
	require.Equal(t, 1, policies.Gates.Len())
	require.Equal(t, 1, policies.Evictions.Len())
	for _, name := range []types.UID{"t", "p", "s", "g", "e"} {
		require.True(t, policies.Holds("uid of "+name, 1))
	}
}

func TestWhatStandsBesideTheSpecChangesNothing(t *testing.T) {
	policy := v1alpha1.EvictionPolicy{ObjectMeta: meta("e", 1)}
	before := policyset.None().WithEvictions([]v1alpha1.EvictionPolicy{policy})
	policy.Annotations, policy.Labels = map[string]string{"example.com/a": "b"}, map[string]string{"a": "label"}
	require.Same(t, before, before.WithEvictions([]v1alpha1.EvictionPolicy{policy}))
}

// guarding returns a PlacementPolicy with a guard that registers a taint.
func guarding(name string, generation int64) v1alpha1.PlacementPolicy {
	created := meta(name, generation)
	created.CreationTimestamp = metav1.Unix(generation, 0)
	return v1alpha1.PlacementPolicy{ObjectMeta: created, Spec: v1alpha1.PlacementPolicySpec{
		Match: v1alpha1.PlacementMatch{Namespaces: []string{name}},
		Guard: &v1alpha1.PlacementGuard{
			Taints:   []v1alpha1.RegisteredTaint{{Key: "dedicated", Value: name, Effect: "NoSchedule"}},
			Register: &v1alpha1.GuardRegistration{NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"pool": name}}},
		},
	}}
}

func TestAGuardIsInForceAsAPolicyOfEachKind(t *testing.T) {
	placements := func(list ...v1alpha1.PlacementPolicy) []v1alpha1.PlacementPolicy { return list }
	orders := map[string]func(list []v1alpha1.PlacementPolicy) *policyset.Set{
		"PlacementPolicies are read last": func(list []v1alpha1.PlacementPolicy) *policyset.Set {
			return policyset.None().WithTolerations(tolerationPolicies("t")).WithTaints(nil).WithPlacement(list)
		},
		"PlacementPolicies are read first": func(list []v1alpha1.PlacementPolicy) *policyset.Set {
			return policyset.None().WithPlacement(list).WithTaints(nil).WithTolerations(tolerationPolicies("t"))
		},
	}
	for name, read := range orders {
		t.Run(name, func(t *testing.T) {
			set := read(placements(guarding("banana", 1), guarding("cherry", 1)))
			require.Equal(t, 3, set.Tolerations.Len())
			require.Equal(t, 2, set.Taints.Len())
			registered := set.Taints.Register(map[string]string{"pool": "banana"})
			require.Equal(t, "PlacementPolicy/banana", registered[0].Policy)
			require.Equal(t, metav1.Unix(1, 0), registered[0].Created, "nodes that are older do not get the taint without reconcile")
			require.True(t, set.Holds("uid of banana", 1))

			changed := set.WithPlacement(placements(guarding("cherry", 2)))
			require.Equal(t, 2, changed.Tolerations.Len())
			require.Equal(t, 1, changed.Taints.Len())
			require.Empty(t, changed.Taints.Register(map[string]string{"pool": "banana"}))
			require.Equal(t, 3, set.Tolerations.Len(), "a set does not change")

			again := changed.WithTolerations(tolerationPolicies("t", "u"))
			require.Equal(t, 3, again.Tolerations.Len(), "the guards stay when TolerationPolicies change")
			none := again.WithPlacement(nil)
			require.Equal(t, 2, none.Tolerations.Len())
			require.Zero(t, none.Taints.Len())
		})
	}
	t.Run("a kind that is switched off has no policies of guards either", func(t *testing.T) {
		set := policyset.None().WithTolerations(nil).WithPlacement(placements(guarding("banana", 1)))
		require.Equal(t, 1, set.Tolerations.Len())
		require.Zero(t, set.Taints.Len())
	})
	t.Run("PlacementPolicies without a guard leave the other kinds as they are", func(t *testing.T) {
		before := policyset.None().WithTolerations(tolerationPolicies("t"))
		after := before.WithPlacement(placements(v1alpha1.PlacementPolicy{ObjectMeta: meta("p", 1)}))
		require.Same(t, before.Tolerations, after.Tolerations)
	})
}
