package nodetaints

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"gomodules.xyz/jsonpatch/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/evictor/controller"
	"github.com/tollgate-dev/tollgate/policy/taint"
)

// policiesPause is how long a key waits until the policies are loaded.
const policiesPause = time.Second

// jsonPatch is a JSON patch.
type jsonPatch []jsonpatch.Operation

func (p *jsonPatch) add(operation, path string, value any) {
	*p = append(*p, jsonpatch.NewOperation(operation, path, value))
}

// patchNode applies a JSON patch to a node if it still has its UID. It returns the patched
// node, nil if the node does not exist. doing describes the patch in errors.
func patchNode(ctx context.Context, nodes typedcorev1.NodeInterface, doing string, node *corev1.Node, patch jsonPatch) (*corev1.Node, error) {
	body, err := json.Marshal(slices.Insert(patch, 0, jsonpatch.NewOperation("test", "/metadata/uid", node.UID)))
	if err != nil {
		return nil, fmt.Errorf("encode patch: %w", err)
	}
	patched, err := nodes.Patch(ctx, node.Name, types.JSONPatchType, body, metav1.PatchOptions{})
	if err != nil {
		return nil, client.IgnoreNotFound(fmt.Errorf("%s node %s: %w", doing, node.Name, err))
	}
	return patched, nil
}

// addAll calls add for the objects of the cache that a list is for. It calls it for none while
// the cache is not synced; the informer will add every object.
func addAll(ctx context.Context, cache controller.Cache, list client.ObjectList, add func(object client.Object)) {
	if cache.List(ctx, list, client.UnsafeDisableDeepCopy) == nil {
		_ = meta.EachListItem(list, func(object runtime.Object) error {
			add(object.(client.Object))
			return nil
		})
	}
}

func referenceTo(node *corev1.Node) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}
}

// isRegistered reports whether a TaintPolicy registers the taint on the node.
func isRegistered(set *taint.Set, node *corev1.Node, t *corev1.Taint) bool {
	return slices.ContainsFunc(set.Register(node.Labels), func(r taint.Registered) bool { return r.Is(t) })
}
