package spread

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Validate holds constraints against what spreading hangs on of the API server's rules
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
	switch c.WhenUnsatisfiable {
	case corev1.DoNotSchedule, corev1.ScheduleAnyway:
	default:
		errs = append(errs, field.NotSupported(path.Child("whenUnsatisfiable"), c.WhenUnsatisfiable,
			[]corev1.UnsatisfiableConstraintAction{corev1.DoNotSchedule, corev1.ScheduleAnyway}))
	}
	if c.MinDomains != nil {
		errs = append(errs, validateMinDomains(*c.MinDomains, c.WhenUnsatisfiable, path.Child("minDomains"))...)
	}
	errs = append(errs, validatePolicy(c.NodeAffinityPolicy, path.Child("nodeAffinityPolicy"))...)
	return append(errs, validatePolicy(c.NodeTaintsPolicy, path.Child("nodeTaintsPolicy"))...)
}

func validateMinDomains(n int32, action corev1.UnsatisfiableConstraintAction, path *field.Path) field.ErrorList {
	if n <= 0 {
		return field.ErrorList{field.Invalid(path, n, "must be greater than 0")}
	}
	if action != corev1.DoNotSchedule {
		return field.ErrorList{field.Invalid(path, n, "may only be set with whenUnsatisfiable DoNotSchedule")}
	}
	return nil
}

func validatePolicy(policy *corev1.NodeInclusionPolicy, path *field.Path) field.ErrorList {
	if policy == nil || *policy == corev1.NodeInclusionPolicyHonor || *policy == corev1.NodeInclusionPolicyIgnore {
		return nil
	}
	return field.ErrorList{field.NotSupported(path, *policy,
		[]corev1.NodeInclusionPolicy{corev1.NodeInclusionPolicyHonor, corev1.NodeInclusionPolicyIgnore})}
}
