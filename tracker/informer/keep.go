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

// kept is what the store of an informer holds: what the tracker is given, and no more.
type kept[T any, P identified[T]] struct{ object T }

// GetObjectMeta implements metav1.ObjectMetaAccessor. A store asks for the metadata, which
// is made when asked for.
func (k *kept[T, P]) GetObjectMeta() metav1.Object {
	id := P(&k.object).Identity()
	return &metav1.ObjectMeta{Namespace: id.Namespace, Name: id.Name, UID: id.UID, ResourceVersion: id.ResourceVersion}
}

func keep[T any, P identified[T]](object T) *kept[T, P] { return &kept[T, P]{object} }

// read reads what an informer hands out, whether or not it keeps only what is needed, and
// returns false for an object of another kind.
func read[O, T any, P identified[T]](obj any, of func(*O) T) (T, bool) {
	switch obj := obj.(type) {
	case *kept[T, P]:
		return obj.object, true
	case *O:
		return of(obj), true
	}
	var none T
	return none, false
}

// transform makes the transform of an informer. What is kept of an object shares memory with
// it in nothing but strings, and in lists that are kept whole. What is not of its kind it
// leaves alone: an informer may pass an object through twice.
func transform[O, T any, P identified[T]](of func(*O) T) toolscache.TransformFunc {
	return func(obj any) (any, error) {
		if object, ok := obj.(*O); ok {
			return keep[T, P](of(object)), nil
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

// KeepPods returns what returns what is kept of pods, for lists without an informer. What
// many of them have in common is kept once. It is goroutine-safe.
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

func keepBudgets() toolscache.TransformFunc {
	return transform(tracker.BudgetOf)
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
		for i := range kept.Consumers {
			words.all(&kept.Consumers[i].Resource)
		}
		keepController(&kept, words)
		return kept
	})
}

// keepController cuts the owner of a generated claim loose from its list. The
// owner is a pod as a rule, and the one that the claim is reserved for.
func keepController(claim *tracker.Claim, words *words) {
	if claim.Controller == nil {
		return
	}
	owner := *claim.Controller
	words.all(&owner.APIVersion, &owner.Kind)
	owner.BlockOwnerDeletion = nil
	for i := range claim.Consumers {
		if consumer := &claim.Consumers[i]; consumer.UID == owner.UID && consumer.Name == owner.Name {
			owner.UID, owner.Name = consumer.UID, consumer.Name
			break
		}
	}
	claim.Controller = &owner
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
		return keep(rule), nil
	}
}
