package placement

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/cel"
	"github.com/tollgate-dev/tollgate/policy/selector"
	"github.com/tollgate-dev/tollgate/policy/spread"
	"github.com/tollgate-dev/tollgate/policy/toleration"
	tollgatevalidation "github.com/tollgate-dev/tollgate/policy/validation"
)

// The limits of the schema, which hold for objects that came around it too.
const (
	maxPodItems = 64
	maxGates    = 16
	// maxMatchItems bounds the resources, and the device classes, of a match.
	maxMatchItems = 64
)

// ValidatePolicy returns what is wrong with the policy: what its schema cannot say,
// and what the schema says and an object in store may still not obey. A policy
// without errors is in force to the letter.
func ValidatePolicy(p *v1alpha1.PlacementPolicy) field.ErrorList {
	spec := field.NewPath("spec")
	return slices.Concat(
		validateMatch(&p.Spec.Match),
		policy.Check(p.Spec.Pod != nil || p.Spec.Claim != nil || p.Spec.Guard != nil, field.Required(spec, "a policy gives something: set pod, claim or guard")),
		validatePod(p.Spec.Pod, spec.Child("pod")),
		validateClaim(&p.Spec, spec.Child("claim", "tolerations")),
		validateGuard(p))
}

func validatePod(in *v1alpha1.PodPlacement, path *field.Path) field.ErrorList {
	if in == nil {
		return nil
	}
	return slices.Concat(
		policy.ValidateEach(in.Tolerations, maxPodItems, path.Child("tolerations"), validateToleration),
		validateNodeSelector(in.NodeSelector, path.Child("nodeSelector")),
		policy.ValidateEach(in.NodeAffinity, maxPodItems, path.Child("nodeAffinity"), validateRequirement),
		validateNodes(in, path),
		validateSpread(in.TopologySpread, path.Child("topologySpread")),
		selector.ValidateTexts(in.SchedulingGates, maxGates, path.Child("schedulingGates"), validation.IsQualifiedName))
}

func validateNodeSelector(labels map[string]string, path *field.Path) field.ErrorList {
	errs := policy.Check(len(labels) <= maxPodItems, field.TooMany(path, len(labels), maxPodItems))
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		errs = append(errs, validateLabel(key, labels[key], path.Key(key))...)
	}
	return errs
}

// validateToleration holds a toleration to the rules for pods, and what a policy
// gives to a little more: seconds that end it before it begins are a mistake.
func validateToleration(t *corev1.Toleration, path *field.Path) field.ErrorList {
	return append(toleration.ValidateToleration(t, path), validateSeconds(t.TolerationSeconds, path)...)
}

func validateSeconds(seconds *int64, path *field.Path) field.ErrorList {
	n := ptr.Deref(seconds, 0)
	return policy.Check(n >= 0, field.Invalid(path.Child("tolerationSeconds"), n, "must not be negative: 0 already ends at once"))
}

func validateLabel(key, value string, path *field.Path) field.ErrorList {
	return append(metav1validation.ValidateLabelName(key, path), validateLabelValue(value, path)...)
}

func validateLabelValue(value string, path *field.Path) field.ErrorList {
	return selector.Invalid(path, value, validation.IsValidLabelValue(value), "")
}

func validateRequirement(r *corev1.NodeSelectorRequirement, path *field.Path) field.ErrorList {
	errs := metav1validation.ValidateLabelName(r.Key, path.Child("key"))
	values := path.Child("values")
	switch r.Operator {
	case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
		if len(r.Values) == 0 {
			errs = append(errs, field.Required(values, "In and NotIn need at least one value"))
		}
		for i, value := range r.Values {
			errs = append(errs, validateLabelValue(value, values.Index(i))...)
		}
	case corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist:
		if len(r.Values) > 0 {
			errs = append(errs, field.Forbidden(values, "Exists and DoesNotExist take no values"))
		}
	case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
		if _, ok := boundOf(r); !ok {
			errs = append(errs, field.Invalid(values, r.Values, "Gt and Lt need one whole number"))
		}
	default:
		errs = append(errs, field.NotSupported(path.Child("operator"), r.Operator, []corev1.NodeSelectorOperator{
			corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn, corev1.NodeSelectorOpExists,
			corev1.NodeSelectorOpDoesNotExist, corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt,
		}))
	}
	return errs
}

// validateNodes refuses a policy that steers where no node can be.
func validateNodes(in *v1alpha1.PodPlacement, path *field.Path) field.ErrorList {
	byKey := map[string]requirements{}
	for key, value := range in.NodeSelector {
		byKey[key] = append(byKey[key], inValues(key, value))
	}
	for _, r := range in.NodeAffinity {
		if len(validateRequirement(&r, nil)) == 0 {
			byKey[r.Key] = append(byKey[r.Key], r)
		}
	}
	var errs field.ErrorList
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		if !satisfiable(byKey[key]) {
			errs = append(errs, field.Invalid(path, needsWords(byKey[key]), "no node can satisfy this"))
		}
	}
	return errs
}

func validateSpread(in *v1alpha1.TopologySpreadDefaults, path *field.Path) field.ErrorList {
	if in == nil {
		return nil
	}
	return append(spread.ValidateInclusion(in.NodeTaintsPolicy, path, "nodeTaintsPolicy"),
		spread.ValidateInclusion(in.NodeAffinityPolicy, path, "nodeAffinityPolicy")...)
}

func validateClaim(spec *v1alpha1.PlacementPolicySpec, path *field.Path) field.ErrorList {
	if spec.Claim == nil {
		return nil
	}
	given := spec.Claim.Tolerations
	if len(given) == 0 {
		return field.ErrorList{field.Required(path, "claims are given tolerations")}
	}
	return slices.Concat(
		policy.ValidateEach(given, resourcev1.DeviceTolerationsMaxLength, path, validateDeviceToleration),
		policy.Check(len(spec.Match.Resources) == 0 || spec.Pod != nil, field.Invalid(matchPath.Child("resources"), spec.Match.Resources,
			"claims request no resources, so the policy gives nothing; use deviceClasses")),
		validateReturn(given, path))
}

func validateDeviceToleration(t *resourcev1.DeviceToleration, path *field.Path) field.ErrorList {
	return slices.Concat(
		tollgatevalidation.ValidateKnown(t, path),
		policy.Check(t.TolerationSeconds == nil || t.Effect == resourcev1.DeviceTaintEffectNoExecute,
			field.Invalid(path.Child("effect"), t.Effect, "tolerationSeconds needs effect NoExecute: with any other they are ignored")),
		validateSeconds(t.TolerationSeconds, path))
}

// validateReturn refuses a toleration of NoExecute for a while beside one that lets
// pods come back to what they were evicted from.
func validateReturn(given []resourcev1.DeviceToleration, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	tolerations := selector.FromDevices(given)
	for i := range tolerations {
		if unbounded(tolerations[i]) {
			continue
		}
		for j := range tolerations {
			if t := &tolerations[j]; t.Effect == corev1.TaintEffectNoSchedule && overlaps(&tolerations[i], t) {
				errs = append(errs, field.Invalid(path.Index(j), tolerationWords(t),
					"with a toleration of NoExecute for a while, pods would be evicted and come back to the same device, for ever"))
			}
		}
	}
	return errs
}

var matchPath = field.NewPath("spec", "match")

func validateMatch(m *v1alpha1.PlacementMatch) field.ErrorList {
	path := matchPath
	return slices.Concat(
		policy.Check(named(m), field.Required(path, `a policy names who it is for: set namespaces (["*"] is every one), a namespaceSelector `+
			"that is not empty, resources, deviceClasses or matchConditions; podSelector only narrows, because users set the labels of their pods")),
		selector.ValidateNamespaces(m.Namespaces, path.Child("namespaces"), "", ""),
		selector.ValidateLabels(m.NamespaceSelector, path.Child("namespaceSelector")),
		selector.ValidateLabels(m.PodSelector, path.Child("podSelector")),
		selector.ValidateTexts(m.Resources, maxMatchItems, path.Child("resources"), validation.IsQualifiedName),
		selector.ValidateTexts(m.DeviceClasses, maxMatchItems, path.Child("deviceClasses"), validation.IsDNS1123Subdomain),
		cel.ValidateConditions(m.MatchConditions, path.Child("matchConditions")))
}

// named reports whether the match says who it is for. A selector without
// requirements does not: it is what is left of one that was misspelt.
func named(m *v1alpha1.PlacementMatch) bool {
	return nonEmpty(m.NamespaceSelector) != nil || len(m.Namespaces)+len(m.Resources)+len(m.DeviceClasses)+len(m.MatchConditions) > 0
}

// readable returns what can be read of a match that is in store, and whether that is
// the whole of it and names anybody. Conditions are not looked at: they say themselves
// when they are asked that they cannot be read.
func readable(in *v1alpha1.PlacementMatch) (m v1alpha1.PlacementMatch, whole bool) {
	m, whole = *in, named(in)
	for _, selector := range []**metav1.LabelSelector{&m.NamespaceSelector, &m.PodSelector} {
		if _, err := metav1.LabelSelectorAsSelector(*selector); err != nil {
			*selector, whole = nil, false
		}
	}
	return m, whole
}
