package cli

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// Reader is a client.Reader with the user's credentials.
type Reader struct{ clients *Clients }

// NewReader returns a reader.
func NewReader(clients *Clients) *Reader { return &Reader{clients} }

// Get implements client.Reader. It ignores options.
func (r *Reader) Get(ctx context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	resource, err := resourceOf(into)
	if err != nil {
		return err
	}
	object, err := r.clients.Dynamic.Resource(resource).Namespace(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
	if err != nil {
		return Failed(err, "get "+resource.GroupResource().String()+" "+key.Name, "get", resource.GroupResource())
	}
	return runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, into)
}

// List implements client.Reader. It ignores options and lists all objects of a kind in chunks.
func (r *Reader) List(ctx context.Context, into client.ObjectList, _ ...client.ListOption) error {
	resource, err := resourceOf(into)
	if err != nil {
		return err
	}
	list, of := &unstructured.UnstructuredList{}, resource.GroupResource()
	err = Each(ctx, r.clients, of, r.clients.List(of, resource.Version), metav1.ListOptions{}, func(object *unstructured.Unstructured) error {
		list.Items = append(list.Items, *object)
		return nil
	})
	if err != nil {
		return err
	}
	return runtime.DefaultUnstructuredConverter.FromUnstructured(list.UnstructuredContent(), into)
}

// resourceOf returns the resource of an object, or of the items of a list, by the usual plural
// rules.
func resourceOf(object runtime.Object) (schema.GroupVersionResource, error) {
	gvk, err := apiutil.GVKForObject(object, clientgoscheme.Scheme)
	if err != nil {
		return schema.GroupVersionResource{}, fmt.Errorf("read %T: %w", object, err)
	}
	if meta.IsListType(object) {
		gvk.Kind = gvk.Kind[:len(gvk.Kind)-len("List")]
	}
	plural, _ := meta.UnsafeGuessKindToResource(gvk)
	return plural, nil
}
