package check

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
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
	now := metav1.NewTime(s.Clock.Now().Truncate(time.Second))
	switch o := object.(type) {
	case *corev1.Pod:
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
		for _, r := range requestsOf(object) {
			setDefault(r.mode, resourcev1.DeviceAllocationModeExactCount)
			if *r.mode == resourcev1.DeviceAllocationModeExactCount {
				setDefault(r.count, 1)
			}
			for i := range r.tolerations {
				setDefault(&r.tolerations[i].Operator, resourcev1.DeviceTolerationOpEqual)
			}
		}
	case *resourcev1.DeviceTaintRule:
		setPointer(&o.Spec.Taint.TimeAdded, now)
	case *resourcev1.ResourceSlice:
		for _, device := range o.Spec.Devices {
			for i := range device.Taints {
				setPointer(&device.Taints[i].TimeAdded, now)
			}
		}
	}
	return nil
}

// admitPod sets the defaults of a pod, and runs the plugins on it, in their order.
func (s *APIServer) admitPod(ctx context.Context, pod *corev1.Pod) error {
	spec := &pod.Spec
	for _, c := range containers(spec) {
		requestLimits(&c.Resources)
	}
	if spec.Resources != nil {
		requestLimits(spec.Resources)
	}
	setPointer(&spec.EnableServiceLinks, corev1.DefaultEnableServiceLinks)
	defaultPodSpec(spec)
	if !metav1.HasAnnotation(pod.ObjectMeta, corev1.MirrorPodAnnotationKey) {
		setDefault(&spec.ServiceAccountName, "default")
	}
	spec.DeprecatedServiceAccount = spec.ServiceAccountName
	if err := s.prioritize(ctx, spec); err != nil {
		return err
	}
	tolerateNode(spec, corev1.TaintNodeNotReady, s.Admission.DefaultNotReadyTolerationSeconds)
	tolerateNode(spec, corev1.TaintNodeUnreachable, s.Admission.DefaultUnreachableTolerationSeconds)
	if s.Admission.PodTolerationRestriction && !bestEffort(spec) {
		spec.Tolerations = merge(spec.Tolerations, []corev1.Toleration{exists(corev1.TaintNodeMemoryPressure, corev1.TaintEffectNoSchedule)})
	}
	if s.Admission.ExtendedResourceToleration {
		tolerateResources(spec)
	}
	return s.runtimeClass(ctx, spec)
}

// exists returns the toleration of all taints with a key and an effect.
func exists(key string, effect corev1.TaintEffect) corev1.Toleration {
	return corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: effect}
}

// systemPriorities are the values of the classes of every cluster.
var systemPriorities = map[string]int32{"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}

// prioritize is the plugin Priority. A missing class leaves the pod without a value.
func (s *APIServer) prioritize(ctx context.Context, spec *corev1.PodSpec) error {
	name := spec.PriorityClassName
	value, system := systemPriorities[name]
	class := &schedulingv1.PriorityClass{Value: value}
	switch {
	case name == "":
		var list schedulingv1.PriorityClassList
		if err := s.Reader.List(ctx, &list); err != nil {
			return fmt.Errorf("list PriorityClasses: %w", err)
		}
		if at := slices.IndexFunc(list.Items, func(c schedulingv1.PriorityClass) bool { return c.GlobalDefault }); at >= 0 {
			class = &list.Items[at]
		}
		spec.PriorityClassName = class.Name
	case !system:
		if err := s.Reader.Get(ctx, types.NamespacedName{Name: name}, class); apierrors.IsNotFound(err) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read PriorityClass %s: %w", name, err)
		}
	}
	setPointer(&spec.Priority, class.Value)
	setPointer(&spec.PreemptionPolicy, ptr.Deref(class.PreemptionPolicy, corev1.PreemptLowerPriority))
	return nil
}

// runtimeClass is the plugin RuntimeClass (TP-19). A missing class changes nothing.
func (s *APIServer) runtimeClass(ctx context.Context, spec *corev1.PodSpec) error {
	if spec.RuntimeClassName == nil {
		return nil
	}
	var class nodev1.RuntimeClass
	if err := s.Reader.Get(ctx, types.NamespacedName{Name: *spec.RuntimeClassName}, &class); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read RuntimeClass %s: %w", *spec.RuntimeClassName, err)
	}
	if class.Overhead != nil {
		spec.Overhead = class.Overhead.PodFixed
	}
	if class.Scheduling != nil {
		spec.NodeSelector = labels.Merge(spec.NodeSelector, class.Scheduling.NodeSelector)
		spec.Tolerations = merge(spec.Tolerations, class.Scheduling.Tolerations)
	}
	return nil
}

// tolerateNode is the plugin DefaultTolerationSeconds (TP-15) for one taint.
func tolerateNode(spec *corev1.PodSpec, key string, seconds int64) {
	has := slices.ContainsFunc(spec.Tolerations, func(t corev1.Toleration) bool {
		return (t.Key == key || t.Key == "") && (t.Effect == corev1.TaintEffectNoExecute || t.Effect == "")
	})
	if !has {
		added := exists(key, corev1.TaintEffectNoExecute)
		added.TolerationSeconds = &seconds
		spec.Tolerations = append(spec.Tolerations, added)
	}
}

// tolerateAsDaemon adds the tolerations of the DaemonSet controller, with which its pods run on
// nodes that are not ready.
func tolerateAsDaemon(spec *corev1.PodSpec) {
	add := func(effect corev1.TaintEffect, keys ...string) {
		for _, key := range keys {
			added := exists(key, effect)
			at := slices.IndexFunc(spec.Tolerations, func(t corev1.Toleration) bool { return t.MatchToleration(&added) })
			if at < 0 {
				spec.Tolerations = append(spec.Tolerations, added)
			} else {
				spec.Tolerations[at] = added
			}
		}
	}
	add(corev1.TaintEffectNoExecute, corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable)
	add(corev1.TaintEffectNoSchedule,
		corev1.TaintNodeDiskPressure, corev1.TaintNodeMemoryPressure, corev1.TaintNodePIDPressure, corev1.TaintNodeUnschedulable)
	if spec.HostNetwork {
		add(corev1.TaintEffectNoSchedule, corev1.TaintNodeNetworkUnavailable)
	}
}

// tolerateResources is the plugin ExtendedResourceToleration (TP-16).
func tolerateResources(spec *corev1.PodSpec) {
	var names []string
	for _, c := range containers(spec) {
		for name := range c.Resources.Requests {
			names = append(names, string(name))
		}
	}
	slices.Sort(names)
	for _, name := range names {
		added := exists(name, corev1.TaintEffectNoSchedule)
		// An extended resource is one that neither Kubernetes nor its quota defines.
		if strings.Contains(name, "/") && !strings.Contains(name, corev1.ResourceDefaultNamespacePrefix) &&
			!strings.HasPrefix(name, corev1.DefaultResourceRequestsPrefix) && !slices.Contains(spec.Tolerations, added) {
			spec.Tolerations = append(spec.Tolerations, added)
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
func bestEffort(spec *corev1.PodSpec) bool {
	var lists []corev1.ResourceList
	for _, c := range containers(spec) {
		lists = append(lists, c.Resources.Requests, c.Resources.Limits)
	}
	if spec.Resources != nil {
		lists = append(lists, spec.Resources.Requests, spec.Resources.Limits)
	}
	return !slices.ContainsFunc(lists, func(list corev1.ResourceList) bool { return !list.Cpu().IsZero() || !list.Memory().IsZero() })
}

// merge returns both lists without the tolerations that another one covers (TP-04).
func merge(tolerations, more []corev1.Toleration) []corev1.Toleration {
	all := slices.Concat(tolerations, more)
	var merged []corev1.Toleration
	for i, t := range all {
		covered := slices.ContainsFunc(merged, func(kept corev1.Toleration) bool { return superset(kept, t) }) ||
			slices.ContainsFunc(all[i+1:], func(later corev1.Toleration) bool {
				return !equality.Semantic.DeepEqual(later, t) && superset(later, t)
			})
		if !covered {
			merged = append(merged, t)
		}
	}
	return merged
}

// superset reports whether s covers t, as the plugins compare tolerations (TP-05).
func superset(s, t corev1.Toleration) bool {
	switch {
	case equality.Semantic.DeepEqual(s, t):
		return true
	case s.Key != t.Key && (s.Key != "" || s.Operator != corev1.TolerationOpExists):
		return false
	case s.Effect != "" && s.Effect != t.Effect:
		return false
	case s.Effect == corev1.TaintEffectNoExecute && s.TolerationSeconds != nil &&
		(t.TolerationSeconds == nil || *t.TolerationSeconds > *s.TolerationSeconds):
		return false
	case s.Operator == corev1.TolerationOpEqual || s.Operator == "":
		return t.Operator == corev1.TolerationOpEqual && s.Value == t.Value
	default: // Lt and Gt cover themselves alone.
		return s.Operator == corev1.TolerationOpExists
	}
}

// TemplateOf returns the pod template of a workload, nil for other objects.
func TemplateOf(object runtime.Object) *corev1.PodTemplateSpec {
	switch o := object.(type) {
	case *appsv1.Deployment:
		return &o.Spec.Template
	case *appsv1.ReplicaSet:
		return &o.Spec.Template
	case *appsv1.StatefulSet:
		return &o.Spec.Template
	case *appsv1.DaemonSet:
		return &o.Spec.Template
	case *batchv1.Job:
		return &o.Spec.Template
	case *batchv1.CronJob:
		return &o.Spec.JobTemplate.Spec.Template
	case *corev1.PodTemplate:
		return &o.Template
	case *corev1.ReplicationController:
		return o.Spec.Template
	}
	return nil
}

// requestLimits sets the requests of resources that only have a limit.
func requestLimits(resources *corev1.ResourceRequirements) {
	if len(resources.Limits) > 0 {
		requests := resources.Limits.DeepCopy()
		maps.Copy(requests, resources.Requests)
		resources.Requests = requests
	}
}

// defaultPodSpec sets the defaults of pods and pod templates.
func defaultPodSpec(spec *corev1.PodSpec) {
	setDefault(&spec.RestartPolicy, corev1.RestartPolicyAlways)
	setDefault(&spec.DNSPolicy, corev1.DNSClusterFirst)
	setDefault(&spec.SchedulerName, corev1.DefaultSchedulerName)
	setPointer(&spec.SecurityContext, corev1.PodSecurityContext{})
	setPointer(&spec.TerminationGracePeriodSeconds, corev1.DefaultTerminationGracePeriodSeconds)
	// They are two names of one field.
	setDefault(&spec.ServiceAccountName, spec.DeprecatedServiceAccount)
	spec.DeprecatedServiceAccount = spec.ServiceAccountName
	for _, c := range containers(spec) {
		setDefault(&c.TerminationMessagePath, corev1.TerminationMessagePathDefault)
		setDefault(&c.TerminationMessagePolicy, corev1.TerminationMessageReadFile)
		pull := corev1.PullIfNotPresent
		if name := path.Base(c.Image); !strings.Contains(name, "@") &&
			(!strings.Contains(name, ":") || strings.HasSuffix(name, ":latest")) {
			pull = corev1.PullAlways
		}
		setDefault(&c.ImagePullPolicy, pull)
		for i := range c.Ports {
			setDefault(&c.Ports[i].Protocol, corev1.ProtocolTCP)
		}
	}
}

// defaultWorkload sets the default number of pods of a workload, and the rollout of a Deployment.
func defaultWorkload(object runtime.Object) {
	switch o := object.(type) {
	case *appsv1.Deployment:
		setPointer(&o.Spec.Replicas, 1)
		strategy := &o.Spec.Strategy
		setDefault(&strategy.Type, appsv1.RollingUpdateDeploymentStrategyType)
		if strategy.Type == appsv1.RollingUpdateDeploymentStrategyType {
			setPointer(&strategy.RollingUpdate, appsv1.RollingUpdateDeployment{})
			setPointer(&strategy.RollingUpdate.MaxSurge, intstr.FromString("25%"))
			setPointer(&strategy.RollingUpdate.MaxUnavailable, intstr.FromString("25%"))
		}
	case *appsv1.ReplicaSet:
		setPointer(&o.Spec.Replicas, 1)
	case *appsv1.StatefulSet:
		setPointer(&o.Spec.Replicas, 1)
	case *corev1.ReplicationController:
		setPointer(&o.Spec.Replicas, 1)
	case *batchv1.Job:
		setPointer(&o.Spec.Parallelism, 1)
	}
}

// deviceRequest is a request for devices of a claim, or one of its alternatives.
type deviceRequest struct {
	path        *field.Path
	class       string
	mode        *resourcev1.DeviceAllocationMode
	count       *int64
	tolerations []resourcev1.DeviceToleration
}

// requestsOf returns the requests of a claim or its template; none for other objects.
func requestsOf(object runtime.Object) []deviceRequest {
	spec := field.NewPath("spec")
	var requests []resourcev1.DeviceRequest
	switch o := object.(type) {
	case *resourcev1.ResourceClaim:
		requests = o.Spec.Devices.Requests
	case *resourcev1.ResourceClaimTemplate:
		spec, requests = spec.Child("spec"), o.Spec.Spec.Devices.Requests
	}
	var all []deviceRequest
	for i := range requests {
		at := spec.Child("devices", "requests").Index(i)
		if r := requests[i].Exactly; r != nil {
			all = append(all, deviceRequest{at.Child("exactly"), r.DeviceClassName, &r.AllocationMode, &r.Count, r.Tolerations})
		}
		for k := range requests[i].FirstAvailable {
			r := &requests[i].FirstAvailable[k]
			all = append(all, deviceRequest{at.Child("firstAvailable").Index(k), r.DeviceClassName, &r.AllocationMode, &r.Count, r.Tolerations})
		}
	}
	return all
}

func setDefault[T comparable](to *T, value T) {
	*to = cmp.Or(*to, value)
}

func setPointer[T any](to **T, value T) {
	if *to == nil {
		*to = &value
	}
}
