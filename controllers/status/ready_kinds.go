package status

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/eviction"
	"github.com/tollgate-dev/tollgate/policy/gate"
	"github.com/tollgate-dev/tollgate/policy/placement"
	"github.com/tollgate-dev/tollgate/policy/policyset"
	"github.com/tollgate-dev/tollgate/policy/taint"
	"github.com/tollgate-dev/tollgate/policy/toleration"
)

// kind is how the policies of one kind are looked at.
type kind struct {
	name string
	// gate is the feature gate of the kind, and enabled how it is switched.
	gate    string
	enabled bool
	object  func() client.Object
	// status returns the part of the status that is written here.
	status   func(client.Object) (observed *int64, conditions *[]metav1.Condition)
	validate func(client.Object) field.ErrorList
}

func kindsOf(enabled policyset.Kinds) []kind {
	return []kind{
		{
			name: "TolerationPolicy", gate: "TolerationPolicies", enabled: enabled.Tolerations,
			object: func() client.Object { return &v1alpha1.TolerationPolicy{} },
			status: func(o client.Object) (*int64, *[]metav1.Condition) {
				status := &o.(*v1alpha1.TolerationPolicy).Status
				return &status.ObservedGeneration, &status.Conditions
			},
			validate: func(o client.Object) field.ErrorList {
				return toleration.ValidatePolicy(o.(*v1alpha1.TolerationPolicy))
			},
		},
		{
			name: "PlacementPolicy", gate: "PlacementPolicies", enabled: enabled.Placement,
			object: func() client.Object { return &v1alpha1.PlacementPolicy{} },
			status: func(o client.Object) (*int64, *[]metav1.Condition) {
				return common(&o.(*v1alpha1.PlacementPolicy).Status)
			},
			validate: func(o client.Object) field.ErrorList {
				return placement.ValidatePolicy(o.(*v1alpha1.PlacementPolicy))
			},
		},
		{
			name: "TaintPolicy", gate: "TaintPolicies", enabled: enabled.Taints,
			object: func() client.Object { return &v1alpha1.TaintPolicy{} },
			status: func(o client.Object) (*int64, *[]metav1.Condition) {
				return common(&o.(*v1alpha1.TaintPolicy).Status)
			},
			validate: func(o client.Object) field.ErrorList { return taint.ValidatePolicy(o.(*v1alpha1.TaintPolicy)) },
		},
		{
			name: "GatePolicy", gate: "GatePolicies", enabled: enabled.Gates,
			object: func() client.Object { return &v1alpha1.GatePolicy{} },
			status: func(o client.Object) (*int64, *[]metav1.Condition) {
				return common(&o.(*v1alpha1.GatePolicy).Status)
			},
			validate: func(o client.Object) field.ErrorList { return gate.ValidatePolicy(o.(*v1alpha1.GatePolicy)) },
		},
		{
			name: "EvictionPolicy", gate: "EvictionPolicies", enabled: enabled.Evictions,
			object: func() client.Object { return &v1alpha1.EvictionPolicy{} },
			status: func(o client.Object) (*int64, *[]metav1.Condition) {
				status := &o.(*v1alpha1.EvictionPolicy).Status
				return &status.ObservedGeneration, &status.Conditions
			},
			validate: func(o client.Object) field.ErrorList {
				return eviction.ValidatePolicy(o.(*v1alpha1.EvictionPolicy))
			},
		},
	}
}

func common(status *v1alpha1.PolicyStatus) (*int64, *[]metav1.Condition) {
	return &status.ObservedGeneration, &status.Conditions
}
