package informer

import (
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/tollgate-dev/tollgate/tracker"
)

// deviceListener is told what the events changed. It is called from event
// handlers and must not block.
type deviceListener interface {
	// PodsChanged names the pods whose fate may have changed.
	PodsChanged(keys []tracker.Key)
	// RuleChanged names a DeviceTaintRule that was written or deleted.
	RuleChanged(name string)
}

// DeviceFeed passes the events of ResourceSlices, ResourceClaims and
// DeviceTaintRules on to a tracker, and what they changed to a listener. Which of
// the three can be watched may change while it runs, so each has a handler of its
// own.
type DeviceFeed struct {
	tracker  *tracker.Tracker
	listener deviceListener
	clock    clock.PassiveClock
}

// NewDeviceFeed returns a feed.
func NewDeviceFeed(known *tracker.Tracker, listener deviceListener, clk clock.PassiveClock) *DeviceFeed {
	return &DeviceFeed{tracker: known, listener: listener, clock: clk}
}

// SetKnown says whether the tracker has been given all that there is to know of
// devices. Until then no taint of a device holds (DE-53).
func (f *DeviceFeed) SetKnown(known bool) {
	f.listener.PodsChanged(f.tracker.SetDevicesKnown(known))
}

// SetPodGroups says whether PodGroups are served, and so whether claims can be
// theirs (DE-08, DE-09).
func (f *DeviceFeed) SetPodGroups(served bool) {
	f.listener.PodsChanged(f.tracker.SetPodGroups(served))
}

// Slices returns the handler of ResourceSlices.
func (f *DeviceFeed) Slices() toolscache.ResourceEventHandler {
	return handle(tracker.SliceOf,
		func(slice tracker.Slice) { f.listener.PodsChanged(f.tracker.SetSlice(slice, f.clock.Now())) },
		func(slice tracker.Slice) { f.listener.PodsChanged(f.tracker.DeleteSlice(slice.Name, slice.UID)) },
		func(key string) tracker.Slice {
			return tracker.Slice{Name: key, UID: f.tracker.UIDOf(tracker.Source{Kind: tracker.SourceSlice, Name: key})}
		})
}

// Claims returns the handler of ResourceClaims.
func (f *DeviceFeed) Claims() toolscache.ResourceEventHandler {
	return handle(tracker.ClaimOf,
		func(claim tracker.Claim) { f.listener.PodsChanged(f.tracker.SetClaim(claim)) },
		func(claim tracker.Claim) { f.listener.PodsChanged(f.tracker.DeleteClaim(claim.ClaimName, claim.UID)) }, nil)
}

// Rules returns the handler of DeviceTaintRules.
func (f *DeviceFeed) Rules() toolscache.ResourceEventHandler {
	changed := func(name string, pods []tracker.Key) {
		f.listener.PodsChanged(pods)
		f.listener.RuleChanged(name)
	}
	return handle(tracker.RuleOf,
		func(rule tracker.Rule) { changed(rule.Name, f.tracker.SetRule(rule, f.clock.Now())) },
		func(rule tracker.Rule) { changed(rule.Name, f.tracker.DeleteRule(rule.Name, rule.UID)) },
		func(key string) tracker.Rule {
			return tracker.Rule{Name: key, UID: f.tracker.UIDOf(tracker.Source{Kind: tracker.SourceRule, Name: key})}
		})
}
