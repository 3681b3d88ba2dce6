package check

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
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
)

func TestAClusterIsListedInChunks(t *testing.T) {
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
	w := newWorld(&cli.Clients{Dynamic: custom})
	require.NoError(t, w.List(t.Context(), &list))
	require.Len(t, list.Items, pages)
	require.NoError(t, w.Get(t.Context(), client.ObjectKey{Name: "node-2"}, &corev1.Node{}))
	require.NoError(t, w.List(t.Context(), &list))
	require.Len(t, list.Items, pages)
	require.Equal(t, pages, asked, "a list is read once")
}
