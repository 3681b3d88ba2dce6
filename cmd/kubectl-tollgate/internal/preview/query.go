package preview

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
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

// nodes previews taints that are added to or removed from nodes.
type nodes struct {
	// labels is the label selector.
	labels   string
	names    []string
	selector labels.Selector
	changes  Changes
}

// complete reads the names of nodes, then the taints.
func (n *nodes) complete(_ *cobra.Command, arguments []string) (err error) {
	at := slices.IndexFunc(arguments, IsTaint)
	if at < 0 {
		return errors.New("no taint is given, want NAME... KEY[=VALUE]:EFFECT")
	}
	n.names = arguments[:at]
	switch {
	case len(n.names) == 0 && n.labels == "":
		return errors.New("no node is named: want NAME..., or --selector")
	case len(n.names) > 0 && n.labels != "":
		return fmt.Errorf("nodes are named, and --selector is %q: want one of both", n.labels)
	}
	if n.selector, err = labels.Parse(n.labels); err != nil {
		return fmt.Errorf("--selector is %q: %w", n.labels, err)
	}
	n.changes, err = Parse(arguments[at:], OfNodes)
	return err
}

func (n *nodes) wants(w *state.Wants) {
	w.Node = func(node *corev1.Node) bool {
		if n.labels != "" {
			return n.selector.Matches(labels.Set(node.Labels))
		}
		return slices.Contains(n.names, node.Name)
	}
}

func (n *nodes) previews(ctx context.Context, t *Teller) ([]Preview, error) {
	found := t.cluster.Nodes
	for _, name := range n.names {
		if !slices.ContainsFunc(found, func(node *corev1.Node) bool { return node.Name == name }) {
			return nil, fmt.Errorf("node %q: there is no such node", name)
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("--selector is %q: there is no such node", n.labels)
	}
	var all []Preview
	for _, node := range found {
		p, err := t.Node(ctx, node.Name, node.Spec.Taints, Changed(node.Spec.Taints, &n.changes))
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

// Changed returns taints with changes applied. An added taint replaces that with its key and
// effect.
func Changed(taints []corev1.Taint, changes *Changes) []corev1.Taint {
	left := slices.DeleteFunc(slices.Clone(taints), func(taint corev1.Taint) bool {
		matches := func(t Taint) bool { return t.matches(taint.Key, string(taint.Effect)) }
		return slices.ContainsFunc(changes.Add, matches) || slices.ContainsFunc(changes.Remove, matches)
	})
	for _, taint := range changes.Add {
		left = append(left, corev1.Taint{Key: taint.Key, Value: taint.Value, Effect: corev1.TaintEffect(taint.Effect)})
	}
	return left
}

// devices previews taints that are added to devices.
type devices struct {
	target Target
	taints []Taint
}

// complete reads the name of the devices, then the taints.
func (d *devices) complete(_ *cobra.Command, arguments []string) error {
	changes, err := d.target.changes(arguments)
	if err == nil && len(changes.Remove) > 0 {
		err = errors.New("a taint of a device cannot be taken away here: it goes with the DeviceTaintRule or ResourceSlicePatch that it stands in (see untaint device)")
	}
	d.taints = changes.Add
	return err
}

func (d *devices) wants(w *state.Wants) { w.Selection = d.target.Conditional() }

func (d *devices) previews(ctx context.Context, t *Teller) ([]Preview, error) {
	p, err := t.Target(ctx, &d.target, d.taints)
	return []Preview{p}, err
}

// objects previews the apply of manifests.
type objects struct {
	files []string
	list  []cli.Object
}

// complete reads the files.
func (o *objects) complete(cmd *cobra.Command, _ []string) (err error) {
	if len(o.files) == 0 {
		return errors.New("nothing to preview: give -f FILE, or ask for a node or a device")
	}
	o.list, err = cli.ReadManifests(o.files, cmd.InOrStdin())
	if err == nil && len(o.list) == 0 {
		err = errors.New("nothing to preview: there are no objects in what -f names")
	}
	return err
}

// The kinds of objects with taints, in any version.
const (
	nodeKind  = "Node"
	patchKind = "ResourceSlicePatch.tollgate.dev"
)

func kindOf(object *unstructured.Unstructured) string {
	return object.GroupVersionKind().GroupKind().String()
}

func (o *objects) wants(w *state.Wants) {
	var nodes []string
	for _, object := range o.list {
		switch kindOf(object.Unstructured) {
		case nodeKind:
			nodes = append(nodes, object.GetName())
		case patchKind:
			patch, err := as[v1alpha1.ResourceSlicePatch](object.Unstructured)
			w.Selection = w.Selection || err == nil && slicepatch.Conditional(patch.Spec.Devices.Filter)
		}
	}
	w.Node = func(node *corev1.Node) bool { return slices.Contains(nodes, node.Name) }
}

func (o *objects) previews(ctx context.Context, t *Teller) ([]Preview, error) {
	var all []Preview
	for _, object := range o.list {
		p, err := t.object(ctx, object.Unstructured)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

// object previews the apply of an object.
func (t *Teller) object(ctx context.Context, object *unstructured.Unstructured) (Preview, error) {
	switch kindOf(object) {
	case nodeKind:
		return t.nodeObject(ctx, object)
	case "DeviceTaintRule.resource.k8s.io":
		return t.Rule(ctx, object)
	case "ResourceSlice.resource.k8s.io":
		return t.sliceObject(ctx, object)
	case patchKind:
		patch, err := as[v1alpha1.ResourceSlicePatch](object)
		if err != nil {
			return Preview{}, err
		}
		return t.Patch(ctx, patch)
	case "TaintPolicy.tollgate.dev":
		policy, err := as[v1alpha1.TaintPolicy](object)
		if err != nil {
			return Preview{}, err
		}
		return t.Registration(policy)
	case "PlacementPolicy.tollgate.dev":
		policy, err := as[v1alpha1.PlacementPolicy](object)
		if err != nil {
			return Preview{}, err
		}
		if _, taints := placement.Guard(policy); taints != nil {
			return t.Registration(taints)
		}
		return Preview{Of: nameOf(object), Nothing: "nothing to preview: it gives nodes no taints"}, nil
	default:
		return Preview{Of: nameOf(object), Nothing: "nothing to preview: an object of this kind taints nothing"}, nil
	}
}

// nodeObject previews the apply of a node. A manifest without taints leaves them unchanged.
func (t *Teller) nodeObject(ctx context.Context, object *unstructured.Unstructured) (Preview, error) {
	node, err := as[corev1.Node](object)
	if err != nil {
		return Preview{}, err
	}
	at := slices.IndexFunc(t.cluster.Nodes, func(n *corev1.Node) bool { return n.Name == node.Name })
	if at < 0 {
		return Preview{Of: "node/" + node.Name, Nothing: "evicts no pods: there is no such node"}, nil
	}
	old, written := t.cluster.Nodes[at].Spec.Taints, node.Spec.Taints
	if _, exists, err := unstructured.NestedFieldNoCopy(object.Object, "spec", "taints"); err != nil || !exists {
		written = old
	}
	return t.Node(ctx, node.Name, old, written)
}

// sliceObject previews the apply of a ResourceSlice.
func (t *Teller) sliceObject(ctx context.Context, object *unstructured.Unstructured) (Preview, error) {
	slice, err := as[resourcev1.ResourceSlice](object)
	if err != nil {
		return Preview{}, err
	}
	if version := object.GroupVersionKind().Version; version != "v1" {
		return Preview{}, fmt.Errorf("ResourceSlice %s: apiVersion is %q, want resource.k8s.io/v1", slice.Name, object.GetAPIVersion())
	}
	was := tracker.Slice{Name: slice.Name}
	old, err := t.clients.Kubernetes.ResourceV1().ResourceSlices().Get(ctx, slice.Name, metav1.GetOptions{})
	switch {
	case err == nil:
		was = tracker.SliceOf(old)
	case !apierrors.IsNotFound(err):
		return Preview{}, cli.Failed(err, "read ResourceSlice "+slice.Name, "get", state.SliceResource)
	}
	changes, err := t.view.Slice(was, tracker.SliceOf(slice), t.cluster.Now)
	if err != nil {
		return Preview{}, fmt.Errorf("foretell ResourceSlice %s: %w", slice.Name, errClaims)
	}
	return t.tell("resourceslice/"+slice.Name, changes), nil
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
