package validation

import (
	"fmt"
	"slices"
	"strings"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

// aheadAfter is how far ahead the time of a taint may be before the user is warned:
// clocks account for less.
const aheadAfter = time.Minute

// SliceWarnings returns warnings about taints of a ResourceSlice that are legal and
// probably not meant. A text that is about many taints is said once.
func SliceWarnings(devices, old []Device, now time.Time) []string {
	path := field.NewPath("spec", "devices")
	var warned warnings
	for place, since := range changedTaints(devices, old) {
		t := deviceTaint(&devices[place.Device].Taints[place.Taint])
		at := path.Index(place.Device).Child("taints").Index(place.Taint)
		warned.add(at.Child("timeAdded"), timeWarning(t, now))
		if since.IsZero() {
			warned.add(at.Child("key"), keyWarning(t.key))
		}
	}
	return warned.texts
}

// RuleWarnings says which parts of a DeviceTaintRule that is created, or had the spec old,
// are legal and probably not meant. There is none for a spec that did not change.
func RuleWarnings(spec, old *resourcev1.DeviceTaintRuleSpec, now time.Time) []string {
	selector, t := spec.DeviceSelector, &spec.Taint
	sameTaint := old != nil && sameDeviceTaint(*t, old.Taint)
	if sameTaint && equality.Semantic.DeepEqual(selector, old.DeviceSelector) {
		return nil
	}
	var warned warnings
	switch path := field.NewPath("spec", "deviceSelector"); {
	case selector == nil:
		warned.add(path, "is not set: no device is selected and the rule has no effect; the empty selector {} selects every device")
	case *selector == resourcev1.DeviceTaintSelector{}:
		warned.add(path, "is empty: EVERY device of every driver in the cluster is selected")
	}
	path := field.NewPath("spec", "taint")
	if !sameTaint {
		warned.add(path.Child("timeAdded"), timeWarning(deviceTaint(t), now))
	}
	if old == nil || old.Taint.Key != t.Key {
		warned.add(path.Child("key"), keyWarning(t.Key))
	}
	warned.add(path.Child("key"), driverKeyWarning(t.Key, selector))
	if t.Effect != "" && !slices.Contains(deviceEffects, t.Effect) {
		warned.add(path.Child("effect"), fmt.Sprintf("%q is not known here and does what None does: nothing", t.Effect))
	}
	return warned.texts
}

// Patched is the part of a ResourceSlicePatch that is warned about: its taints, and the names
// of the devices that it is for.
type Patched struct {
	Taints   []resourcev1.DeviceTaint
	Selector resourcev1.DeviceTaintSelector
}

// PatchWarnings says which of the taints that a ResourceSlicePatch gets are legal and
// probably not meant. Old is the part before the write, zero when the patch is created: there
// is no warning about taints that were there for the same driver.
func PatchWarnings(patch, old *Patched, now time.Time) []string {
	path := field.NewPath("spec", "devices", "taints")
	sameDriver := ptr.Equal(patch.Selector.Driver, old.Selector.Driver)
	before := existingOf(old.Taints, deviceTaint)
	var warned warnings
	for i := range patch.Taints {
		t, at := deviceTaint(&patch.Taints[i]), path.Index(i)
		if !before.taints.Has(t) {
			warned.add(at.Child("timeAdded"), timeWarning(t, now))
		}
		oldKey := slices.ContainsFunc(old.Taints, func(was resourcev1.DeviceTaint) bool { return was.Key == t.key })
		if !oldKey {
			warned.add(at.Child("key"), keyWarning(t.key))
		}
		if !oldKey || !sameDriver {
			warned.add(at.Child("key"), driverKeyWarning(t.key, &patch.Selector))
		}
	}
	return warned.texts
}

func timeWarning(t taint, now time.Time) string {
	if !t.added.After(now.Add(aheadAfter)) {
		return ""
	}
	return fmt.Sprintf("%s is %s ahead: the scheduler obeys the taint at once, but no pod is evicted for it before then",
		t.added.Format(time.RFC3339), t.added.Sub(now).Truncate(time.Second))
}

// keyWarning is about keys that others may use for something else.
func keyWarning(key string) string {
	domain, _, found := strings.Cut(key, "/")
	switch {
	case key == "":
		return "" // it is refused
	case !found:
		return fmt.Sprintf("%q has no domain: a key such as example.com/%s cannot clash with those of others", key, key)
	case isUnder(domain, "kubernetes.io"), isUnder(domain, "k8s.io"):
		return fmt.Sprintf("%q is in a domain that is reserved for Kubernetes", key)
	default:
		return ""
	}
}

// driverKeyWarning is about an administrator's taint with a key of the driver: the driver
// defines the meaning of such a key and its values.
func driverKeyWarning(key string, selector *resourcev1.DeviceTaintSelector) string {
	domain, _, found := strings.Cut(key, "/")
	if !found || selector == nil || selector.Driver == nil || !isDriverDomain(domain, strings.ToLower(*selector.Driver)) {
		return ""
	}
	return fmt.Sprintf("%q is in the domain of driver %q, which says what the key means: use a domain of your own", key, *selector.Driver)
}

// isDriverDomain reports whether keys in domain are for a driver to define. KEP-5055
// has drivers use a domain of their vendor, with or without a prefix. Such are the
// name of the driver and domains below it, and a domain that the name is in, though
// not one of a single label, such as com. It is not known where a vendor's domain begins, so
// domains beside the driver are not taken for the vendor's.
func isDriverDomain(domain, driver string) bool {
	return domain == driver ||
		isUnder(driver, domain) && strings.Contains(domain, ".") ||
		isUnder(domain, driver) && strings.Contains(driver, ".")
}

// isUnder reports whether name is domain or in it.
func isUnder(name, domain string) bool {
	return name == domain || (domain != "" && strings.HasSuffix(name, "."+domain))
}

// warnings collects texts, each with the first field that it is about.
type warnings struct {
	texts []string
	seen  sets.Set[string]
}

func (w *warnings) add(path *field.Path, text string) {
	if text == "" || w.seen.Has(text) {
		return
	}
	if w.seen == nil {
		w.seen = sets.New[string]()
	}
	w.seen.Insert(text)
	w.texts = append(w.texts, path.String()+": "+text)
}
