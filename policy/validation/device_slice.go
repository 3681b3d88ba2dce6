package validation

import (
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Device is what of a device in a ResourceSlice is judged.
type Device struct {
	Name   string
	Taints []resourcev1.DeviceTaint
}

// ValidateSlice reports what is wrong with the taints of the devices of a
// ResourceSlice that had old (none when it is created). The taints of a device are
// judged only where that device, found by its name, did not have the same before
// (AV-05).
func ValidateSlice(devices, old []Device) field.ErrorList {
	path := field.NewPath("spec", "devices")
	if tooMany(devices) && !tooMany(old) {
		// One error is enough, and listing what is wrong inside of too large a list is
		// what the limit is there to prevent.
		return field.ErrorList{field.TooMany(path, len(devices), resourcev1.ResourceSliceMaxDevicesWithAdvancedFeatures)}
	}
	var errs field.ErrorList
	before := byName(old)
	for i := range devices {
		taints := devices[i].Taints
		if stood, ok := before[devices[i].Name]; len(taints) == 0 || (ok && equal(stood, taints)) {
			continue
		}
		errs = append(errs, validateTaints(taints, path.Index(i).Child("taints"))...)
	}
	return errs
}

// ValidateTaints reports what is wrong with the taints of one device, an effect that is not
// known here included.
func ValidateTaints(taints []resourcev1.DeviceTaint, path *field.Path) field.ErrorList {
	errs := validateTaints(taints, path)
	for i := range taints[:min(len(taints), resourcev1.DeviceTaintsMaxLength)] {
		if effect := taints[i].Effect; effect != "" && !isKnown(effect) {
			errs = append(errs, field.NotSupported(path.Index(i).Child("effect"), effect, effects))
		}
	}
	return errs
}

func validateTaints(taints []resourcev1.DeviceTaint, path *field.Path) field.ErrorList {
	if len(taints) > resourcev1.DeviceTaintsMaxLength {
		return field.ErrorList{field.TooMany(path, len(taints), resourcev1.DeviceTaintsMaxLength)}
	}
	var errs field.ErrorList
	for i := range taints {
		errs = append(errs, deviceValidateTaint(&taints[i], path.Index(i))...)
	}
	return errs
}

// tooMany reports whether there are more devices than a slice with taints may hold
// (AV-02).
func tooMany(devices []Device) bool {
	return len(devices) > resourcev1.ResourceSliceMaxDevicesWithAdvancedFeatures && tainted(devices)
}

// tainted reports whether any device has a taint.
func tainted(devices []Device) bool {
	for i := range devices {
		if len(devices[i].Taints) > 0 {
			return true
		}
	}
	return false
}

// byName returns the taints of the devices that have some. Of two devices with one
// name, which only an invalid slice has, the first counts.
func byName(devices []Device) map[string][]resourcev1.DeviceTaint {
	if !tainted(devices) {
		return nil
	}
	found := make(map[string][]resourcev1.DeviceTaint, len(devices))
	for i := range devices {
		if _, ok := found[devices[i].Name]; !ok && len(devices[i].Taints) > 0 {
			found[devices[i].Name] = devices[i].Taints
		}
	}
	return found
}
