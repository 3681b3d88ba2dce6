package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the API group and version of the kinds in this package.
var GroupVersion = schema.GroupVersion{Group: "tollgate.dev", Version: "v1alpha1"}

// AddToScheme registers the kinds of this package with scheme. It always returns nil;
// runtime.SchemeBuilder requires the error.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion,
		&TolerationPolicy{}, &TolerationPolicyList{},
		&PlacementPolicy{}, &PlacementPolicyList{},
		&TaintPolicy{}, &TaintPolicyList{},
		&GatePolicy{}, &GatePolicyList{},
		&EvictionPolicy{}, &EvictionPolicyList{},
		&EvictionApproval{}, &EvictionApprovalList{},
		&ResourceSlicePatch{}, &ResourceSlicePatchList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
