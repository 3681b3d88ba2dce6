package off

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

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/tracker/informer"
)

// rule is a DeviceTaintRule with the label of a patch, and with the patch as its owner if it is
// Tollgate's.
func rule(name, version string, ours bool) *unstructured.Unstructured {
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
	for _, v := range versions {
		kinds[informer.RuleResource.WithVersion(v)] = "DeviceTaintRuleList"
	}
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
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				client := serving(version, rule("ours", version, true), rule("labelled", version, false))
				failures := 1
				client.PrependReactor("delete", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
					if failures--; failures >= 0 {
						return true, nil, errors.New("no answer")
					}
					return false, nil, nil
				})
				ctx, stop := context.WithCancel(t.Context())
				done := make(chan error, 1)
				remover := &Remover{Client: client, Local: clock.RealClock{}, Leads: func() bool { return true }, Timeout: time.Second}
				go func() { done <- remover.Start(ctx) }()
				synctest.Wait()
				require.Equal(t, []string{"labelled", "ours"}, names(t, client, version))
				time.Sleep(retryPause)
				synctest.Wait()
				require.Equal(t, []string{"labelled"}, names(t, client, version))
				_, err := client.Resource(informer.RuleResource.WithVersion(version)).Create(t.Context(), rule("later", version, true), metav1.CreateOptions{})
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
	remover := &Remover{Client: serving("none"), Local: clock.RealClock{}, Leads: func() bool { return true }, Timeout: time.Second}
	require.NoError(t, remover.look(t.Context()))
	remover.Leads = func() bool { return false }
	require.Error(t, remover.look(t.Context()))
}
