package check

import (
	"cmp"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
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
