package informer

import (
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/tollgate-dev/tollgate/tracker"
)

// identified is an object of the tracker.
type identified[T any] interface {
	*T
	Identity() tracker.Identity
}

// kept is an element of the store of an informer: the object that the tracker is given, and no more.
type kept[T any, P identified[T]] struct{ object T }

// GetObjectMeta implements metav1.ObjectMetaAccessor. A store asks for the metadata, which
// is made when asked for.
func (k *kept[T, P]) GetObjectMeta() metav1.Object {
	id := P(&k.object).Identity()
	return &metav1.ObjectMeta{Namespace: id.Namespace, Name: id.Name, UID: id.UID, ResourceVersion: id.ResourceVersion}
}

// read reads an element that an informer hands out, whether or not it keeps only the part that
// is needed, and returns false for an object of another kind.
func read[O, T any, P identified[T]](obj any, of func(*O) T) (object T, ok bool) {
	switch obj := obj.(type) {
	case *kept[T, P]:
		return obj.object, true
	case *O:
		return of(obj), true
	}
	return object, false
}

// transform makes the transform of an informer. The kept part of an object shares memory with
// it in nothing but strings, and in lists that are kept whole. An object of another kind is
// left alone: an informer may pass an object through twice.
func transform[O, T any, P identified[T]](of func(*O) T) toolscache.TransformFunc {
	return func(obj any) (any, error) {
		if object, ok := obj.(*O); ok {
			return &kept[T, P]{of(object)}, nil
		}
		return obj, nil
	}
}

func keepNodes() toolscache.TransformFunc {
	words := newWords()
	return transform(func(node *corev1.Node) tracker.Node {
		kept := tracker.NodeOf(node)
		words.each(kept.Labels, kept.Name)
		return kept
	})
}

func keepPods() toolscache.TransformFunc { return transform(KeepPods()) }

// KeepPods returns a function that returns the kept part of pods, for lists without an informer.
// Values that many of them have in common are kept once. The function is goroutine-safe.
func KeepPods() func(*corev1.Pod) tracker.Pod {
	words, tolerations, origins := newWords(), newLists(appendToleration), newOrigins()
	windows := newWindows()
	return func(pod *corev1.Pod) tracker.Pod {
		kept := tracker.PodOf(pod)
		words.all(&kept.Namespace, &kept.NodeName, &kept.PodGroup)
		kept.Tolerations = tolerations.one(kept.Tolerations)
		kept.Window = windows.one(kept.Window)
		kept.Origin = origins.one(kept.Origin, kept.Name)
		if kept.Disruption != nil {
			// A pointer into the list of conditions holds on to all of it.
			kept.Disruption = new(*kept.Disruption)
		}
		return kept
	}
}

func keepSlices() toolscache.TransformFunc {
	words, taints := newWords(), newLists(appendDeviceTaint)
	return transform(func(slice *resourcev1.ResourceSlice) tracker.Slice {
		kept := tracker.SliceOf(slice)
		words.all(&kept.Driver, &kept.Pool)
		for i := range kept.Devices {
			device := &kept.Devices[i]
			words.all(&device.Name)
			device.Taints = taints.one(device.Taints)
		}
		return kept
	})
}

func keepClaims() toolscache.TransformFunc {
	words, tolerations := newWords(), newLists(appendDeviceToleration)
	windows := newWindows()
	return transform(func(claim *resourcev1.ResourceClaim) tracker.Claim {
		kept := tracker.ClaimOf(claim)
		words.all(&kept.Namespace)
		kept.Window = windows.one(kept.Window)
		for i := range kept.Devices {
			device := &kept.Devices[i]
			words.all(&device.ID.Driver, &device.ID.Pool, &device.ID.Name)
			device.Tolerations = tolerations.one(device.Tolerations)
		}
		// A copy of the owner of a generated claim does not hold on to the list of owners. It is
		// a pod as a rule, and the one that the claim is reserved for.
		owner := kept.Controller
		if owner != nil {
			owner = new(*owner)
			words.all(&owner.APIVersion, &owner.Kind)
			owner.BlockOwnerDeletion = nil
		}
		for i := range kept.Consumers {
			consumer := &kept.Consumers[i]
			words.all(&consumer.Resource)
			if owner != nil && consumer.UID == owner.UID && consumer.Name == owner.Name {
				owner.UID, owner.Name = consumer.UID, consumer.Name
			}
		}
		kept.Controller = owner
		return kept
	})
}

func keepRules() toolscache.TransformFunc {
	return func(obj any) (any, error) {
		object, ok := obj.(*unstructured.Unstructured)
		if !ok {
			return obj, nil
		}
		rule, err := RuleOf(object)
		if err != nil {
			return nil, err
		}
		return &kept[tracker.Rule, *tracker.Rule]{rule}, nil
	}
}
