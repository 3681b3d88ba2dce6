package check

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	configv1alpha1 "github.com/tollgate-dev/tollgate/api/config/v1alpha1"
)

// APIServer sets the defaults and runs the admission plugins of a kube-apiserver.
type APIServer struct {
	// Reader reads RuntimeClasses and PriorityClasses.
	Reader client.Reader
	Clock  clock.PassiveClock
	// Admission has the flags of DefaultTolerationSeconds, and the optional plugins.
	Admission *configv1alpha1.AdmissionConfiguration
}

// Admit changes an object as its creation does. An error is one of the reader.
func (s *APIServer) Admit(ctx context.Context, object runtime.Object) error {
	if template := TemplateOf(object); template != nil {
		defaultPodSpec(&template.Spec)
		defaultWorkload(object)
		return nil
	}
	switch o := object.(type) {
	case *corev1.Pod:
		defaultPod(o)
		return s.admitPod(ctx, o)
	case *corev1.Node:
		// TaintNodesByCondition (TP-17).
		notReady := corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}
		if !slices.ContainsFunc(o.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&notReady) }) {
			o.Spec.Taints = append(o.Spec.Taints, notReady)
		}
	case *corev1.Namespace:
		metav1.SetMetaDataLabel(&o.ObjectMeta, corev1.LabelMetadataName, o.Name)
	case *resourcev1.ResourceClaim, *resourcev1.ResourceClaimTemplate:
		defaultRequests(object)
	case *resourcev1.DeviceTaintRule:
		setPointer(&o.Spec.Taint.TimeAdded, s.now())
	case *resourcev1.ResourceSlice:
		for i := range o.Spec.Devices {
			for j := range o.Spec.Devices[i].Taints {
				setPointer(&o.Spec.Devices[i].Taints[j].TimeAdded, s.now())
			}
		}
	}
	return nil
}

// now returns the timeAdded of new device taints, in whole seconds.
func (s *APIServer) now() metav1.Time { return metav1.NewTime(s.Clock.Now().Truncate(time.Second)) }

// admitPod runs the plugins on a pod, in their order.
func (s *APIServer) admitPod(ctx context.Context, pod *corev1.Pod) error {
	if _, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]; !mirror {
		setDefault(&pod.Spec.ServiceAccountName, "default")
	}
	pod.Spec.DeprecatedServiceAccount = pod.Spec.ServiceAccountName
	if err := s.prioritize(ctx, pod); err != nil {
		return err
	}
	s.tolerateNodes(pod)
	if s.Admission.PodTolerationRestriction && !bestEffort(pod) {
		pod.Spec.Tolerations = merge(pod.Spec.Tolerations, []corev1.Toleration{{
			Key: corev1.TaintNodeMemoryPressure, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule,
		}})
	}
	if s.Admission.ExtendedResourceToleration {
		tolerateResources(pod)
	}
	return s.runtimeClass(ctx, pod)
}

// systemPriorities are the values of the classes of every cluster.
var systemPriorities = map[string]int32{"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}

// prioritize is the plugin Priority. A missing class leaves the pod without a value.
func (s *APIServer) prioritize(ctx context.Context, pod *corev1.Pod) error {
	name, preempts := pod.Spec.PriorityClassName, corev1.PreemptLowerPriority
	value, system := systemPriorities[name]
	switch {
	case name == "":
		var list schedulingv1.PriorityClassList
		if err := s.Reader.List(ctx, &list); err != nil {
			return fmt.Errorf("list PriorityClasses: %w", err)
		}
		at := slices.IndexFunc(list.Items, func(c schedulingv1.PriorityClass) bool { return c.GlobalDefault })
		if at >= 0 {
			class := &list.Items[at]
			pod.Spec.PriorityClassName, value, preempts = class.Name, class.Value, ptr.Deref(class.PreemptionPolicy, preempts)
		}
	case !system:
		var class schedulingv1.PriorityClass
		if err := s.Reader.Get(ctx, types.NamespacedName{Name: name}, &class); apierrors.IsNotFound(err) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read PriorityClass %s: %w", name, err)
		}
		value, preempts = class.Value, ptr.Deref(class.PreemptionPolicy, preempts)
	}
	setPointer(&pod.Spec.Priority, value)
	setPointer(&pod.Spec.PreemptionPolicy, preempts)
	return nil
}

// runtimeClass is the plugin RuntimeClass (TP-19).
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

// tolerateNodes is the plugin DefaultTolerationSeconds (TP-15).
func (s *APIServer) tolerateNodes(pod *corev1.Pod) {
	for _, to := range []struct {
		key     string
		seconds int64
	}{
		{corev1.TaintNodeNotReady, s.Admission.DefaultNotReadyTolerationSeconds},
		{corev1.TaintNodeUnreachable, s.Admission.DefaultUnreachableTolerationSeconds},
	} {
		has := slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool {
			return (t.Key == to.key || t.Key == "") && (t.Effect == corev1.TaintEffectNoExecute || t.Effect == "")
		})
		if !has {
			pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{
				Key: to.key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(to.seconds),
			})
		}
	}
}

// tolerateAsDaemon adds the tolerations of the DaemonSet controller, with which its pods run on
// nodes that are not ready.
func tolerateAsDaemon(spec *corev1.PodSpec) {
	taints := []corev1.Taint{
		{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoExecute},
		{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute},
		{Key: corev1.TaintNodeDiskPressure, Effect: corev1.TaintEffectNoSchedule},
		{Key: corev1.TaintNodeMemoryPressure, Effect: corev1.TaintEffectNoSchedule},
		{Key: corev1.TaintNodePIDPressure, Effect: corev1.TaintEffectNoSchedule},
		{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule},
	}
	if spec.HostNetwork {
		taints = append(taints, corev1.Taint{Key: corev1.TaintNodeNetworkUnavailable, Effect: corev1.TaintEffectNoSchedule})
	}
	for _, taint := range taints {
		added := corev1.Toleration{Key: taint.Key, Operator: corev1.TolerationOpExists, Effect: taint.Effect}
		at := slices.IndexFunc(spec.Tolerations, func(t corev1.Toleration) bool { return t.MatchToleration(&added) })
		if at < 0 {
			spec.Tolerations = append(spec.Tolerations, added)
		} else {
			spec.Tolerations[at] = added
		}
	}
}

// tolerateResources is the plugin ExtendedResourceToleration (TP-16).
func tolerateResources(pod *corev1.Pod) {
	names := map[string]struct{}{}
	for _, c := range containers(&pod.Spec) {
		for name := range c.Resources.Requests {
			// An extended resource is one that neither Kubernetes nor its quota defines.
			if name := string(name); strings.Contains(name, "/") && !strings.Contains(name, corev1.ResourceDefaultNamespacePrefix) &&
				!strings.HasPrefix(name, corev1.DefaultResourceRequestsPrefix) {
				names[name] = struct{}{}
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		added := corev1.Toleration{Key: name, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}
		if !slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool { return equality.Semantic.DeepEqual(t, added) }) {
			pod.Spec.Tolerations = append(pod.Spec.Tolerations, added)
		}
	}
}

// containers returns the containers and init containers of a pod.
func containers(spec *corev1.PodSpec) []*corev1.Container {
	var all []*corev1.Container
	for _, list := range [][]corev1.Container{spec.Containers, spec.InitContainers} {
		for i := range list {
			all = append(all, &list[i])
		}
	}
	return all
}

// bestEffort reports whether a pod requests no CPU and no memory.
func bestEffort(pod *corev1.Pod) bool {
	asks := func(r *corev1.ResourceRequirements) bool {
		return r != nil && (!r.Requests.Cpu().IsZero() || !r.Requests.Memory().IsZero() || !r.Limits.Cpu().IsZero() || !r.Limits.Memory().IsZero())
	}
	return !asks(pod.Spec.Resources) && !slices.ContainsFunc(containers(&pod.Spec), func(c *corev1.Container) bool { return asks(&c.Resources) })
}

// merge returns both lists without the tolerations that another one covers (TP-04).
func merge(tolerations, more []corev1.Toleration) []corev1.Toleration {
	all := slices.Concat(tolerations, more)
	var merged []corev1.Toleration
	for i := range all {
		t := &all[i]
		covered := slices.ContainsFunc(merged, func(kept corev1.Toleration) bool { return superset(&kept, t) }) ||
			slices.ContainsFunc(all[i+1:], func(later corev1.Toleration) bool {
				return !equality.Semantic.DeepEqual(later, *t) && superset(&later, t)
			})
		if !covered {
			merged = append(merged, *t)
		}
	}
	return merged
}

// superset reports whether s covers t, as the plugins compare tolerations (TP-05).
func superset(s, t *corev1.Toleration) bool {
	if equality.Semantic.DeepEqual(*s, *t) {
		return true
	}
	everyKey := s.Key == "" && s.Operator == corev1.TolerationOpExists
	if s.Key != t.Key && !everyKey || s.Effect != "" && s.Effect != t.Effect {
		return false
	}
	if s.Effect == corev1.TaintEffectNoExecute && s.TolerationSeconds != nil &&
		(t.TolerationSeconds == nil || *t.TolerationSeconds > *s.TolerationSeconds) {
		return false
	}
	switch s.Operator { //nolint:exhaustive // Lt and Gt cover themselves alone.
	case corev1.TolerationOpExists:
		return true
	case corev1.TolerationOpEqual, "":
		return t.Operator == corev1.TolerationOpEqual && s.Value == t.Value
	default:
		return false
	}
}
