package sliceview

import (
	"slices"
	"strings"
	"sync"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/tracker/device"
)

// View is the merged view of ResourceSlices. It is goroutine-safe.
type View struct {
	// syncing ends when all that there is at the start has been taken in.
	syncing
	// inputs are the subscriptions of the view, written before it runs.
	inputs []input

	mutex   sync.Mutex
	slices  index
	patches patches
	rules   rules
	// sorted has all slices by name. It is nil when it has to be made anew.
	sorted []*entry

	subscribers []*subscriber
	// start starts the delivery to a subscriber; nil unless the view runs.
	start func(*subscriber)
	// open says that events are delivered, stopped that none ever will be again.
	open    bool
	stopped bool
}

// New returns an empty view.
func New() *View {
	return &View{
		syncing: newSyncing("merged resource slices"),
		patches: newPatches(),
		slices:  index{byName: map[string]*entry{}, drivers: device.Pools[*pool]{}},
		rules:   rules{byName: map[string]rule{}, writtenFor: device.Table[types.UID, string, struct{}]{}, lists: map[scope]list{}},
	}
}

// LeaveOutAttributes has patches do nothing but taint. It is called before there are any.
func (v *View) LeaveOutAttributes() {
	v.mutex.Lock()
	defer v.mutex.Unlock()
	v.patches.taintsOnly = true
}

// SetSlice takes in a slice that is new or may have changed. The subscribers are
// told in either case (TR-06).
func (v *View) SetSlice(slice *resourcev1.ResourceSlice) {
	v.mutex.Lock()
	defer v.mutex.Unlock()
	if v.slices.set(slice) {
		v.sorted = nil
	}
	v.notify(slice.Name, true)
}

// DeleteSlice takes out the slice with that name.
func (v *View) DeleteSlice(name string) {
	v.mutex.Lock()
	defer v.mutex.Unlock()
	if v.slices.remove(name) {
		v.sorted = nil
		v.notify(name, true)
	}
}

// SetRule takes in a rule that is new or may have changed.
func (v *View) SetRule(set *resourcev1.DeviceTaintRule) {
	v.mutex.Lock()
	defer v.mutex.Unlock()
	next := rule{taint: set.Spec.Taint, writtenFor: tracker.PatchOf(set).UID}
	next.selector, next.selects = device.SelectorOf(set.Spec.DeviceSelector)
	next.silent = v.patches.inForce(next.writtenFor)
	was := v.rules.byName[set.Name]
	if was.same(next) {
		return
	}
	v.replaceRule(set.Name, was, next)
}

// replaceRule has one rule take the place of another. The lock is held.
func (v *View) replaceRule(name string, was, next rule) {
	v.rules.set(name, next)
	if was.counts() {
		v.touch(was.selector, false)
	}
	if next.counts() && (!was.counts() || next.selector != was.selector) {
		v.touch(next.selector, false)
	}
}

// DeleteRule takes out the rule with that name.
func (v *View) DeleteRule(name string) {
	v.mutex.Lock()
	defer v.mutex.Unlock()
	v.replaceRule(name, v.rules.byName[name], rule{})
}

// touch says that the slices under a selector have to be merged anew, and patched before if
// patches changed. The lock is held.
func (v *View) touch(selector selector, patches bool) {
	for e := range v.slices.selected(selector) {
		e.merged = nil
		if patches {
			e.patched = nil
		}
		v.notify(e.raw.Name, false)
	}
}

// notify queues a slice for every subscriber. The lock is held.
func (v *View) notify(name string, always bool) {
	if !v.open {
		return
	}
	for _, s := range v.subscribers {
		s.push(name, always)
	}
}

// merged returns the merged slice with that name, nil if there is none. The lock
// is held.
func (v *View) merged(name string) *resourcev1.ResourceSlice {
	e, found := v.slices.byName[name]
	if !found {
		return nil
	}
	return v.merge(e)
}

// merge returns the merged slice of an entry. The lock is held.
func (v *View) merge(e *entry) *resourcev1.ResourceSlice {
	if e.merged == nil {
		e.merged = v.rules.merge(v.patch(e))
	}
	return e.merged
}

// entries returns all slices by name. The lock is held.
func (v *View) entries() []*entry {
	if v.sorted == nil {
		v.sorted = make([]*entry, 0, len(v.slices.byName))
		for _, e := range v.slices.byName {
			v.sorted = append(v.sorted, e)
		}
		slices.SortFunc(v.sorted, func(a, b *entry) int { return strings.Compare(a.raw.Name, b.raw.Name) })
	}
	return v.sorted
}

// syncing says whether a channel is closed.
type syncing struct{ done done }

func newSyncing(name string) syncing { return syncing{done{name: name, channel: make(chan struct{})}} }

// HasSynced reports whether all that there was at the start has been taken in by the view, or
// told to the handler that subscribed.
func (s *syncing) HasSynced() bool { return toolscache.IsDone(s.done) }

// HasSyncedChecker is done when HasSynced says so.
func (s *syncing) HasSyncedChecker() toolscache.DoneChecker { return s.done }

// done is a client-go DoneChecker over a channel.
type done struct {
	name    string
	channel chan struct{}
}

// Name names the event that is waited for.
func (d done) Name() string { return d.name }

// Done returns the channel that is closed in the end.
func (d done) Done() <-chan struct{} { return d.channel }
