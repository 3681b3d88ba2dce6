package validation

import (
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ValidateRule reports what is wrong with the spec of a DeviceTaintRule that had the
// spec old, nil when it is created (AV-14, AV-15). A spec that did not change is not
// judged again.
func ValidateRule(spec, old *resourcev1.DeviceTaintRuleSpec) field.ErrorList {
	if old != nil && deviceStampOf(&spec.Taint) == deviceStampOf(&old.Taint) && sameSelector(spec.DeviceSelector, old.DeviceSelector) {
		return nil
	}
	path := field.NewPath("spec")
	errs := ValidateSelector(spec.DeviceSelector, path.Child("deviceSelector"))
	return append(errs, deviceValidateTaint(&spec.Taint, path.Child("taint"))...)
}

// UnsupportedSelector reports the fields of a selector that Tollgate does not obey, which are
// deviceClassName and selectors up to Kubernetes 1.34 (VS-03): a rule with one
// selects nothing, while the user believes that it does.
func UnsupportedSelector(fields []string) field.ErrorList {
	path := field.NewPath("spec", "deviceSelector")
	errs := make(field.ErrorList, 0, len(fields))
	for _, name := range fields {
		errs = append(errs, field.Forbidden(path.Child(name),
			"not supported by this version of Tollgate, for which the rule selects nothing; select by driver, pool or device"))
	}
	return errs
}

// ValidateSelector holds the names that are asked for against what can be a name:
// others would select nothing, while the user believes that they do.
func ValidateSelector(selector *resourcev1.DeviceTaintSelector, path *field.Path) field.ErrorList {
	if selector == nil {
		return nil
	}
	var errs field.ErrorList
	if selector.Driver != nil {
		errs = append(errs, validateDriver(*selector.Driver, path.Child("driver"))...)
	}
	if selector.Pool != nil {
		errs = append(errs, validatePool(*selector.Pool, path.Child("pool"))...)
	}
	if selector.Device != nil {
		errs = append(errs, validateDevice(*selector.Device, path.Child("device"))...)
	}
	return errs
}

// validateDriver accepts what CSI accepts as the name of a driver.
func validateDriver(name string, path *field.Path) field.ErrorList {
	if name == "" {
		return emptyName(path)
	}
	var errs field.ErrorList
	if len(name) > resourcev1.DriverNameMaxLength {
		errs = append(errs, field.TooLong(path, name, resourcev1.DriverNameMaxLength))
	}
	for _, problem := range validation.IsDNS1123Subdomain(strings.ToLower(name)) {
		errs = append(errs, field.Invalid(path, name, problem))
	}
	return errs
}

func validatePool(name string, path *field.Path) field.ErrorList {
	if name == "" {
		return emptyName(path)
	}
	if len(name) > resourcev1.PoolNameMaxLength {
		return field.ErrorList{field.TooLong(path, name, resourcev1.PoolNameMaxLength)}
	}
	var errs field.ErrorList
	for part := range strings.SplitSeq(name, "/") {
		for _, problem := range validation.IsDNS1123Subdomain(part) {
			errs = append(errs, field.Invalid(path, name, problem))
		}
	}
	return errs
}

func validateDevice(name string, path *field.Path) field.ErrorList {
	if name == "" {
		return emptyName(path)
	}
	var errs field.ErrorList
	for _, problem := range validation.IsDNS1123Label(name) {
		errs = append(errs, field.Invalid(path, name, problem))
	}
	return errs
}

func emptyName(path *field.Path) field.ErrorList {
	return field.ErrorList{field.Required(path, "an empty name selects nothing: leave the field out to select any")}
}

func sameSelector(a, b *resourcev1.DeviceTaintSelector) bool {
	if a == nil || b == nil {
		return a == b
	}
	return same(a.Driver, b.Driver) && same(a.Pool, b.Pool) && same(a.Device, b.Device)
}

func same(a, b *string) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}
