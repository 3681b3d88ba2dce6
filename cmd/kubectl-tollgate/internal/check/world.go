package check

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

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

// world has the objects of the files, and reads all others from a cluster, if there is one. It
// implements client.Reader for the reviews. Objects are added before the first review.
type world struct {
	scheme  *runtime.Scheme
	objects map[schema.GroupKind]map[types.NamespacedName]*unstructured.Unstructured
	// cluster is nil without a cluster.
	cluster *cluster
	// unknown are the requested namespaces that do not exist.
	unknown map[string]struct{}
}

func newWorld(reader client.Reader) (*world, error) {
	w := &world{
		scheme:  runtime.NewScheme(),
		objects: map[schema.GroupKind]map[types.NamespacedName]*unstructured.Unstructured{},
		unknown: map[string]struct{}{},
	}
	if reader != nil {
		w.cluster = &cluster{reader: reader, answers: map[query]answer{}, unread: map[string]struct{}{}}
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
	if w.cluster != nil {
		return w.cluster.Get(ctx, key, into, opts...)
	}
	return apierrors.NewNotFound(schema.GroupResource{Group: gvk.Group, Resource: gvk.Kind}, key.Name)
}

// List implements client.Reader. It ignores options, which reviews do not use.
func (w *world) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	gvk, err := apiutil.GVKForObject(list, w.scheme)
	if err != nil {
		return fmt.Errorf("list %T: %w", list, err)
	}
	if w.cluster != nil {
		if err := w.cluster.List(ctx, list, opts...); err != nil {
			return err
		}
	}
	all, err := meta.ExtractList(list)
	if err != nil {
		return fmt.Errorf("list %T: %w", list, err)
	}
	gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")
	local := w.objects[gvk.GroupKind()]
	all = slices.DeleteFunc(all, func(o runtime.Object) bool {
		object, ok := o.(client.Object)
		return ok && local[client.ObjectKeyFromObject(object)] != nil
	})
	for _, object := range local {
		typed, err := w.scheme.New(gvk)
		if err != nil {
			return fmt.Errorf("list %T: %w", list, err)
		}
		if err := decodeInto(object, typed); err != nil {
			return err
		}
		all = append(all, typed)
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

// Namespace returns a namespace with the label that the API server sets. A namespace that does
// not exist has no other label: it is created before the objects in it.
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
	metav1.SetMetaDataLabel(&namespace.ObjectMeta, corev1.LabelMetadataName, name)
	return namespace, nil
}

// Confirmed is Namespace, since no read here is stale.
func (w *world) Confirmed(ctx context.Context, name string) (*corev1.Namespace, error) {
	return w.Namespace(ctx, name)
}
