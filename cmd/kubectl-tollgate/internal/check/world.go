package check

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// world is what there is: what stands in the files, and behind it what stands in a cluster,
// if there is one. It implements client.Reader for the reviews. It does not change once all
// objects are in it, but for what it has to say.
type world struct {
	scheme  *runtime.Scheme
	objects map[schema.GroupKind]map[types.NamespacedName]*unstructured.Unstructured
	// behind is nil without a cluster.
	behind *cluster
	// unknown are the namespaces that were asked for and are nowhere.
	unknown map[string]struct{}
}

func newWorld(behind client.Reader) (*world, error) {
	w := &world{
		scheme:  runtime.NewScheme(),
		objects: map[schema.GroupKind]map[types.NamespacedName]*unstructured.Unstructured{},
		unknown: map[string]struct{}{},
	}
	if behind != nil {
		w.behind = newCluster(behind)
	}
	if err := errors.Join(clientgoscheme.AddToScheme(w.scheme), v1alpha1.AddToScheme(w.scheme)); err != nil {
		return nil, fmt.Errorf("make the scheme: %w", err)
	}
	return w, nil
}

func (w *world) add(object *unstructured.Unstructured) {
	gk := object.GroupVersionKind().GroupKind()
	if w.objects[gk] == nil {
		w.objects[gk] = map[types.NamespacedName]*unstructured.Unstructured{}
	}
	w.objects[gk][client.ObjectKeyFromObject(object)] = object
}

// Get implements client.Reader.
func (w *world) Get(ctx context.Context, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
	gvk, err := apiutil.GVKForObject(into, w.scheme)
	if err != nil {
		return fmt.Errorf("read %T: %w", into, err)
	}
	if object, ok := w.objects[gvk.GroupKind()][key]; ok {
		return decodeInto(object, into)
	}
	if w.behind != nil {
		return w.behind.Get(ctx, key, into, opts...)
	}
	return apierrors.NewNotFound(schema.GroupResource{Group: gvk.Group, Resource: gvk.Kind}, key.Name)
}

// List implements client.Reader. It knows no options: reviews use none.
func (w *world) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	gvk, err := apiutil.GVKForObject(list, w.scheme)
	if err != nil {
		return fmt.Errorf("list %T: %w", list, err)
	}
	if w.behind != nil {
		if err := w.behind.List(ctx, list, opts...); err != nil {
			return err
		}
	}
	stored, err := meta.ExtractList(list)
	if err != nil {
		return fmt.Errorf("list %T: %w", list, err)
	}
	here := w.objects[schema.GroupKind{Group: gvk.Group, Kind: gvk.Kind[:len(gvk.Kind)-len("List")]}]
	all := slices.DeleteFunc(stored, func(o runtime.Object) bool {
		object, ok := o.(client.Object)
		return ok && here[client.ObjectKeyFromObject(object)] != nil
	})
	item, err := meta.GetItemsPtr(list)
	if err != nil {
		return fmt.Errorf("list %T: %w", list, err)
	}
	single := reflect.TypeOf(item).Elem().Elem()
	for _, object := range here {
		one, ok := reflect.TypeAssert[client.Object](reflect.New(single))
		if !ok {
			return fmt.Errorf("list %T: it holds %s", list, single)
		}
		if err := decodeInto(object, one); err != nil {
			return err
		}
		all = append(all, one)
	}
	return meta.SetList(list, all)
}

func decodeInto(object *unstructured.Unstructured, into any) error {
	content, err := json.Marshal(object.Object)
	if err == nil {
		err = json.Unmarshal(content, into)
	}
	if err != nil {
		return fmt.Errorf("read %s %s: %w", object.GetKind(), object.GetName(), err)
	}
	return nil
}

// Namespace returns a namespace with the label that all of them have. One that is nowhere has
// no other: it will have been created by the time that something is created in it.
func (w *world) Namespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	namespace := &corev1.Namespace{}
	err := w.Get(ctx, types.NamespacedName{Name: name}, namespace)
	if apierrors.IsNotFound(err) {
		w.unknown[name] = struct{}{}
		namespace, err = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read namespace %s: %w", name, err)
	}
	namespace.Labels = withName(namespace.Labels, name)
	return namespace, nil
}

// Confirmed is Namespace: nothing here is older than anything else.
func (w *world) Confirmed(ctx context.Context, name string) (*corev1.Namespace, error) {
	return w.Namespace(ctx, name)
}

// withName returns the labels of a namespace with the one that the API server gives it.
func withName(labels map[string]string, name string) map[string]string {
	out := maps.Clone(labels)
	if out == nil {
		out = map[string]string{}
	}
	out[corev1.LabelMetadataName] = name
	return out
}
