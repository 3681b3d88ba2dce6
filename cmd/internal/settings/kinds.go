package settings

import (
	"slices"

	"k8s.io/component-base/featuregate"

	"github.com/tollgate-dev/tollgate/policy/policyset"
)

// Judges reports whether policies of a kind are in force: its feature gate is on.
func Judges(gates featuregate.FeatureGate, kind policyset.Kind) bool {
	return gates.Enabled(featuregate.Feature(kind.Gate))
}

// Kinds returns the kinds of policies that are in force.
func Kinds(gates featuregate.FeatureGate) []policyset.Kind {
	return slices.DeleteFunc(policyset.Kinds(), func(kind policyset.Kind) bool { return !Judges(gates, kind) })
}
