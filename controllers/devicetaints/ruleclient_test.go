package devicetaints

import (
	"testing"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
)

const label, annotation = "example.com/made", "example.com/for"

// wanted builds a rule whose label has the UID.
func wanted(uid string, annotations map[string]string) BuildRule {
	return func(version string) *resourcev1.DeviceTaintRule {
		return &resourcev1.DeviceTaintRule{
			TypeMeta: metav1.TypeMeta{APIVersion: version, Kind: "DeviceTaintRule"},
			ObjectMeta: metav1.ObjectMeta{
				Name: "made", Labels: map[string]string{label: uid}, Annotations: annotations,
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "Owner", Name: "owner", UID: "o"}},
			},
			Spec: resourcev1.DeviceTaintRuleSpec{
				DeviceSelector: &resourcev1.DeviceTaintSelector{Driver: new("gpu.example.com")},
				Taint:          resourcev1.DeviceTaint{Key: "degraded", Effect: resourcev1.DeviceTaintEffectNoSchedule},
			},
		}
	}
}

const (
	untouched = `{"op":"replace","path":"/metadata/resourceVersion","value":"7"}`
	replaced  = `{"op":"add","path":"/metadata/ownerReferences","value":[{"apiVersion":"example.com/v1","kind":"Owner","name":"owner","uid":"o"}]},
		{"op":"replace","path":"/spec","value":{"deviceSelector":{"driver":"gpu.example.com"},"taint":{"key":"degraded","effect":"NoSchedule"}}}`
)

func TestUpdate(t *testing.T) {
	for name, tt := range map[string]struct {
		labels, annotations map[string]string
		build               BuildRule
		marks               string
	}{
		"marks that are as they are to be are left alone": {
			labels: map[string]string{label: "a", "mine": "1"}, build: wanted("a", nil), marks: "",
		},
		"a label is given to a rule that has none": {
			build: wanted("a", nil), marks: `{"op":"add","path":"/metadata/labels","value":{"example.com/made":"a"}},`,
		},
		"the labels of others stay": {
			labels: map[string]string{"mine": "1", label: "b"}, build: wanted("a", nil),
			marks: `{"op":"add","path":"/metadata/labels","value":{"example.com/made":"a","mine":"1"}},`,
		},
		"a mark that is not wanted any more is taken away": {
			labels: map[string]string{label: "a"}, annotations: map[string]string{annotation: "x", "mine": "1"}, build: wanted("a", nil),
			marks: `{"op":"add","path":"/metadata/annotations","value":{"mine":"1"}},`,
		},
		"an annotation is given": {
			labels: map[string]string{label: "a"}, build: wanted("a", map[string]string{annotation: "x"}),
			marks: `{"op":"add","path":"/metadata/annotations","value":{"example.com/for":"x"}},`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			api, client := newClient()
			stored := wanted("a", nil)("resource.k8s.io/v1")
			stored.UID, stored.ResourceVersion, stored.Labels, stored.Annotations = "u", "7", tt.labels, tt.annotations
			require.Error(t, client.Update(t.Context(), stored, tt.build), "there is none")
			patch, ok := api.Actions()[0].(clienttesting.PatchAction)
			require.True(t, ok)
			require.JSONEq(t, "["+untouched+","+tt.marks+replaced+"]", string(patch.GetPatch()))
		})
	}
}

func newClient() (*fake.FakeDynamicClient, *RuleClient) {
	resource := resourcev1.SchemeGroupVersion.WithResource("devicetaintrules")
	api := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{resource: "DeviceTaintRuleList"})
	return api, NewRuleClient(api, func() (schema.GroupVersionResource, bool) { return resource, true }, label, annotation)
}

func TestClient(t *testing.T) {
	api, client := newClient()
	build := wanted("a", nil)
	_, err := client.Get(t.Context(), "made")
	require.True(t, apierrors.IsNotFound(err))
	require.NoError(t, client.Create(t.Context(), build))
	creation, ok := api.Actions()[1].(clienttesting.CreateAction)
	require.True(t, ok)
	sent, ok := creation.GetObject().(*unstructured.Unstructured)
	require.True(t, ok)
	require.NotContains(t, sent.Object, "status")
	require.True(t, apierrors.IsAlreadyExists(client.Create(t.Context(), build)))
	stored, err := client.Get(t.Context(), "made")
	require.NoError(t, err)
	require.Equal(t, build("resource.k8s.io/v1"), stored)

	t.Run("only what was read is deleted", func(t *testing.T) {
		stored.UID, stored.ResourceVersion = "u", "7"
		api.ClearActions()
		require.NoError(t, client.Delete(t.Context(), stored))
		deletion, ok := api.Actions()[0].(clienttesting.DeleteAction)
		require.True(t, ok)
		preconditions := deletion.GetDeleteOptions().Preconditions
		require.Equal(t, stored.UID, *preconditions.UID)
		require.Equal(t, stored.ResourceVersion, *preconditions.ResourceVersion)
	})
	t.Run("where rules are not served nothing can be done", func(t *testing.T) {
		unserved := NewRuleClient(api, func() (schema.GroupVersionResource, bool) { return schema.GroupVersionResource{}, false })
		_, err := unserved.Get(t.Context(), "x")
		require.ErrorIs(t, err, ErrNotServed)
		require.ErrorIs(t, unserved.Create(t.Context(), build), ErrNotServed)
		require.ErrorIs(t, unserved.Update(t.Context(), stored, build), ErrNotServed)
		require.ErrorIs(t, unserved.Delete(t.Context(), stored), ErrNotServed)
	})
}
