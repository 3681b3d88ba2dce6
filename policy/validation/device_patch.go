package validation

import (
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Patched is what of a ResourceSlicePatch is warned about: its taints, and the devices
// that it is for, as far as it names them.
type Patched struct {
	Taints   []resourcev1.DeviceTaint
	Selector resourcev1.DeviceTaintSelector
}

// PatchWarnings says what of the taints that a ResourceSlicePatch gets is legal and
// probably not meant. Old is what it had, zero when it is created: of taints that stood
// there for the same driver nothing is said.
func PatchWarnings(patch, old *Patched, now time.Time) []string {
	path := field.NewPath("spec", "devices", "taints")
	sameDriver := same(patch.Selector.Driver, old.Selector.Driver)
	history := historyOf(old.Taints)
	keys := map[string]struct{}{}
	for i := range old.Taints {
		keys[old.Taints[i].Key] = struct{}{}
	}
	var said once
	for i := range patch.Taints {
		t := &patch.Taints[i]
		if !history.has(t) {
			said.add(path.Index(i).Child("timeAdded"), timeWarning(t, now))
		}
		_, stood := keys[t.Key]
		if !stood {
			said.add(path.Index(i).Child("key"), keyWarning(t.Key))
		}
		if !stood || !sameDriver {
			said.add(path.Index(i).Child("key"), driverKeyWarning(t.Key, &patch.Selector))
		}
	}
	return said.texts
}
