package spread

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
)

// Constraint is a constraint of a pod with its defaults filled in (TS-01).
type Constraint struct {
	// Index is the constraint's in the pod's spec or, of a pod without any, among the
	// defaults of the cluster.
	Index int
	// Default says that the pod has the constraint from the cluster (TS-15).
	Default           bool
	TopologyKey       string
	MaxSkew           int
	MinDomains        int
	WhenUnsatisfiable corev1.UnsatisfiableConstraintAction
	// NodeAffinityPolicy and NodeTaintsPolicy are Honor or Ignore, never empty.
	NodeAffinityPolicy, NodeTaintsPolicy corev1.NodeInclusionPolicy
	// Selector selects the pods that are counted, with the values of matchLabelKeys.
	Selector labels.Selector
}

// String returns what tells the constraint from others of the pod: no two have the same
// key and whenUnsatisfiable (TS-14).
func (c *Constraint) String() string {
	return c.TopologyKey + " (" + string(c.WhenUnsatisfiable) + ")"
}

// Selects reports whether pods with those labels are counted. The empty selector counts
// none (TS-10).
func (c *Constraint) Selects(podLabels labels.Labels) bool {
	return !c.Selector.Empty() && c.Selector.Matches(podLabels)
}

// readConstraint reads a constraint. Labels are those of the pod.
func readConstraint(in *corev1.TopologySpreadConstraint, index int, podLabels map[string]string) (Constraint, error) {
	selector, err := metav1.LabelSelectorAsSelector(in.LabelSelector)
	if err != nil {
		return Constraint{}, fmt.Errorf("read labelSelector: %w", err)
	}
	return Constraint{
		Index:              index,
		TopologyKey:        in.TopologyKey,
		MaxSkew:            int(in.MaxSkew),
		MinDomains:         int(ptr.Deref(in.MinDomains, 1)),
		WhenUnsatisfiable:  in.WhenUnsatisfiable,
		NodeAffinityPolicy: ptr.Deref(in.NodeAffinityPolicy, corev1.NodeInclusionPolicyHonor),
		NodeTaintsPolicy:   ptr.Deref(in.NodeTaintsPolicy, corev1.NodeInclusionPolicyIgnore),
		Selector:           withLabelKeys(selector, in.MatchLabelKeys, podLabels),
	}, nil
}

// withLabelKeys returns a selector that also asks for the pod's values of keys. Keys that
// the pod does not have ask for nothing, and a selector that selects nothing still does
// not.
func withLabelKeys(selector labels.Selector, keys []string, podLabels map[string]string) labels.Selector {
	requirements, selects := selector.Requirements()
	values := labels.Set{}
	for _, key := range keys {
		if value, ok := podLabels[key]; ok {
			values[key] = value
		}
	}
	if !selects || len(values) == 0 {
		return selector
	}
	return labels.SelectorFromSet(values).Add(requirements...)
}
