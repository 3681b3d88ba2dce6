package pairing

import (
	"testing"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
)

func TestClient(t *testing.T) {
	scheme := runtime.NewScheme()
	resource := resourcev1.SchemeGroupVersion.WithResource("devicetaintrules")
	dynamic := fake.NewSimpleDynamicClientWithCustomListKinds(scheme, map[schema.GroupVersionResource]string{resource: "DeviceTaintRuleList"})
	client := NewClient(dynamic, func() (schema.GroupVersionResource, bool) { return resource, true })
	w := newWorld(t)
	w.put(rule("broken", "gpu-0", "degraded", noExecute))
	seen, ok := w.Rule("broken")
	require.True(t, ok)
	twin := twinOf(&seen)

	_, err := client.Get(t.Context(), twin.name)
	require.True(t, apierrors.IsNotFound(err))
	require.NoError(t, client.Create(t.Context(), twin.object))
	require.True(t, apierrors.IsAlreadyExists(client.Create(t.Context(), twin.object)))
	stored, err := client.Get(t.Context(), twin.name)
	require.NoError(t, err)
	require.Equal(t, twin.object("resource.k8s.io/v1"), stored)

	t.Run("an update replaces the spec of what was read, and of nothing else", func(t *testing.T) {
		stored.UID, stored.ResourceVersion = "u", "7"
		dynamic.ClearActions()
		require.Error(t, client.Update(t.Context(), stored, twin.object), "what is stored has another UID")
		patch, ok := dynamic.Actions()[0].(clienttesting.PatchAction)
		require.True(t, ok)
		require.JSONEq(t, `[{"op":"test","path":"/metadata/uid","value":"u"},{"op":"test","path":"/metadata/resourceVersion","value":"7"},
			{"op":"add","path":"/metadata/labels/tollgate.dev~1pair","value":"rule"},
			{"op":"add","path":"/metadata/ownerReferences","value":[{"apiVersion":"resource.k8s.io/v1","kind":"DeviceTaintRule","name":"broken","uid":"`+string(seen.UID)+`"}]},
			{"op":"replace","path":"/spec","value":{"deviceSelector":{"driver":"gpu.example.com","device":"gpu-0"},"taint":{"key":"degraded","value":"v","effect":"NoSchedule"}}}]`,
			string(patch.GetPatch()))
	})
	t.Run("only what was read is deleted", func(t *testing.T) {
		dynamic.ClearActions()
		require.NoError(t, client.Delete(t.Context(), stored))
		deletion, ok := dynamic.Actions()[0].(clienttesting.DeleteAction)
		require.True(t, ok)
		preconditions := deletion.GetDeleteOptions().Preconditions
		require.Equal(t, stored.UID, *preconditions.UID)
		require.Equal(t, stored.ResourceVersion, *preconditions.ResourceVersion)
	})
	t.Run("where rules are not served nothing can be done", func(t *testing.T) {
		unserved := NewClient(dynamic, func() (schema.GroupVersionResource, bool) { return schema.GroupVersionResource{}, false })
		_, err := unserved.Get(t.Context(), "x")
		require.ErrorIs(t, err, errNotServed)
		require.ErrorIs(t, unserved.Create(t.Context(), twin.object), errNotServed)
		require.ErrorIs(t, unserved.Update(t.Context(), stored, twin.object), errNotServed)
		require.ErrorIs(t, unserved.Delete(t.Context(), stored), errNotServed)
	})
}
