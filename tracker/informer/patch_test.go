package informer_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/tracker/informer"
)

func TestRuleOfPatch(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"v1", "v1beta2", "v1alpha3"} {
		t.Run("a rule that is written out for a patch is known as such in "+version, func(t *testing.T) {
			t.Parallel()
			rule, err := informer.RuleOf(&unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "resource.k8s.io/" + version, "kind": "DeviceTaintRule",
				"metadata": map[string]any{
					"name":        "gpu-broken-1",
					"labels":      map[string]any{v1alpha1.LabelPatch: "patch-uid"},
					"annotations": map[string]any{v1alpha1.AnnotationPatchEffect: "NoExecute"},
					"ownerReferences": []any{map[string]any{
						"apiVersion": "tollgate.dev/v1alpha1", "kind": "ResourceSlicePatch", "name": "gpu-broken", "uid": "patch-uid", "controller": true,
					}},
				},
				"spec": map[string]any{
					"deviceSelector": map[string]any{"driver": "gpu.example.com"},
					"taint":          map[string]any{"key": "k", "effect": "NoSchedule"},
				},
			}})
			require.NoError(t, err)
			require.Equal(t, tracker.PatchRef{Name: "gpu-broken", UID: "patch-uid"}, rule.Patch)
			require.Equal(t, resourcev1.DeviceTaintEffectNoExecute, rule.Taint.Effect)
			require.Equal(t, resourcev1.DeviceTaintEffectNoSchedule, rule.Native)
			require.True(t, rule.Selects)
		})
	}
}
