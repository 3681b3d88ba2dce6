package slicepatch

import (
	"fmt"
	"math/big"
	"slices"
	"strings"

	"github.com/blang/semver/v4"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
)

const oneValue = "give exactly one of int, bool, string, version, ints, bools, strings, versions and null; \"null\": {}, with the quotes, removes the attribute"

func validateAttribute(a *v1alpha1.NullableDeviceAttribute, path *field.Path) field.ErrorList {
	var set []string
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
			set = append(set, f.name)
		}
	}
	var errs field.ErrorList
	switch len(set) {
	case 0:
		errs = append(errs, field.Required(path, oneValue))
	case 1:
	default:
		errs = append(errs, field.Invalid(path, strings.Join(set, ", "), oneValue))
	}
	return slices.Concat(errs,
		validateString(a.StringValue, path.Child("string")),
		validateVersion(a.VersionValue, path.Child("version")),
		validateLength(a.IntValues, path.Child("ints")),
		validateLength(a.BoolValues, path.Child("bools")),
		validateLength(a.StringValues, path.Child("strings")),
		validateLength(a.VersionValues, path.Child("versions")),
		policy.ValidateEach(a.StringValues, len(a.StringValues), path.Child("strings"), validateString),
		policy.ValidateEach(a.VersionValues, len(a.VersionValues), path.Child("versions"), validateVersion))
}

// validateString accepts nil too, which is no value.
func validateString(value *string, path *field.Path) field.ErrorList {
	if value != nil && len(*value) > resourcev1.DeviceAttributeMaxValueLength {
		return field.ErrorList{field.TooLong(path, *value, resourcev1.DeviceAttributeMaxValueLength)}
	}
	return nil
}

// validateVersion accepts the versions that expressions can read, and nil.
func validateVersion(value *string, path *field.Path) field.ErrorList {
	if errs := validateString(value, path); value == nil || len(errs) > 0 {
		return errs
	}
	if _, err := semver.Parse(*value); err != nil {
		return field.ErrorList{field.Invalid(path, *value, "must be a semantic version such as 1.2.3 or 1.2.3-rc.1")}
	}
	return nil
}

// validateLength refuses an empty list, which is no value.
func validateLength[T any](list []T, path *field.Path) field.ErrorList {
	const most = resourcev1.ResourceSliceMaxAttributeValuesPerDevice
	switch {
	case list != nil && len(list) == 0:
		return field.ErrorList{field.Required(path, "an empty list is no value: give at least one, or null: {} to remove the attribute")}
	case len(list) > most:
		return field.ErrorList{field.Invalid(path, len(list), fmt.Sprintf("too many values: a device has at most %d", most))}
	default:
		return nil
	}
}

// maxValidValues is the limit of the API on the number of values that a request may ask for.
const maxValidValues = 10

func validateCapacity(c *v1alpha1.PatchedCapacity, path *field.Path) field.ErrorList {
	if c.Value == nil {
		return field.ErrorList{field.Required(path.Child("value"), "a capacity cannot be removed: give value 0 for none")}
	}
	return append(
		policy.Check(c.Value.Sign() >= 0, field.Invalid(path.Child("value"), text(c.Value), "must not be negative")),
		validateRequestPolicy(c.RequestPolicy, c.Value, path.Child("requestPolicy"))...)
}

// validateRequestPolicy checks a policy by the rules of ResourceSlices.
func validateRequestPolicy(p *v1alpha1.CapacityRequestPolicy, capacity *resource.Quantity, path *field.Path) field.ErrorList {
	switch {
	case p == nil:
		return nil
	case len(p.ValidValues) > 0 && p.ValidRange != nil:
		return field.ErrorList{field.Forbidden(path.Child("validRange"), "give validValues or validRange, not both")}
	case len(p.ValidValues) == 0 && p.ValidRange == nil:
		return nil
	case p.Default == nil:
		return field.ErrorList{field.Required(path.Child("default"), "say what a request gets that does not say how much")}
	case p.ValidRange != nil:
		return validateRange(p, capacity, path)
	default:
		return validateValues(p, capacity, path)
	}
}

func validateValues(p *v1alpha1.CapacityRequestPolicy, capacity *resource.Quantity, path *field.Path) field.ErrorList {
	at := path.Child("validValues")
	if n := len(p.ValidValues); n > maxValidValues {
		return field.ErrorList{field.TooMany(at, n, maxValidValues)}
	}
	var errs field.ErrorList
	found := false
	for i := range p.ValidValues {
		value := &p.ValidValues[i]
		found = found || value.Cmp(*p.Default) == 0
		if i > 0 && value.Cmp(p.ValidValues[i-1]) <= 0 {
			errs = append(errs, field.Invalid(at.Index(i), text(value), "must be more than the one before it"))
		}
		errs = append(errs, atMost(value, "the capacity", capacity, at.Index(i))...)
	}
	if !found {
		errs = append(errs, field.Invalid(path.Child("default"), text(p.Default), "must be one of validValues"))
	}
	return errs
}

func validateRange(p *v1alpha1.CapacityRequestPolicy, capacity *resource.Quantity, path *field.Path) field.ErrorList {
	r, at := p.ValidRange, path.Child("validRange")
	if r.Min == nil {
		return field.ErrorList{field.Required(at.Child("min"), "a range begins somewhere: give min, 0 if need be")}
	}
	errs := slices.Concat(
		policy.Check(r.Min.Sign() >= 0, field.Invalid(at.Child("min"), text(r.Min), "must not be negative")),
		atMost(r.Min, "the capacity", capacity, at.Child("min")),
		atMost(r.Min, "default", p.Default, at.Child("min")))
	if r.Max != nil {
		errs = slices.Concat(errs,
			atMost(r.Min, "max", r.Max, at.Child("min")),
			atMost(r.Max, "the capacity", capacity, at.Child("max")),
			atMost(p.Default, "validRange.max", r.Max, path.Child("default")))
	}
	if r.Step == nil {
		return errs
	}
	step := at.Child("step")
	if r.Step.Sign() <= 0 {
		return append(errs, field.Invalid(step, text(r.Step), "must be more than 0"))
	}
	first := r.Min.DeepCopy()
	first.Add(*r.Step)
	return slices.Concat(errs, atMost(&first, "the capacity", capacity, step), onStep(p.Default, r, path.Child("default")), onStep(r.Max, r, at.Child("max")))
}

func atMost(value *resource.Quantity, what string, limit *resource.Quantity, path *field.Path) field.ErrorList {
	return policy.Check(value.Cmp(*limit) <= 0, field.Invalid(path, text(value), fmt.Sprintf("must not be more than %s, which is %s", what, text(limit))))
}

// onStep requires that a value, nil for none, is min and a whole number of steps.
func onStep(value *resource.Quantity, r *v1alpha1.CapacityRequestRange, path *field.Path) field.ErrorList {
	if value == nil {
		return nil
	}
	above := rational(value)
	above.Sub(above, rational(r.Min))
	return policy.Check(above.Quo(above, rational(r.Step)).IsInt(), field.Invalid(path, text(value), "must be min and a whole number of steps"))
}

func rational(q *resource.Quantity) *big.Rat {
	own := q.DeepCopy() // AsDec writes to it
	n, _ := new(big.Rat).SetString(own.AsDec().String())
	return n
}

// text returns a quantity as text. String writes to its receiver.
func text(q *resource.Quantity) string {
	own := q.DeepCopy()
	return own.String()
}
