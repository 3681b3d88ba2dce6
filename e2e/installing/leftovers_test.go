package installing

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
)

// leavesNothing waits until nothing in the cluster speaks of Tollgate in its metadata: no
// object of its own, no label, annotation, owner or finalizer on anyone else's. Events,
// which Kubernetes throws away after an hour, may.
func leavesNothing(t *testing.T) {
	t.Helper()
	discover, err := discovery.NewDiscoveryClientForConfig(shared.RESTConfig())
	require.NoError(t, err)
	objects, err := metadata.NewForConfig(shared.RESTConfig())
	require.NoError(t, err)
	eventually(t, "nothing is left", func() error {
		left, err := leftovers(t.Context(), discover, objects)
		if err == nil && len(left) > 0 {
			return fmt.Errorf("left: %s", strings.Join(left, ", "))
		}
		return err
	})
}

func leftovers(ctx context.Context, discover discovery.DiscoveryInterface, objects metadata.Interface) ([]string, error) {
	lists, err := discover.ServerPreferredResources()
	if err != nil {
		return nil, err
	}
	var left []string
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, resource := range list.APIResources {
			if !slices.Contains(resource.Verbs, "list") || resource.Name == "events" {
				continue
			}
			found, err := objects.Resource(version.WithResource(resource.Name)).List(ctx, metav1.ListOptions{})
			if err != nil {
				return nil, fmt.Errorf("list %s: %w", resource.Name, err)
			}
			for i := range found.Items {
				if speaksOfTollgate(&found.Items[i].ObjectMeta) {
					left = append(left, resource.Name+" "+found.Items[i].Namespace+"/"+found.Items[i].Name)
				}
			}
		}
	}
	return left, nil
}

// speaksOfTollgate leaves out who wrote which field, which is history.
func speaksOfTollgate(meta *metav1.ObjectMeta) bool {
	meta.ManagedFields = nil
	text, err := json.Marshal(meta)
	return err != nil || strings.Contains(strings.ToLower(string(text)), "tollgate")
}

// taintOf returns the taint of a node with the key, or nil.
func taintOf(t *testing.T, node, key string) *corev1.Taint {
	t.Helper()
	object, err := client(t).CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
	require.NoError(t, err)
	for i := range object.Spec.Taints {
		if object.Spec.Taints[i].Key == key {
			return &object.Spec.Taints[i]
		}
	}
	return nil
}
