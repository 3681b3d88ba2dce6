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
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/state"
	"github.com/tollgate-dev/tollgate/policy/placement"
	"github.com/tollgate-dev/tollgate/policy/slicepatch"
	"github.com/tollgate-dev/tollgate/tracker"
)

// ofNodes previews taints that are added to or removed from nodes, which have names or match a label
// selector.
func ofNodes(labelSelector string, arguments []string, wants *state.Wants) (previews, error) {
	at := slices.IndexFunc(arguments, IsTaint)
	if at < 0 {
		return nil, errors.New("no taint is given, want NAME... KEY[=VALUE]:EFFECT")
	}
	names := arguments[:at]
	switch {
	case len(names) == 0 && labelSelector == "":
		return nil, errors.New("no node is named: want NAME..., or --selector")
	case len(names) > 0 && labelSelector != "":
		return nil, fmt.Errorf("nodes are named, and --selector is %q: want one of both", labelSelector)
	}
	selector, err := labels.Parse(labelSelector)
	if err != nil {
		return nil, fmt.Errorf("--selector is %q: %w", labelSelector, err)
	}
	changes, err := parse(arguments[at:], OfNodes, false)
	wants.Node = func(node *corev1.Node) bool {
		return labelSelector != "" && selector.Matches(labels.Set(node.Labels)) || slices.Contains(names, node.Name)
	}
	return func(ctx context.Context, t *Teller) ([]Preview, error) {
		for _, name := range names {
			if t.node(name) == nil {
				return nil, fmt.Errorf("node %q: there is no such node", name)
			}
		}
		if len(t.Nodes) == 0 {
			return nil, fmt.Errorf("--selector is %q: there is no such node", labelSelector)
		}
		var all []Preview
		for _, node := range t.Nodes {
			p, err := t.Node(ctx, node.Name, node.Labels, node.Spec.Taints, Changed(node.Spec.Taints, &changes))
			if err != nil {
				return nil, err
			}
			all = append(all, p)
		}
		return all, nil
	}, err
}

// node returns the node of a name that was read, nil for none.
func (t *Teller) node(name string) *corev1.Node {
	for _, node := range t.Nodes {
		if node.Name == name {
			return node
		}
	}
	return nil
}

// Changed returns taints with changes applied. An added taint replaces that with its key and
// effect.
func Changed(taints []corev1.Taint, changes *Changes) []corev1.Taint {
	gone := slices.Concat(changes.Add, changes.Remove)
	left := slices.DeleteFunc(slices.Clone(taints), func(taint corev1.Taint) bool {
		is := Taint{Key: taint.Key, Effect: resourcev1.DeviceTaintEffect(taint.Effect)}
		return slices.ContainsFunc(gone, is.goes)
	})
	for _, taint := range changes.Add {
		left = append(left, corev1.Taint{Key: taint.Key, Value: taint.Value, Effect: corev1.TaintEffect(taint.Effect)})
	}
	return left
}

// query previews taints that are added to the devices.
func (t *Target) query(arguments []string, wants *state.Wants) (previews, error) {
	changes, err := t.changes(arguments, false)
	if err == nil && len(changes.Remove) > 0 {
		err = errors.New("a taint of a device cannot be taken away here: it goes with the DeviceTaintRule or ResourceSlicePatch that it stands in (see untaint device)")
	}
	wants.Selection = t.Conditional()
	return func(ctx context.Context, teller *Teller) ([]Preview, error) {
		p, err := teller.Target(ctx, t, changes.Add)
		return []Preview{p}, err
	}, err
}

// ofFiles previews the apply of the manifests in files.
func ofFiles(files []string, stdin io.Reader, wants *state.Wants) (previews, error) {
	if len(files) == 0 {
		return nil, errors.New("nothing to preview: give -f FILE, or ask for a node or a device")
	}
	objects, err := cli.ReadManifests(files, stdin)
	if err == nil && len(objects) == 0 {
		err = errors.New("nothing to preview: there are no objects in what -f names")
	}
	var nodes []string
	for _, object := range objects {
		typed, _ := typedOf(object.Unstructured)
		switch o := typed.(type) {
		case *corev1.Node:
			nodes = append(nodes, o.Name)
		case *v1alpha1.ResourceSlicePatch:
			wants.Selection = wants.Selection || slicepatch.Conditional(o.Spec.Devices.Filter)
		}
	}
	wants.Node = func(node *corev1.Node) bool { return slices.Contains(nodes, node.Name) }
	return func(ctx context.Context, t *Teller) ([]Preview, error) {
		var all []Preview
		for _, object := range objects {
			p, err := t.object(ctx, object.Unstructured)
			if err != nil {
				return nil, err
			}
			all = append(all, p)
		}
		return all, nil
	}, err
}

// typedOf returns an object as the type of its kind, whatever its version; nil for another kind.
func typedOf(object *unstructured.Unstructured) (any, error) {
	typed := map[string]any{
		"Node":                            &corev1.Node{},
		"ResourceSlice.resource.k8s.io":   &resourcev1.ResourceSlice{},
		"ResourceSlicePatch.tollgate.dev": &v1alpha1.ResourceSlicePatch{},
		"TaintPolicy.tollgate.dev":        &v1alpha1.TaintPolicy{},
		"PlacementPolicy.tollgate.dev":    &v1alpha1.PlacementPolicy{},
	}[object.GroupVersionKind().GroupKind().String()]
	if typed != nil {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, typed); err != nil {
			return nil, fmt.Errorf("read %s: %w", nameOf(object), err)
		}
	}
	return typed, nil
}

// object previews the apply of an object.
func (t *Teller) object(ctx context.Context, object *unstructured.Unstructured) (Preview, error) {
	typed, err := typedOf(object)
	if err != nil {
		return Preview{}, err
	}
	nothing := func(why string) (Preview, error) { return Preview{Of: nameOf(object), Nothing: why}, nil }
	switch o := typed.(type) {
	case *corev1.Node:
		old := t.node(o.Name)
		if old == nil {
			return nothing("evicts no pods: there is no such node")
		}
		written := o.Spec.Taints // A manifest without taints leaves them unchanged.
		if _, given, _ := unstructured.NestedFieldNoCopy(object.Object, "spec", "taints"); !given {
			written = old.Spec.Taints
		}
		return t.Node(ctx, o.Name, old.Labels, old.Spec.Taints, written)
	case *resourcev1.ResourceSlice:
		return t.slice(ctx, o)
	case *v1alpha1.ResourceSlicePatch:
		return t.Patch(ctx, o)
	case *v1alpha1.TaintPolicy:
		return t.Registration(o), nil
	case *v1alpha1.PlacementPolicy:
		if _, taints := placement.Guard(o); taints != nil {
			return t.Registration(taints), nil
		}
		return nothing("nothing to preview: it gives nodes no taints")
	}
	if object.GroupVersionKind().GroupKind().String() == "DeviceTaintRule.resource.k8s.io" {
		return t.Rule(ctx, object)
	}
	return nothing("nothing to preview: an object of this kind taints nothing")
}

// slice previews the apply of a ResourceSlice.
func (t *Teller) slice(ctx context.Context, slice *resourcev1.ResourceSlice) (Preview, error) {
	if slice.APIVersion != "resource.k8s.io/v1" {
		return Preview{}, fmt.Errorf("ResourceSlice %s: apiVersion is %q, want resource.k8s.io/v1", slice.Name, slice.APIVersion)
	}
	was := tracker.Slice{Name: slice.Name}
	old, err := t.clients.Kubernetes.ResourceV1().ResourceSlices().Get(ctx, slice.Name, metav1.GetOptions{})
	switch {
	case err == nil:
		was = tracker.SliceOf(old)
	case !apierrors.IsNotFound(err):
		return Preview{}, cli.Failed(err, "read ResourceSlice "+slice.Name, "get", state.SliceResource)
	}
	changes, err := t.view.Slice(was, tracker.SliceOf(slice), t.Now)
	if err != nil {
		return Preview{}, fmt.Errorf("foretell ResourceSlice %s: %w", slice.Name, errClaims)
	}
	return t.tell("resourceslice/"+slice.Name, "", changes), nil
}

func nameOf(object *unstructured.Unstructured) string {
	return strings.ToLower(object.GetKind()) + "/" + object.GetName()
}
