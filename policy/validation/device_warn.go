package validation

import (
	"fmt"
	"strings"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// aheadAfter is how far ahead the time of a taint may be before the user is warned:
// clocks account for less.
const aheadAfter = time.Minute

// SliceWarnings says what of the taints that a ResourceSlice gets is legal and
// probably not meant. What many taints have in common is said once.
func SliceWarnings(devices, old []Device, now time.Time) []string {
	path := field.NewPath("spec", "devices")
	before := byName(old)
	var said once
	for i := range devices {
		stood, ok := before[devices[i].Name]
		if len(devices[i].Taints) == 0 || (ok && equal(stood, devices[i].Taints)) {
			continue
		}
		history := historyOf(stood)
		for j := range devices[i].Taints {
			t := &devices[i].Taints[j]
			if history.has(t) {
				continue
			}
			at := path.Index(i).Child("taints").Index(j)
			said.add(at.Child("timeAdded"), timeWarning(t, now))
			if _, stood := history.since[markOf(t)]; !stood {
				said.add(at.Child("key"), keyWarning(t.Key))
			}
		}
	}
	return said.texts
}

// RuleWarnings says what of a DeviceTaintRule that is created, or had the spec old,
// is legal and probably not meant. Nothing is said of a spec that did not change.
func RuleWarnings(spec, old *resourcev1.DeviceTaintRuleSpec, now time.Time) []string {
	selector, t := spec.DeviceSelector, &spec.Taint
	sameTaint := old != nil && deviceStampOf(t) == deviceStampOf(&old.Taint)
	if sameTaint && sameSelector(selector, old.DeviceSelector) {
		return nil
	}
	var said once
	said.add(field.NewPath("spec", "deviceSelector"), selectorWarning(selector))
	path := field.NewPath("spec", "taint")
	if !sameTaint {
		said.add(path.Child("timeAdded"), timeWarning(t, now))
	}
	if old == nil || old.Taint.Key != t.Key {
		said.add(path.Child("key"), keyWarning(t.Key))
	}
	said.add(path.Child("key"), driverKeyWarning(t.Key, selector))
	if t.Effect != "" && !isKnown(t.Effect) {
		said.add(path.Child("effect"), fmt.Sprintf("%q is not known here and does what None does: nothing", t.Effect))
	}
	return said.texts
}

// TolerationWarnings says what of the tolerations of a claim or of a template that is
// created, or had the requests old, is legal and probably not meant; path is that of
// the list of requests.
func TolerationWarnings(requests, old []Request, path *field.Path) []string {
	if len(old) > 0 {
		return nil // the spec is immutable
	}
	var said once
	for list := range lists(requests, path) {
		for i := range list.tolerations {
			said.add(list.path.Index(i).Child("tolerationSeconds"), secondsWarning(&list.tolerations[i]))
		}
	}
	return said.texts
}

// secondsWarning is about seconds that do not count, which they do only for
// NoExecute (AV-12). A toleration of every effect tolerates NoExecute too.
func secondsWarning(t *resourcev1.DeviceToleration) string {
	switch {
	case t.TolerationSeconds == nil || t.Effect == resourcev1.DeviceTaintEffectNoExecute:
		return ""
	case t.Effect == "":
		return "is ignored without effect NoExecute: what has no effect tolerates every effect, for ever"
	default:
		return fmt.Sprintf("is ignored with effect %s: only tolerations with effect NoExecute end", t.Effect)
	}
}

func timeWarning(t *resourcev1.DeviceTaint, now time.Time) string {
	at, ok := deviceTimeOf(t)
	if !ok || !at.After(now.Add(aheadAfter)) {
		return ""
	}
	return fmt.Sprintf("%s is %s ahead: the scheduler obeys the taint at once, but no pod is evicted for it before then",
		at.UTC().Format(time.RFC3339), at.Sub(now).Truncate(time.Second))
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

// driverKeyWarning is about an administrator's taint with a key of the driver: what
// such a key and its values mean is for the driver to say.
func driverKeyWarning(key string, selector *resourcev1.DeviceTaintSelector) string {
	domain, _, found := strings.Cut(key, "/")
	if !found || selector == nil || selector.Driver == nil || !isDriverDomain(domain, strings.ToLower(*selector.Driver)) {
		return ""
	}
	return fmt.Sprintf("%q is in the domain of driver %q, which says what the key means: use a domain of your own", key, *selector.Driver)
}

// isDriverDomain reports whether keys in domain are for a driver to define. KEP-5055
// has drivers use a domain of their vendor, with or without a prefix. Such are the
// name of the driver and what is below it, and a domain that the name is in, though
// not one of a single label, such as com, which is nobody's. Where a vendor's domain
// begins cannot be told, so what is beside the driver is not taken for the vendor's.
func isDriverDomain(domain, driver string) bool {
	return domain == driver ||
		isUnder(driver, domain) && strings.Contains(domain, ".") ||
		isUnder(domain, driver) && strings.Contains(driver, ".")
}

// isUnder reports whether name is domain or in it.
func isUnder(name, domain string) bool {
	return name == domain || (domain != "" && strings.HasSuffix(name, "."+domain))
}

func selectorWarning(selector *resourcev1.DeviceTaintSelector) string {
	switch {
	case selector == nil:
		return "is not set: no device is selected and the rule has no effect; the empty selector {} selects every device"
	case selector.Driver == nil && selector.Pool == nil && selector.Device == nil:
		return "is empty: EVERY device of every driver in the cluster is selected"
	default:
		return ""
	}
}

// once collects warnings, each text with the first field that it is about.
type once struct {
	texts []string
	seen  map[string]struct{}
}

func (o *once) add(path *field.Path, text string) {
	if text == "" {
		return
	}
	if _, ok := o.seen[text]; ok {
		return
	}
	if o.seen == nil {
		o.seen = map[string]struct{}{}
	}
	o.seen[text] = struct{}{}
	o.texts = append(o.texts, path.String()+": "+text)
}
