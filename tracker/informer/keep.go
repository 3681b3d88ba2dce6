package informer

import (
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/tollgate-dev/tollgate/tracker"
)

// The functions below make the transforms of informers. What they keep shares
// memory with the original object in nothing but strings, and in lists that are
// kept whole. What is not of their kind they leave alone: an informer may pass an
// object through twice.

func keepNodes() toolscache.TransformFunc {
	words := newWords()
	return func(obj any) (any, error) {
		node, ok := obj.(*corev1.Node)
		if !ok {
			return obj, nil
		}
		kept := &keptNode{tracker.NodeOf(node)}
		words.each(kept.Labels, kept.Name)
		return kept, nil
	}
}

func keepPods() toolscache.TransformFunc {
	keep := KeepPods()
	return func(obj any) (any, error) {
		pod, ok := obj.(*corev1.Pod)
		if !ok {
			return obj, nil
		}
		return &keptPod{keep(pod)}, nil
	}
}

// KeepPods returns what returns what is kept of pods, for lists without an informer. What
// many of them have in common is kept once. It is goroutine-safe.
func KeepPods() func(*corev1.Pod) tracker.Pod {
	words, tolerations, origins := newWords(), newLists(appendToleration), newOrigins()
	windows := newWindows()
	return func(pod *corev1.Pod) tracker.Pod {
		kept := tracker.PodOf(pod)
		kept.Namespace = words.one(kept.Namespace)
		kept.NodeName = words.one(kept.NodeName)
		kept.PodGroup = words.one(kept.PodGroup)
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
	return func(obj any) (any, error) {
		budget, ok := obj.(*policyv1.PodDisruptionBudget)
		if !ok {
			return obj, nil
		}
		return &keptBudget{tracker.BudgetOf(budget)}, nil
	}
}

func keepSlices() toolscache.TransformFunc {
	words, taints := newWords(), newLists(appendDeviceTaint)
	return func(obj any) (any, error) {
		slice, ok := obj.(*resourcev1.ResourceSlice)
		if !ok {
			return obj, nil
		}
		kept := &keptSlice{tracker.SliceOf(slice)}
		kept.Driver, kept.Pool = words.one(kept.Driver), words.one(kept.Pool)
		for i := range kept.Devices {
			device := &kept.Devices[i]
			device.Name, device.Taints = words.one(device.Name), taints.one(device.Taints)
		}
		return kept, nil
	}
}

func keepClaims() toolscache.TransformFunc {
	words, tolerations := newWords(), newLists(appendDeviceToleration)
	windows := newWindows()
	return func(obj any) (any, error) {
		claim, ok := obj.(*resourcev1.ResourceClaim)
		if !ok {
			return obj, nil
		}
		kept := &keptClaim{tracker.ClaimOf(claim)}
		kept.Namespace = words.one(kept.Namespace)
		kept.Window = windows.one(kept.Window)
		for i := range kept.Devices {
			device := &kept.Devices[i]
			device.ID.Driver, device.ID.Pool = words.one(device.ID.Driver), words.one(device.ID.Pool)
			device.ID.Name = words.one(device.ID.Name)
			device.Tolerations = tolerations.one(device.Tolerations)
		}
		for i := range kept.Consumers {
			kept.Consumers[i].Resource = words.one(kept.Consumers[i].Resource)
		}
		keepController(&kept.Claim, words)
		return kept, nil
	}
}

// keepController cuts the owner of a generated claim loose from its list. The
// owner is a pod as a rule, and the one that the claim is reserved for.
func keepController(claim *tracker.Claim, words *words) {
	if claim.Controller == nil {
		return
	}
	owner := *claim.Controller
	owner.APIVersion, owner.Kind = words.one(owner.APIVersion), words.one(owner.Kind)
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
		return &keptRule{rule}, nil
	}
}
