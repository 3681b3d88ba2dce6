package check

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// kind is a kind whose creation is judged.
type kind struct {
	// versions are those that are read; the first is the one that it is judged in.
	versions   []string
	resource   string
	namespaced bool
	// mutated says that it may be given something first.
	mutated bool
}

// kinds are those that deploy/webhooks has the API server ask about.
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

// The versions of kinds. Those of v1beta2 of devices are the same as of v1 in all but the
// name; those of v1beta1 are not.
var (
	v1        = []string{"v1"}
	devices   = []string{"v1", "v1beta2"}
	v1alpha1s = []string{v1alpha1.GroupVersion.Version}
)

func ours(name string) schema.GroupKind {
	return schema.GroupKind{Group: v1alpha1.GroupVersion.Group, Kind: name}
}

// kindOf returns the kind of an object, if its creation is judged.
func kindOf(object *unstructured.Unstructured) (kind, bool) {
	k, ok := kinds[object.GroupVersionKind().GroupKind()]
	return k, ok
}

// reads reports whether a version is one that is read.
func (k *kind) reads(version string) bool { return slices.Contains(k.versions, version) }

// judgedAs returns the kind and the resource as the API server asks about them.
func (k *kind) judgedAs(gk schema.GroupKind) (metav1.GroupVersionKind, metav1.GroupVersionResource) {
	return metav1.GroupVersionKind{Group: gk.Group, Version: k.versions[0], Kind: gk.Kind},
		metav1.GroupVersionResource{Group: gk.Group, Version: k.versions[0], Resource: k.resource}
}
