package check

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// APIServer is how a kube-apiserver is set up, and what it looks up.
type APIServer struct {
	// Reader has the RuntimeClasses and PriorityClasses.
	Reader client.Reader
	Clock  clock.PassiveClock
	// NotReadySeconds and UnreachableSeconds are those of DefaultTolerationSeconds.
	NotReadySeconds, UnreachableSeconds int64
	// ExtendedResourceToleration and PodTolerationRestriction say that it runs the plugins
	// of these names, which it does not unless told to.
	ExtendedResourceToleration, PodTolerationRestriction bool
}

// Admit changes an object that is created. An error is one of reading.
func (s *APIServer) Admit(ctx context.Context, object runtime.Object) error {
	if template := TemplateOf(object); template != nil {
		defaultPodSpec(&template.Spec)
		defaultSize(object)
		return nil
	}
	switch o := object.(type) {
	case *corev1.Pod:
		defaultPod(o)
		return s.admitPod(ctx, o)
	case *corev1.Node:
		admitNode(o)
	case *corev1.Namespace:
		metav1.SetMetaDataLabel(&o.ObjectMeta, corev1.LabelMetadataName, o.Name)
	case *resourcev1.ResourceClaim:
		defaultRequests(o.Spec.Devices.Requests)
	case *resourcev1.ResourceClaimTemplate:
		defaultRequests(o.Spec.Spec.Devices.Requests)
	case *resourcev1.DeviceTaintRule:
		s.stamp(&o.Spec.Taint.TimeAdded)
	case *resourcev1.ResourceSlice:
		for i := range o.Spec.Devices {
			for j := range o.Spec.Devices[i].Taints {
				s.stamp(&o.Spec.Devices[i].Taints[j].TimeAdded)
			}
		}
	}
	return nil
}

// stamp gives a taint of a device the time from which it counts, in whole seconds.
func (s *APIServer) stamp(at **metav1.Time) {
	if *at == nil {
		*at = &metav1.Time{Time: s.Clock.Now().Truncate(time.Second)}
	}
}

// admitNode does what TaintNodesByCondition does (TP-17).
func admitNode(node *corev1.Node) {
	for i := range node.Spec.Taints {
		if t := &node.Spec.Taints[i]; t.Key == corev1.TaintNodeNotReady && t.Effect == corev1.TaintEffectNoSchedule {
			return
		}
	}
	node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule})
}

// admitPod does what the plugins do, in their order.
func (s *APIServer) admitPod(ctx context.Context, pod *corev1.Pod) error {
	if _, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]; !mirror && pod.Spec.ServiceAccountName == "" {
		pod.Spec.ServiceAccountName = "default"
	}
	pod.Spec.DeprecatedServiceAccount = pod.Spec.ServiceAccountName
	if err := s.prioritize(ctx, pod); err != nil {
		return err
	}
	s.tolerateNodes(pod)
	if s.PodTolerationRestriction && !bestEffort(pod) {
		pod.Spec.Tolerations = merge(pod.Spec.Tolerations, []corev1.Toleration{{
			Key: corev1.TaintNodeMemoryPressure, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule,
		}})
	}
	if s.ExtendedResourceToleration {
		tolerateResources(pod)
	}
	return s.runtimeClass(ctx, pod)
}

// systemPriorities are those of the classes that every cluster has.
var systemPriorities = map[string]int32{"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}

// prioritize does what Priority does. A class that is not to be found leaves the pod
// without a value.
func (s *APIServer) prioritize(ctx context.Context, pod *corev1.Pod) error {
	preempts := corev1.PreemptLowerPriority
	name := pod.Spec.PriorityClassName
	value, known := systemPriorities[name]
	if !known {
		class, err := s.priorityClass(ctx, name)
		if err != nil {
			return err
		}
		if class == nil && name != "" {
			return nil
		}
		if class != nil {
			pod.Spec.PriorityClassName, value = class.Name, class.Value
			if class.PreemptionPolicy != nil {
				preempts = *class.PreemptionPolicy
			}
		}
	}
	if pod.Spec.Priority == nil {
		pod.Spec.Priority = &value
	}
	if pod.Spec.PreemptionPolicy == nil {
		pod.Spec.PreemptionPolicy = &preempts
	}
	return nil
}

// priorityClass returns the class of a name, of none that which is the default; nil if
// there is none.
func (s *APIServer) priorityClass(ctx context.Context, name string) (*schedulingv1.PriorityClass, error) {
	if name != "" {
		class := &schedulingv1.PriorityClass{}
		err := s.Reader.Get(ctx, types.NamespacedName{Name: name}, class)
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read PriorityClass %s: %w", name, err)
		}
		return class, nil
	}
	var list schedulingv1.PriorityClassList
	if err := s.Reader.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("list PriorityClasses: %w", err)
	}
	for i := range list.Items {
		if list.Items[i].GlobalDefault {
			return &list.Items[i], nil
		}
	}
	return nil, nil
}

// runtimeClass does what RuntimeClass does (TP-19).
func (s *APIServer) runtimeClass(ctx context.Context, pod *corev1.Pod) error {
	if pod.Spec.RuntimeClassName == nil {
		return nil
	}
	var class nodev1.RuntimeClass
	err := s.Reader.Get(ctx, types.NamespacedName{Name: *pod.Spec.RuntimeClassName}, &class)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read RuntimeClass %s: %w", *pod.Spec.RuntimeClassName, err)
	}
	if class.Overhead != nil {
		pod.Spec.Overhead = class.Overhead.PodFixed
	}
	if class.Scheduling == nil {
		return nil
	}
	for key, value := range class.Scheduling.NodeSelector {
		if pod.Spec.NodeSelector == nil {
			pod.Spec.NodeSelector = map[string]string{}
		}
		pod.Spec.NodeSelector[key] = value
	}
	pod.Spec.Tolerations = merge(pod.Spec.Tolerations, class.Scheduling.Tolerations)
	return nil
}
