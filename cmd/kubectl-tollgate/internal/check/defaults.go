package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

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

// defaultPod sets the defaults of a pod.
func defaultPod(pod *corev1.Pod) {
	for _, c := range containers(&pod.Spec) {
		requestLimits(&c.Resources)
	}
	if pod.Spec.Resources != nil {
		requestLimits(pod.Spec.Resources)
	}
	setPointer(&pod.Spec.EnableServiceLinks, corev1.DefaultEnableServiceLinks)
	defaultPodSpec(&pod.Spec)
}

// requestLimits sets the requests of resources that only have a limit.
func requestLimits(resources *corev1.ResourceRequirements) {
	for name, quantity := range resources.Limits {
		if _, ok := resources.Requests[name]; ok {
			continue
		}
		if resources.Requests == nil {
			resources.Requests = corev1.ResourceList{}
		}
		resources.Requests[name] = quantity.DeepCopy()
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
		if name := c.Image[strings.LastIndex(c.Image, "/")+1:]; !strings.Contains(name, "@") &&
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
		setDefault(&o.Spec.Strategy.Type, appsv1.RollingUpdateDeploymentStrategyType)
		if o.Spec.Strategy.Type == appsv1.RollingUpdateDeploymentStrategyType {
			setPointer(&o.Spec.Strategy.RollingUpdate, appsv1.RollingUpdateDeployment{})
			setPointer(&o.Spec.Strategy.RollingUpdate.MaxSurge, intstr.FromString("25%"))
			setPointer(&o.Spec.Strategy.RollingUpdate.MaxUnavailable, intstr.FromString("25%"))
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
	path := field.NewPath("spec")
	var requests []resourcev1.DeviceRequest
	switch o := object.(type) {
	case *resourcev1.ResourceClaim:
		requests = o.Spec.Devices.Requests
	case *resourcev1.ResourceClaimTemplate:
		path, requests = path.Child("spec"), o.Spec.Spec.Devices.Requests
	}
	var all []deviceRequest
	for i := range requests {
		at := path.Child("devices", "requests").Index(i)
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

// defaultRequests sets the defaults of the device requests of an object.
func defaultRequests(object runtime.Object) {
	for _, r := range requestsOf(object) {
		setDefault(r.mode, resourcev1.DeviceAllocationModeExactCount)
		if *r.mode == resourcev1.DeviceAllocationModeExactCount {
			setDefault(r.count, 1)
		}
		for i := range r.tolerations {
			setDefault(&r.tolerations[i].Operator, resourcev1.DeviceTolerationOpEqual)
		}
	}
}

func setDefault[T comparable](to *T, value T) {
	*to = cmp.Or(*to, value)
}

func setPointer[T any](to **T, value T) {
	if *to == nil {
		*to = &value
	}
}

// kind is a kind whose creation the webhook judges.
type kind struct {
	// versions are the versions that can be decoded. Objects are judged in the first.
	versions   []string
	resource   string
	namespaced bool
	// mutated is true for kinds of the mutating webhook.
	mutated bool
}

// kinds are the kinds of the webhooks in deploy/webhooks. Device kinds have the same fields in
// v1beta2 and v1, and others in v1beta1.
var kinds = func() map[schema.GroupKind]kind {
	v1, devices, own := []string{"v1"}, []string{"v1", "v1beta2"}, []string{v1alpha1.GroupVersion.Version}
	all := map[schema.GroupKind]kind{}
	for _, of := range []struct {
		group               string
		versions            []string
		namespaced, mutated bool
		kinds               []string
	}{
		{corev1.GroupName, v1, true, true, []string{"Pod"}},
		{corev1.GroupName, v1, false, true, []string{"Node"}},
		{corev1.GroupName, v1, false, false, []string{"Namespace"}},
		{corev1.GroupName, v1, true, false, []string{"ReplicationController", "PodTemplate"}},
		{appsv1.GroupName, v1, true, false, []string{"Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "ControllerRevision"}},
		{batchv1.GroupName, v1, true, false, []string{"Job", "CronJob"}},
		{resourcev1.GroupName, devices, true, true, []string{"ResourceClaim", "ResourceClaimTemplate"}},
		{resourcev1.GroupName, devices, false, true, []string{"ResourceSlice"}},
		{resourcev1.GroupName, []string{"v1", "v1beta2", "v1alpha3"}, false, true, []string{"DeviceTaintRule"}},
		{v1alpha1.GroupVersion.Group, own, false, false, []string{
			"TolerationPolicy", "PlacementPolicy", "TaintPolicy", "GatePolicy", "EvictionPolicy", "EvictionApproval", "ResourceSlicePatch",
		}},
	} {
		for _, name := range of.kinds {
			guess, _ := meta.UnsafeGuessKindToResource(schema.GroupVersionKind{Kind: name})
			resource := strings.Replace(guess.Resource, "patchs", "patches", 1)
			all[schema.GroupKind{Group: of.group, Kind: name}] = kind{of.versions, resource, of.namespaced, of.mutated}
		}
	}
	return all
}()

// kindOf returns the kind of an object whose creation the webhook judges.
func kindOf(object *unstructured.Unstructured) (kind, bool) {
	k, ok := kinds[object.GroupVersionKind().GroupKind()]
	return k, ok
}

// validated reports whether the API server calls the validating webhook for the creation of an
// object, by the matchConditions in deploy/webhooks/validating.yaml. It leaves out workloads
// without tolerations; these are judged here with the same verdict.
func validated(object runtime.Object) bool {
	switch o := object.(type) {
	case *resourcev1.ResourceClaim, *resourcev1.ResourceClaimTemplate:
		return slices.ContainsFunc(requestsOf(object), func(r deviceRequest) bool { return r.tolerations != nil })
	case *resourcev1.ResourceSlice:
		return slices.ContainsFunc(o.Spec.Devices, func(d resourcev1.Device) bool { return d.Taints != nil })
	default:
		return true
	}
}

// mutates reports whether the API server calls the mutating webhook for an object, by the
// matchConditions in deploy/webhooks/mutating.yaml: not for mirror pods of a kubelet.
func mutates(object runtime.Object, by Subject) bool {
	pod, ok := object.(*corev1.Pod)
	if !ok || !strings.HasPrefix(by.User, "system:node:") {
		return true
	}
	_, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]
	return !mirror
}

// Subject is the user who creates the objects.
type Subject struct {
	// User is the name in requests; empty for an unnamed user.
	User   string
	Groups []string
}

// UserInfo returns the user of a request. Like every authenticated user, the subject is in
// system:authenticated, and a service account in the groups of service accounts.
func (s Subject) UserInfo() authenticationv1.UserInfo {
	// Expressions take an empty name for no name.
	name := cmp.Or(s.User, "tollgate:nobody-in-particular")
	var groups []string
	if namespace, _, err := serviceaccount.SplitUsername(name); err == nil {
		groups = serviceaccount.MakeGroupNames(namespace)
	}
	if name != user.Anonymous {
		groups = append(groups, user.AllAuthenticated)
	}
	all := slices.Clone(s.Groups)
	for _, group := range groups {
		if !slices.Contains(all, group) {
			all = append(all, group)
		}
	}
	return authenticationv1.UserInfo{Username: name, Groups: all}
}

// String returns the name and the groups.
func (s Subject) String() string {
	name := "user " + s.User
	if s.User == "" {
		name = "nobody in particular"
	}
	if len(s.Groups) == 0 {
		return name
	}
	return fmt.Sprintf("%s (groups %s)", name, strings.Join(s.Groups, ", "))
}
