package tracker

import (
	"cmp"
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/tracker/device"
)

// Published is a taint that a driver publishes of a device.
type Published struct {
	Device device.ID
	Taint  resourcev1.DeviceTaint
	// Slice and SliceUID are the ResourceSlice that carries it.
	Slice    string
	SliceUID types.UID
}

// PublishedEvicting returns the taints of effect NoExecute that drivers publish,
// sorted by device, key and value. It takes the lock for each pool anew.
func (t *Tracker) PublishedEvicting() []Published {
	var found []Published
	for _, id := range t.poolIDs() {
		t.inPool(id, func(p *pool) {
			if p == nil || len(p.tainted) == 0 {
				return
			}
			for slice, d := range p.devices() {
				for _, taint := range d.Taints {
					if taint.Effect == resourcev1.DeviceTaintEffectNoExecute {
						found = append(found, Published{Device: id.Device(d.Name), Taint: taint, Slice: slice.Name, SliceUID: slice.UID})
					}
				}
			}
		})
	}
	slices.SortFunc(found, func(a, b Published) int {
		return cmp.Or(
			device.Compare(a.Device, b.Device),
			cmp.Compare(a.Taint.Key, b.Taint.Key), cmp.Compare(a.Taint.Value, b.Taint.Value), cmp.Compare(a.Slice, b.Slice),
		)
	})
	return found
}
