package check

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"sync"

	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// cluster asks another reader for each thing once, and remembers the answer: many objects
// hang on the same namespace, and all pods on the same PriorityClasses. Classes that may not
// be read are taken for absent. It implements client.Reader, knows no options, and is safe
// for concurrent use.
type cluster struct {
	behind client.Reader

	mu   sync.Mutex // guards what is below
	kept map[question]answer
	// unread are the kinds of classes that may not be read.
	unread map[string]struct{}
}

// question is what was asked for: an object, or without a key a list.
type question struct {
	of  reflect.Type
	key types.NamespacedName
}

type answer struct {
	object runtime.Object
	err    error
}

func newCluster(behind client.Reader) *cluster {
	return &cluster{behind: behind, kept: map[question]answer{}, unread: map[string]struct{}{}}
}

// Get implements client.Reader.
func (c *cluster) Get(ctx context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	return c.read(question{reflect.TypeOf(into), key}, into, func() error { return c.behind.Get(ctx, key, into) })
}

// List implements client.Reader.
func (c *cluster) List(ctx context.Context, into client.ObjectList, _ ...client.ListOption) error {
	return c.read(question{of: reflect.TypeOf(into)}, into, func() error { return c.behind.List(ctx, into) })
}

// read asks, unless the answer is known. Errors that may go away are not remembered.
func (c *cluster) read(q question, into runtime.Object, ask func() error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known, ok := c.kept[q]; ok {
		if known.err == nil {
			reflect.ValueOf(into).Elem().Set(reflect.ValueOf(known.object.DeepCopyObject()).Elem())
		}
		return known.err
	}
	err := ask()
	if apierrors.IsForbidden(err) {
		err = c.excuse(q, into, err)
	}
	switch {
	case err == nil:
		c.kept[q] = answer{object: into.DeepCopyObject()}
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		c.kept[q] = answer{err: err}
	}
	return err
}

// excuse returns what a refusal to let something be read comes to: of classes which say only
// what pods are given, that there is none; of all else, that nothing can be decided.
func (c *cluster) excuse(q question, into runtime.Object, refusal error) error {
	var group, kinds string
	switch into.(type) {
	case *schedulingv1.PriorityClassList:
		c.unread["PriorityClasses"] = struct{}{}
		return nil
	case *schedulingv1.PriorityClass:
		group, kinds = schedulingv1.GroupName, "PriorityClasses"
	case *nodev1.RuntimeClass:
		group, kinds = nodev1.GroupName, "RuntimeClasses"
	default:
		return refusal
	}
	c.unread[kinds] = struct{}{}
	return apierrors.NewNotFound(schema.GroupResource{Group: group, Resource: kinds}, q.key.Name)
}

// notes say which classes may not be read.
func (c *cluster) notes() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var notes []string
	for _, kinds := range slices.Sorted(maps.Keys(c.unread)) {
		notes = append(notes, kinds+" may not be read: pods are judged without what these give them")
	}
	return notes
}
