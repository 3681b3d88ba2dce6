// Package terms is what Tollgate says of how it evicts, in labels on the Lease of its
// leader. Commands read it there: a forecast depends on the mode, and nothing else in the
// cluster tells it.
package terms

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/component-base/featuregate"

	configv1alpha1 "github.com/tollgate-dev/tollgate/api/config/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/tollgate/internal/features"
)

// The Lease, where Tollgate is installed as deploy says.
const (
	Namespace = "tollgate-system"
	Name      = "tollgate"
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
var switches = []featuregate.Feature{features.EvictionPolicies, features.NodeTaintEviction, features.DeviceTaintEviction}

// Terms are how Tollgate evicts.
type Terms struct {
	Mode configv1alpha1.EvictionMode
	// ComparisonOperators says that the operators Lt and Gt count.
	ComparisonOperators bool
	// MaxHold is that of the configuration; zero for no bound.
	MaxHold time.Duration
	// Policies says that EvictionPolicies are carried out, Nodes that taints of nodes
	// evict, and Devices that those of devices do.
	Policies, Nodes, Devices bool
}

// Default returns the terms of the default configuration.
func Default() Terms {
	return Terms{Mode: configv1alpha1.EvictionReplace, Policies: true, Nodes: true, Devices: true}
}

// Of returns the terms of a configuration.
func Of(eviction *configv1alpha1.EvictionConfiguration, gates featuregate.FeatureGate) Terms {
	return Terms{
		Mode: eviction.Mode, ComparisonOperators: eviction.ComparisonOperators, MaxHold: eviction.MaxHold.Duration,
		Policies: gates.Enabled(features.EvictionPolicies),
		Nodes:    gates.Enabled(features.NodeTaintEviction), Devices: gates.Enabled(features.DeviceTaintEviction),
	}
}

// Labels returns the labels that say the terms.
func (t Terms) Labels() map[string]string {
	var on []string
	for i, enabled := range []bool{t.Policies, t.Nodes, t.Devices} {
		if enabled {
			on = append(on, string(switches[i]))
		}
	}
	return map[string]string{
		labelMode:                string(t.Mode),
		labelComparisonOperators: strconv.FormatBool(t.ComparisonOperators),
		// Less has a character that no label may have, with which nobody could lead.
		labelMaxHold:  t.MaxHold.Truncate(time.Millisecond).String(),
		labelFeatures: strings.Join(on, "."),
	}
}

// Parse returns the terms that labels say. The error is that of the first which is not
// there, as on the Lease of an older version, or cannot be read.
func Parse(labels map[string]string) (Terms, error) {
	mode, found := labels[labelMode]
	if !found {
		return Terms{}, fmt.Errorf("label %s is not set", labelMode)
	}
	comparison, err := strconv.ParseBool(labels[labelComparisonOperators])
	if err != nil {
		return Terms{}, fmt.Errorf("label %s is %q, want true or false", labelComparisonOperators, labels[labelComparisonOperators])
	}
	hold, err := time.ParseDuration(labels[labelMaxHold])
	if err != nil {
		return Terms{}, fmt.Errorf("label %s is %q, want a duration such as 24h0m0s", labelMaxHold, labels[labelMaxHold])
	}
	on := strings.Split(labels[labelFeatures], ".")
	has := func(i int) bool { return slices.Contains(on, string(switches[i])) }
	return Terms{
		Mode: configv1alpha1.EvictionMode(mode), ComparisonOperators: comparison, MaxHold: hold,
		Policies: has(0), Nodes: has(1), Devices: has(2),
	}, nil
}
