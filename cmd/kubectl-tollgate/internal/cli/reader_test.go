package cli

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
)

func TestAReaderListsInChunks(t *testing.T) {
	t.Parallel()
	const pages = 3
	nodes := schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
	custom := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{nodes: "NodeList"})
	asked := 0
	custom.PrependReactor("list", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		page := &unstructured.UnstructuredList{Items: []unstructured.Unstructured{{Object: map[string]any{
			"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": "node-" + strconv.Itoa(asked)},
		}}}}
		page.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "NodeList"})
		if asked++; asked < pages {
			page.SetContinue("more")
		}
		return true, page, nil
	})
	var list corev1.NodeList
	require.NoError(t, NewReader(&Clients{Dynamic: custom}).List(t.Context(), &list))
	require.Len(t, list.Items, pages)
	require.Equal(t, "node-2", list.Items[2].Name)
}
