package main

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
	require.ErrorIs(t, err, errRulesNotServed)
	require.False(t, apierrors.IsNotFound(err), "VS-01 that rules are not served does not say that this one is gone")
}
