package evictor

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/tracker"
)

// Carriers reads the objects that carry the taints of devices from the API server, not from a
// cache. Its errors are those of the API.
type Carriers interface {
	ReadSlice(ctx context.Context, name string) (tracker.Slice, error)
	ReadRule(ctx context.Context, name string) (tracker.Rule, error)
}

// carrier has the functions for one kind of objects that carry taints.
type carrier struct {
	resource schema.GroupResource
	// read reads the object with the name from the API server.
	read func(ctx context.Context, name string) (answer, error)
	// forget removes the object with the name and UID from the tracker.
	forget func(name string, uid types.UID) []tracker.Key
}

// answer is an object that the API server returned.
type answer struct {
	uid types.UID
	// refresh updates the tracker with the object, if it still has that object. before is the
	// version that the tracker had when the request was made.
	refresh func(before string, now time.Time) []tracker.Key
}

// answerOf returns the answer with an object, with which refresh updates the tracker.
func answerOf[T any](object T, uid types.UID, refresh func(object T, before string, now time.Time) []tracker.Key) answer {
	return answer{uid: uid, refresh: func(before string, now time.Time) []tracker.Key { return refresh(object, before, now) }}
}

func nodeAnswer(known *tracker.Tracker, node *corev1.Node) answer {
	return answerOf(tracker.NodeOf(node), node.UID, known.RefreshNode)
}

// carriersOf returns the functions for objects that carry taints, by their kind.
func carriersOf(o *Options) map[tracker.SourceKind]carrier {
	known := o.Tracker
	return map[tracker.SourceKind]carrier{
		tracker.SourceNode: {corev1.Resource("nodes"), func(ctx context.Context, name string) (answer, error) {
			node, err := o.Client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return answer{}, err
			}
			return nodeAnswer(known, node), nil
		}, known.DeleteNode},
		tracker.SourceSlice: {resourcev1.Resource("resourceslices"), func(ctx context.Context, name string) (answer, error) {
			slice, err := o.Carriers.ReadSlice(ctx, name)
			return answerOf(slice, slice.UID, known.RefreshSlice), err
		}, known.DeleteSlice},
		tracker.SourceRule: {resourcev1.Resource("devicetaintrules"), func(ctx context.Context, name string) (answer, error) {
			rule, err := o.Carriers.ReadRule(ctx, name)
			return answerOf(rule, rule.UID, known.RefreshRule), err
		}, known.DeleteRule},
	}
}
