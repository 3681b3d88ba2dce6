package validation

import (
	"cmp"
	"iter"
	"slices"
	"strings"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/policy"
)

// deviceEffects are the known effects (AV-03). A reader of taints takes an unknown one for None,
// as KEP-5055 says.
var deviceEffects = []resourcev1.DeviceTaintEffect{
	resourcev1.DeviceTaintEffectNoExecute,
	resourcev1.DeviceTaintEffectNoSchedule,
	resourcev1.DeviceTaintEffectNone,
}

// Device is the part of a device in a ResourceSlice that is judged.
type Device struct {
	Name   string
	Taints []resourcev1.DeviceTaint
}

// DeviceTimeAdded is the time that a taint of a slice is to have.
type DeviceTimeAdded struct {
	// Device and Taint are indices: of the device in the slice, of the taint in the
	// device.
	Device, Taint int
	TimeAdded     metav1.Time
}

// StampSlice returns the times that the taints of a ResourceSlice are to have where
// the request has others, in the order of the taints; old are the devices before the
// write (none when the slice is created). Only taints that the request adds or
// changes get one, of every effect, in whole seconds:
//
//   - without a time: that of the old taint with the same device, key, value and
//     effect, else now;
//   - with one that only says "now" (within 5 s of it): that of the same old taint if
//     it is older, because the API server has set the present on every taint
//     that came without a time (AV-06), and a driver that publishes a taint once more
//     must not start all timers again;
//   - with any other: that time. A time in the future is legal.
//
// To start a taint's time again, remove it and add it in a second write, or give a
// time that is further than 5 s from now.
//
// Devices that are invalid get times like others. Stamping the outcome again changes
// nothing.
func StampSlice(devices, old []Device, now time.Time) []DeviceTimeAdded {
	var times []DeviceTimeAdded
	for place, since := range changedTaints(devices, old) {
		t := &devices[place.Device].Taints[place.Taint]
		at := deviceTimeAdded(Stored(t.TimeAdded), since, now)
		if t.TimeAdded == nil || !t.TimeAdded.Time.Equal(at) {
			place.TimeAdded = metav1.NewTime(at)
			times = append(times, place)
		}
	}
	return times
}

// changedTaints yields the places of the taints that a write of devices adds or changes, with the
// time of the same taint before, zero for none.
func changedTaints(devices, old []Device) iter.Seq2[DeviceTimeAdded, time.Time] {
	return func(yield func(DeviceTimeAdded, time.Time) bool) {
		for i, oldTaints := range changedDevices(devices, old) {
			before := existingOf(oldTaints, deviceTaint)
			for j := range devices[i].Taints {
				t := deviceTaint(&devices[i].Taints[j])
				if !before.taints.Has(t) && !yield(DeviceTimeAdded{Device: i, Taint: j}, before.since[t.identity()]) {
					return
				}
			}
		}
	}
}

// deviceTimeAdded returns the time of a taint that is added or changed, with the time that the request
// has, and that of the same taint before, zero for none.
func deviceTimeAdded(added, since, now time.Time) time.Time {
	switch {
	case added.IsZero():
		return cmp.Or(since, now.Truncate(time.Second))
	case now.Truncate(time.Second).Sub(added).Abs() <= restampWindow:
		return earliest(added, since)
	default:
		return added
	}
}

// StampRule returns the time that the taint of a DeviceTaintRule is to have, and
// false if it has it already. Old is the taint before the write, nil when the rule is
// created. The time is when the effect took hold, so it becomes now when the effect
// changes and the client leaves the time as it was (AV-17); a change of key or value
// does not move it (DE-37). Every other time in the request stands.
func StampRule(taint, old *resourcev1.DeviceTaint, now time.Time) (metav1.Time, bool) {
	at := Stored(taint.TimeAdded)
	effectChanged := old != nil && taint.Effect != old.Effect && at.Equal(Stored(old.TimeAdded))
	if at.IsZero() || effectChanged {
		at = now.Truncate(time.Second)
	}
	if taint.TimeAdded != nil && taint.TimeAdded.Time.Equal(at) {
		return metav1.Time{}, false
	}
	return metav1.NewTime(at), true
}

// changedDevices yields the positions of the devices with taints that differ from those before, and
// these. Of two old devices with one name, which only an invalid slice has, the first with taints counts.
func changedDevices(devices, old []Device) iter.Seq2[int, []resourcev1.DeviceTaint] {
	return func(yield func(int, []resourcev1.DeviceTaint) bool) {
		var before map[string][]resourcev1.DeviceTaint
		if tainted(old) {
			before = make(map[string][]resourcev1.DeviceTaint, len(old))
		}
		for _, d := range slices.Backward(old) {
			if len(d.Taints) > 0 {
				before[d.Name] = d.Taints
			}
		}
		for i, d := range devices {
			if len(d.Taints) > 0 && !slices.EqualFunc(d.Taints, before[d.Name], sameDeviceTaint) && !yield(i, before[d.Name]) {
				return
			}
		}
	}
}

func tainted(devices []Device) bool {
	return slices.ContainsFunc(devices, func(d Device) bool { return len(d.Taints) > 0 })
}

func sameDeviceTaint(a, b resourcev1.DeviceTaint) bool { return deviceTaint(&a) == deviceTaint(&b) }

// ValidateSlice returns the errors of the taints of the devices of a
// ResourceSlice that had old (none when it is created). The taints of a device are
// judged only where that device, found by its name, did not have the same before
// (AV-05).
func ValidateSlice(devices, old []Device) field.ErrorList {
	path := field.NewPath("spec", "devices")
	if tooMany(devices) && !tooMany(old) {
		// One error is enough: the limit is there to prevent a list of all that is wrong
		// inside of too large a list.
		return field.ErrorList{field.TooMany(path, len(devices), resourcev1.ResourceSliceMaxDevicesWithAdvancedFeatures)}
	}
	var errs field.ErrorList
	for i := range changedDevices(devices, old) {
		errs = append(errs, validateDeviceTaints(devices[i].Taints, path.Index(i).Child("taints"))...)
	}
	return errs
}

// tooMany reports whether there are more devices than a slice with taints may hold
// (AV-02).
func tooMany(devices []Device) bool {
	return len(devices) > resourcev1.ResourceSliceMaxDevicesWithAdvancedFeatures && tainted(devices)
}

// ValidateTaints returns the errors of the taints of one device, an unknown effect
// included.
func ValidateTaints(taints []resourcev1.DeviceTaint, path *field.Path) field.ErrorList {
	errs := validateDeviceTaints(taints, path)
	for i := range taints[:min(len(taints), resourcev1.DeviceTaintsMaxLength)] {
		errs = append(errs, validateKnownEffect(taints[i].Effect, path.Index(i))...)
	}
	return errs
}

func validateKnownEffect(effect resourcev1.DeviceTaintEffect, path *field.Path) field.ErrorList {
	if effect == "" {
		return nil
	}
	return policy.ValidateEnum(effect, path.Child("effect"), deviceEffects)
}

func validateDeviceTaints(taints []resourcev1.DeviceTaint, path *field.Path) field.ErrorList {
	if len(taints) > resourcev1.DeviceTaintsMaxLength {
		return field.ErrorList{field.TooMany(path, len(taints), resourcev1.DeviceTaintsMaxLength)}
	}
	return policy.ValidateEach(taints, len(taints), path, validateDeviceTaint)
}

func validateDeviceTaint(t *resourcev1.DeviceTaint, path *field.Path) field.ErrorList {
	return validateTaint(deviceTaint(t), "None, NoSchedule and NoExecute", path)
}

// ValidateRule returns the errors of the spec of a DeviceTaintRule that had the
// spec old, nil when it is created (AV-14, AV-15). A spec that did not change is not
// judged again.
func ValidateRule(spec, old *resourcev1.DeviceTaintRuleSpec) field.ErrorList {
	if old != nil && sameDeviceTaint(spec.Taint, old.Taint) && equality.Semantic.DeepEqual(spec.DeviceSelector, old.DeviceSelector) {
		return nil
	}
	path := field.NewPath("spec")
	return append(ValidateSelector(spec.DeviceSelector, path.Child("deviceSelector")), validateDeviceTaint(&spec.Taint, path.Child("taint"))...)
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

// ValidateSelector returns the names of a selector that no driver, pool or device can have:
// they would select nothing, while the user believes that they do.
func ValidateSelector(selector *resourcev1.DeviceTaintSelector, path *field.Path) field.ErrorList {
	if selector == nil {
		return nil
	}
	return slices.Concat(
		validateLength(selector.Driver, path.Child("driver"), resourcev1.DriverNameMaxLength),
		ValidateName(selector.Driver, path.Child("driver"), isDriver),
		validatePool(selector.Pool, path.Child("pool")),
		ValidateName(selector.Device, path.Child("device"), validation.IsDNS1123Label))
}

// ValidateName returns the errors of a name that devices are selected by, nil for none.
func ValidateName(name *string, path *field.Path, problems func(string) []string) field.ErrorList {
	switch {
	case name == nil:
		return nil
	case *name == "":
		return field.ErrorList{field.Required(path, "an empty name selects nothing: leave the field out to select any")}
	default:
		return Invalid(path, *name, "", problems(*name))
	}
}

func validateLength(name *string, path *field.Path, most int) field.ErrorList {
	if name == nil || len(*name) <= most {
		return nil
	}
	return field.ErrorList{field.TooLong(path, *name, most)}
}

// isDriver accepts the names that CSI accepts for a driver.
func isDriver(name string) []string { return validation.IsDNS1123Subdomain(strings.ToLower(name)) }

func validatePool(name *string, path *field.Path) field.ErrorList {
	if errs := validateLength(name, path, resourcev1.PoolNameMaxLength); len(errs) > 0 {
		return errs
	}
	return ValidateName(name, path, func(name string) (problems []string) {
		for part := range strings.SplitSeq(name, "/") {
			problems = append(problems, validation.IsDNS1123Subdomain(part)...)
		}
		return problems
	})
}
