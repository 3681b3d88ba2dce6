// Package settings has what both programs share: the feature gates, the part of the configuration
// that handlers of reviews take, the eviction settings, and the version.
//
// While a feature gate is off, the objects of the feature have no effect: they stay readable and
// deletable, and take effect when the gate is on again.
//
// The server writes its eviction settings into labels on the Lease of its leader. Commands read
// them there: previews depend on the mode.
package settings

import (
	"fmt"
	"slices"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/component-base/featuregate"

	"github.com/tollgate-dev/tollgate/policy/policyset"
)

// The feature gates.
const (
	// TolerationPolicies judges tolerations by TolerationPolicies.
	TolerationPolicies featuregate.Feature = "TolerationPolicies"
	// PlacementPolicies gives pods and claims what PlacementPolicies say.
	PlacementPolicies featuregate.Feature = "PlacementPolicies"
	// TaintPolicies judges who sets taints by TaintPolicies, and carries out their
	// register and ttl.
	TaintPolicies featuregate.Feature = "TaintPolicies"
	// GatePolicies judges who opens scheduling gates by GatePolicies.
	GatePolicies featuregate.Feature = "GatePolicies"
	// EvictionPolicies carries out evictions as EvictionPolicies say. Off, all pods are
	// deleted at once, as Kubernetes does.
	EvictionPolicies featuregate.Feature = "EvictionPolicies"
	// ResourceSlicePatches writes out the taints of ResourceSlicePatches as
	// DeviceTaintRules, which needs DeviceTaintEviction and DeviceTaintRules, and says in the
	// status of patches what they do.
	ResourceSlicePatches featuregate.Feature = "ResourceSlicePatches"
	// ResourceSlicePatchAttributes takes in the attributes and the capacity of
	// ResourceSlicePatches. The scheduler that applies them has a gate of the same name.
	ResourceSlicePatchAttributes featuregate.Feature = "ResourceSlicePatchAttributes"
	// SchedulingDirectives holds pods under scheduling gates to the rules of
	// KEP-3838.
	SchedulingDirectives featuregate.Feature = "SchedulingDirectives"
	// NodeTaintTimestamps writes timeAdded into the taints of nodes at admission.
	NodeTaintTimestamps featuregate.Feature = "NodeTaintTimestamps"
	// NodeTaintEviction evicts pods from nodes with NoExecute taints. To do so it
	// writes timeAdded into those that came without.
	NodeTaintEviction featuregate.Feature = "NodeTaintEviction"
	// DeviceTaintAdmission judges the taints and tolerations of devices, writes the
	// time from which such taints count, and refuses tainted devices to pods that do
	// not tolerate them. The last needs DeviceTaintEviction, which knows the taints.
	DeviceTaintAdmission featuregate.Feature = "DeviceTaintAdmission"
	// DeviceTaintEviction evicts pods that use devices with NoExecute taints, and
	// writes the status of DeviceTaintRules.
	DeviceTaintEviction featuregate.Feature = "DeviceTaintEviction"
	// DeviceTaintRules has DeviceTaintRules taint devices, beside their drivers, as the gate
	// DRADeviceTaintRules of Kubernetes has. It needs DeviceTaintEviction.
	DeviceTaintRules featuregate.Feature = "DeviceTaintRules"
)

// NewFeatureGates returns the feature gates, switched as the configuration says. An unknown
// name is an error.
func NewFeatureGates(switched map[string]bool) (featuregate.FeatureGate, error) {
	gates := featuregate.NewFeatureGate()
	for _, gate := range []featuregate.Feature{
		TolerationPolicies, PlacementPolicies, TaintPolicies, GatePolicies, EvictionPolicies, ResourceSlicePatches,
		ResourceSlicePatchAttributes, SchedulingDirectives, NodeTaintTimestamps, NodeTaintEviction, DeviceTaintAdmission,
		DeviceTaintEviction, DeviceTaintRules,
	} {
		utilruntime.Must(gates.Add(map[featuregate.Feature]featuregate.FeatureSpec{gate: {Default: true, PreRelease: featuregate.Beta}}))
	}
	if err := gates.SetFromMap(switched); err != nil {
		return nil, fmt.Errorf("featureGates: %w (known: %v)", err, gates.KnownFeatures())
	}
	return gates, nil
}

// Judges reports whether policies of a kind are in force: its feature gate is on.
func Judges(gates featuregate.FeatureGate, kind policyset.Kind) bool {
	return gates.Enabled(featuregate.Feature(kind.Gate))
}

// Kinds returns the kinds of policies that are in force.
func Kinds(gates featuregate.FeatureGate) []policyset.Kind {
	return slices.DeleteFunc(policyset.Kinds(), func(kind policyset.Kind) bool { return !Judges(gates, kind) })
}
