package evictor

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	resourcev1client "k8s.io/client-go/kubernetes/typed/resource/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/tracker"
)

// carriers reads the objects that carry the taints of devices as they are now, not
// as a cache has them. Its errors are those of the API.
type carriers interface {
	ReadSlice(ctx context.Context, name string) (tracker.Slice, error)
	ReadRule(ctx context.Context, name string) (tracker.Rule, error)
}

// typedCarriers reads by resource.k8s.io/v1.
type typedCarriers struct {
	client resourcev1client.ResourceV1Interface
}

// ReadSlice returns a ResourceSlice.
func (c typedCarriers) ReadSlice(ctx context.Context, name string) (tracker.Slice, error) {
	slice, err := c.client.ResourceSlices().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return tracker.Slice{}, err
	}
	return tracker.SliceOf(slice), nil
}

// ReadRule returns a DeviceTaintRule.
func (c typedCarriers) ReadRule(ctx context.Context, name string) (tracker.Rule, error) {
	rule, err := c.client.DeviceTaintRules().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return tracker.Rule{}, err
	}
	return tracker.RuleOf(rule), nil
}

// carrier is how one kind of objects that carry taints is read and known.
type carrier struct {
	resource schema.GroupResource
	// read asks the API server for the object of that name.
	read func(ctx context.Context, name string) (answer, error)
	// forget takes in that the object of that name and UID is gone.
	forget func(name string, uid types.UID) []tracker.Key
}

// answer is an object that the API server returned.
type answer struct {
	uid types.UID
	// takeIn puts it into the tracker, unless it is not known there any more. Before is the
	// version that was known when the API server was asked.
	takeIn func(before string, now time.Time) []tracker.Key
}

func nodeAnswer(known *tracker.Tracker, node *corev1.Node) answer {
	return answer{uid: node.UID, takeIn: func(before string, now time.Time) []tracker.Key {
		return known.RefreshNode(tracker.NodeOf(node), before, now)
	}}
}

func newNodeCarrier(known *tracker.Tracker, nodes corev1client.NodesGetter) carrier {
	return carrier{
		resource: corev1.Resource("nodes"),
		read: func(ctx context.Context, name string) (answer, error) {
			node, err := nodes.Nodes().Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return answer{}, err
			}
			return nodeAnswer(known, node), nil
		},
		forget: known.DeleteNode,
	}
}

func newSliceCarrier(known *tracker.Tracker, live carriers) carrier {
	return carrier{
		resource: resourcev1.Resource("resourceslices"),
		read: func(ctx context.Context, name string) (answer, error) {
			slice, err := live.ReadSlice(ctx, name)
			return answer{uid: slice.UID, takeIn: func(before string, now time.Time) []tracker.Key {
				return known.RefreshSlice(slice, before, now)
			}}, err
		},
		forget: known.DeleteSlice,
	}
}

func newRuleCarrier(known *tracker.Tracker, live carriers) carrier {
	return carrier{
		resource: resourcev1.Resource("devicetaintrules"),
		read: func(ctx context.Context, name string) (answer, error) {
			rule, err := live.ReadRule(ctx, name)
			return answer{uid: rule.UID, takeIn: func(before string, now time.Time) []tracker.Key {
				return known.RefreshRule(rule, before, now)
			}}, err
		},
		forget: known.DeleteRule,
	}
}

// reference names the object that is known under a source of taints.
func reference(source tracker.Source, uid types.UID) *corev1.ObjectReference {
	ref := &corev1.ObjectReference{Name: source.Name, UID: uid}
	switch source.Kind {
	case tracker.SourceNode:
		ref.APIVersion, ref.Kind = "v1", "Node"
	case tracker.SourceSlice:
		ref.APIVersion, ref.Kind = resourcev1.SchemeGroupVersion.String(), "ResourceSlice"
	case tracker.SourceRule:
		ref.APIVersion, ref.Kind = resourcev1.SchemeGroupVersion.String(), "DeviceTaintRule"
	case tracker.SourcePatch:
		ref.APIVersion, ref.Kind = v1alpha1.GroupVersion.String(), "ResourceSlicePatch"
	}
	return ref
}
