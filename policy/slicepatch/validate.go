package slicepatch

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
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
