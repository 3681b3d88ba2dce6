package app

import (
	"testing"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/controllers/devicetaints"
	"github.com/tollgate-dev/tollgate/policy/policyset"
	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/tracker/informer"
)

func TestCarriersAreReadLive(t *testing.T) {
	t.Parallel()
	slice := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "s", UID: "s-uid"}, Spec: resourcev1.ResourceSliceSpec{Driver: "d"}}
	rule := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "resource.k8s.io/v1beta2", "kind": "DeviceTaintRule",
		"metadata": map[string]any{"name": "r", "uid": "r-uid"},
		"spec":     map[string]any{"taint": map[string]any{"key": "k", "effect": "NoExecute"}},
	}}
	resource, served := informer.RuleResource.WithVersion("v1beta2"), true
	c := &carriers{
		slices: fake.NewClientset(slice).ResourceV1().ResourceSlices(),
		rules: dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
			map[schema.GroupVersionResource]string{resource: "DeviceTaintRuleList"}, rule),
		served: func() (schema.GroupVersionResource, bool) { return resource, served },
	}

	gotSlice, err := c.ReadSlice(t.Context(), "s")
	require.NoError(t, err)
	require.Equal(t, tracker.SliceOf(slice), gotSlice)
	_, err = c.ReadSlice(t.Context(), "gone")
	require.True(t, apierrors.IsNotFound(err))

	gotRule, err := c.ReadRule(t.Context(), "r")
	require.NoError(t, err)
	require.Equal(t, "k", gotRule.Taint.Key)
	require.EqualValues(t, "r-uid", gotRule.UID)
	_, err = c.ReadRule(t.Context(), "gone")
	require.True(t, apierrors.IsNotFound(err))

	served = false
	_, err = c.ReadRule(t.Context(), "r")
	require.ErrorIs(t, err, devicetaints.ErrNotServed)
	require.False(t, apierrors.IsNotFound(err), "VS-01 that rules are not served does not say that this one is gone")
}

func TestTwinsAreToldFromOtherRules(t *testing.T) {
	t.Parallel()
	made := func(name, effect, kind, owner, uid string) *unstructured.Unstructured {
		metadata := map[string]any{"name": name, "uid": name + "-uid"}
		if owner != "" {
			metadata["labels"] = map[string]any{devicetaints.Label: "rule"}
			metadata["ownerReferences"] = []any{map[string]any{"apiVersion": "v1", "kind": kind, "name": owner, "uid": uid}}
		}
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "resource.k8s.io/v1", "kind": "DeviceTaintRule", "metadata": metadata,
			"spec": map[string]any{"deviceSelector": map[string]any{"driver": "d"}, "taint": map[string]any{"key": "k", "effect": effect}},
		}}
	}
	resource := informer.RuleResource.WithVersion("v1")
	c := &carriers{
		slices: fake.NewClientset().ResourceV1().ResourceSlices(),
		rules: dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
			map[schema.GroupVersionResource]string{resource: "DeviceTaintRuleList"},
			made("r", "NoExecute", "", "", ""),
			made("calm", "NoSchedule", "", "", ""),
			made("replaced", "NoExecute", "", "", ""),
			made("r-noschedule", "NoSchedule", "DeviceTaintRule", "r", "r-uid"),
			made("replaced-noschedule", "NoSchedule", "DeviceTaintRule", "replaced", "old"),
			made("calm-noschedule", "NoSchedule", "DeviceTaintRule", "calm", "calm-uid"),
			made("mine", "NoSchedule", "DeviceTaintRule", "r", "r-uid"),
			made("gone-noschedule", "NoSchedule", "DeviceTaintRule", "gone", "gone-uid"),
			made("tollgate-noschedule-00112233445566778899", "NoSchedule", "ResourceSlice", "gone", "gone-uid"),
		),
		served: func() (schema.GroupVersionResource, bool) { return resource, true },
	}
	current := (*policyset.Set)(nil).WithPlacement([]v1alpha1.PlacementPolicy{{
		ObjectMeta: metav1.ObjectMeta{Name: "p"},
		Spec: v1alpha1.PlacementPolicySpec{
			Match: v1alpha1.PlacementMatch{Namespaces: []string{"*"}},
			Claim: &v1alpha1.ClaimPlacement{Tolerations: []resourcev1.DeviceToleration{{
				Key: "k", Operator: resourcev1.DeviceTolerationOpExists, Effect: resourcev1.DeviceTaintEffectNoExecute, TolerationSeconds: new(int64(300)),
			}}},
		},
	}})
	windowed := (*policyset.Set)(nil).WithEvictions([]v1alpha1.EvictionPolicy{{
		ObjectMeta: metav1.ObjectMeta{Name: "p"},
		Spec: v1alpha1.EvictionPolicySpec{
			Taints: []v1alpha1.TaintSelector{{Target: v1alpha1.TaintTargetDevice, Key: "k"}},
			Inject: &v1alpha1.EvictionInjection{Seconds: 300},
		},
	}})
	for name, want := range map[string]bool{
		"r-noschedule": true, "replaced-noschedule": false, "calm-noschedule": false, "mine": false, "gone-noschedule": false,
		"tollgate-noschedule-00112233445566778899": false, "r": false, "not-there": false,
	} {
		rule := &tracker.Rule{Name: name, Taint: resourcev1.DeviceTaint{Effect: resourcev1.DeviceTaintEffectNoSchedule}}
		paired, err := c.Paired(t.Context(), current, rule)
		require.NoError(t, err, name)
		require.Equal(t, want, paired, name)
		paired, err = c.Paired(t.Context(), nil, rule)
		require.NoError(t, err, name)
		require.False(t, paired, "%s: no policy needs it", name)
		paired, err = c.Paired(t.Context(), windowed, rule)
		require.NoError(t, err, name)
		require.False(t, paired, "%s: there is no window in another mode", name)
		c.window = true
		paired, err = c.Paired(t.Context(), windowed, rule)
		require.NoError(t, err, name)
		require.Equal(t, want, paired, "%s: mode Window", name)
		c.window = false
		rule.Taint.Effect = resourcev1.DeviceTaintEffectNoExecute
		paired, err = c.Paired(t.Context(), current, rule)
		require.NoError(t, err, name)
		require.False(t, paired, "%s: no twin evicts, whatever it says of itself", name)
	}
}
