package spread

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/selector"
)

// Options are settings of the cluster.
type Options struct {
	// ComparisonOperators says that tolerations with Lt and Gt tolerate: the feature gate
	// TaintTolerationComparisonOperators of the scheduler.
	ComparisonOperators bool
}

// Spreading holds the requirements of a pod on how it is spread. Make it with Read.
type Spreading struct {
	namespace   string
	labels      labels.Set
	constraints []Constraint
	required    required
	tolerations []selector.Toleration
}

// Read reads the requirements of a pod: its namespace, labels, tolerations, nodeSelector, node
// affinity and constraints. The error is that of a constraint that the API
// server refuses (TS-14).
func Read(pod *corev1.Pod, o Options) (*Spreading, error) {
	s := &Spreading{
		namespace:   pod.Namespace,
		labels:      pod.Labels,
		required:    readRequired(&pod.Spec),
		tolerations: readTolerations(pod.Spec.Tolerations, o.ComparisonOperators),
	}
	own := pod.Spec.TopologySpreadConstraints
	path := field.NewPath("spec", "topologySpreadConstraints")
	if errs := Validate(own, path); len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	for i := range own {
		c, err := readConstraint(&own[i], i, pod.Labels)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path.Index(i), err)
		}
		s.constraints = append(s.constraints, c)
	}
	return s, nil
}

// readTolerations leaves out tolerations that tolerate nothing where the scheduler does
// not compare (TS-04).
func readTolerations(list []corev1.Toleration, comparisonOperators bool) []selector.Toleration {
	read := make([]selector.Toleration, 0, len(list))
	for i := range list {
		compares := list[i].Operator == corev1.TolerationOpLt || list[i].Operator == corev1.TolerationOpGt
		if !compares || comparisonOperators {
			read = append(read, selector.OfPod(&list[i]))
		}
	}
	return read
}

// Constraints returns the constraints of the pod. They must not be written to.
func (s *Spreading) Constraints() []Constraint { return s.constraints }

// withTaintsPolicy returns the spreading with the nodeTaintsPolicy of every constraint
// set.
func (s *Spreading) withTaintsPolicy(policy corev1.NodeInclusionPolicy) *Spreading {
	with := *s
	with.constraints = slices.Clone(s.constraints)
	for i := range with.constraints {
		with.constraints[i].NodeTaintsPolicy = policy
	}
	return &with
}

// acting returns the constraints with that whenUnsatisfiable. The scheduler looks at
// those with DoNotSchedule and those with ScheduleAnyway apart (TS-05).
func (s *Spreading) acting(action corev1.UnsatisfiableConstraintAction) []Constraint {
	return slices.DeleteFunc(slices.Clone(s.constraints), func(c Constraint) bool { return c.WhenUnsatisfiable != action })
}

// untolerated returns the first taint that keeps the pod from a node, nil for none. How long a
// toleration lasts does not matter (TS-04). FindMatchingUntoleratedTaint of
// k8s.io/component-helpers makes allocations for each node, and needs a logger.
func (s *Spreading) untolerated(taints []corev1.Taint) *corev1.Taint {
	for i := range taints {
		t := &taints[i]
		if t.Effect != corev1.TaintEffectNoSchedule && t.Effect != corev1.TaintEffectNoExecute {
			continue
		}
		if !slices.ContainsFunc(s.tolerations, func(has selector.Toleration) bool { return has.Tolerates(t) }) {
			return t
		}
	}
	return nil
}

// Constraint is a constraint of a pod with its defaults filled in (TS-01).
type Constraint struct {
	// Index is the constraint's in the pod's spec.
	Index             int
	TopologyKey       string
	MaxSkew           int
	MinDomains        int
	WhenUnsatisfiable corev1.UnsatisfiableConstraintAction
	// NodeAffinityPolicy and NodeTaintsPolicy are Honor or Ignore, never empty.
	NodeAffinityPolicy, NodeTaintsPolicy corev1.NodeInclusionPolicy
	// Selector selects the pods that are counted, with the values of matchLabelKeys.
	Selector labels.Selector
}

// String returns the name of the constraint among those of the pod: no two have the same
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

// withLabelKeys returns a selector that also requires the pod's values of keys. Keys that
// the pod does not have require nothing, and a selector that selects nothing still does
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

// Validate checks constraints by those rules of the API server on which spreading depends
// (TS-14).
func Validate(constraints []corev1.TopologySpreadConstraint, path *field.Path) field.ErrorList {
	type identity struct {
		key    string
		action corev1.UnsatisfiableConstraintAction
	}
	var errs field.ErrorList
	seen := sets.New[identity]()
	for i := range constraints {
		c, at := &constraints[i], path.Index(i)
		errs = append(errs, validateConstraint(c, at)...)
		id := identity{c.TopologyKey, c.WhenUnsatisfiable}
		if seen.Has(id) {
			errs = append(errs, field.Duplicate(at.Child("{topologyKey, whenUnsatisfiable}"), c.TopologyKey+", "+string(c.WhenUnsatisfiable)))
		}
		seen.Insert(id)
	}
	return errs
}

func validateConstraint(c *corev1.TopologySpreadConstraint, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if c.MaxSkew <= 0 {
		errs = append(errs, field.Invalid(path.Child("maxSkew"), c.MaxSkew, "must be greater than 0"))
	}
	if c.TopologyKey == "" {
		errs = append(errs, field.Required(path.Child("topologyKey"), "must name a label of nodes"))
	}
	errs = append(errs, policy.ValidateEnum(c.WhenUnsatisfiable, path.Child("whenUnsatisfiable"),
		[]corev1.UnsatisfiableConstraintAction{corev1.DoNotSchedule, corev1.ScheduleAnyway})...)
	if n := ptr.Deref(c.MinDomains, 1); n <= 0 {
		errs = append(errs, field.Invalid(path.Child("minDomains"), n, "must be greater than 0"))
	} else if c.MinDomains != nil && c.WhenUnsatisfiable != corev1.DoNotSchedule {
		errs = append(errs, field.Invalid(path.Child("minDomains"), n, "may only be set with whenUnsatisfiable DoNotSchedule"))
	}
	return slices.Concat(errs,
		ValidateInclusion(c.NodeAffinityPolicy, path.Child("nodeAffinityPolicy")),
		ValidateInclusion(c.NodeTaintsPolicy, path.Child("nodeTaintsPolicy")))
}

// ValidateInclusion returns the error of a policy on the nodes that count, nil for the default.
func ValidateInclusion(in *corev1.NodeInclusionPolicy, path *field.Path) field.ErrorList {
	if in == nil {
		return nil
	}
	return policy.ValidateEnum(*in, path, []corev1.NodeInclusionPolicy{corev1.NodeInclusionPolicyHonor, corev1.NodeInclusionPolicyIgnore})
}
