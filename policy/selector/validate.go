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
	if len(list) == 0 {
		return field.ErrorList{field.Required(path, "a policy names one taint at least")}
	}
	var errs field.ErrorList
	if len(list) > maxSelectors {
		errs = append(errs, field.TooMany(path, len(list), maxSelectors))
	}
	for i := range list {
		errs = append(errs, Validate(&list[i], path.Index(i), use)...)
	}
	return errs
}

// Validate returns the errors of a selector.
func Validate(sel *v1alpha1.TaintSelector, path *field.Path, use Use) field.ErrorList {
	effects := nodeEffects
	var errs field.ErrorList
	classes, drivers := path.Child("deviceClasses"), path.Child("drivers")
	forbid := func(forbidden bool, path *field.Path, detail string) {
		if forbidden {
			errs = append(errs, field.Forbidden(path, detail))
		}
	}
	switch sel.Target {
	case v1alpha1.TaintTargetNode, "":
		forbid(len(sel.DeviceClasses) > 0, classes, "narrows taints of devices, not of nodes; remove it")
		forbid(len(sel.Drivers) > 0, drivers, "narrows taints of devices, not of nodes; remove it")
	case v1alpha1.TaintTargetDevice:
		effects = deviceEffects
		errs = append(validateNames(sel.DeviceClasses, classes), validateNames(sel.Drivers, drivers)...)
		forbid(use == Tolerations && len(sel.Drivers) > 0, drivers, "selects who sets a taint of a device, and tolerations do not name drivers; use deviceClasses")
		forbid(use == Taints && len(sel.DeviceClasses) > 0, classes, "selects who requests a device, and taints do not name classes; use drivers")
	default:
		errs = append(errs, field.NotSupported(path.Child("target"), sel.Target, []v1alpha1.TaintTarget{v1alpha1.TaintTargetDevice, v1alpha1.TaintTargetNode}))
	}
	errs = append(errs, validateKey(sel.Key, path.Child("key"))...)
	errs = append(errs, ValidateTexts(sel.Values, maxItems, path.Child("values"), validation.IsValidLabelValue)...)
	return append(errs, validateItems(sel.Effects, path.Child("effects"), func(effect corev1.TaintEffect, path *field.Path) field.ErrorList {
		if slices.Contains(effects, effect) {
			return nil
		}
		return field.ErrorList{field.NotSupported(path, effect, effects)}
	})...)
}

func validateKey(key string, path *field.Path) field.ErrorList {
	prefix, pattern := strings.CutSuffix(key, "/*")
	switch {
	case key == "":
		return field.ErrorList{field.Required(path, `a taint key, "prefix/*" or "*"`)}
	case key == "*":
		return nil
	case pattern:
		return invalid(path, key, validation.IsDNS1123Subdomain(prefix), "the prefix ")
	case strings.Contains(key, "*"):
		return field.ErrorList{field.Invalid(path, key, `a pattern is "prefix/*" or "*"`)}
	default:
		return metav1validation.ValidateLabelName(key, path)
	}
}

func validateNames(names []string, path *field.Path) field.ErrorList {
	return validateItems(names, path, func(name string, path *field.Path) field.ErrorList {
		if len(name) > maxName {
			return field.ErrorList{field.TooLong(path, name, maxName)}
		}
		return invalid(path, name, apivalidation.NameIsDNSSubdomain(name, false), "")
	})
}

func validateItems[T ~string](items []T, path *field.Path, validate func(T, *field.Path) field.ErrorList) field.ErrorList {
	errs := ValidateList(items, maxItems, path)
	for i, item := range items {
		errs = append(errs, validate(item, path.Index(i))...)
	}
	return errs
}

// ValidateTexts returns the errors of a list that has to be a set of at most a number of texts, each
// without problems.
func ValidateTexts(texts []string, most int, path *field.Path, problems func(string) []string) field.ErrorList {
	errs := ValidateList(texts, most, path)
	for i, text := range texts {
		errs = append(errs, invalid(path.Index(i), text, problems(text), "")...)
	}
	return errs
}

// ValidateList returns the errors of a list that has to be a set of at most a number of items.
func ValidateList[T ~string](items []T, most int, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(items) > most {
		errs = append(errs, field.TooMany(path, len(items), most))
	}
	seen := sets.New[T]()
	for i, item := range items {
		if seen.Has(item) {
			errs = append(errs, field.Duplicate(path.Index(i), item))
		}
		seen.Insert(item)
	}
	return errs
}

func invalid(path *field.Path, value string, reasons []string, what string) field.ErrorList {
	if len(reasons) == 0 {
		return nil
	}
	return field.ErrorList{field.Invalid(path, value, what+strings.Join(reasons, "; "))}
}
