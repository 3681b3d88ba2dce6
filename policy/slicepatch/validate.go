package slicepatch

import (
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/blang/semver/v4"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
	tollgatevalidation "github.com/tollgate-dev/tollgate/policy/validation"
)

// ValidatePatch returns the errors of the patch by the rules that its schema cannot say, and
// by those of the schema, which a stored object may still not obey. A patch without
// errors is applied to the letter.
func ValidatePatch(p *v1alpha1.ResourceSlicePatch) field.ErrorList {
	spec, path := &p.Spec.Devices, field.NewPath("spec", "devices")
	const most = resourcev1.ResourceSliceMaxAttributesAndCapacitiesPerDevice
	var errs field.ErrorList
	if n := len(spec.Attributes) + len(spec.Capacity); n > most {
		// Errors inside of a patch that is too large are not worth reading.
		return append(errs, field.Invalid(path, n, fmt.Sprintf("too many attributes and capacities: at most %d together, as on a device", most)))
	}
	errs = append(errs, validateFilter(spec.Filter, path.Child("filter"))...)
	for _, name := range slices.Sorted(maps.Keys(spec.Attributes)) {
		value, at := spec.Attributes[name], path.Child("attributes").Key(string(name))
		errs = slices.Concat(errs, validateName(name, at), validateAttribute(&value, at))
	}
	for _, name := range slices.Sorted(maps.Keys(spec.Capacity)) {
		value, at := spec.Capacity[name], path.Child("capacity").Key(string(name))
		errs = slices.Concat(errs, validateName(name, at), validateCapacity(&value, at))
	}
	return append(errs, tollgatevalidation.ValidateTaints(deviceTaints(spec.Taints), path.Child("taints"))...)
}

// ValidateFields returns the errors of the fields that a patch sets and that was did not,
// nil for one that is created. A patch that is stored with them is in force for all that.
func ValidateFields(p, was *v1alpha1.ResourceSlicePatch) field.ErrorList {
	if !p.Spec.Publish || was != nil && was.Spec.Publish {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("spec", "publish"), true,
		"nothing is written into ResourceSlices, because drivers take what is for their own: leave it out, and run a scheduler that applies patches where pods are to see attributes and capacity")}
}

// Warnings returns the effects of a valid patch that are probably not meant. The API server
// drops fields that it does not know, so that a misspelt filter is no filter.
func Warnings(p *v1alpha1.ResourceSlicePatch) []string {
	var warnings []string
	spec := &p.Spec.Devices
	if !Conditional(spec.Filter) && NamesOf(spec.Filter) == (resourcev1.DeviceTaintSelector{}) {
		warnings = append(warnings, "spec.devices.filter asks for nothing: the patch is for every device of every driver")
	}
	if len(spec.Attributes)+len(spec.Capacity)+len(spec.Taints) == 0 {
		warnings = append(warnings, "spec.devices has neither attributes nor capacity nor taints: the patch changes nothing")
	}
	if p.Spec.Publish {
		warnings = append(warnings, "spec.publish does nothing: nothing is written into ResourceSlices, because drivers take what is for their own")
	}
	return warnings
}

func validateFilter(f *v1alpha1.DevicePatchFilter, path *field.Path) field.ErrorList {
	if f == nil {
		return nil
	}
	named := NamesOf(f)
	return slices.Concat(
		tollgatevalidation.ValidateName(f.DeviceClassName, path.Child("deviceClassName"), validation.IsDNS1123Subdomain),
		tollgatevalidation.ValidateSelector(&named, path),
		validateSelectors(f.Selectors, path.Child("selectors")))
}

// validateSelectors compiles every expression, and compares the highest cost of all of
// them together with the limit.
func validateSelectors(list []v1alpha1.PatchedDeviceSelector, path *field.Path) field.ErrorList {
	if len(list) > resourcev1.DeviceSelectorsMaxSize {
		return field.ErrorList{field.TooMany(path, len(list), resourcev1.DeviceSelectorsMaxSize)}
	}
	var errs field.ErrorList
	var total uint64
	for i := range list {
		at := path.Index(i).Child("cel")
		if list[i].CEL == nil {
			errs = append(errs, field.Required(at, "a selector selects by an expression: give cel"))
			continue
		}
		if err := validateExpression(list[i].CEL.Expression, &total, at.Child("expression")); err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// validateExpression adds the cost of an expression to total.
func validateExpression(text string, total *uint64, path *field.Path) *field.Error {
	switch {
	case strings.TrimSpace(text) == "":
		return field.Required(path, "give an expression about device, such as device.driver == 'gpu.example.com'")
	case len(text) > resourcev1.CELSelectorExpressionMaxLength:
		return field.TooLong(path, "", resourcev1.CELSelectorExpressionMaxLength)
	case !utf8.ValidString(text):
		return field.Invalid(path, "", "must be UTF-8")
	}
	e, err := expressionOf(text)
	if err == nil && e.loops.lists {
		err = errDisorder
	}
	if err != nil {
		return field.Invalid(path, text, err.Error())
	}
	cost := e.program.MaxCost
	if cost > maxCost || *total+cost > maxCost {
		return field.Invalid(path, text, fmt.Sprintf(
			"costs up to %d, %d with the expressions before it, of which %d are allowed: every device there is will be asked; narrow what it loops over",
			cost, *total+min(cost, maxCost), maxCost))
	}
	*total += cost
	return nil
}

// validateName accepts a domain and a C identifier with a slash between them. A name
// without a domain would mean another attribute for each driver.
func validateName(full name, path *field.Path) field.ErrorList {
	domain, id, found := strings.Cut(string(full), "/")
	if !found {
		return field.ErrorList{field.Invalid(path, full, "must have a domain, as in driver.example.com/"+string(full)+": for what a driver publishes without one, that is the name of the driver")}
	}
	var errs field.ErrorList
	if len(domain) > resourcev1.DeviceMaxDomainLength {
		errs = append(errs, field.Invalid(path, full, fmt.Sprintf("the domain is %d bytes long, of which %d are allowed", len(domain), resourcev1.DeviceMaxDomainLength)))
	}
	errs = append(errs, tollgatevalidation.Invalid(path, string(full), "the domain: ", validation.IsDNS1123Subdomain(strings.ToLower(domain)))...)
	if len(id) > resourcev1.DeviceMaxIDLength {
		errs = append(errs, field.Invalid(path, full, fmt.Sprintf("what follows the domain is %d bytes long, of which %d are allowed", len(id), resourcev1.DeviceMaxIDLength)))
	}
	return append(errs, tollgatevalidation.Invalid(path, string(full), "what follows the domain: ", validation.IsCIdentifier(id))...)
}

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
