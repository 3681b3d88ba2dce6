package sliceview_test

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"testing"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	upstream "k8s.io/dynamic-resource-allocation/resourceslice/tracker"
)

// expected computes from the objects in the informers what is to be listed, by the
// words of TR-01 to TR-03 and as simply as can be.
func expected(slices, rules *source) map[string][][]resourcev1.DeviceTaint {
	names := rules.GetIndexer().ListKeys()
	sort.Strings(names)
	found := map[string][][]resourcev1.DeviceTaint{}
	for _, obj := range slices.GetIndexer().List() {
		s := obj.(*resourcev1.ResourceSlice)
		devices := [][]resourcev1.DeviceTaint{}
		for _, d := range s.Spec.Devices {
			taints := append([]resourcev1.DeviceTaint{}, d.Taints...)
			for _, name := range names {
				obj, _, _ := rules.GetIndexer().GetByKey(name)
				r := obj.(*resourcev1.DeviceTaintRule)
				if selects(r.Spec.DeviceSelector, s, d.Name) {
					taints = append(taints, r.Spec.Taint)
				}
			}
			devices = append(devices, taints)
		}
		found[s.Name] = devices
	}
	return found
}

func selects(selector *resourcev1.DeviceTaintSelector, s *resourcev1.ResourceSlice, device string) bool {
	return selector != nil &&
		(selector.Driver == nil || *selector.Driver == s.Spec.Driver) &&
		(selector.Pool == nil || *selector.Pool == s.Spec.Pool.Name) &&
		(selector.Device == nil || *selector.Device == device)
}

// taintsOf returns what slices list, as expected does.
func taintsOf(slices []*resourcev1.ResourceSlice) map[string][][]resourcev1.DeviceTaint {
	found := map[string][][]resourcev1.DeviceTaint{}
	for _, s := range slices {
		devices := [][]resourcev1.DeviceTaint{}
		for _, d := range s.Spec.Devices {
			devices = append(devices, append([]resourcev1.DeviceTaint{}, d.Taints...))
		}
		found[s.Name] = devices
	}
	return found
}

// right requires the view to list what it has to.
func (w *world) right() {
	w.tb.Helper()
	require.Equal(w.tb, expected(w.slices, w.rules), taintsOf(w.view.List()))
}

// peer is Kubernetes' own tracker, fed by the same informers.
type peer struct {
	*upstream.Tracker
	w *world
}

func newPeer(w *world) peer {
	w.tb.Helper()
	tracker := startPeer(w.tb.Context(), w)
	w.tb.Cleanup(tracker.Stop)
	return peer{Tracker: tracker, w: w}
}

func startPeer(ctx context.Context, w *world) *upstream.Tracker {
	w.tb.Helper()
	tracker, err := upstream.StartTracker(ctx, upstream.Options{
		EnableDeviceTaintRules: true,
		SliceInformer:          typedSlices{w.slices},
		TaintInformer:          typedRules{w.rules},
	})
	require.NoError(w.tb, err)
	return tracker
}

// agrees requires the peer to list what the view lists. The taints of several rules
// on one device may come in any order there (TR-03).
func (p peer) agrees() {
	p.w.tb.Helper()
	theirs, err := p.ListPatchedResourceSlices()
	require.NoError(p.w.tb, err)
	require.Equal(p.w.tb, p.unordered(p.w.view.List()), p.unordered(theirs))
}

// unordered describes slices by name: each device with its own taints, and then
// those of the rules in an order that depends on nothing but themselves.
func (p peer) unordered(merged []*resourcev1.ResourceSlice) map[string][]string {
	p.w.tb.Helper()
	found := map[string][]string{}
	for _, s := range merged {
		obj, _, _ := p.w.slices.GetIndexer().GetByKey(s.Name)
		for i, d := range s.Spec.Devices {
			own := len(obj.(*resourcev1.ResourceSlice).Spec.Devices[i].Taints)
			var taints []string
			for _, t := range d.Taints {
				taints = append(taints, fmt.Sprint(t.Key, "=", t.Value, ":", t.Effect, "@", t.TimeAdded))
			}
			slices.Sort(taints[own:])
			found[s.Name] = append(found[s.Name], fmt.Sprint(d.Name, taints))
		}
	}
	return found
}

// The peer is what the parity tests say it is.
func TestPeer(t *testing.T) {
	t.Parallel()
	w := &world{tb: t, slices: newSliceSource(), rules: newRuleSource()}
	p := newPeer(w)
	w.rules.set(t, rule("r", every()))
	w.slices.set(t, slice("s", dev("gpu", taint("own"))))
	theirs, err := p.ListPatchedResourceSlices()
	require.NoError(t, err)
	require.Equal(t, map[string][]string{"s": {"gpu own r"}}, contents(theirs))
}
