package spread

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/policy/selector"
)

// Options are what the cluster decides.
type Options struct {
	// ComparisonOperators says that tolerations with Lt and Gt tolerate: the feature gate
	// TaintTolerationComparisonOperators of the scheduler.
	ComparisonOperators bool
	// Defaults are for pods without constraints. The zero value is none.
	Defaults Defaults
}

// Defaults are the constraints that the scheduler gives pods without any (TS-15).
type Defaults struct {
	Constraints []corev1.TopologySpreadConstraint
	// Selector selects the pods that belong with the pod: what the services and the
	// controllers select that select the pod. Nil, or empty, there are none, and the pod
	// gets no constraints.
	Selector labels.Selector
	// System says that the constraints are the scheduler's own. Then nodes are scored
	// which lack a key.
	System bool
}

// SystemDefaults returns the defaults of a scheduler that is not configured otherwise.
func SystemDefaults(selects labels.Selector) Defaults {
	return Defaults{
		Constraints: []corev1.TopologySpreadConstraint{
			{TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.ScheduleAnyway, MaxSkew: 3},
			{TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.ScheduleAnyway, MaxSkew: 5},
		},
		Selector: selects,
		System:   true,
	}
}

// Spreading is what a pod asks for of how it is spread. Make it with Read.
type Spreading struct {
	namespace   string
	labels      labels.Set
	constraints []Constraint
	required    required
	tolerations []selector.Toleration
	// keysMayLack says that nodes without a key are scored.
	keysMayLack bool
}

// Read reads what a pod asks for: its namespace, labels, tolerations, nodeSelector, node
// affinity and constraints. The error says what is wrong with a constraint that the API
// server refuses (TS-14).
func Read(pod *corev1.Pod, o Options) (*Spreading, error) {
	s := &Spreading{
		namespace:   pod.Namespace,
		labels:      pod.Labels,
		required:    readRequired(&pod.Spec),
		tolerations: readTolerations(pod.Spec.Tolerations, o.ComparisonOperators),
	}
	own := pod.Spec.TopologySpreadConstraints
	if len(own) == 0 {
		return s, s.readDefaults(&o.Defaults)
	}
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

func (s *Spreading) readDefaults(defaults *Defaults) error {
	if defaults.Selector == nil || defaults.Selector.Empty() {
		return nil
	}
	s.keysMayLack = defaults.System
	for i := range defaults.Constraints {
		c, err := readConstraint(&defaults.Constraints[i], i, nil)
		if err != nil {
			return fmt.Errorf("default constraint %d: %w", i, err)
		}
		c.Default, c.Selector = true, defaults.Selector
		s.constraints = append(s.constraints, c)
	}
	return nil
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

// Constraints returns the constraints: those of the pod or, where it has none, of the
// cluster. They must not be written to.
func (s *Spreading) Constraints() []Constraint { return s.constraints }

// WithTaintsPolicy returns the spreading with the nodeTaintsPolicy of every constraint
// set.
func (s *Spreading) WithTaintsPolicy(policy corev1.NodeInclusionPolicy) *Spreading {
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

// barred returns the first taint that keeps the pod from a node, nil for none. How long a
// toleration lasts does not matter (TS-04). FindMatchingUntoleratedTaint of
// k8s.io/component-helpers makes allocations for each node, and asks for a logger.
func (s *Spreading) barred(taints []corev1.Taint) *corev1.Taint {
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
