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
	require.Nil(t, before.Gates, "what is in force does not change")
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
