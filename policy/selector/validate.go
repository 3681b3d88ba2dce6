package selector

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// Use says what a policy selects taints for.
type Use uint8

// The uses.
const (
	// Tolerations are held against the selector. They are of a device class, and of
	// no driver.
	Tolerations Use = iota
	// Taints are held against the selector. They are of a driver, and of no class.
	Taints
)

// The limits of the schema, which hold for objects that came around it too.
const (
	maxSelectors = 64
	maxItems     = 64
	maxName      = 253
)

// ValidateAll returns what is wrong with the selectors of a policy, of which there
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

// Validate returns what is wrong with a selector.
func Validate(sel *v1alpha1.TaintSelector, path *field.Path, use Use) field.ErrorList {
	effects := []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute}
	var errs field.ErrorList
	switch sel.Target {
	case v1alpha1.TaintTargetNode, "":
		errs = append(errs, ofNode(sel, path)...)
	case v1alpha1.TaintTargetDevice:
		effects = []corev1.TaintEffect{corev1.TaintEffect(resourcev1.DeviceTaintEffectNone), corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute}
		errs = append(errs, ofDevice(sel, path, use)...)
	default:
		errs = append(errs, field.NotSupported(path.Child("target"), sel.Target, []v1alpha1.TaintTarget{v1alpha1.TaintTargetDevice, v1alpha1.TaintTargetNode}))
	}
	errs = append(errs, validateKey(sel.Key, path.Child("key"))...)
	errs = append(errs, validateValues(sel.Values, path.Child("values"))...)
	return append(errs, validateEffects(sel.Effects, effects, path.Child("effects"))...)
}

func ofNode(sel *v1alpha1.TaintSelector, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(sel.DeviceClasses) > 0 {
		errs = append(errs, field.Forbidden(path.Child("deviceClasses"), "narrows taints of devices, not of nodes; remove it"))
	}
	if len(sel.Drivers) > 0 {
		errs = append(errs, field.Forbidden(path.Child("drivers"), "narrows taints of devices, not of nodes; remove it"))
	}
	return errs
}

func ofDevice(sel *v1alpha1.TaintSelector, path *field.Path, use Use) field.ErrorList {
	classes, drivers := path.Child("deviceClasses"), path.Child("drivers")
	errs := validateNames(sel.DeviceClasses, classes)
	errs = append(errs, validateNames(sel.Drivers, drivers)...)
	switch use {
	case Tolerations:
		if len(sel.Drivers) > 0 {
			errs = append(errs, field.Forbidden(drivers, "selects who sets a taint of a device, and tolerations do not name drivers; use deviceClasses"))
		}
	case Taints:
		if len(sel.DeviceClasses) > 0 {
			errs = append(errs, field.Forbidden(classes, "selects who requests a device, and taints do not name classes; use drivers"))
		}
	}
	return errs
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

func validateValues(values []string, path *field.Path) field.ErrorList {
	errs := ValidateList(values, maxItems, path)
	for i, value := range values {
		errs = append(errs, invalid(path.Index(i), value, validation.IsValidLabelValue(value), "")...)
	}
	return errs
}

func validateNames(names []string, path *field.Path) field.ErrorList {
	errs := ValidateList(names, maxItems, path)
	for i, name := range names {
		if len(name) > maxName {
			errs = append(errs, field.TooLong(path.Index(i), name, maxName))
			continue
		}
		errs = append(errs, invalid(path.Index(i), name, apivalidation.NameIsDNSSubdomain(name, false), "")...)
	}
	return errs
}

func validateEffects(effects, allowed []corev1.TaintEffect, path *field.Path) field.ErrorList {
	errs := ValidateList(effects, maxItems, path)
	for i, effect := range effects {
		if !slices.Contains(allowed, effect) {
			errs = append(errs, field.NotSupported(path.Index(i), effect, allowed))
		}
	}
	return errs
}

// ValidateList returns what is wrong with a list that is to be a set of at most so
// many.
func ValidateList[T ~string](items []T, most int, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(items) > most {
		errs = append(errs, field.TooMany(path, len(items), most))
	}
	seen := make(map[T]struct{}, len(items))
	for i, item := range items {
		if _, ok := seen[item]; ok {
			errs = append(errs, field.Duplicate(path.Index(i), item))
		}
		seen[item] = struct{}{}
	}
	return errs
}

func invalid(path *field.Path, value string, reasons []string, what string) field.ErrorList {
	if len(reasons) == 0 {
		return nil
	}
	return field.ErrorList{field.Invalid(path, value, what+strings.Join(reasons, "; "))}
}
