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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// kind is a kind whose creation the webhook judges.
type kind struct {
	// versions are the versions that can be decoded. Objects are judged in the first.
	versions   []string
	resource   string
	namespaced bool
	// mutated is true for kinds of the mutating webhook.
	mutated bool
}

// kinds are the kinds of the webhooks in deploy/webhooks.
var kinds = map[schema.GroupKind]kind{
	{Kind: "Pod"}:                   {v1, "pods", true, true},
	{Kind: "Node"}:                  {v1, "nodes", false, true},
	{Kind: "Namespace"}:             {v1, "namespaces", false, false},
	{Kind: "ReplicationController"}: {v1, "replicationcontrollers", true, false},
	{Kind: "PodTemplate"}:           {v1, "podtemplates", true, false},

	{Group: appsv1.GroupName, Kind: "Deployment"}:         {v1, "deployments", true, false},
	{Group: appsv1.GroupName, Kind: "ReplicaSet"}:         {v1, "replicasets", true, false},
	{Group: appsv1.GroupName, Kind: "StatefulSet"}:        {v1, "statefulsets", true, false},
	{Group: appsv1.GroupName, Kind: "DaemonSet"}:          {v1, "daemonsets", true, false},
	{Group: appsv1.GroupName, Kind: "ControllerRevision"}: {v1, "controllerrevisions", true, false},

	{Group: batchv1.GroupName, Kind: "Job"}:     {v1, "jobs", true, false},
	{Group: batchv1.GroupName, Kind: "CronJob"}: {v1, "cronjobs", true, false},

	{Group: resourcev1.GroupName, Kind: "ResourceClaim"}:         {devices, "resourceclaims", true, true},
	{Group: resourcev1.GroupName, Kind: "ResourceClaimTemplate"}: {devices, "resourceclaimtemplates", true, true},
	{Group: resourcev1.GroupName, Kind: "ResourceSlice"}:         {devices, "resourceslices", false, true},
	{Group: resourcev1.GroupName, Kind: "DeviceTaintRule"}:       {[]string{"v1", "v1beta2", "v1alpha3"}, "devicetaintrules", false, true},

	ours("TolerationPolicy"):   {v1alpha1s, "tolerationpolicies", false, false},
	ours("PlacementPolicy"):    {v1alpha1s, "placementpolicies", false, false},
	ours("TaintPolicy"):        {v1alpha1s, "taintpolicies", false, false},
	ours("GatePolicy"):         {v1alpha1s, "gatepolicies", false, false},
	ours("EvictionPolicy"):     {v1alpha1s, "evictionpolicies", false, false},
	ours("EvictionApproval"):   {v1alpha1s, "evictionapprovals", false, false},
	ours("ResourceSlicePatch"): {v1alpha1s, "resourceslicepatches", false, false},
}

// The versions of kinds. Device kinds have the same fields in v1beta2 and v1, and others in v1beta1.
var (
	v1        = []string{"v1"}
	devices   = []string{"v1", "v1beta2"}
	v1alpha1s = []string{v1alpha1.GroupVersion.Version}
)

func ours(name string) schema.GroupKind {
	return schema.GroupKind{Group: v1alpha1.GroupVersion.Group, Kind: name}
}

// kindOf returns the kind of an object whose creation the webhook judges.
func kindOf(object *unstructured.Unstructured) (kind, bool) {
	k, ok := kinds[object.GroupVersionKind().GroupKind()]
	return k, ok
}

// validated reports whether the API server calls the validating webhook for the creation of an
// object, by the matchConditions in deploy/webhooks/validating.yaml. It leaves out workloads
// without tolerations; these are judged here with the same verdict.
func validated(object runtime.Object) bool {
	var requests []resourcev1.DeviceRequest
	switch o := object.(type) {
	case *resourcev1.ResourceClaim:
		requests = o.Spec.Devices.Requests
	case *resourcev1.ResourceClaimTemplate:
		requests = o.Spec.Spec.Devices.Requests
	case *resourcev1.ResourceSlice:
		return slices.ContainsFunc(o.Spec.Devices, func(d resourcev1.Device) bool { return d.Taints != nil })
	default:
		return true
	}
	return slices.ContainsFunc(requests, func(r resourcev1.DeviceRequest) bool {
		return r.Exactly != nil && r.Exactly.Tolerations != nil ||
			slices.ContainsFunc(r.FirstAvailable, func(s resourcev1.DeviceSubRequest) bool { return s.Tolerations != nil })
	})
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
