package slicepatch

import (
	"fmt"
	"strings"

	"github.com/blang/semver/v4"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

const oneValue = "give exactly one of int, bool, string, version, ints, bools, strings, versions and null; \"null\": {}, with the quotes, removes the attribute"

func validateAttribute(a *v1alpha1.NullableDeviceAttribute, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch given := given(a); len(given) {
	case 0:
		errs = append(errs, field.Required(path, oneValue))
	case 1:
	default:
		errs = append(errs, field.Invalid(path, strings.Join(given, ", "), oneValue))
	}
	if a.StringValue != nil {
		errs = append(errs, validateString(*a.StringValue, path.Child("string"))...)
	}
	if a.VersionValue != nil {
		errs = append(errs, validateVersion(*a.VersionValue, path.Child("version"))...)
	}
	errs = append(errs, validateLength(len(a.IntValues), a.IntValues != nil, path.Child("ints"))...)
	errs = append(errs, validateLength(len(a.BoolValues), a.BoolValues != nil, path.Child("bools"))...)
	errs = append(errs, validateLength(len(a.StringValues), a.StringValues != nil, path.Child("strings"))...)
	errs = append(errs, validateLength(len(a.VersionValues), a.VersionValues != nil, path.Child("versions"))...)
	for i, value := range a.StringValues {
		errs = append(errs, validateString(value, path.Child("strings").Index(i))...)
	}
	for i, value := range a.VersionValues {
		errs = append(errs, validateVersion(value, path.Child("versions").Index(i))...)
	}
	return errs
}

// given returns the fields that are set.
func given(a *v1alpha1.NullableDeviceAttribute) []string {
	var fields []string
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"int", a.IntValue != nil},
		{"bool", a.BoolValue != nil},
		{"string", a.StringValue != nil},
		{"version", a.VersionValue != nil},
		{"ints", a.IntValues != nil},
		{"bools", a.BoolValues != nil},
		{"strings", a.StringValues != nil},
		{"versions", a.VersionValues != nil},
		{"null", a.NullValue != nil},
	} {
		if f.set {
			fields = append(fields, f.name)
		}
	}
	return fields
}

func validateString(value string, path *field.Path) field.ErrorList {
	if len(value) > resourcev1.DeviceAttributeMaxValueLength {
		return field.ErrorList{field.TooLong(path, value, resourcev1.DeviceAttributeMaxValueLength)}
	}
	return nil
}

// validateVersion accepts what expressions can read.
func validateVersion(value string, path *field.Path) field.ErrorList {
	errs := validateString(value, path)
	if _, err := semver.Parse(value); err != nil && len(errs) == 0 {
		errs = append(errs, field.Invalid(path, value, "must be a semantic version such as 1.2.3 or 1.2.3-rc.1"))
	}
	return errs
}

// validateLength looks at a list that is there: an empty one is no value.
func validateLength(length int, there bool, path *field.Path) field.ErrorList {
	const most = resourcev1.ResourceSliceMaxAttributeValuesPerDevice
	switch {
	case there && length == 0:
		return field.ErrorList{field.Required(path, "an empty list is no value: give at least one, or null: {} to remove the attribute")}
	case length > most:
		return field.ErrorList{field.Invalid(path, length, fmt.Sprintf("too many values: a device has at most %d", most))}
	default:
		return nil
	}
}
