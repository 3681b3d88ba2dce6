package spread

import (
	"fmt"
	"slices"
	"strings"

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
	own := pod.Spec.TopologySpreadConstraints
	s := &Spreading{
		namespace:   pod.Namespace,
		labels:      pod.Labels,
		constraints: make([]Constraint, 0, len(own)),
		required:    readRequired(&pod.Spec),
		tolerations: make([]selector.Toleration, 0, len(pod.Spec.Tolerations)),
	}
	for i := range pod.Spec.Tolerations {
		t := &pod.Spec.Tolerations[i]
		compares := t.Operator == corev1.TolerationOpLt || t.Operator == corev1.TolerationOpGt
		if !compares || o.ComparisonOperators { // else it tolerates nothing (TS-04)
			s.tolerations = append(s.tolerations, selector.OfPod(t))
		}
	}
	if errs := validate(own); len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	for i := range own {
		c := &own[i]
		counted, err := metav1.LabelSelectorAsSelector(c.LabelSelector)
		if err != nil {
			return nil, fmt.Errorf("%s: read labelSelector: %w", constraintsPath.Index(i), err)
		}
		s.constraints = append(s.constraints, Constraint{
			Index:              i,
			TopologyKey:        c.TopologyKey,
			MaxSkew:            int(c.MaxSkew),
			MinDomains:         int(ptr.Deref(c.MinDomains, 1)),
			WhenUnsatisfiable:  c.WhenUnsatisfiable,
			NodeAffinityPolicy: ptr.Deref(c.NodeAffinityPolicy, corev1.NodeInclusionPolicyHonor),
			NodeTaintsPolicy:   ptr.Deref(c.NodeTaintsPolicy, corev1.NodeInclusionPolicyIgnore),
			Selector:           withLabelKeys(counted, c.MatchLabelKeys, pod.Labels),
		})
	}
	return s, nil
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

// hard returns the constraints with DoNotSchedule. The scheduler looks at these and those with
// ScheduleAnyway apart (TS-05).
func (s *Spreading) hard() []Constraint {
	return slices.DeleteFunc(slices.Clone(s.constraints), func(c Constraint) bool { return c.WhenUnsatisfiable != corev1.DoNotSchedule })
}

// untolerated returns the first taint that keeps the pod from a node, nil for none. How long a
// toleration lasts does not matter (TS-04). FindMatchingUntoleratedTaint of
// k8s.io/component-helpers makes allocations for each node, and needs a logger.
func (s *Spreading) untolerated(taints []corev1.Taint) *corev1.Taint {
	for i := range taints {
		t := &taints[i]
		keeps := t.Effect == corev1.TaintEffectNoSchedule || t.Effect == corev1.TaintEffectNoExecute
		if keeps && !slices.ContainsFunc(s.tolerations, func(has selector.Toleration) bool { return has.Tolerates(t) }) {
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

// Selects reports whether pods with those labels are counted. The empty selector counts
// none (TS-10).
func (c *Constraint) Selects(podLabels labels.Labels) bool {
	return !c.Selector.Empty() && c.Selector.Matches(podLabels)
}

// withLabelKeys returns a selector that also requires the pod's values of keys. Keys that
// the pod does not have require nothing, and a selector that selects nothing still does
// not.
func withLabelKeys(selector labels.Selector, keys []string, podLabels map[string]string) labels.Selector {
	for _, key := range keys {
		if value, ok := podLabels[key]; ok {
			same, _ := labels.SelectorFromSet(labels.Set{key: value}).Requirements()
			selector = selector.Add(same...)
		}
	}
	return selector
}

var constraintsPath = field.NewPath("spec", "topologySpreadConstraints")

// validate checks the constraints of a pod by those rules of the API server on which spreading depends
// (TS-14).
func validate(constraints []corev1.TopologySpreadConstraint) field.ErrorList {
	var errs field.ErrorList
	seen := sets.New[[2]string]() // keys, each with a whenUnsatisfiable
	for i := range constraints {
		c, at := &constraints[i], constraintsPath.Index(i)
		if c.MaxSkew <= 0 {
			errs = append(errs, field.Invalid(at.Child("maxSkew"), c.MaxSkew, "must be greater than 0"))
		}
		if c.TopologyKey == "" {
			errs = append(errs, field.Required(at.Child("topologyKey"), "must name a label of nodes"))
		}
		errs = append(errs, policy.ValidateEnum(c.WhenUnsatisfiable, at.Child("whenUnsatisfiable"),
			[]corev1.UnsatisfiableConstraintAction{corev1.DoNotSchedule, corev1.ScheduleAnyway})...)
		if n := ptr.Deref(c.MinDomains, 1); n <= 0 {
			errs = append(errs, field.Invalid(at.Child("minDomains"), n, "must be greater than 0"))
		} else if c.MinDomains != nil && c.WhenUnsatisfiable != corev1.DoNotSchedule {
			errs = append(errs, field.Invalid(at.Child("minDomains"), n, "may only be set with whenUnsatisfiable DoNotSchedule"))
		}
		errs = slices.Concat(errs,
			ValidateInclusion(c.NodeAffinityPolicy, at, "nodeAffinityPolicy"), ValidateInclusion(c.NodeTaintsPolicy, at, "nodeTaintsPolicy"))
		id := [2]string{c.TopologyKey, string(c.WhenUnsatisfiable)}
		if seen.Has(id) {
			errs = append(errs, field.Duplicate(at.Child("{topologyKey, whenUnsatisfiable}"), strings.Join(id[:], ", ")))
		}
		seen.Insert(id)
	}
	return errs
}

// ValidateInclusion returns the error of a policy on the nodes that count, nil for the default. It
// is the child of path with a name.
func ValidateInclusion(in *corev1.NodeInclusionPolicy, path *field.Path, name string) field.ErrorList {
	if in == nil {
		return nil
	}
	return policy.ValidateEnum(*in, path.Child(name), []corev1.NodeInclusionPolicy{corev1.NodeInclusionPolicyHonor, corev1.NodeInclusionPolicyIgnore})
}
