package selector

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
)

// Use is the purpose for which a policy selects taints.
type Use uint8

// The uses.
const (
	// Tolerations are compared with the selector. They have a device class, and
	// no driver.
	Tolerations Use = iota
	// Taints are compared with the selector. They have a driver, and no class.
	Taints
)

// The limits of the schema, which also apply to objects that bypassed it.
const (
	maxSelectors = 64
	maxItems     = 64
	maxName      = 253
)

// ValidateAll returns the errors of the selectors of a policy, of which there
// must be one at least.
func ValidateAll(list []v1alpha1.TaintSelector, path *field.Path, use Use) field.ErrorList {
	return append(
		policy.Check(len(list) > 0, field.Required(path, "a policy names one taint at least")),
		policy.ValidateEach(list, maxSelectors, path, func(sel *v1alpha1.TaintSelector, path *field.Path) field.ErrorList {
			return validate(sel, path, use)
		})...)
}

// validate returns the errors of a selector.
func validate(sel *v1alpha1.TaintSelector, path *field.Path, use Use) field.ErrorList {
	effects := nodeEffects
	var errs field.ErrorList
	classes, drivers := path.Child("deviceClasses"), path.Child("drivers")
	byClass, byDriver := len(sel.DeviceClasses) > 0, len(sel.Drivers) > 0
	switch sel.Target {
	case v1alpha1.TaintTargetNode, "":
		const remove = "narrows taints of devices, not of nodes; remove it"
		errs = append(policy.Check(!byClass, field.Forbidden(classes, remove)), policy.Check(!byDriver, field.Forbidden(drivers, remove))...)
	case v1alpha1.TaintTargetDevice:
		effects = deviceEffects
		errs = slices.Concat(
			ValidateItems(sel.DeviceClasses, maxItems, classes, validateName),
			ValidateItems(sel.Drivers, maxItems, drivers, validateName),
			policy.Check(!byDriver || use == Taints, field.Forbidden(drivers, "selects who sets a taint of a device, and tolerations do not name drivers; use deviceClasses")),
			policy.Check(!byClass || use == Tolerations, field.Forbidden(classes, "selects who requests a device, and taints do not name classes; use drivers")))
	default:
		errs = append(errs, field.NotSupported(path.Child("target"), sel.Target, []v1alpha1.TaintTarget{v1alpha1.TaintTargetDevice, v1alpha1.TaintTargetNode}))
	}
	return slices.Concat(errs,
		validateKey(sel.Key, path.Child("key")),
		ValidateTexts(sel.Values, maxItems, path.Child("values"), validation.IsValidLabelValue),
		ValidateItems(sel.Effects, maxItems, path.Child("effects"), func(effect corev1.TaintEffect, path *field.Path) field.ErrorList {
			return policy.ValidateEnum(effect, path, effects)
		}))
}

func validateKey(key string, path *field.Path) field.ErrorList {
	prefix, pattern := strings.CutSuffix(key, "/*")
	switch {
	case key == "":
		return field.ErrorList{field.Required(path, `a taint key, "prefix/*" or "*"`)}
	case key == "*":
		return nil
	case pattern:
		return Invalid(path, key, validation.IsDNS1123Subdomain(prefix), "the prefix ")
	case strings.Contains(key, "*"):
		return field.ErrorList{field.Invalid(path, key, `a pattern is "prefix/*" or "*"`)}
	default:
		return metav1validation.ValidateLabelName(key, path)
	}
}

func validateName(name string, path *field.Path) field.ErrorList {
	if len(name) > maxName {
		return field.ErrorList{field.TooLong(path, name, maxName)}
	}
	return Invalid(path, name, apivalidation.NameIsDNSSubdomain(name, false), "")
}

// ValidateItems returns the errors of a list that has to be a set of at most a number of items, and
// of each item.
func ValidateItems[T ~string](items []T, most int, path *field.Path, validate func(T, *field.Path) field.ErrorList) field.ErrorList {
	errs := policy.Check(len(items) <= most, field.TooMany(path, len(items), most))
	seen := sets.New[T]()
	for i, item := range items {
		if seen.Has(item) {
			errs = append(errs, field.Duplicate(path.Index(i), item))
		}
		seen.Insert(item)
	}
	for i, item := range items {
		errs = append(errs, validate(item, path.Index(i))...)
	}
	return errs
}

// ValidateTexts returns the errors of a list that has to be a set of at most a number of texts, each
// without problems.
func ValidateTexts(texts []string, most int, path *field.Path, problems func(string) []string) field.ErrorList {
	return ValidateItems(texts, most, path, func(text string, path *field.Path) field.ErrorList {
		return Invalid(path, text, problems(text), "")
	})
}

// Invalid returns one error for all reasons why a value is not valid, with a text before them.
func Invalid(path *field.Path, value string, reasons []string, what string) field.ErrorList {
	return policy.Check(len(reasons) == 0, field.Invalid(path, value, what+strings.Join(reasons, "; ")))
}
