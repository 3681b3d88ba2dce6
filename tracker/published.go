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
// sorted by device, key and value. It looks at one pool at a time, so that no writer
// waits for all of it.
func (t *Tracker) PublishedEvicting() []Published {
	var found []Published
	for _, name := range t.poolIDs() {
		found = append(found, t.publishedIn(name)...)
	}
	slices.SortFunc(found, func(a, b Published) int {
		return cmp.Or(
			device.Compare(a.Device, b.Device),
			cmp.Compare(a.Taint.Key, b.Taint.Key), cmp.Compare(a.Taint.Value, b.Taint.Value), cmp.Compare(a.Slice, b.Slice),
		)
	})
	return found
}

func (t *Tracker) publishedIn(pool device.ID) []Published {
	t.mu.RLock()
	defer t.mu.RUnlock()
	p := t.pools[pool.Driver][pool.Pool]
	if p == nil || len(p.tainted) == 0 {
		return nil
	}
	var found []Published
	for slice, d := range p.devices() {
		for _, taint := range d.Taints {
			if taint.Effect == resourcev1.DeviceTaintEffectNoExecute {
				found = append(found, Published{Device: deviceIn(pool, d.Name), Taint: taint, Slice: slice.Name, SliceUID: slice.UID})
			}
		}
	}
	return found
}
