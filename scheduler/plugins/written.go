package plugins

import (
	"fmt"
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	kubefeatures "k8s.io/kubernetes/pkg/features"
	"k8s.io/utils/ptr"

	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/tracker/sliceview"
)

// writtenFor returns the rules that were written out for patches and that by driver and pool
// may be for devices of the pool. They are read-only, and each has a selector. It reads the
// store of the informer that feeds the scheduler's tracker: a rule that the tracker has applied
// was in there before.
type writtenFor func(driver, pool string) []*resourcev1.DeviceTaintRule

// byPool is the index of the rules that were written out for patches.
const byPool = "tollgate.dev/written-for-pool"

// rulesOf adds an index to the informer of DeviceTaintRules. Where the scheduler's
// tracker has none there is nothing to leave out, and an informer would wait for a kind
// that may not be served.
func rulesOf(factory informers.SharedInformerFactory) (writtenFor, error) {
	if !utilfeature.DefaultFeatureGate.Enabled(kubefeatures.DRADeviceTaintRules) {
		return nil, nil //nolint:nilnil // No rules are an answer.
	}
	informer := factory.Resource().V1().DeviceTaintRules().Informer()
	if err := informer.AddIndexers(cache.Indexers{byPool: poolsOfRule}); err != nil {
		return nil, fmt.Errorf("add index %s to the informer of DeviceTaintRules: %w", byPool, err)
	}
	indexer := informer.GetIndexer()
	return func(driver, pool string) (found []*resourcev1.DeviceTaintRule) {
		for _, driver := range []string{"", driver} {
			for _, pool := range []string{"", pool} {
				// An error is not possible: the index is there.
				objects, _ := indexer.ByIndex(byPool, poolKey(driver, pool))
				for _, object := range objects {
					if rule, ok := object.(*resourcev1.DeviceTaintRule); ok {
						found = append(found, rule)
					}
				}
			}
		}
		return found
	}, nil
}

// poolsOfRule returns the key that the index has a rule under.
func poolsOfRule(object any) ([]string, error) {
	rule, ok := object.(*resourcev1.DeviceTaintRule)
	if !ok || rule.Spec.DeviceSelector == nil || tracker.PatchOf(rule) == (tracker.PatchRef{}) {
		return nil, nil
	}
	return []string{poolKey(ptr.Deref(rule.Spec.DeviceSelector.Driver, ""), ptr.Deref(rule.Spec.DeviceSelector.Pool, ""))}, nil
}

// poolKey has a driver before the first slash, which no driver's name has. A part is
// empty for any.
func poolKey(driver, pool string) string { return driver + "/" + pool }

// leaveOut returns a slice of the tracker without the taints of rules that were written
// out for a patch of the set, which has them itself. A rule that the tracker has not
// applied yet leaves nothing to take out, and the slice is another object when it has.
func (g *generation) leaveOut(slice *resourcev1.ResourceSlice) *resourcev1.ResourceSlice {
	if g.rules == nil || !slices.ContainsFunc(slice.Spec.Devices, func(d resourcev1.Device) bool { return len(d.Taints) > 0 }) {
		return slice
	}
	without := slice
	for _, rule := range g.rules(slice.Spec.Driver, slice.Spec.Pool.Name) {
		if of := tracker.PatchOf(rule); of.UID == "" || !g.set.Has(of.UID) {
			continue // The set does not have the taint.
		}
		for i := range slice.Spec.Devices {
			at := tainted(&without.Spec.Devices[i], rule)
			if at < 0 {
				continue
			}
			if without == slice {
				without = sliceview.WithOwnDevices(slice)
			}
			taints := without.Spec.Devices[i].Taints
			without.Spec.Devices[i].Taints = slices.Concat(taints[:at], taints[at+1:])
		}
	}
	return without
}

// tainted returns which taint of a device is that of the rule, negative for none. The
// tracker puts those of rules behind those of the driver.
func tainted(d *resourcev1.Device, rule *resourcev1.DeviceTaintRule) int {
	if ptr.Deref(rule.Spec.DeviceSelector.Device, d.Name) != d.Name {
		return -1
	}
	for i, taint := range slices.Backward(d.Taints) {
		if sliceview.SameTaint(taint, rule.Spec.Taint) {
			return i
		}
	}
	return -1
}
