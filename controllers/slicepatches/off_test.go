package slicepatches

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/controllers/devicetaints"
	"github.com/tollgate-dev/tollgate/evictor/controller"
	"github.com/tollgate-dev/tollgate/tracker/informer"
)

// offRule is a DeviceTaintRule with the label of a patch, and owned by the patch if
// Tollgate wrote it.
func offRule(name, version string, ours bool) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "resource.k8s.io/" + version, "kind": "DeviceTaintRule",
		"metadata": map[string]any{"name": name, "uid": name, "labels": map[string]any{v1alpha1.LabelPatch: "patch-uid"}},
		"spec":     map[string]any{"taint": map[string]any{"key": "a", "effect": "NoExecute"}},
	}}
	if ours {
		object.SetOwnerReferences([]metav1.OwnerReference{{
			APIVersion: v1alpha1.GroupVersion.String(), Kind: "ResourceSlicePatch", Name: "p", UID: "patch-uid", Controller: new(true),
		}})
	}
	return object
}

// serving is an API server that serves rules in one version.
func serving(version string, rules ...runtime.Object) *fake.FakeDynamicClient {
	kinds := map[schema.GroupVersionResource]string{}
	for _, v := range devicetaints.RuleVersions {
		kinds[informer.RuleResource.WithVersion(v)] = "DeviceTaintRuleList"
	}
	kinds[patches] = "ResourceSlicePatchList"
	client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds, rules...)
	client.PrependReactor("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.GetResource().Version != version {
			return true, nil, apierrors.NewNotFound(schema.GroupResource{}, "")
		}
		return false, nil, nil
	})
	return client
}

func names(t *testing.T, client *fake.FakeDynamicClient, version string) []string {
	t.Helper()
	list, err := client.Resource(informer.RuleResource.WithVersion(version)).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	found := []string{}
	for i := range list.Items {
		found = append(found, list.Items[i].GetName())
	}
	return found
}

func TestTheRulesOfPatchesAreRemovedAndNoOthers(t *testing.T) {
	t.Parallel()
	for _, version := range devicetaints.RuleVersions {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				client := serving(version, offRule("ours", version, true), offRule("labelled", version, false))
				failures := 1
				client.PrependReactor("delete", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
					if failures--; failures >= 0 {
						return true, nil, errors.New("no answer")
					}
					return false, nil, nil
				})
				ctx, stop := context.WithCancel(t.Context())
				done := make(chan error, 1)
				remover := &Remover{Client: client, Rules: []Written{OfPatches()}, Base: controller.Base{Local: clock.RealClock{}, Leads: func() bool { return true }, Timeout: time.Second}}
				go func() { done <- remover.Start(ctx) }()
				synctest.Wait()
				require.Equal(t, []string{"labelled", "ours"}, names(t, client, version))
				time.Sleep(retryPause)
				synctest.Wait()
				require.Equal(t, []string{"labelled"}, names(t, client, version))
				_, err := client.Resource(informer.RuleResource.WithVersion(version)).Create(t.Context(), offRule("later", version, true), metav1.CreateOptions{})
				require.NoError(t, err)
				time.Sleep(pause)
				synctest.Wait()
				require.Equal(t, []string{"labelled"}, names(t, client, version))
				stop()
				require.NoError(t, <-done)
			})
		})
	}
}

func TestWhereNoRulesAreServedThereIsNothingToRemove(t *testing.T) {
	t.Parallel()
	remover := &Remover{Client: serving("none"), Rules: []Written{OfPatches()}, Gate: "Patches", Base: controller.Base{Local: clock.RealClock{}, Leads: func() bool { return true }, Timeout: time.Second}}
	require.NoError(t, remover.pass(t.Context()))
	remover.Leads = func() bool { return false }
	require.Error(t, remover.pass(t.Context()))
}

// statuses records the applied statuses.
type statuses struct {
	t       *testing.T
	written map[string][]v1alpha1.ResourceSlicePatchStatus
}

func (s statuses) Patch(_ context.Context, obj ctrlclient.Object, patch ctrlclient.Patch, opts ...ctrlclient.SubResourcePatchOption) error {
	s.written[obj.GetName()] = append(s.written[obj.GetName()], appliedStatus(s.t, patch, opts).Status)
	return nil
}

func TestPatchesSayThatTheirGateIsOff(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	patch := func(name string, conditions ...any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": v1alpha1.GroupVersion.String(), "kind": "ResourceSlicePatch",
			"metadata": map[string]any{"name": name, "uid": name, "generation": int64(2)},
			"status":   map[string]any{"conditions": conditions},
		}}
	}
	const message = "The feature gate ResourceSlicePatches is off: the patch has no effect."
	ready := func(status, reason, message string, generation int64) map[string]any {
		return map[string]any{
			"type": "Ready", "status": status, "reason": reason, "message": message, "observedGeneration": generation,
			"lastTransitionTime": "2025-01-01T00:00:00Z",
		}
	}
	client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{patches: "ResourceSlicePatchList"})
	for _, object := range []*unstructured.Unstructured{
		patch("new"), patch("in-force", ready("True", "InForce", "1 device is selected.", 2)), patch("told", ready("False", "Disabled", message, 2)),
		patch("changed-since", ready("False", "Disabled", message, 1)),
	} {
		_, err := client.Resource(patches).Create(t.Context(), object, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	written := map[string][]v1alpha1.ResourceSlicePatchStatus{}
	remover := &Remover{
		Client: client, Gate: "ResourceSlicePatches",
		Base: controller.Base{
			Status: statuses{t, written}, Clock: clocktesting.NewFakePassiveClock(now), Leads: func() bool { return true }, Timeout: time.Second,
		},
	}
	require.NoError(t, remover.pass(t.Context()))
	for name, since := range map[string]time.Time{"new": now, "in-force": now, "changed-since": time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)} {
		require.Len(t, written[name], 1, name)
		require.Len(t, written[name][0].Conditions, 1, name)
		got := written[name][0].Conditions[0]
		require.True(t, since.Equal(got.LastTransitionTime.Time), "%s: %s", name, got.LastTransitionTime)
		got.LastTransitionTime = metav1.Time{}
		require.Equal(t, metav1.Condition{Type: "Ready", Status: metav1.ConditionFalse, Reason: "Disabled", Message: message, ObservedGeneration: 2}, got, name)
	}
	require.NotContains(t, written, "told")
}
