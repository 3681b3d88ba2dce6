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
