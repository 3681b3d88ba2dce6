package preview

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/state"
	"github.com/tollgate-dev/tollgate/policy/slicepatch"
	"github.com/tollgate-dev/tollgate/tracker"
)

// objects previews manifests.
type objects struct{ list []*unstructured.Unstructured }

// read adds the objects of a file, and the items of lists.
func (o *objects) read(name string, from io.Reader) error {
	decoder := yaml.NewYAMLOrJSONDecoder(from, 4096)
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
		if len(object.Object) == 0 {
			continue // an empty document
		}
		if object.GetKind() == "" || object.GetAPIVersion() == "" {
			return fmt.Errorf("read %s: a document has no apiVersion or no kind, want a Kubernetes object", name)
		}
		if !object.IsList() {
			o.list = append(o.list, object)
			continue
		}
		err = object.EachListItem(func(item runtime.Object) error {
			one, ok := item.(*unstructured.Unstructured)
			if !ok {
				return fmt.Errorf("got %T", item)
			}
			o.list = append(o.list, one)
			return nil
		})
		if err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
	}
}

// isKind reports whether an object is of a kind, in any version.
func isKind(object *unstructured.Unstructured, group, kind string) bool {
	gvk := object.GroupVersionKind()
	return gvk.Group == group && gvk.Kind == kind
}

func (o *objects) wants(w *state.Wants) {
	var nodes []string
	for _, object := range o.list {
		if isKind(object, corev1.GroupName, "Node") {
			nodes = append(nodes, object.GetName())
		}
		if patch, err := as[v1alpha1.ResourceSlicePatch](object); isKind(object, v1alpha1.GroupVersion.Group, "ResourceSlicePatch") && err == nil {
			w.Selection = w.Selection || slicepatch.Conditional(patch.Spec.Devices.Filter)
		}
	}
	w.Node = func(node *corev1.Node) bool { return slices.Contains(nodes, node.Name) }
}

func (o *objects) tell(ctx context.Context, clients *cli.Clients, c *state.Cluster, t *Teller) ([]Preview, error) {
	var all []Preview
	for _, object := range o.list {
		p, err := previewObject(ctx, clients, c, t, object)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

// previewObject previews the apply of an object.
func previewObject(ctx context.Context, clients *cli.Clients, c *state.Cluster, t *Teller, object *unstructured.Unstructured) (Preview, error) {
	switch {
	case isKind(object, corev1.GroupName, "Node"):
		return ofNode(ctx, c, t, object)
	case isKind(object, resourcev1.GroupName, "DeviceTaintRule"):
		return t.Rule(ctx, object)
	case isKind(object, resourcev1.GroupName, "ResourceSlice"):
		return ofSlice(ctx, clients, t, object)
	case isKind(object, v1alpha1.GroupVersion.Group, "ResourceSlicePatch"):
		patch, err := as[v1alpha1.ResourceSlicePatch](object)
		if err != nil {
			return Preview{}, err
		}
		return t.Patch(ctx, patch)
	case isKind(object, v1alpha1.GroupVersion.Group, "TaintPolicy"):
		policy, err := as[v1alpha1.TaintPolicy](object)
		if err != nil {
			return Preview{}, err
		}
		return t.Registration(policy)
	default:
		return Preview{Of: nameOf(object), Nothing: "nothing to preview: an object of this kind taints nothing"}, nil
	}
}

// ofNode previews the apply of a node. A manifest without taints leaves them unchanged.
func ofNode(ctx context.Context, c *state.Cluster, t *Teller, object *unstructured.Unstructured) (Preview, error) {
	node, err := as[corev1.Node](object)
	if err != nil {
		return Preview{}, err
	}
	at := slices.IndexFunc(c.Nodes, func(known *corev1.Node) bool { return known.Name == node.Name })
	if at < 0 {
		return Preview{Of: "node/" + node.Name, Nothing: "evicts no pods: there is no such node"}, nil
	}
	old, written := c.Nodes[at].Spec.Taints, node.Spec.Taints
	if _, given, err := unstructured.NestedFieldNoCopy(object.Object, "spec", "taints"); err != nil || !given {
		written = old
	}
	return t.Node(ctx, node.Name, old, written)
}

// ofSlice previews the apply of a ResourceSlice.
func ofSlice(ctx context.Context, clients *cli.Clients, t *Teller, object *unstructured.Unstructured) (Preview, error) {
	slice, err := as[resourcev1.ResourceSlice](object)
	if err != nil {
		return Preview{}, err
	}
	if version := object.GroupVersionKind().Version; version != "v1" {
		return Preview{}, fmt.Errorf("ResourceSlice %s: apiVersion is %q, want resource.k8s.io/v1", slice.Name, object.GetAPIVersion())
	}
	was := tracker.Slice{Name: slice.Name}
	old, err := clients.Kubernetes.ResourceV1().ResourceSlices().Get(ctx, slice.Name, metav1.GetOptions{})
	switch {
	case err == nil:
		was = tracker.SliceOf(old)
	case !apierrors.IsNotFound(err):
		resource := schema.GroupResource{Group: resourcev1.GroupName, Resource: "resourceslices"}
		return Preview{}, cli.Failed(err, "read ResourceSlice "+slice.Name, "get", resource)
	}
	return t.Slice(was, tracker.SliceOf(slice))
}

// as converts an object to T.
func as[T any](object *unstructured.Unstructured) (*T, error) {
	typed := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, typed); err != nil {
		return nil, fmt.Errorf("read %s: %w", nameOf(object), err)
	}
	return typed, nil
}

func nameOf(object *unstructured.Unstructured) string {
	return strings.ToLower(object.GetKind()) + "/" + object.GetName()
}
