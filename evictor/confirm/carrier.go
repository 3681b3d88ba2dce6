package confirm

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/tollgate-dev/tollgate/tracker"
)

// Carriers reads the objects that carry the taints of devices from the API server, not from a
// cache. Its errors are those of the API.
type Carriers interface {
	ReadSlice(ctx context.Context, name string) (tracker.Slice, error)
	ReadRule(ctx context.Context, name string) (tracker.Rule, error)
}

// carrier is how objects of one kind that carry taints are read and kept.
type carrier struct {
	resource schema.GroupResource
	// read asks the API server for the object of that name.
	read func(ctx context.Context, name string) (answer, error)
	// forget removes the object of that name and UID from the tracker.
	forget func(name string, uid types.UID) []tracker.Key
}

// answer is an object that the API server returned.
type answer struct {
	uid types.UID
	// takeIn updates the tracker with it, unless it is not known there any more. Before is the
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

func newSliceCarrier(known *tracker.Tracker, live Carriers) carrier {
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

func newRuleCarrier(known *tracker.Tracker, live Carriers) carrier {
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
