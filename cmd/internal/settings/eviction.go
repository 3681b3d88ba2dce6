package settings

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/component-base/featuregate"

	configv1alpha1 "github.com/tollgate-dev/tollgate/api/config/v1alpha1"
)

// The name and default namespace of the Lease.
const (
	LeaseNamespace = "tollgate-system"
	LeaseName      = "tollgate"
)

// The labels.
const (
	labelMode                = "tollgate.dev/eviction-mode"
	labelComparisonOperators = "tollgate.dev/comparison-operators"
	labelMaxHold             = "tollgate.dev/max-hold"
	labelFeatures            = "tollgate.dev/eviction-features"
)

// The feature gates that evictions depend on. Their names, with a dot between each, have
// to fit into the value of a label: 63 characters.
var switches = []featuregate.Feature{EvictionPolicies, NodeTaintEviction, DeviceTaintEviction}

// Eviction has the eviction settings of Tollgate.
type Eviction struct {
	Mode configv1alpha1.EvictionMode
	// ComparisonOperators is true if the operators Lt and Gt are enabled.
	ComparisonOperators bool
	// MaxHold is the configured limit of holds; zero for none.
	MaxHold time.Duration
	// Policies is true if EvictionPolicies are enforced, Nodes if node taints evict, Devices if
	// device taints do.
	Policies, Nodes, Devices bool
}

// DefaultEviction returns the settings of the default configuration.
func DefaultEviction() Eviction {
	return Eviction{Mode: configv1alpha1.EvictionReplace, Policies: true, Nodes: true, Devices: true}
}

// EvictionOf returns the eviction settings of a configuration.
func EvictionOf(eviction *configv1alpha1.EvictionConfiguration, gates featuregate.FeatureGate) Eviction {
	return Eviction{
		Mode: eviction.Mode, ComparisonOperators: eviction.ComparisonOperators, MaxHold: eviction.MaxHold.Duration,
		Policies: gates.Enabled(EvictionPolicies),
		Nodes:    gates.Enabled(NodeTaintEviction), Devices: gates.Enabled(DeviceTaintEviction),
	}
}

// Labels returns the labels of the Lease for the settings.
func (t Eviction) Labels() map[string]string {
	var on []string
	for i, enabled := range []bool{t.Policies, t.Nodes, t.Devices} {
		if enabled {
			on = append(on, string(switches[i]))
		}
	}
	return map[string]string{
		labelMode:                string(t.Mode),
		labelComparisonOperators: strconv.FormatBool(t.ComparisonOperators),
		// Shorter units contain "µ", which labels must not; the Lease would be refused.
		labelMaxHold:  t.MaxHold.Truncate(time.Millisecond).String(),
		labelFeatures: strings.Join(on, "."),
	}
}

// ParseEviction reads the labels of a Lease. It returns an error for the first label that is
// missing, as on the Lease of an older version, or invalid.
func ParseEviction(labels map[string]string) (Eviction, error) {
	mode, found := labels[labelMode]
	if !found {
		return Eviction{}, fmt.Errorf("label %s is not set", labelMode)
	}
	comparison, err := strconv.ParseBool(labels[labelComparisonOperators])
	if err != nil {
		return Eviction{}, fmt.Errorf("label %s is %q, want true or false", labelComparisonOperators, labels[labelComparisonOperators])
	}
	hold, err := time.ParseDuration(labels[labelMaxHold])
	if err != nil {
		return Eviction{}, fmt.Errorf("label %s is %q, want a duration such as 24h0m0s", labelMaxHold, labels[labelMaxHold])
	}
	on := strings.Split(labels[labelFeatures], ".")
	has := func(i int) bool { return slices.Contains(on, string(switches[i])) }
	return Eviction{
		Mode: configv1alpha1.EvictionMode(mode), ComparisonOperators: comparison, MaxHold: hold,
		Policies: has(0), Nodes: has(1), Devices: has(2),
	}, nil
}
