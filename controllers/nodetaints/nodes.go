package nodetaints

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"gomodules.xyz/jsonpatch/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/evictor/controller"
	"github.com/tollgate-dev/tollgate/policy/taint"
)

// policiesPause is how long a key waits until the policies are loaded.
const policiesPause = time.Second

// NodeClient reads and writes nodes at the API server; the clientset implements it.
type NodeClient interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (*corev1.Node, error)
	Patch(ctx context.Context, name string, kind types.PatchType, data []byte, opts metav1.PatchOptions, subresources ...string) (*corev1.Node, error)
}

// patchNode applies the operations of a JSON patch to a node. It returns the patched node,
// nil if the node does not exist. doing describes the patch in errors.
func patchNode(ctx context.Context, nodes NodeClient, doing, name string, operations []jsonpatch.Operation) (*corev1.Node, error) {
	body, err := json.Marshal(operations)
	if err != nil {
		return nil, fmt.Errorf("encode patch: %w", err)
	}
	patched, err := nodes.Patch(ctx, name, types.JSONPatchType, body, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // A missing node is no error.
	}
	if err != nil {
		return nil, fmt.Errorf("%s node %s: %w", doing, name, err)
	}
	return patched, nil
}

// addNodes queues the nodes of the cache. It queues none while the cache is not synced; the
// informer will add every node.
func addNodes(ctx context.Context, cache controller.Cache, add func(node *corev1.Node)) {
	var list corev1.NodeList
	if err := cache.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return
	}
	for i := range list.Items {
		add(&list.Items[i])
	}
}

func referenceTo(node *corev1.Node) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}
}

// isRegistered reports whether a TaintPolicy registers the taint on the node.
func isRegistered(set *taint.Set, node *corev1.Node, t *corev1.Taint) bool {
	return slices.ContainsFunc(set.Register(node.Labels), func(r taint.Registered) bool { return r.Is(t) })
}
