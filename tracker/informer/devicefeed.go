package informer

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/tollgate-dev/tollgate/tracker"
)

// deviceStore is the part of a tracker that devices are fed to.
type deviceStore interface {
	SetSlice(slice tracker.Slice, now time.Time) []tracker.Key
	DeleteSlice(name string, uid types.UID) []tracker.Key
	SetClaim(claim tracker.Claim) []tracker.Key
	DeleteClaim(name tracker.ClaimName, uid types.UID) []tracker.Key
	SetRule(rule tracker.Rule, now time.Time) []tracker.Key
	DeleteRule(name string, uid types.UID) []tracker.Key
	SetDevicesKnown(known bool) []tracker.Key
	SetPodGroups(served bool) []tracker.Key
	UIDOf(source tracker.Source) types.UID
}

// deviceListener is told what the events changed. It is called from event
// handlers and must not block.
type deviceListener interface {
	// PodsChanged names the pods whose fate may have changed.
	PodsChanged(keys []tracker.Key)
	// RuleChanged names a DeviceTaintRule that was written or deleted.
	RuleChanged(name string)
}

// DeviceFeed passes what happens to ResourceSlices, ResourceClaims and
// DeviceTaintRules on to a tracker, and what that changed to a listener. Which of
// the three can be watched may change while it runs, so each has a handler of its
// own.
type DeviceFeed struct {
	store    deviceStore
	listener deviceListener
	clock    clock.PassiveClock
}

// NewDeviceFeed returns a feed.
func NewDeviceFeed(store deviceStore, listener deviceListener, clk clock.PassiveClock) *DeviceFeed {
	return &DeviceFeed{store: store, listener: listener, clock: clk}
}

// SetKnown says whether the tracker has been given all that there is to know of
// devices. Until then no taint of a device holds (DE-53).
func (f *DeviceFeed) SetKnown(known bool) {
	f.listener.PodsChanged(f.store.SetDevicesKnown(known))
}

// SetPodGroups says whether PodGroups are served, and so whether claims can be
// theirs (DE-08, DE-09).
func (f *DeviceFeed) SetPodGroups(served bool) {
	f.listener.PodsChanged(f.store.SetPodGroups(served))
}

// Slices returns the handler of ResourceSlices.
func (f *DeviceFeed) Slices() toolscache.ResourceEventHandler {
	return &handler[tracker.Slice]{
		read:    readSlice,
		uid:     func(slice *tracker.Slice) types.UID { return slice.UID },
		version: func(slice *tracker.Slice) string { return slice.ResourceVersion },
		set:     func(slice tracker.Slice) { f.listener.PodsChanged(f.store.SetSlice(slice, f.clock.Now())) },
		drop:    func(slice tracker.Slice) { f.listener.PodsChanged(f.store.DeleteSlice(slice.Name, slice.UID)) },
		named: func(key string) (tracker.Slice, bool) {
			uid := f.store.UIDOf(tracker.Source{Kind: tracker.SourceSlice, Name: key})
			return tracker.Slice{Name: key, UID: uid}, uid != ""
		},
	}
}

// Claims returns the handler of ResourceClaims.
func (f *DeviceFeed) Claims() toolscache.ResourceEventHandler {
	return &handler[tracker.Claim]{
		read:    readClaim,
		uid:     func(claim *tracker.Claim) types.UID { return claim.UID },
		version: func(claim *tracker.Claim) string { return claim.ResourceVersion },
		set:     func(claim tracker.Claim) { f.listener.PodsChanged(f.store.SetClaim(claim)) },
		drop:    func(claim tracker.Claim) { f.listener.PodsChanged(f.store.DeleteClaim(claim.ClaimName, claim.UID)) },
	}
}

// Rules returns the handler of DeviceTaintRules.
func (f *DeviceFeed) Rules() toolscache.ResourceEventHandler {
	return &handler[tracker.Rule]{
		read:    readRule,
		uid:     func(rule *tracker.Rule) types.UID { return rule.UID },
		version: func(rule *tracker.Rule) string { return rule.ResourceVersion },
		set: func(rule tracker.Rule) {
			f.listener.PodsChanged(f.store.SetRule(rule, f.clock.Now()))
			f.listener.RuleChanged(rule.Name)
		},
		drop: func(rule tracker.Rule) {
			f.listener.PodsChanged(f.store.DeleteRule(rule.Name, rule.UID))
			f.listener.RuleChanged(rule.Name)
		},
		named: func(key string) (tracker.Rule, bool) {
			uid := f.store.UIDOf(tracker.Source{Kind: tracker.SourceRule, Name: key})
			return tracker.Rule{Name: key, UID: uid}, uid != ""
		},
	}
}
